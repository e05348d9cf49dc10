//! A capture whose writer is gone, on its way to the store by the hand of its keeper.

use super::{Draft, Snapshot};
use crate::Error;
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::clock::Clock;
use crate::commit::{Attempt, Cutoff, IfCommitted, Patience, Supersedes};
use crate::copies::near;
use crate::error::StoreContext;
use crate::manifest::Manifest;
use crate::part::{FileEntry, Part, ReadPart, parse_whole};
use crate::pool::{CHUNK_BYTES, Pool};
use crate::writer::{Chunk, Output, Sink, chunk_count, chunk_len};
use cairn_store::{AlignedBuffer, ObjectReader, PutMode, Store, Tiered};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Chunks on their way from the image to the store.
const CHUNKS_IN_FLIGHT: u64 = 4;

/// A complete capture whose writer died before its step was committed.
#[derive(Debug)]
pub struct Orphan {
    snapshot: Snapshot,
    draft: Draft,
}

impl Orphan {
    /// Reads the draft its writer left.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is none, or one of another snapshot.
    pub fn new(snapshot: &Snapshot, draft: &[u8]) -> Result<Self, Error> {
        let draft = Draft::decode(draft)?;
        let part = &draft.part;
        let len_bytes = part.file.as_ref().map_or(0, |file| file.len_bytes);
        let same = part.step == snapshot.step
            && part.attempt == snapshot.attempt
            && part.writer == snapshot.writer
            && part.world == snapshot.world
            && len_bytes == snapshot.len_bytes;
        match same {
            true => Ok(Self {
                snapshot: snapshot.clone(),
                draft,
            }),
            false => Err(Error::damaged(
                "the draft of a part",
                "it is that of another snapshot",
            )),
        }
    }

    /// The small files that travel with the save, by key.
    pub fn assets(&self) -> BTreeMap<String, Vec<u8>> {
        let keys = self.snapshot.keys();
        let assets = self.draft.assets.iter();
        assets
            .map(|(name, bytes)| (keys.asset(name), bytes.clone()))
            .collect()
    }

    /// Computes the checksums of the image and returns the part's bytes.
    ///
    /// # Errors
    /// If the image cannot be read.
    pub fn checksum(&self, image: &dyn ObjectReader) -> Result<Vec<u8>, Error> {
        let crcs = checksums(image, self.snapshot.len_bytes)?;
        Ok(self.part(&crcs).encode(&crcs, None))
    }

    /// Makes data, small files and part durable, as far as the writer had not. Returns the bytes of the part that is in the store.
    ///
    /// # Errors
    /// If the store fails, or what is in it is not this capture.
    pub fn write(
        &self,
        store: &Arc<dyn Store>,
        image: &dyn ObjectReader,
        part: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let key = self.snapshot.part_key();
        let (ours, blocks) = parse_whole(&key, part)?;
        match store.get(&key) {
            Err(cairn_store::Error::NotFound { .. }) => {}
            Ok(bytes) => {
                let (theirs, _) = parse_whole(&key, &bytes)?;
                return match same_content(&theirs.part, &ours.part) {
                    true => self.settle(store).map(|()| bytes),
                    false => Err(self.differs(key)),
                };
            }
            Err(source) => return Err(source).doing(|| format!("read `{key}`")),
        }
        if self.snapshot.len_bytes > 0 {
            self.write_data(store, image, &blocks.crcs)?;
        }
        for (key, bytes) in self.assets() {
            put_once(store.as_ref(), &key, &bytes)?;
        }
        // The part says that the data is durable, and how it is stored: a writer that had left out or compressed some of it did so elsewhere.
        let part = self.part(&blocks.crcs).encode(&blocks.crcs, None);
        self.settle(store)?;
        put_once(store.as_ref(), &key, &part)?;
        Ok(part)
    }

    /// Makes durable what the writer put before it died: it is seen before its name is durable.
    fn settle(&self, store: &Arc<dyn Store>) -> Result<(), Error> {
        let folder = self.snapshot.keys().folder;
        let settled = near(store).settle(&folder);
        settled.doing(|| format!("make `{folder}` durable"))
    }

    /// Waits for the other writers of the step and commits it; on tiers, on the fast one, from where the next launch uploads it.
    ///
    /// # Errors
    /// If they do not come in time, or contradict each other.
    pub fn commit(
        &self,
        store: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
        timeout: Duration,
    ) -> Result<(), Error> {
        if store.tiers().is_some_and(Tiered::is_per_node) {
            // The others' files never come here.
            return Ok(());
        }
        let patience = Patience {
            clock: clock.clone(),
            timeout,
            takeover: Duration::ZERO,
            // What is in memory is tried again, for as long as it takes.
            is_final: false,
            cutoff: Cutoff::default(),
        };
        let (attempt, writer) = (self.attempt(), self.snapshot.writer);
        // What is durable may have left the fast tier.
        let is_durable = || {
            let durable = store.tiers().map(Tiered::durable);
            durable.is_some_and(|durable| attempt.is_safe(durable.as_ref()).unwrap_or(false))
        };
        if is_durable() {
            return Ok(());
        }
        match attempt.wait(near(store).as_ref(), writer, &patience) {
            Err(Error::WritersMissing { .. }) if is_durable() => Ok(()),
            waited => waited,
        }
    }

