//! What a writer leaves with its keeper, so that its save can be ended by another.
//!
//! The first line is the part as it will be, without checksums; the bytes of the small files that travel with the save follow, in
//! the order the part names them.

use crate::Error;
use crate::checksum::sha256_hex;
use crate::part::{Part, first_line, parse_head};
use std::collections::BTreeMap;

/// A part that lacks its checksums, and the small files it names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    pub(crate) part: Part,
    pub(crate) assets: BTreeMap<String, Vec<u8>>,
}

/// What errors call it.
const NAME: &str = "the draft of a part";

impl Draft {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.part.encode(&[], None);
        // The table of checksums is one empty line.
        bytes.pop();
        self.assets
            .values()
            .for_each(|asset| bytes.extend_from_slice(asset));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let damaged = |reason: &str| Error::damaged(NAME, reason);
        let line = first_line(bytes).ok_or_else(|| damaged("it is cut short"))?;
        let part = parse_head(NAME, line)?.part;
        let mut rest = &bytes[line.len()..];
        let mut assets = BTreeMap::new();
        for (name, entry) in &part.assets {
            let len = usize::try_from(entry.len_bytes).ok();
            let (asset, behind) = len
                .and_then(|len| rest.split_at_checked(len))
                .ok_or_else(|| damaged("a file is cut short"))?;
            if sha256_hex(asset) != entry.sha256 {
                return Err(damaged("a file is not the one that was saved"));
            }
            assets.insert(name.clone(), asset.to_vec());
            rest = behind;
        }
        match rest.is_empty() {
            true => Ok(Self { part, assets }),
            false => Err(damaged("it has bytes of no file")),
        }
    }
}
