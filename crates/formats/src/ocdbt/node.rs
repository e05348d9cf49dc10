//! A node of the tree: values, or addresses of other nodes.

use crate::cursor::Cursor;
use crate::entries::Place;
use crate::join;

/// The longest path of a file.
const MAX_PATH_BYTES: usize = 65_535;

/// Where a node lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The file, seen from the folder of the manifest.
    pub(super) path: String,
    /// How much of the path the files that the node names have in front of theirs.
    base_len: usize,
    pub(super) offset: u64,
    pub(super) len: u64,
    height: u8,
    /// What all names in it begin with.
    prefix: Vec<u8>,
}

/// What a node holds.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) values: Vec<(String, Place)>,
    pub(super) children: Vec<Address>,
}

/// The files that a node refers to by number: path, and how much of it is its base.
pub(super) struct FileTable(Vec<(String, usize)>);

impl FileTable {
    /// Reads a table of paths below `base`.
    pub(super) fn read(cursor: &mut Cursor, base: &str) -> Option<Self> {
        let count = cursor.count()?;
        let prefixes = cursor.lengths(count.saturating_sub(1))?;
        let suffixes = cursor.lengths(count)?;
        let bases = cursor.lengths(count)?;
        let paths = cursor.prefixed(&prefixes, &suffixes)?;
        let file = |(path, base_len): (Vec<u8>, usize)| {
            let path = String::from_utf8(path).ok()?;
            path.get(..base_len)?;
            let whole = format!("{base}{path}");
            (whole.len() <= MAX_PATH_BYTES).then_some((whole, base.len() + base_len))
        };
        let files: Option<Vec<_>> = paths.into_iter().zip(bases).map(file).collect();
        files.map(Self)
    }

    fn path(&self, number: u64) -> Option<&(String, usize)> {
        self.0.get(usize::try_from(number).ok()?)
    }
}

/// Reads addresses of nodes of these heights: files, offsets, lengths, and three statistics of each.
pub(super) fn addresses(
    cursor: &mut Cursor,
    files: &FileTable,
    heights: &[u8],
) -> Option<Vec<Address>> {
    let count = heights.len();
    let numbers = cursor.varints(count)?;
    let offsets = cursor.varints(count)?;
    let lens = cursor.varints(count)?;
    for _ in 0..3 {
        cursor.varints(count)?;
    }
    let address = |index: usize| {
        let (path, base_len) = files.path(numbers[index])?.clone();
        Some(Address {
            path,
            base_len,
            offset: offsets[index],
            len: lens[index],
            height: heights[index],
            prefix: Vec::new(),
        })
    };
    (0..count).map(address).collect()
}

/// Reads the node at `address`, whose block lies in `key`; files are seen from `folder`.
pub(super) fn read(folder: &str, key: &str, body: &[u8], address: &Address) -> Option<Node> {
    let mut cursor = Cursor(body);
    let height = cursor.byte()?;
    let files = FileTable::read(&mut cursor, address.path.get(..address.base_len)?)?;
    let count = cursor.count()?;
    // Heights shrink on the way down, so that a tree ends.
    if height != address.height || count == 0 {
        return None;
    }
    match height {
        0 => leaf(folder, key, cursor, &files, address, count),
        _ => interior(cursor, &files, address, count),
    }
}

/// Names and values: all lengths, all kinds, all addresses, then the values that lie here.
fn leaf(
    folder: &str,
    key: &str,
    mut cursor: Cursor,
    files: &FileTable,
    address: &Address,
    count: usize,
) -> Option<Node> {
    let prefixes = cursor.lengths(count - 1)?;
    let suffixes = cursor.lengths(count)?;
    let names = cursor.prefixed(&prefixes, &suffixes)?;
    let lens = cursor.varints(count)?;
    let kinds = cursor.varints(count)?;
    let elsewhere = kinds.iter().filter(|kind| **kind == 1).count();
    let numbers = cursor.varints(elsewhere)?;
    let offsets = cursor.varints(elsewhere)?;
    let mut outside = numbers.into_iter().zip(offsets);
    let mut node = Node::default();
    for ((name, len), kind) in names.into_iter().zip(lens).zip(kinds) {
        let place = match kind {
            0 => Place::Held(
                key.to_string(),
                cursor.take(usize::try_from(len).ok()?)?.to_vec(),
            ),
            1 => {
                let (number, offset) = outside.next()?;
                let (path, _) = files.path(number)?;
                Place::Object(join(folder, path), offset..offset.checked_add(len)?)
            }
            _ => return None,
        };
        node.values.push((named(&address.prefix, &name)?, place));
    }
    Some(node)
}

fn interior(
    mut cursor: Cursor,
    files: &FileTable,
    address: &Address,
    count: usize,
) -> Option<Node> {
    let prefixes = cursor.lengths(count - 1)?;
    let suffixes = cursor.lengths(count)?;
    let shared = cursor.lengths(count)?;
    let names = cursor.prefixed(&prefixes, &suffixes)?;
    let heights = vec![address.height - 1; count];
    let mut children = addresses(&mut cursor, files, &heights)?;
    for ((child, name), shared) in children.iter_mut().zip(names).zip(shared) {
        child.prefix = [&address.prefix, name.get(..shared)?].concat();
        if child.prefix.len() > MAX_PATH_BYTES {
            return None;
        }
    }
    Some(Node {
        children,
        ..Node::default()
    })
}

fn named(prefix: &[u8], name: &[u8]) -> Option<String> {
    String::from_utf8([prefix, name].concat()).ok()
}
