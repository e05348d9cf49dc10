//! A source as one file of torch or Paddle: whole tensors one after another, between frames.

use super::RewriteOptions;
use super::folder::{ExportReport, Folder, PlannedFile};
use super::output::{Checksum, Frame, OutputFile, OutputItem};
use crate::Error;
use crate::source::{Source, StoredTensor};
use cairn_formats::paddle::{pdiparams, pdparams, program};
use cairn_formats::torch_zip::state_frames;
use cairn_sharding::{Piece, Region};
use cairn_store::Store;
use cairn_tensor::DType;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A kind of file that holds everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// What `torch.load(weights_only=True)` opens: a dict.
    Torch,
    /// What `paddle.load` opens: a dict.
    Paddle,
    /// The parameters of a program that Paddle runs. Values stay behind; the program, a side file of the source, comes along.
    PaddleInference,
}

/// What goes into a file.
#[derive(Debug, Clone, Copy)]
pub struct FileContents<'a> {
    /// The name of the file.
    pub key: &'a str,
    /// The tensors of the source, each stored whole.
    pub names: &'a [&'a str],
    /// Plain values.
    pub values: &'a BTreeMap<String, Value>,
}

/// The file that [`export_file`] would write for the same arguments.
///
/// # Errors
/// As [`export_file`], before anything is written.
pub fn plan_file(
    source: &dyn Source,
    format: FileFormat,
    contents: FileContents,
) -> Result<Vec<PlannedFile>, Error> {
    Ok(file(source, format, contents)?.planned())
}

/// Writes `contents` of `source` as one file.
///
/// # Crash safety
/// As [`export_hf`](super::export_hf).
///
/// # Errors
/// If the format has no such element type or value, the tensors are not those of the program, there is a file of that name,
/// something is damaged, or the disk is full.
pub fn export_file(
    source: &dyn Source,
    store: &Arc<dyn Store>,
    format: FileFormat,
    contents: FileContents,
    options: &RewriteOptions,
) -> Result<ExportReport, Error> {
    file(source, format, contents)?.write(source, store, options)
}

/// A tensor of the source, by the name it has there.
type Named<'a> = (&'a str, StoredTensor);

fn file(source: &dyn Source, format: FileFormat, contents: FileContents) -> Result<Folder, Error> {
    let mut tensors: Vec<Named> = Vec::with_capacity(contents.names.len());
    for name in contents.names {
        let stored = source.find(name).ok_or_else(|| Error::State {
            name: (*name).to_string(),
            reason: "is not in the checkpoint".into(),
        })?;
        tensors.push((name, stored));
    }
    let mut assets = Vec::new();
    if format == FileFormat::PaddleInference {
        tensors.sort_by_key(|(name, _)| *name);
        assets = program_beside(source, contents.key, &tensors)?;
    }
    let (frames, checksums) = frames(format, &tensors, contents.values)?;
    Ok(Folder {
        files: vec![output_file(contents.key, &tensors, frames, checksums)?],
        assets,
        is_file: true,
        ..Folder::default()
    })
}

/// What lies around tensors, and where their checksums belong.
type Frames = (Vec<Vec<u8>>, Vec<[(usize, usize); 2]>);

fn frames(
    format: FileFormat,
    tensors: &[Named],
    values: &BTreeMap<String, Value>,
) -> Result<Frames, Error> {
    let shapes: Vec<(&str, DType, &[usize])> = tensors
        .iter()
        .map(|(name, stored)| (*name, stored.dtype, stored.shape.as_slice()))
        .collect();
    let framed = match format {
        FileFormat::Torch => {
            state_frames(&shapes, values).map(|state| (state.frames, state.crc_at))
        }
        FileFormat::Paddle => pdparams::frames(&shapes, values).map(|frames| (frames, Vec::new())),
        FileFormat::PaddleInference => {
            let header = |(name, dtype, shape): &(&str, DType, &[usize])| {
                pdiparams::header(*dtype, shape).ok_or_else(|| (*name).to_string())
            };
            let headers: Result<Vec<_>, String> = shapes.iter().map(header).collect();
            // Nothing comes behind the last tensor.
            headers.map(|headers| ([headers, vec![Vec::new()]].concat(), Vec::new()))
        }
    };
    framed.map_err(|name| {
        let found = shapes.iter().find(|(known, _, _)| *known == name);
        let reason = match found {
            Some((_, dtype, _)) => format!(
                "is {dtype}, a type that {} does not have",
                format.framework()
            ),
            None => "holds a value that can only be named, not written".into(),
        };
        Error::State { name, reason }
    })
}

impl FileFormat {
    fn framework(self) -> &'static str {
        match self {
            FileFormat::Torch => "torch",
            FileFormat::Paddle | FileFormat::PaddleInference => "Paddle",
        }
    }
}

