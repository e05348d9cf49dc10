//! Small models in memory, for tests.

use crate::fill::{Fill, prepare};
use crate::input::Input;
use crate::methods::Method;
use crate::operands::Operands;
use crate::plan::TensorPlan;
use cairn_checkpoint::{ModelSource, SharedSource, StoredTensor};
use cairn_formats::safetensors::{Entry, encode};
use cairn_store::{Memory, PutMode, Store};
use cairn_tensor::{DType, Overflow, cast};
use std::sync::Arc;

/// The tensors of some models that become one.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// The values of each model, the base model's first.
    pub(crate) models: Vec<Vec<f32>>,
    pub(crate) has_base: bool,
    pub(crate) threads: usize,
    pub(crate) seed: u64,
}

impl Case {
    /// A case in `f32` with one thread.
    pub(crate) fn new(shape: &[usize], has_base: bool, models: Vec<Vec<f32>>) -> Self {
        Self {
            dtype: DType::F32,
            shape: shape.to_vec(),
            models,
            has_base,
            threads: 1,
            seed: 0,
        }
    }

    pub(crate) fn operands(&self) -> Operands {
        let input = |values: &Vec<f32>| {
            let source = model(self.dtype, &self.shape, values);
            Input::open(&source, "w").unwrap()
        };
        Operands {
            name: "w".into(),
            shape: self.shape.clone(),
            elements: self.shape.iter().product(),
            inputs: self.models.iter().map(input).collect(),
            has_base: self.has_base,
            threads: self.threads,
            seed: self.seed,
        }
    }

    pub(crate) fn prepare(&self, method: &Method) -> Box<dyn Fill> {
        let plan = TensorPlan {
            name: "w".into(),
            tensor: StoredTensor {
                dtype: self.dtype,
                shape: self.shape.clone(),
            },
            arithmetic: self.dtype,
            inputs: Vec::new(),
            has_base: self.has_base,
            method: method.clone(),
            has_token_rows: false,
        };
        prepare(&plan, self.operands()).unwrap()
    }

    /// The bytes of the result, worked out in pieces of `piece` elements.
    pub(crate) fn bytes(&self, method: &Method, piece: usize) -> Vec<u8> {
        let fill = self.prepare(method);
        let elements: usize = self.shape.iter().product();
        let size = self.dtype.bits() / 8;
        let mut bytes = vec![0; elements * size];
        for (index, bytes) in bytes.chunks_mut(piece * size).enumerate() {
            let first = index * piece;
            fill.fill(first..first + bytes.len() / size, bytes).unwrap();
        }
        bytes
    }

    /// The values of the result.
    pub(crate) fn values(&self, method: &Method) -> Vec<f32> {
        let bytes = self.bytes(method, usize::MAX / 8);
        let mut wide = vec![0; bytes.len() * 32 / self.dtype.bits()];
        cast(self.dtype, DType::F32, &bytes, &mut wide, Overflow::Native).unwrap();
        let four = wide.as_chunks::<4>().0;
        four.iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()
    }
}

/// A model with one tensor, `w`.
pub(crate) fn model(dtype: DType, shape: &[usize], values: &[f32]) -> SharedSource {
    let wide: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let mut data = vec![0; values.len() * dtype.bits() / 8];
    cast(DType::F32, dtype, &wide, &mut data, Overflow::Native).unwrap();
    let entry = Entry {
        name: "w".into(),
        dtype,
        shape: shape.to_vec(),
        begin: 0,
        end: data.len() as u64,
    };
    let mut file = encode(&[entry], &[], 8).unwrap();
    file.extend(data);
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    store
        .put("model.safetensors", &file, PutMode::Create)
        .unwrap();
    let model = cairn_formats::open(store.as_ref()).unwrap();
    Arc::new(ModelSource::new(store, model))
}
