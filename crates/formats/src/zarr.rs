//! Arrays of zarr, versions 2 and 3: a description, and chunks in a grid.
//!
//! ```text
//! <array>/.zarray      <array>/0.0, 0.1 …         version 2
//! <array>/zarr.json    <array>/c/0/0, c/0/1 …     version 3; a chunk may be a shard of smaller ones, with an index
//! ```
//!
//! Chunks at the edges are stored whole, so that what lies outside of the array is passed over.

mod array;
mod shard;
#[cfg(test)]
mod tests;

use crate::Error;
use crate::entries::{Entries, Place};
use crate::model::{DataFile, Encoding, Form, Model, PieceAt, Tensor};
use array::{Array, Codec};
use cairn_sharding::{Piece, Region};
use cairn_store::Store;
use cairn_tensor::Strided;
use std::collections::{HashMap, HashSet};

/// The files that describe an array.
const DESCRIPTIONS: [&str; 2] = [".zarray", "zarr.json"];
/// The longest description that is read.
const MAX_DESCRIPTION_BYTES: u64 = 1 << 20;
/// The most chunks of one array of which some were not stored.
const MAX_SPARSE_CHUNKS: usize = 1 << 20;

/// The names of all arrays.
pub(crate) fn names(entries: &Entries) -> Vec<String> {
    let described = |name: &String| {
        let end = DESCRIPTIONS.iter().find_map(|end| name.strip_suffix(end));
        end.and_then(|path| path.strip_suffix('/'))
            .map(str::to_string)
    };
    entries.places.keys().filter_map(described).collect()
}

/// Adds arrays to a model.
pub(crate) struct Arrays<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) entries: &'a Entries,
    /// Whether chunks that are all zero may not be stored at all.
    pub(crate) sparse: bool,
    /// Objects that chunks lie in as they are.
    plain: HashMap<String, usize>,
}

/// Some of an array's elements, and where they lie.
struct Chunk {
    /// Where in the array it begins; it may end outside.
    offset: Vec<usize>,
    /// Its shape, as it is stored.
    shape: Vec<usize>,
    /// `None` if it was not stored.
    place: Option<Place>,
}

impl<'a> Arrays<'a> {
    pub(crate) fn new(store: &'a dyn Store, entries: &'a Entries, sparse: bool) -> Self {
        Self {
            store,
            entries,
            sparse,
            plain: HashMap::new(),
        }
    }

    /// The array called `name`, whose chunks become files of the model.
    pub(crate) fn tensor(&mut self, name: &str, model: &mut Model) -> Result<Tensor, Error> {
        let array = self.describe(name)?;
        let mut pieces = Vec::new();
        for chunk in self.chunks(name, &array)? {
            for part in shard::parts(self.store, &array, chunk)? {
                if let Some(piece) = self.piece(name, &array, part, model)? {
                    pieces.push(piece);
                }
            }
        }
        Ok(Tensor {
            dtype: array.dtype,
            shape: array.shape,
            pieces,
        })
    }

    fn describe(&self, name: &str) -> Result<Array, Error> {
        let place = self.description(name);
        let place = place.ok_or_else(|| Error::damaged(name, "the array is not there"))?;
        Array::parse(name, &place.read(self.store, MAX_DESCRIPTION_BYTES)?)
    }

    fn description(&self, name: &str) -> Option<&Place> {
        let mut files = DESCRIPTIONS.iter();
        files.find_map(|file| self.entries.places.get(&format!("{name}/{file}")))
    }

    /// The object that describes an array.
    fn description_key(&self, name: &str) -> String {
        let place = self.description(name);
        place.map_or_else(|| name.to_string(), |place| place.key().to_string())
    }

