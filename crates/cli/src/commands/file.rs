//! Files that verbs write beside what they print.

use crate::error::Error;
use crate::printer::Printer;
use cairn::checkpoint::split_path;
use cairn::store::{self, PutMode};

/// Writes a file, in place of one that is there, and says so.
pub(super) fn write(path: &str, bytes: &[u8], printer: &Printer) -> Result<(), Error> {
    let (folder, name) = split_path(path);
    let put = store::open(&folder).and_then(|store| store.put(&name, bytes, PutMode::Replace));
    put.map_err(|source| Error::Write {
        path: path.into(),
        source,
    })?;
    printer.note(&format!("wrote {path}"));
    Ok(())
}
