//! A source as a folder that `torch.distributed.checkpoint` loads.

use super::RewriteOptions;
use super::folder::{ExportReport, Folder, PlannedFile};
use super::hf::shards;
use super::output::{Checksum, Frame, OutputFile, OutputItem};
use crate::Error;
use crate::source::{Source, StoredTensor};
use cairn_formats::dcp::{DATA_SUFFIX, METADATA_FILE, StoredItem, encode_metadata};
use cairn_formats::torch_zip::{tensor_frame, value_archive};
use cairn_sharding::{Piece, Region};
use cairn_store::Store;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What goes into a folder for torch.
#[derive(Debug, Clone, Copy)]
pub struct DcpContents<'a> {
    /// The tensors of the source, each stored whole.
    pub names: &'a [&'a str],
    /// Plain values.
    pub values: &'a BTreeMap<String, Value>,
    /// The most data in one file.
    pub shard_bytes: u64,
}

/// The data files that [`export_dcp`] would write for the same contents.
///
/// # Errors
/// As [`export_dcp`], before anything is written.
pub fn plan_dcp(source: &dyn Source, contents: DcpContents) -> Result<Vec<PlannedFile>, Error> {
    Ok(Builder::folder(source, contents)?.planned())
}

/// Writes `contents` of `source` as a folder that stock torch loads with `dcp.load`.
///
/// # Crash safety
/// As [`export_hf`](super::export_hf); `.metadata` comes last.
///
/// # Errors
/// If torch has no such element type or value, the folder already holds a model, something is damaged, or the
/// disk is full.
pub fn export_dcp(
    source: &dyn Source,
    store: &Arc<dyn Store>,
    contents: DcpContents,
    options: &RewriteOptions,
) -> Result<ExportReport, Error> {
    let mut folder = Builder::folder(source, contents)?;
    folder.assets = source.assets()?;
    folder.write(source, store, options)
}

/// A folder that is being filled.
#[derive(Default)]
struct Builder {
    files: Vec<OutputFile>,
    items: Vec<StoredItem>,
}

impl Builder {
    /// The folder without its side files.
    fn folder(source: &dyn Source, contents: DcpContents) -> Result<Folder, Error> {
        let builder = Self::new(source, contents)?;
        let metadata = encode_metadata(&builder.items).ok_or_else(|| Error::State {
            name: METADATA_FILE.into(),
            reason: "cannot name an element type that torch does not have".into(),
        })?;
        Ok(Folder {
            files: builder.files,
            entry: Some((METADATA_FILE.into(), metadata)),
            ..Folder::default()
        })
    }

    /// Deals tensors to files in order; the values come first.
    fn new(source: &dyn Source, contents: DcpContents) -> Result<Self, Error> {
        let mut folder = Self::default();
        for shard in shards(source, contents.names, contents.shard_bytes)? {
            folder.files.push(OutputFile {
                key: format!("__{}_0{DATA_SUFFIX}", folder.files.len()),
                len: 0,
                frames: Vec::new(),
                items: Vec::new(),
            });
            if folder.files.len() == 1 {
                for (name, value) in contents.values {
                    folder.add_value(name, value)?;
                }
            }
            for (name, stored, _) in shard {
                folder.add_tensor(name, stored)?;
            }
        }
        folder.files.retain(|file| file.len > 0);
        Ok(folder)
    }

    fn add_value(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        let bytes = value_archive(value).ok_or_else(|| Error::State {
            name: name.to_string(),
            reason: "holds a value that can only be named, not written".into(),
        })?;
        self.add_item(name, None, bytes.len() as u64);
        self.add_frame(bytes);
        Ok(())
    }

    fn add_tensor(&mut self, name: &str, stored: StoredTensor) -> Result<(), Error> {
        let frame = tensor_frame(stored.dtype, &stored.shape).ok_or_else(|| Error::State {
            name: name.to_string(),
            reason: format!("is {}, a type that torch does not have", stored.dtype),
        })?;
        let len = frame.before.len() as u64 + frame.len_bytes + frame.after.len() as u64;
        self.add_item(name, Some(&stored), len);
        self.add_frame(frame.before);
        let file = self.file();
        file.items.push(OutputItem {
            name: name.to_string(),
            dtype: stored.dtype,
            piece: Piece::whole(Region::whole(&stored.shape)),
            shape: stored.shape,
            begin: file.len,
            len: frame.len_bytes,
            checksum: Some(Checksum::new(file.frames.len(), frame.crc_at)),
        });
        file.len += frame.len_bytes;
        self.add_frame(frame.after);
        Ok(())
    }

    /// Notes that an item of `len` bytes begins at the end of the last file.
    fn add_item(&mut self, name: &str, stored: Option<&StoredTensor>, len: u64) {
        let tensor = stored.map(|stored| (stored.dtype, stored.shape.clone()));
        let (file, offset) = (self.file().key.clone(), self.file().len);
        self.items.push(StoredItem {
            name: name.to_string(),
            tensor,
            file,
            offset,
            len_bytes: len,
        });
    }

    fn add_frame(&mut self, bytes: Vec<u8>) {
        let file = self.file();
        let begin = file.len;
        file.len += bytes.len() as u64;
        file.frames.push(Frame { begin, bytes });
    }

    fn file(&mut self) -> &mut OutputFile {
        self.files
            .last_mut()
            .expect("there is a file before its contents")
    }
}
