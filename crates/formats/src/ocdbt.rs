//! OCDBT, a tree of named values in files that are only ever added to; Orbax keeps its arrays in one.
//!
//! ```text
//! manifest.ocdbt       settings, and the root of every version
//! d/<32 hex digits>    nodes of the tree, and values that are too long to lie in a node
//! ```
//!
//! Every node and the manifest is a block: four bytes that say what it is, its length, a version, how its body is
//! compressed, the body, and a CRC-32C. Names share prefixes with their neighbours, and with their parents in the tree.
//! The newest version is read, and of the values those that lie in nodes.

mod block;
mod node;
#[cfg(test)]
mod tests;

use crate::cursor::Cursor;
use crate::entries::Entries;
use crate::{Error, join};
use block::Block;
use cairn_store::Store;
use node::{Address, FileTable};
use std::collections::HashMap;

/// The file that names all others.
pub(crate) const MANIFEST_FILE: &str = "manifest.ocdbt";
/// The most nodes that are read.
const MAX_NODES: usize = 1 << 20;
/// The most values in a tree.
const MAX_ENTRIES: usize = 1 << 24;

/// Everything in the tree whose manifest lies in `folder`.
///
/// # Errors
/// If a block is damaged, or the tree is not one.
pub(crate) fn entries(store: &dyn Store, folder: &str) -> Result<Entries, Error> {
    let key = join(folder, MANIFEST_FILE);
    let body = Block::MANIFEST.read(&key, &store.get(&key)?)?;
    let mut entries = Entries::default();
    if let Some(root) = newest_root(&key, &body)? {
        Walk {
            store,
            folder,
            entries: &mut entries,
            nodes: 0,
        }
        .visit(root)?;
    }
    let objects = store.list(folder)?.into_iter();
    let lens: HashMap<String, u64> = objects.map(|meta| (meta.key, meta.len)).collect();
    entries.check(&lens)?;
    Ok(entries)
}

/// Where the root of the newest version lies, which is in the manifest; `None` if the tree is empty.
fn newest_root(key: &str, body: &[u8]) -> Result<Option<Address>, Error> {
    let broken = || Error::damaged(key, "its manifest is not as OCDBT has it");
    let mut cursor = Cursor(body);
    let manifest_kind = settings(&mut cursor).ok_or_else(broken)?;
    if manifest_kind != 0 {
        return Err(Error::Unsupported {
            file: key.to_string(),
            reason: "its versions are in numbered manifests of their own".into(),
            hint: "save it again with Orbax's own settings",
        });
    }
    let files = FileTable::read(&mut cursor, "").ok_or_else(broken)?;
    let count = cursor.count().ok_or_else(broken)?;
    let root = versions(&mut cursor, count, &files).ok_or_else(broken)?;
    Ok(root.filter(|root| root.len > 0))
}

/// Passes over the settings and tells which kind of manifest it is.
fn settings(cursor: &mut Cursor) -> Option<u64> {
    cursor.take(16)?;
    let kind = cursor.varint()?;
    cursor.varint()?;
    cursor.varint()?;
    cursor.byte()?;
    if cursor.varint()? != 0 {
        cursor.take(4)?;
    }
    Some(kind)
}

/// The address of the last of `count` roots; of none if there is none.
fn versions(cursor: &mut Cursor, count: usize, files: &FileTable) -> Option<Option<Address>> {
    cursor.varints(count)?;
    let heights = cursor.take(count)?.to_vec();
    let addresses = node::addresses(cursor, files, &heights)?;
    Some(addresses.into_iter().last())
}

/// A walk down the tree.
struct Walk<'a> {
    store: &'a dyn Store,
    folder: &'a str,
    entries: &'a mut Entries,
    nodes: usize,
}

impl Walk<'_> {
    /// Reads the node at an address and everything below it.
    fn visit(&mut self, root: Address) -> Result<(), Error> {
        let mut open = vec![root];
        while let Some(address) = open.pop() {
            self.nodes += 1;
            let key = join(self.folder, &address.path);
            if self.nodes > MAX_NODES || self.entries.places.len() > MAX_ENTRIES {
                let reason = format!("its tree has over {MAX_NODES} nodes or {MAX_ENTRIES} values");
                return Err(Error::damaged(&key, reason));
            }
            let block = self.block(&key, &address)?;
            let body = Block::NODE.read(&key, &block)?;
            let broken = || Error::damaged(&key, "a node of its tree is not as OCDBT has it");
            let found = node::read(self.folder, &key, &body, &address).ok_or_else(broken)?;
            self.entries.places.extend(found.values);
            open.extend(found.children);
        }
        Ok(())
    }

    fn block(&self, key: &str, address: &Address) -> Result<Vec<u8>, Error> {
        let reader = self.store.reader(key)?;
        let end = address.offset.checked_add(address.len);
        if address.len > block::MAX_BLOCK_BYTES || end.is_none_or(|end| end > reader.len()) {
            let (offset, len) = (address.offset, address.len);
            let reason = format!(
                "a node has {len} bytes from byte {offset} on, it has {}",
                reader.len()
            );
            return Err(Error::damaged(key, reason));
        }
        let mut bytes = vec![0; usize::try_from(address.len).unwrap_or(0)];
        reader.read_at(address.offset, &mut bytes)?;
        Ok(bytes)
    }
}
