//! What the optimizer remembers of a bucket, in memory or in a file.

use crate::Error;
use crate::kept::Parts;
use bytemuck::{cast_slice, cast_slice_mut};
use cairn_checkpoint::{Bytes, Stored};
use cairn_store::{ALIGNMENT, Scratch};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many of the numbers in a file are in memory at once; whole blocks.
const PART: usize = 1 << 20;

/// Several lists of numbers of one length: master weights, if parameters are narrow, and the moments of the optimizer.
///
/// A save holds on to them as they are; who changes them meanwhile changes a copy.
#[derive(Debug)]
pub(crate) struct Remembered {
    /// How many numbers each list has.
    len: usize,
    lists: usize,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Memory(Vec<Arc<Vec<f32>>>),
    File(PathBuf, Arc<Lists>),
}

/// Lists of numbers in one file, each from the begin of a block on.
#[derive(Debug)]
struct Lists {
    file: Scratch,
    len: usize,
}

impl Remembered {
    /// So many lists of zeros, in a file in `folder` if there is one.
    pub(crate) fn zeros(lists: usize, len: usize, folder: Option<&Path>) -> Result<Self, Error> {
        let held = match folder {
            None => Held::Memory((0..lists).map(|_| Arc::new(vec![0.0; len])).collect()),
            Some(folder) => Held::File(folder.to_owned(), Lists::create(lists, len, folder)?),
        };
        Ok(Self { len, lists, held })
    }

    /// How many bytes each list takes.
    pub(crate) fn list_bytes(&self) -> u64 {
        (self.len * size_of::<f32>()) as u64
    }

    pub(crate) fn is_in_file(&self) -> bool {
        matches!(self.held, Held::File(..))
    }

    /// Some numbers of a list, to be saved.
    pub(crate) fn bytes(&self, list: usize, numbers: Range<usize>) -> Bytes<'static> {
        match &self.held {
            Held::Memory(lists) => Bytes::fenced(Parts::of_numbers(&lists[list]).memory(numbers)),
            Held::File(_, lists) => Bytes::Stored(Arc::new(Piece {
                lists: lists.clone(),
                list,
                numbers,
            })),
        }
    }

    /// The lists, to change, if they are in memory.
    pub(crate) fn lists_mut(&mut self) -> Option<Vec<&mut [f32]>> {
        match &mut self.held {
            Held::Memory(lists) => Some(
                lists
                    .iter_mut()
                    .map(|list| &mut Arc::make_mut(list)[..])
                    .collect(),
            ),
            Held::File(..) => None,
        }
    }

    /// Has `change` change all numbers, part by part: it gets which numbers these are, and those of each list.
    ///
    /// # Errors
    /// As `change`, or if a file cannot be read or written; numbers are a mixture then.
    pub(crate) fn change(
        &mut self,
        mut change: impl FnMut(Range<usize>, &mut [&mut [f32]]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let len = self.len;
        if let Some(mut lists) = self.lists_mut() {
            return change(0..len, &mut lists);
        }
        let Held::File(folder, lists) = &mut self.held else {
            return Ok(());
        };
        let target = match Arc::get_mut(lists).is_some() {
            true => lists.clone(),
            false => Lists::create(self.lists, len, folder)?,
        };
        let mut buffers = vec![vec![0.0; PART.min(len)]; self.lists];
        for start in (0..len).step_by(PART) {
            let part = start..len.min(start + PART);
            let mut slices: Vec<&mut [f32]> = buffers
                .iter_mut()
                .map(|buffer| &mut buffer[..part.len()])
                .collect();
            for (list, slice) in slices.iter_mut().enumerate() {
                lists.read(list, start, cast_slice_mut(slice))?;
            }
            change(part, &mut slices)?;
            for (list, slice) in slices.iter().enumerate() {
                target.write(list, start, slice)?;
            }
        }
        *lists = target;
        Ok(())
    }
}

impl Lists {
    fn create(lists: usize, len: usize, folder: &Path) -> Result<Arc<Self>, Error> {
        let bytes = stride(len).checked_mul(lists as u64);
        let bytes = bytes.expect("numbers that were in memory fit a file");
        let file = Scratch::create(folder, bytes).map_err(Error::Offload)?;
        Ok(Arc::new(Self { file, len }))
    }

