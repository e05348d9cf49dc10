//! Where each block of a file lies.

use super::MAX_BASES;
use crate::checksum::BLOCK_BYTES;
use std::collections::HashMap;
use std::ops::Range;

/// Where one block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    /// Which file: 0 is the writer's own, the others are those it refers to.
    pub(crate) file: usize,
    /// Which block of that file.
    pub(crate) block: u64,
}

/// Where each block of a file lies, as runs of blocks that lie side by side.
///
/// As text it is `[[count,file,first],…]`: `count` blocks lie in file number `file`, from its block `first` on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BlockMap {
    runs: Vec<Run>,
    blocks: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// The first block of the image that it holds.
    start: u64,
    count: u64,
    place: BlockPlace,
}

impl Run {
    fn end(&self) -> u64 {
        self.start + self.count
    }
}

/// The blocks of a file of `len` bytes.
pub(crate) fn block_count(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES as u64)
}

impl BlockMap {
    /// The map of blocks that lie at these places.
    pub(crate) fn new(places: impl IntoIterator<Item = BlockPlace>) -> Self {
        let mut map = Self::default();
        for place in places {
            map.push(1, place);
        }
        map
    }

    fn push(&mut self, count: u64, place: BlockPlace) {
        let start = self.blocks;
        self.blocks += count;
        if let Some(last) = self.runs.last_mut()
            && last.place.file == place.file
            && last.place.block + last.count == place.block
        {
            last.count += count;
            return;
        }
        self.runs.push(Run {
            start,
            count,
            place,
        });
    }

    /// The map as a part holds it.
    pub(crate) fn to_text(&self) -> String {
        let runs = self.runs.iter();
        let runs = runs.map(|run| [run.count, run.place.file as u64, run.place.block]);
        serde_json::to_string(&runs.collect::<Vec<_>>()).expect("numbers are JSON")
    }

    /// Reads the map of a file of so many blocks that refers to `bases` others.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(crate) fn from_text(text: &str, blocks: u64, bases: usize) -> Result<Self, String> {
        let runs: Vec<[u64; 3]> =
            serde_json::from_str(text).map_err(|e| format!("its map of blocks: {e}"))?;
        if bases > MAX_BASES {
            return Err(format!(
                "it refers to {bases} files, {MAX_BASES} are the most"
            ));
        }
        let mut map = Self::default();
        for [count, file, first] in runs {
            let file = usize::try_from(file).ok().filter(|file| *file <= bases);
            let ends = [first, map.blocks].map(|start| start.checked_add(count));
            match (file, ends) {
                (Some(file), [Some(_), Some(end)]) if count > 0 && end <= blocks => {
                    map.push(count, BlockPlace { file, block: first });
                }
                _ => return Err("its map of blocks does not fit its file".into()),
            }
        }
        match map.blocks == blocks {
            true => Ok(map),
            false => Err("its map does not have all blocks of its file".into()),
        }
    }

    /// Where `block` lies, and how many blocks lie side by side there, it and those behind it.
    pub(crate) fn find(&self, block: u64) -> Option<(BlockPlace, u64)> {
        let index = self.runs.partition_point(|run| run.end() <= block);
        let run = self.runs.get(index)?;
        let inside = block - run.start;
        let place = BlockPlace {
            block: run.place.block + inside,
            ..run.place
        };
        Some((place, run.count - inside))
    }

    /// The place of each block.
    pub(crate) fn places(&self) -> impl Iterator<Item = BlockPlace> {
        self.runs.iter().flat_map(|run| {
            let Range { start, end } = run.place.block..run.place.block + run.count;
            let file = run.place.file;
            (start..end).map(move |block| BlockPlace { file, block })
        })
    }

    /// The checksum of each block of file number `file` that the image has, of those of all blocks of the image.
    pub(crate) fn crcs_of(&self, file: usize, crcs: &[u32]) -> HashMap<u64, u32> {
        let places = self.places().zip(crcs);
        let inside = places.filter(|(place, _)| place.file == file);
        inside.map(|(place, crc)| (place.block, *crc)).collect()
    }

    /// How many blocks file number `file` must have at least.
    pub(crate) fn blocks_of(&self, file: usize) -> u64 {
        let runs = self.runs.iter().filter(|run| run.place.file == file);
        runs.map(|run| run.place.block + run.count)
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    //! Maps read back, find every block, and refuse what does not fit.

    use super::*;
    use proptest::prelude::*;

    fn place(file: usize, block: u64) -> BlockPlace {
        BlockPlace { file, block }
    }

    #[test]
    fn neighbours_make_one_run() {
        let map = BlockMap::new([place(1, 0), place(1, 1), place(0, 0), place(1, 3)]);
        assert_eq!(map.to_text(), "[[2,1,0],[1,0,0],[1,1,3]]");
        assert_eq!(map.find(1), Some((place(1, 1), 1)));
        assert_eq!(map.find(3), Some((place(1, 3), 1)));
        assert_eq!(map.find(4), None);
        assert_eq!(
            (map.blocks_of(0), map.blocks_of(1), map.blocks_of(2)),
            (1, 4, 0)
        );
    }

    #[test]
    fn a_map_that_does_not_fit_is_refused() {
        let huge = u64::MAX;
        for (text, blocks, bases) in [
            ("", 0, 0),
            ("[[1,0]]", 1, 0),
            ("[[0,0,0]]", 0, 0),
            ("[[1,1,0]]", 1, 0),
            ("[[2,0,0]]", 1, 0),
            ("[[1,0,0]]", 2, 0),
            (&format!("[[1,0,{huge}]]"), 1, 0),
            (&format!("[[{huge},0,0],[2,0,0]]"), 1, 0),
            ("[[1,0,-1]]", 1, 0),
            ("[]", 0, MAX_BASES + 1),
        ] {
            assert!(BlockMap::from_text(text, blocks, bases).is_err(), "{text}");
        }
        assert_eq!(BlockMap::from_text("[]", 0, 0), Ok(BlockMap::default()));
    }

    proptest! {
        #[test]
        fn every_block_is_found_where_it_was_put(
            places in prop::collection::vec((0..3_usize, 0..6_u64), 0..40),
        ) {
            let places: Vec<_> = places.into_iter().map(|(file, block)| place(file, block)).collect();
            let map = BlockMap::new(places.clone());
            let read = BlockMap::from_text(&map.to_text(), places.len() as u64, 2).unwrap();
            prop_assert_eq!(&read, &map);
            prop_assert_eq!(map.places().collect::<Vec<_>>(), places.clone());
            for (block, place) in places.iter().enumerate() {
                prop_assert_eq!(map.find(block as u64).unwrap().0, *place);
            }
        }
    }
}