    /// All chunks of the grid, of which those that are not stored are zero.
    fn chunks(&self, name: &str, array: &Array) -> Result<Vec<Chunk>, Error> {
        let mut chunks = Vec::new();
        let mut found = HashSet::new();
        let folder = format!("{name}/");
        for (key, place) in self.entries.below(&folder) {
            let Some(coordinates) = array.coordinates(key) else {
                continue;
            };
            let number = array.number(&coordinates).ok_or_else(|| {
                Error::damaged(name, format!("chunk `{key}` lies outside of the array"))
            })?;
            if found.insert(number) {
                chunks.push(array.chunk(&coordinates, Some(place.clone())));
            }
        }
        let missing = array.chunk_count.saturating_sub(found.len());
        if missing == 0 {
            return Ok(chunks);
        }
        if !(self.sparse && array.zero_fill && array.chunk_count <= MAX_SPARSE_CHUNKS) {
            let reason = format!("{missing} of {} chunks are missing", array.chunk_count);
            return Err(Error::damaged(name, reason));
        }
        let zeros = (0..array.chunk_count).filter(|number| !found.contains(number));
        chunks.extend(zeros.map(|number| array.chunk(&array.coordinates_of(number), None)));
        Ok(chunks)
    }

    /// What of a chunk lies in the array; `None` if nothing does.
    fn piece(
        &mut self,
        name: &str,
        array: &Array,
        chunk: Chunk,
        model: &mut Model,
    ) -> Result<Option<PieceAt>, Error> {
        let extent = chunk.offset.iter().zip(&chunk.shape).zip(&array.shape);
        let extent: Vec<usize> = extent
            .map(|((offset, size), end)| end.saturating_sub(*offset).min(*size))
            .collect();
        if extent.contains(&0) {
            return Ok(None);
        }
        let strides = array.strides(&chunk.shape);
        let within = Strided {
            offset: 0,
            shape: extent.clone(),
            strides,
        };
        let len_bytes = array.len_bytes(&chunk.shape);
        let len_bytes = len_bytes.ok_or_else(|| Error::damaged(name, "a chunk has no size"))?;
        if chunk.place.is_none() && !(self.sparse && array.zero_fill) {
            return Err(Error::damaged(name, "a chunk inside of a shard is missing"));
        }
        let (file, offset) = self.file(name, array.codec, chunk.place, len_bytes, model)?;
        Ok(Some(PieceAt {
            file,
            offset,
            piece: Piece::whole(Region {
                offset: chunk.offset,
                extent,
            }),
            encoding: match within.is_contiguous() {
                true => Encoding::RowMajor,
                false => Encoding::Strided(within.strides),
            },
        }))
    }

    /// The file of a model that holds `len_bytes` of a chunk, and where in it.
    fn file(
        &mut self,
        name: &str,
        codec: Codec,
        place: Option<Place>,
        len_bytes: u64,
        model: &mut Model,
    ) -> Result<(usize, u64), Error> {
        let stored = place.as_ref().map_or(len_bytes, Place::len);
        if codec == Codec::Plain && stored != len_bytes {
            let reason = format!("a chunk has {stored} bytes instead of {len_bytes}");
            return Err(Error::damaged(name, reason));
        }
        let (key, form) = match (codec, place) {
            (Codec::Plain, Some(Place::Object(key, range))) => {
                let len = match self.plain.get(&key) {
                    Some(file) => return Ok((*file, range.start)),
                    None => self.store.reader(&key)?.len(),
                };
                self.plain.insert(key.clone(), model.files.len());
                model.files.push(DataFile::plain(&key, len));
                return Ok((model.files.len() - 1, range.start));
            }
            (Codec::Zstd, Some(Place::Object(key, range))) => (key, Form::Zstd(range)),
            (Codec::Plain, Some(Place::Held(key, bytes))) => (key, Form::Held(bytes)),
            (Codec::Zstd, Some(Place::Held(key, bytes))) => (key, Form::HeldZstd(bytes)),
            (_, None) => (self.description_key(name), Form::Zeros),
        };
        model.files.push(DataFile {
            key,
            len_bytes,
            form,
        });
        Ok((model.files.len() - 1, 0))
    }
}
