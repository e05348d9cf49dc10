//! One model's tensor, read piece by piece as numbers.

use crate::Error;
use crate::lora::Delta;
use crate::number::{Arithmetic, Brain, Half, Real};
use crate::vocabulary::Rows;
use cairn_checkpoint::{
    Error as CheckpointError, SharedSource, SourceFile, StoredTensor, read_elements,
};
use cairn_sharding::Region;
use cairn_tensor::DType;
use std::ops::Range;
use std::sync::Arc;

/// A tensor of a model, ready to be read.
pub(crate) struct Input {
    source: SharedSource,
    pub(crate) name: String,
    /// As it is stored, before an adapter or another vocabulary.
    pub(crate) stored: StoredTensor,
    /// The file and the byte it starts at, if it lies in one piece and has no checksums.
    place: Option<(Arc<SourceFile>, u64)>,
    pub(crate) delta: Option<Arc<Delta>>,
    pub(crate) rows: Option<Arc<Rows>>,
}

impl Input {
    /// The tensor `name` of `source`.
    pub(crate) fn open(source: &SharedSource, name: &str) -> Result<Self, Error> {
        let missing = || CheckpointError::State {
            name: name.to_string(),
            reason: "is not in the model".into(),
        };
        let stored = source.find(name).ok_or_else(missing)?;
        Ok(Self {
            place: place(source, name, &stored)?,
            source: source.clone(),
            name: name.to_string(),
            stored,
            delta: None,
            rows: None,
        })
    }

    /// Whether its bytes are those of the model.
    pub(crate) fn is_plain(&self) -> bool {
        self.delta.is_none() && self.rows.is_none()
    }

    /// Reads the stored bytes of some elements.
    pub(crate) fn read_bytes(
        &self,
        elements: Range<usize>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let Some((file, start)) = &self.place else {
            *bytes = read_elements(self.source.as_ref(), &self.name, elements)?.1;
            return Ok(());
        };
        let size = self.stored.dtype.bits() / 8;
        bytes.resize(elements.len() * size, 0);
        let offset = start + (elements.start * size) as u64;
        file.reader.read_at(offset, bytes)?;
        Ok(())
    }

    /// Reads some elements as numbers of an arithmetic; `bytes` is scratch.
    pub(crate) fn read<A: Arithmetic>(
        &self,
        elements: Range<usize>,
        bytes: &mut Vec<u8>,
        out: &mut [A::Real],
    ) -> Result<(), Error> {
        match &self.rows {
            Some(rows) => rows.read::<A>(self, elements, bytes, out)?,
            None => self.read_own::<A>(elements, bytes, out)?,
        }
        if self.stored.dtype != A::DTYPE {
            for value in out {
                *value = A::round(*value);
            }
        }
        Ok(())
    }

    /// Reads elements of the stored shape, in the precision they are stored in.
    pub(crate) fn read_own<A: Arithmetic>(
        &self,
        elements: Range<usize>,
        bytes: &mut Vec<u8>,
        out: &mut [A::Real],
    ) -> Result<(), Error> {
        self.read_bytes(elements.clone(), bytes)?;
        A::Real::decode(self.stored.dtype, bytes, out);
        if let Some(delta) = &self.delta {
            let dtype = self.stored.dtype;
            delta.each(elements, |at, change| {
                let change = round_to(dtype, change);
                let sum = out[at].f64() + f64::from(change);
                out[at] = match dtype {
                    DType::F64 => A::Real::of(sum),
                    _ => A::Real::of(f64::from(round_to(dtype, f32::of(sum)))),
                };
            });
        }
        Ok(())
    }
}

/// The nearest number that a type has.
fn round_to(dtype: DType, value: f32) -> f32 {
    match dtype {
        DType::Bf16 => Brain::round(value),
        DType::F16 => Half::round(value),
        _ => value,
    }
}

fn place(
    source: &SharedSource,
    name: &str,
    stored: &StoredTensor,
) -> Result<Option<(Arc<SourceFile>, u64)>, Error> {
    let whole = Region::whole(&stored.shape);
    let pieces = source.pieces(name, &whole)?;
    let [piece] = pieces.as_slice() else {
        return Ok(None);
    };
    let in_order = piece.piece.flat.is_none() && piece.strides.is_none();
    if !in_order || piece.piece.region != whole || !stored.dtype.bits().is_multiple_of(8) {
        return Ok(None);
    }
    let file = source.open_file(piece.file)?;
    let start = file.data_start + piece.offset;
    Ok(file.crcs.is_none().then_some((file, start)))
}
