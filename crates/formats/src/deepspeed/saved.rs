//! One file of a step, open: a torch archive whose pickle names classes of DeepSpeed.

use super::stream::Run;
use crate::Error;
use crate::model::{DataFile, Model, Tensor};
use crate::pickle::{Node, Pickle};
use crate::torch_zip::{self, Archive, Located, rebuilt, sizes};
use cairn_store::Store;
use cairn_tensor::element_count;

/// Classes that settings are made of: written down as opaque.
const SETTINGS: &[&str] = &["deepspeed.*"];

/// An archive and what it says.
pub(super) struct Saved<'a> {
    pub(super) archive: Archive<'a>,
    pub(super) pickle: &'a Pickle,
    /// Its number in the model.
    pub(super) file: usize,
}

/// Opens the file `key` as another one of the model and takes from it what is wanted.
pub(super) fn read<T>(
    store: &dyn Store,
    key: &str,
    model: &mut Model,
    take: impl FnOnce(&Saved) -> Result<T, Error>,
) -> Result<T, Error> {
    let reader = store.reader(key)?;
    let archive = Archive::read(key, reader.as_ref(), 0..reader.len())?;
    let policy = torch_zip::policy().build(SETTINGS).call(SETTINGS);
    let pickle = archive.pickle(&policy)?;
    let file = model.files.len();
    model.files.push(DataFile::plain(key, reader.len()));
    take(&Saved {
        archive,
        pickle: &pickle,
        file,
    })
}

impl Saved<'_> {
    /// Where a tensor lies; `None` if the node is something else.
    pub(super) fn located(&self, node: Node) -> Result<Option<Located>, Error> {
        let tensor = rebuilt(self.archive.file, node, 0)?;
        tensor
            .map(|tensor| tensor.located(&self.archive))
            .transpose()
    }

    /// A tensor as it lies; `None` if the node is something else.
    pub(super) fn tensor(&self, node: Node) -> Result<Option<Tensor>, Error> {
        let located = self.located(node)?;
        Ok(located.map(|located| located.into_tensor(self.file)))
    }

    /// The elements of a tensor, one after another; `None` if the node is something else.
    pub(super) fn run(&self, node: Node) -> Result<Option<Run>, Error> {
        let Some(located) = self.located(node)? else {
            return Ok(None);
        };
        if located.strides.is_some() || !located.dtype.bits().is_multiple_of(8) {
            return Err(self.damaged("a flat buffer is not flat"));
        }
        Ok(Some(Run {
            dtype: located.dtype,
            file: self.file,
            offset: located.offset,
            len: element_count(&located.shape).unwrap_or(0),
        }))
    }

    /// The names and shapes that a dict holds, in its order.
    pub(super) fn shapes(&self, dict: Node) -> Result<Vec<(String, Vec<usize>)>, Error> {
        let pair = |(name, shape): (Node, Node)| {
            let shape = sizes(shape)?;
            element_count(&shape)?;
            Some((name.as_str()?.to_string(), shape))
        };
        let pairs = dict.pairs().into_iter().flatten();
        let shapes: Option<Vec<_>> = pairs.map(pair).collect();
        shapes.ok_or_else(|| self.damaged("the shapes of its parameters are no shapes"))
    }

    pub(super) fn damaged(&self, reason: impl Into<String>) -> Error {
        Error::damaged(self.archive.file, reason)
    }
}