    /// Reads bytes of a list from the number `start` on.
    fn read(&self, list: usize, start: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let offset = self.offset(list, start);
        self.file.read_at(offset, bytes).map_err(Error::Offload)
    }

    /// Writes a part of a list: whole blocks, or all up to its end.
    fn write(&self, list: usize, start: usize, numbers: &[f32]) -> Result<(), Error> {
        let bytes: &[u8] = cast_slice(numbers);
        let (offset, blocks) = (
            self.offset(list, start),
            bytes.len() - bytes.len() % ALIGNMENT,
        );
        let (whole, rest) = bytes.split_at(blocks);
        self.file.write_at(offset, whole).map_err(Error::Offload)?;
        if rest.is_empty() {
            return Ok(());
        }
        let mut last = [0; ALIGNMENT];
        last[..rest.len()].copy_from_slice(rest);
        let offset = offset + blocks as u64;
        self.file.write_at(offset, &last).map_err(Error::Offload)
    }

    fn offset(&self, list: usize, number: usize) -> u64 {
        list as u64 * stride(self.len) + (number * size_of::<f32>()) as u64
    }
}

/// The bytes from the begin of one list to that of the next.
fn stride(len: usize) -> u64 {
    (len * size_of::<f32>()).next_multiple_of(ALIGNMENT) as u64
}

/// Some numbers of a list in a file.
#[derive(Debug)]
struct Piece {
    lists: Arc<Lists>,
    list: usize,
    numbers: Range<usize>,
}

impl Stored for Piece {
    fn len_bytes(&self) -> usize {
        self.numbers.len() * size_of::<f32>()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), String> {
        let start = self.lists.offset(self.list, self.numbers.start) + offset as u64;
        let read = self.lists.file.read_at(start, out);
        read.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Adds the place of each number, and ten times its list.
    fn add_places(remembered: &mut Remembered) {
        let add = |part: Range<usize>, lists: &mut [&mut [f32]]| {
            for (list, numbers) in (0_u16..).zip(lists) {
                for (place, number) in part.clone().zip(numbers.iter_mut()) {
                    *number += (place % 1000) as f32 + 10.0 * f32::from(list);
                }
            }
            Ok(())
        };
        remembered.change(add).unwrap();
    }

    fn read(bytes: &Bytes<'_>) -> Vec<u8> {
        let mut read = vec![0; bytes.len()];
        match bytes {
            Bytes::Fenced(memory, _) => memory.read(0..read.len(), &mut read),
            Bytes::Stored(stored) => stored.read(0, &mut read).unwrap(),
            _ => panic!("neither in memory nor in a file"),
        }
        read
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn a_file_holds_what_memory_would(
            lists in 1usize..4, len in prop_oneof![0usize..3000, PART - 2..PART + 2000], from in 0usize..3000, count in 0usize..3000
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut memory = Remembered::zeros(lists, len, None).unwrap();
            let mut file = Remembered::zeros(lists, len, Some(folder.path())).unwrap();
            for _ in 0..2 {
                add_places(&mut memory);
                add_places(&mut file);
            }
            let from = from.min(len);
            let numbers = from..(from + count).min(len);
            for list in 0..lists {
                for numbers in [numbers.clone(), 0..len] {
                    let [expected, actual] = [&memory, &file].map(|held| read(&held.bytes(list, numbers.clone())));
                    prop_assert!(expected == actual);
                }
            }
        }
    }

    #[test]
    fn what_is_being_saved_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        for place in [None, Some(folder.path())] {
            let mut held = Remembered::zeros(2, 2000, place).unwrap();
            add_places(&mut held);
            let saved = held.bytes(1, 0..2000);
            let before = read(&saved);
            add_places(&mut held);
            assert_eq!(read(&saved), before);
            assert_ne!(read(&held.bytes(1, 0..2000)), before);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("\0");
        let error = Remembered::zeros(1, 10, Some(&place)).unwrap_err();
        assert!(matches!(error, Error::Offload(_)), "{error}");
    }
}
