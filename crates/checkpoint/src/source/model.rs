//! A model in another format as something to load from.

use super::{Source, SourceFile, StoredPiece, StoredTensor};
use crate::Error;
use crate::error::{Misplaced, StoreContext};
use cairn_formats::{Chunks, Encoding, Model, PieceAt, Tensor, torch_zip};
use cairn_sharding::{Piece, Region};
use cairn_store::{Location, ObjectReader, Store};
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A model or checkpoint in another format.
#[derive(Debug)]
pub struct ModelSource {
    store: Arc<dyn Store>,
    model: Model,
    chunks: Chunks,
    /// Whether the folder that it lies in is somebody else's.
    is_file: bool,
}

impl ModelSource {
    /// A model that is the folder `store` is rooted at.
    pub fn new(store: Arc<dyn Store>, model: Model) -> Self {
        let chunks = Chunks::new(&model);
        Self {
            store,
            model,
            chunks,
            is_file: false,
        }
    }

    /// A model that is a file in `store`, among others.
    pub fn of_file(store: Arc<dyn Store>, model: Model) -> Self {
        Self {
            is_file: true,
            ..Self::new(store, model)
        }
    }

    /// What the model contains.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Where it lies.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn reader(&self, file: usize) -> Result<Box<dyn ObjectReader>, Error> {
        let data = &self.model.files[file];
        let opened = self.chunks.open(&self.store, data, file);
        opened.doing(|| format!("open `{}`", data.key))
    }

    /// An error if a side file is a link that leads out of the model's folder.
    ///
    /// Whoever makes a folder for others could point a link at a file that only its reader may read, and side files are copied as they
    /// are. The cache of Hugging Face's hub is made of links, too, but they lead to its own `blobs`.
    fn refuse_outside(&self, key: &str) -> Result<(), Error> {
        let folders = self.store.locations("");
        let blobs = folders.iter().filter_map(|folder| {
            let snapshots = folder
                .parent()
                .filter(|above| above.name() == "snapshots")?;
            Some(snapshots.parent()?.child("blobs"))
        });
        let allowed: Vec<Location> = blobs.chain(folders.iter().cloned()).collect();
        for file in self.store.locations(key) {
            if !allowed.iter().any(|folder| file.is_in(folder)) {
                let (key, place) = (key.to_string(), file.to_string());
                return Err(Error::Misplaced(Misplaced::OutsideFolder { key, place }));
            }
        }
        Ok(())
    }

    /// Finds a piece that lies in an archive of its own.
    fn locate(
        &self,
        reader: &dyn ObjectReader,
        name: &str,
        tensor: &Tensor,
        at: &PieceAt,
        len_bytes: u64,
    ) -> Result<StoredPiece, Error> {
        let key = &self.model.files[at.file].key;
        let range = at.offset..at.offset.saturating_add(len_bytes);
        let found = torch_zip::locate(key, reader, range)?;
        if found.dtype != tensor.dtype || found.shape != at.piece.region.extent {
            let reason = format!(
                "at byte {} it holds {}{:?} where `{name}` has {}{:?}",
                at.offset, found.dtype, found.shape, tensor.dtype, at.piece.region.extent
            );
            return Err(Error::damaged(key, reason));
        }
        Ok(StoredPiece {
            offset: found.offset,
            ..stored_piece(at, found.strides)
        })
    }
}

fn stored_piece(at: &PieceAt, strides: Option<Vec<usize>>) -> StoredPiece {
    StoredPiece {
        file: at.file,
        offset: at.offset,
        piece: at.piece.clone(),
        strides,
    }
}

/// The boxes that a piece fills: one, unless it is a range of elements.
fn regions(piece: &Piece) -> Cow<'_, [Region]> {
    match piece.flat {
        None => Cow::Borrowed(std::slice::from_ref(&piece.region)),
        Some(_) => piece.boxes().into_iter().map(|part| part.region).collect(),
    }
}