/// The file of frames with tensors between them.
fn output_file(
    key: &str,
    tensors: &[Named],
    frames: Vec<Vec<u8>>,
    checksums: Vec<[(usize, usize); 2]>,
) -> Result<OutputFile, Error> {
    let mut file = OutputFile {
        key: key.to_string(),
        len: 0,
        frames: Vec::new(),
        items: Vec::new(),
    };
    let mut tensors = tensors.iter();
    for (index, bytes) in frames.into_iter().enumerate() {
        let begin = file.len;
        file.len += bytes.len() as u64;
        file.frames.push(Frame { begin, bytes });
        let Some((name, stored)) = tensors.next() else {
            continue;
        };
        let elements = cairn_tensor::element_count(&stored.shape);
        let len = elements.and_then(|count| stored.dtype.len_bytes(count));
        let len = len.ok_or_else(|| Error::State {
            name: (*name).to_string(),
            reason: "does not fill whole bytes".into(),
        })? as u64;
        file.items.push(OutputItem {
            name: (*name).to_string(),
            dtype: stored.dtype,
            shape: stored.shape.clone(),
            piece: Piece::whole(Region::whole(&stored.shape)),
            begin: file.len,
            len,
            checksum: checksums.get(index).map(|places| Checksum::at(*places)),
        });
        file.len += len;
    }
    Ok(file)
}

/// The program of the source, named like the file `key`. Its parameters must be the tensors.
fn program_beside(
    source: &dyn Source,
    key: &str,
    tensors: &[Named],
) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let assets = source.assets()?.into_iter();
    let programs: Vec<_> = assets
        .filter(|(name, bytes)| program::is_program(name, bytes))
        .collect();
    let [(name, bytes)] = programs.as_slice() else {
        return Ok(Vec::new());
    };
    let declared = program::parameters(name, bytes)?;
    for (tensor, stored) in tensors {
        let wrong = |reason: String| Error::State {
            name: (*tensor).to_string(),
            reason,
        };
        let parameter = declared.get(*tensor);
        let parameter = parameter.ok_or_else(|| wrong(format!("is no parameter of `{name}`")))?;
        let (dtype, shape) = (parameter.dtype, &parameter.shape);
        if *shape != stored.shape || dtype.is_some_and(|dtype| dtype != stored.dtype) {
            let dtype = dtype.map_or("unknown".into(), |dtype| dtype.to_string());
            let (found, place) = (stored.dtype, &stored.shape);
            return Err(wrong(format!(
                "is {found}{place:?}, in `{name}` it is {dtype}{shape:?}"
            )));
        }
    }
    let has = |parameter: &&String| {
        tensors
            .binary_search_by_key(&parameter.as_str(), |(name, _)| name)
            .is_err()
    };
    if let Some(missing) = declared.keys().find(has) {
        return Err(Error::State {
            name: missing.clone(),
            reason: format!("is a parameter of `{name}` and not among the tensors"),
        });
    }
    let end = name.rsplit('.').next().unwrap_or_default();
    let stem = key.strip_suffix(".pdiparams").unwrap_or(key);
    Ok(vec![(format!("{stem}.{end}"), bytes.clone())])
}

#[cfg(test)]
mod tests {
    //! What is written is opened again as any model; Python's tests hand it to torch and Paddle.

    use super::*;
    use crate::computed::read_elements;
    use crate::source::ModelSource;
    use cairn_formats::{open_file, safetensors};
    use cairn_store::{Memory, PutMode};
    use serde_json::json;

    /// Elements that fill more than one chunk of a file.
    const MANY: usize = 3 << 20;

    fn source(tensors: &[(&str, DType, &[usize])], assets: &[(&str, &[u8])]) -> ModelSource {
        let (mut entries, mut data) = (Vec::new(), Vec::new());
        for (name, dtype, shape) in tensors {
            let begin = data.len() as u64;
            let len = dtype.len_bytes(shape.iter().product()).unwrap();
            data.extend(
                (0..=250)
                    .cycle()
                    .take(len)
                    .map(|byte: u8| byte.wrapping_mul(7)),
            );
            entries.push(safetensors::Entry {
                name: (*name).to_string(),
                dtype: *dtype,
                shape: shape.to_vec(),
                begin,
                end: begin + len as u64,
            });
        }
        let mut file = safetensors::encode(&entries, &[], 8).unwrap();
        file.extend(data);
        let store = Memory::new();
        store
            .put("model.safetensors", &file, PutMode::Create)
            .unwrap();
        for (name, bytes) in assets {
            store.put(name, bytes, PutMode::Create).unwrap();
        }
        let model = cairn_formats::open(&store).unwrap();
        ModelSource::new(Arc::new(store), model)
    }