    fn write_data(
        &self,
        store: &Arc<dyn Store>,
        image: &dyn ObjectReader,
        crcs: &[u32],
    ) -> Result<(), Error> {
        let (key, len) = (self.snapshot.data_key(), self.snapshot.len_bytes);
        let pool = Arc::new(Pool::new(Some(CHUNKS_IN_FLIGHT * CHUNK_BYTES as u64)));
        let output = Output::new(
            store.clone(),
            key.clone(),
            len,
            pool.clone(),
            Arc::default(),
        );
        let sink = Sink::file(output);
        for index in 0..chunk_count(len) {
            let mut buffer = pool.take()?;
            let chunk_len = chunk_len(index, len).unwrap_or(0);
            if let Err(error) = read_chunk(image, index, &mut buffer[..chunk_len]) {
                sink.abandon();
                return Err(error);
            }
            sink.send(Chunk::new(index, chunk_len, buffer));
        }
        let written = match sink.close().finish() {
            Err(Error::Store {
                source: cairn_store::Error::AlreadyExists { .. },
                ..
            }) => {
                // The writer died between its data and its part.
                let reader = store.reader(&key).doing(|| format!("open `{key}`"))?;
                checksums(reader.as_ref(), len)?
            }
            result => result?.crcs,
        };
        match written == crcs {
            true => Ok(()),
            false => Err(self.differs(key)),
        }
    }

    fn part(&self, crcs: &[u32]) -> Part {
        let (mut part, writer) = (self.draft.part.clone(), self.snapshot.writer);
        part.file = part
            .file
            .map(|file| FileEntry::new(writer, file.len_bytes, file.data_start, crcs));
        part
    }

    fn differs(&self, key: String) -> Error {
        Error::damaged(key, "it is not what was captured")
    }

    fn attempt(&self) -> Attempt {
        Attempt {
            step: self.snapshot.step,
            name: self.snapshot.attempt.clone(),
            world: self.snapshot.world,
            if_committed: match self.snapshot.replace {
                true => IfCommitted::Replace,
                false => IfCommitted::Refuse,
            },
            launch: self.draft.part.launch.clone(),
            supersedes: match (&self.draft.part, self.snapshot.replace) {
                // Only writer 0 knows what it takes the place of.
                (part, false) if part.writer > 0 && part.launch.is_some() => Supersedes::Undecided,
                (part, _) => match &part.replaces {
                    Some(attempt) => Supersedes::Attempt(attempt.clone()),
                    None => Supersedes::Nothing,
                },
            },
        }
    }
}