impl Source for ModelSource {
    fn names(&self) -> Vec<&str> {
        self.model.names()
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        self.model.aliases.clone()
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        let tensor = self.model.find(name)?;
        Some(StoredTensor {
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
        })
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        let Some(tensor) = self.model.find(name) else {
            return Ok(Vec::new());
        };
        let mut readers: HashMap<usize, Box<dyn ObjectReader>> = HashMap::new();
        let mut found = Vec::new();
        let mut open = vec![region.clone()];
        for at in &tensor.pieces {
            let stored = regions(&at.piece);
            // A replica of what is found already is not looked at.
            let meets = |hole: &Region| stored.iter().any(|part| hole.meets(part));
            if !open.iter().any(meets) {
                continue;
            }
            for part in stored.iter() {
                open = open.iter().flat_map(|hole| hole.subtract(part)).collect();
            }
            let piece = match &at.encoding {
                Encoding::RowMajor => stored_piece(at, None),
                Encoding::Strided(strides) => stored_piece(at, Some(strides.clone())),
                Encoding::TorchArchive { len_bytes } => {
                    let reader = match readers.entry(at.file) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(new) => new.insert(self.reader(at.file)?),
                    };
                    self.locate(reader.as_ref(), name, tensor, at, *len_bytes)?
                }
            };
            found.push(piece);
        }
        Ok(found)
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        Ok(Arc::new(SourceFile {
            key: self.model.files[file].key.clone(),
            reader: self.reader(file)?,
            data_start: 0,
            crcs: None,
            origins: None,
        }))
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let read = |key: &String| {
            self.refuse_outside(key)?;
            let bytes = self.store.get(key).doing(|| format!("read `{key}`"))?;
            Ok((key.clone(), bytes))
        };
        self.model.assets.iter().map(read).collect()
    }

    fn places(&self) -> Vec<Location> {
        let files = self.model.files.iter().map(|file| file.key.as_str());
        let assets = self.model.assets.iter().map(String::as_str);
        let folder = (!self.is_file).then_some("");
        let keys = folder.into_iter().chain(files).chain(assets);
        keys.flat_map(|key| self.store.locations(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_store::Memory;
    use cairn_tensor::DType;

    /// A matrix of five rows and three columns whose elements `range` lie in a file of their own.
    fn stretch(file: usize, range: std::ops::Range<usize>) -> PieceAt {
        PieceAt {
            file,
            offset: 0,
            piece: Piece {
                region: Region::whole(&[5, 3]),
                flat: Some(range),
            },
            encoding: Encoding::RowMajor,
        }
    }

    #[test]
    fn ranges_of_elements_are_all_found_and_replicas_are_not() {
        let mut model = Model::default();
        let tensor = Tensor {
            dtype: DType::F32,
            shape: vec![5, 3],
            pieces: vec![stretch(0, 0..7), stretch(1, 0..7), stretch(2, 7..15)],
        };
        model.tensors.insert("w".into(), tensor);
        let source = ModelSource::new(Arc::new(Memory::new()), model);
        let files = |offset: [usize; 2], extent: [usize; 2]| {
            let region = Region {
                offset: offset.to_vec(),
                extent: extent.to_vec(),
            };
            let pieces = source.pieces("w", &region).unwrap();
            pieces.iter().map(|piece| piece.file).collect::<Vec<_>>()
        };
        assert_eq!(files([0, 0], [5, 3]), [0, 2]);
        assert_eq!(files([0, 0], [2, 3]), [0]);
        assert_eq!(files([3, 0], [2, 3]), [2]);
    }

    /// What `name` holds of the fixture at `place`, as four-byte floats.
    fn loaded(place: &str, name: &str) -> Vec<f32> {
        let folder = env!("CARGO_MANIFEST_DIR").replace("crates/checkpoint", "crates/formats");
        let store = Arc::new(cairn_store::Local::new(format!(
            "{folder}/fixtures/{place}"
        )));
        let model = cairn_formats::open(store.as_ref()).unwrap();
        let source = ModelSource::new(store, model);
        let count = source.find(name).unwrap().shape.iter().product();
        let (dtype, bytes) = crate::read_elements(&source, name, 0..count).unwrap();
        assert_eq!(dtype, DType::F32);
        let (floats, _) = bytes.as_chunks();
        floats
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()
    }

    #[test]
    fn compressed_chunks_load_like_any_others() {
        let counted: Vec<f32> = (0..48_u8).map(f32::from).collect();
        for form in ["zarr2", "zarr2-plain", "zarr3", "ocdbt2", "ocdbt3"] {
            assert_eq!(loaded(&format!("orbax/{form}"), "params.w"), counted);
        }
    }

    #[test]
    fn parameters_in_flat_buffers_load_like_any_others() {
        for (step, universal) in [("zero2", "zero2-universal"), ("zero3", "zero3-universal")] {
            for name in ["embed", "inner.bias", "optimizer.inner.weight.exp_avg_sq"] {
                let flat = loaded(&format!("deepspeed/{step}"), name);
                assert_eq!(flat, loaded(&format!("deepspeed/{universal}"), name));
            }
        }
    }
}