    const TENSORS: [(&str, DType, &[usize]); 4] = [
        ("a.w", DType::F32, &[MANY]),
        ("b", DType::Bf16, &[2, 3]),
        ("e", DType::F32, &[0, 2]),
        ("z", DType::I64, &[]),
    ];

    fn exported(
        source: &ModelSource,
        format: FileFormat,
        key: &str,
    ) -> Result<(Arc<dyn Store>, ExportReport), Error> {
        let values = match format {
            FileFormat::PaddleInference => BTreeMap::new(),
            _ => BTreeMap::from([("step".to_string(), json!(3))]),
        };
        let contents = FileContents {
            key,
            names: &source.names(),
            values: &values,
        };
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let planned = plan_file(source, format, contents)?;
        let report = export_file(source, &store, format, contents, &RewriteOptions::default())?;
        assert_eq!(planned[0].len_bytes, report.len_bytes);
        assert_eq!(planned[0].name, key);
        Ok((store, report))
    }

    #[test]
    fn files_hold_the_tensors_and_values_of_the_source() {
        let source = source(&TENSORS, &[]);
        for (format, key) in [
            (FileFormat::Torch, "x.pt"),
            (FileFormat::Paddle, "x.pdparams"),
        ] {
            let (store, report) = exported(&source, format, key).unwrap();
            assert_eq!(report.tensors, 4);
            let model = open_file(store.as_ref(), key).unwrap();
            assert_eq!(model.values["step"], json!(3));
            let written = ModelSource::new(store, model);
            for (name, dtype, shape) in TENSORS {
                let found = written.find(name).unwrap();
                assert_eq!((found.dtype, found.shape.as_slice()), (dtype, shape));
                let all = 0..shape.iter().product();
                let elements = read_elements(&written, name, all.clone()).unwrap();
                assert_eq!(
                    elements,
                    read_elements(&source, name, all).unwrap(),
                    "{name}"
                );
            }
        }
    }

    /// A program that declares a matrix.
    fn program(name: &str, shape: [usize; 2]) -> Vec<u8> {
        let operation = json!({
            "#": "p", "A": [0, 1, 1, name],
            "O": {"%": 1, "TT": {"#": "0.t_dtensor", "D": [{"#": "0.t_f32"}, shape, "NCHW", [], 0]}}
        });
        let text = json!({
            "base_code": {"magic": "pir", "trainable": true, "version": 4},
            "program": {"regions": [{"#": "region_0", "blocks": [{"#": "block_0", "args": [], "ops": [operation]}]}]}
        });
        text.to_string().into_bytes()
    }

    #[test]
    fn parameters_come_with_their_program() {
        let source = source(
            &[("w", DType::F32, &[2, 3])],
            &[("net.json", &program("w", [2, 3]))],
        );
        let (store, _) = exported(&source, FileFormat::PaddleInference, "m.pdiparams").unwrap();
        let model = open_file(store.as_ref(), "m.pdiparams").unwrap();
        assert_eq!(model.assets, ["m.json"]);
        let written = ModelSource::new(store, model);
        let [there, here]: [&dyn Source; 2] = [&written, &source];
        let elements = |source| read_elements(source, "w", 0..6).unwrap();
        assert_eq!(elements(there), elements(here));
    }

    #[test]
    fn parameters_that_are_not_those_of_the_program_are_refused() {
        for (tensor, shape, reason) in [
            (
                "w",
                [3, 2],
                "`w` is f32[2, 3], in `net.json` it is f32[3, 2]",
            ),
            ("v", [2, 3], "`w` is no parameter of `net.json`"),
        ] {
            let program = program(tensor, shape);
            let source = source(&[("w", DType::F32, &[2, 3])], &[("net.json", &program)]);
            let error = exported(&source, FileFormat::PaddleInference, "m.pdiparams");
            assert_eq!(error.err().unwrap().to_string(), reason);
        }
        let program = program("w", [2, 3]);
        let source = source(&[], &[("net.json", &program)]);
        let error = exported(&source, FileFormat::PaddleInference, "m.pdiparams");
        let error = error.err().unwrap().to_string();
        assert!(
            error.contains("`w` is a parameter of `net.json`"),
            "{error}"
        );
    }

    #[test]
    fn types_that_a_framework_lacks_are_named() {
        let source = source(&[("w", DType::F8E4M3, &[2])], &[]);
        let error = exported(&source, FileFormat::Paddle, "x.pdparams")
            .err()
            .unwrap();
        assert!(
            error
                .to_string()
                .contains("a type that Paddle does not have"),
            "{error}"
        );
        exported(&source, FileFormat::Torch, "x.pt").unwrap();
    }
}