/// Whether two parts are of the same bytes, however they are stored: a writer may have left out what an earlier step has.
fn same_content(one: &Part, other: &Part) -> bool {
    match (&one.file, &other.file) {
        (Some(one), Some(other)) => one.same_content(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// The manifest of a step whose parts are these, in the order of their writers, as whoever commits it would write it.
///
/// # Errors
/// If one is damaged, or they do not belong together.
pub fn manifest_of(parts: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let read = |bytes: &Vec<u8>| parse_whole("a part", bytes).map(|(part, _)| part);
    let parts: Result<Vec<ReadPart>, Error> = parts.iter().map(read).collect();
    let parts = parts?;
    let attempt = |part: &Part| (part.step, part.attempt.clone(), part.world);
    let first = parts.first().map(|first| attempt(&first.part));
    let together = parts
        .iter()
        .enumerate()
        .all(|(writer, read)| read.part.writer == writer && Some(attempt(&read.part)) == first);
    match together && first.is_some_and(|(.., world)| world == parts.len()) {
        true => Ok(Manifest::join(parts)?.encode()),
        false => Err(Error::damaged("a part", "it is one of another save")),
    }
}

/// The CRC of each block of the first `len` bytes.
fn checksums(reader: &dyn ObjectReader, len: u64) -> Result<Vec<u32>, Error> {
    let mut crcs = Vec::new();
    let mut buffer = AlignedBuffer::new(chunk_len(0, len).unwrap_or(0));
    for index in 0..chunk_count(len) {
        let bytes = &mut buffer[..chunk_len(index, len).unwrap_or(0)];
        read_chunk(reader, index, bytes)?;
        crcs.extend(bytes.chunks(BLOCK_BYTES).map(crc32c));
    }
    Ok(crcs)
}

fn read_chunk(reader: &dyn ObjectReader, index: usize, bytes: &mut [u8]) -> Result<(), Error> {
    let offset = index as u64 * CHUNK_BYTES as u64;
    let read = reader.read_at(offset, bytes);
    read.doing(|| format!("read bytes {offset}.. of an image"))
}

/// Puts what may be there already: whoever was first put the same.
fn put_once(store: &dyn Store, key: &str, bytes: &[u8]) -> Result<(), Error> {
    match store.put(key, bytes, PutMode::Create) {
        Err(cairn_store::Error::AlreadyExists { .. }) => Ok(()),
        result => result.doing(|| format!("write `{key}`")),
    }
}

#[cfg(test)]
mod tests {
    //! A save that others have ended is found, wherever it is by now; one that is ended here is what the store says it is.

    use super::*;
    use crate::part::read_head;
    use crate::source::Source;
    use crate::{
        Checkpoint, Checkpointer, LoadOptions, Options, SaveOptions, State, Target, World,
        machine_clock,
    };
    use cairn_sharding::{Mesh, TensorSpec};
    use cairn_store::Memory;

    #[test]
    fn what_is_durable_and_has_left_the_fast_tier_is_committed() {
        let (fast, durable) = (Arc::new(Memory::new()), Arc::new(Memory::new()));
        let store: Arc<dyn Store> = Arc::new(Tiered::new(fast.clone(), durable.clone()));
        let options = Options {
            keep_fast: Some(1),
            ..Options::default()
        };
        let run = Checkpointer::with_options(store.clone(), World::single(), options);
        let spec = TensorSpec::parse(&Mesh::single(), "u8[1]").unwrap();
        let mut state = State::new(0);
        state.tensor("weights", &spec, &[7]).unwrap();
        let [saved, _] = [1, 2].map(|step| {
            let saving = run.save(step, &state, &SaveOptions::default());
            saving.unwrap().wait().unwrap()
        });
        drop(run);
        let mut snapshot = Snapshot {
            run: store.url(),
            step: 1,
            attempt: saved.attempt,
            writer: 0,
            world: 1,
            len_bytes: 0,
            replace: false,
        };
        assert!(fast.head(&snapshot.commit_key()).unwrap().is_none());
        let part = read_head(durable.as_ref(), &snapshot.keys(), 0).unwrap();
        snapshot.len_bytes = part.part.file.as_ref().unwrap().len_bytes;
        let draft = Draft {
            part: part.part,
            assets: BTreeMap::new(),
        };
        let orphan = Orphan::new(&snapshot, &draft.encode()).unwrap();
        let committed = orphan.commit(&store, &machine_clock(), Duration::ZERO);
        committed.unwrap();
    }

    #[test]
    fn what_a_writer_compressed_elsewhere_is_written_plain_and_said_to_be() {
        let [lost, store]: [Arc<dyn Store>; 2] = [(); 2].map(|()| Arc::new(Memory::new()) as _);
        let options = Options {
            compress: true,
            ..Options::default()
        };
        let run = Checkpointer::with_options(lost.clone(), World::single(), options);
        let spec = TensorSpec::parse(&Mesh::single(), "f32[20000]").unwrap();
        let bytes = [0, 0, 128, 63].repeat(20_000);
        let mut state = State::new(0);
        state.tensor("weights", &spec, &bytes).unwrap();
        let saving = run.save(1, &state, &SaveOptions::default()).unwrap();
        let attempt = saving.wait().unwrap().attempt;
        let saved = Checkpoint::open(lost.clone(), 1).unwrap();
        let (read, blocks) = saved.read_part(0).unwrap();
        let file = read.part.file.as_ref().unwrap();
        assert!(file.packed.is_some());
        let snapshot = Snapshot {
            run: store.url(),
            step: 1,
            attempt,
            writer: 0,
            world: 1,
            len_bytes: file.len_bytes,
            replace: false,
        };
        let plain = FileEntry::new(0, file.len_bytes, file.data_start, &blocks.crcs);
        let draft = Draft {
            part: Part {
                file: Some(plain),
                ..read.part.clone()
            },
            assets: BTreeMap::new(),
        };
        let orphan = Orphan::new(&snapshot, &draft.encode()).unwrap();
        let image = saved.open_file(0).unwrap();
        let told = lost.get(&snapshot.part_key()).unwrap();
        let written = orphan.write(&store, image.reader.as_ref(), &told).unwrap();
        let manifest = manifest_of(&[written]).unwrap();
        let commit = snapshot.commit_key();
        store.put(&commit, &manifest, PutMode::Create).unwrap();
        let mut loaded = vec![0; bytes.len()];
        let target = Target::new("weights", &spec, 0, &mut loaded).unwrap();
        let ended = Checkpoint::open(store, 1).unwrap();
        ended.check().unwrap();
        ended.load(vec![target], &LoadOptions::default()).unwrap();
        assert_eq!(loaded, bytes);
    }
}
