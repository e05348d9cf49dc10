//! Proves that a checkpoint is what was saved: its structure always, its bytes on request.

use crate::Error;
use crate::checkpoint::{Checkpoint, StoredFile};
use crate::checksum::{BLOCK_BYTES, crc32c};
use crate::commit::{self, Attempt, IfCommitted, Supersedes};
use crate::error::chain;
use crate::error::{StoreContext, list};
use crate::image::{Image, entries};
use crate::load::damage;
use crate::names::{AttemptKeys, deleted_key, step_folder};
use crate::part::{FileEntry, ReadPart, read_head};
use crate::sample::Sample;
use crate::source::{Source, SourceFile};
use crate::workers::{asking, gather};
use cairn_store::{AlignedBuffer, Store};
use std::collections::HashMap;
use std::sync::OnceLock;

/// What a check found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// The data files looked at.
    pub files: usize,
    /// The bytes of all data files.
    pub len_bytes: u64,
    /// The bytes whose checksums were compared.
    pub checked_bytes: u64,
    /// Everything that is wrong.
    pub damage: Vec<Error>,
}

/// Checks that every part and data file is there with the right size and that they fit the manifest. Reads no tensor data.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn check_structure(checkpoint: &Checkpoint) -> Result<(), Error> {
    let (writers, is_far) = (checkpoint.manifest().writers(), checkpoint.store().is_far());
    let found = OnceLock::new();
    let files = gather(writers + 1, asking(is_far), |index| {
        // The listing is one request, beside those for the parts.
        let Some(writer) = index.checked_sub(1) else {
            let _ = found.set(sizes(checkpoint)?);
            return Ok::<_, Error>(Vec::new());
        };
        Ok(files_of(checkpoint, writer)?.map_or(Vec::new(), |(_, files)| files))
    })?;
    let sizes = found.into_inner().unwrap_or_default();
    for file in files.iter().flatten() {
        check_size(file, &sizes)?;
    }
    checkpoint.assets().map(|_| ())
}

/// Checks structure and, of every data file, the blocks in the sample. Goes on after damage, to list all of it.
///
/// # Errors
/// Only if the checkpoint cannot be looked at; damage is in the report.
pub fn verify(
    checkpoint: &Checkpoint,
    sample: impl Into<Sample>,
    progress: &dyn Fn(u64),
) -> Result<VerifyReport, Error> {
    let sample = sample.into();
    let mut report = VerifyReport::default();
    let sizes = sizes(checkpoint)?;
    for writer in 0..checkpoint.manifest().writers() {
        match check_writer(checkpoint, writer, &sizes) {
            Err(error) => report.keep(checkpoint.explain(error))?,
            Ok(None) => {}
            Ok(Some(file)) => {
                report.files += 1;
                report.len_bytes += file.len_bytes;
                check_header(checkpoint, writer, &file).or_else(|e| report.keep(e))?;
                check_bytes(checkpoint, writer, &sample, &mut report, progress)?;
            }
        }
    }
    if let Err(error) = checkpoint.assets() {
        report.keep(error)?;
    }
    Ok(report)
}

impl VerifyReport {
    /// Damage is what is looked for; anything else ends the check.
    fn keep(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_damage() {
            return Err(error);
        }
        self.damage.push(error);
        Ok(())
    }
}

/// The lengths of all objects of an attempt and of those it refers to, on every tier that has them.
pub(crate) type Sizes = HashMap<String, Vec<u64>>;

pub(crate) fn sizes(checkpoint: &Checkpoint) -> Result<Sizes, Error> {
    let bases = checkpoint.manifest().delta.iter();
    let bases = bases.flat_map(|delta| delta.bases.keys());
    let (store, mut sizes) = (checkpoint.store(), Sizes::new());
    for folder in [&checkpoint.keys().folder].into_iter().chain(bases) {
        // The view of all tiers comes first: it fails if nothing can be listed.
        let mut listing = store.list(folder).doing(|| format!("list `{folder}`"))?;
        if let Some(tiers) = store.tiers() {
            listing.extend(tiers.durable().list(folder).unwrap_or_default());
        }
        for meta in listing {
            sizes.entry(meta.key).or_default().push(meta.len);
        }
    }
    Ok(sizes)
}

/// Makes sure that the files of a writer are there with the right sizes. What its part says of its data file, if it has one.
pub(crate) fn check_writer(
    checkpoint: &Checkpoint,
    writer: usize,
    sizes: &Sizes,
) -> Result<Option<FileEntry>, Error> {
    let Some((file, stored)) = files_of(checkpoint, writer)? else {
        return Ok(None);
    };
    for stored in &stored {
        check_size(stored, sizes)?;
    }
    Ok(Some(file))
}

/// The data file of a writer, and the files that its data lies in; `None` if it has no data, and should have none.
fn files_of(
    checkpoint: &Checkpoint,
    writer: usize,
) -> Result<Option<(FileEntry, Vec<StoredFile>)>, Error> {
    let part = checkpoint.part(writer)?;
    let (ReadPart { part, .. }, blocks) = part.as_ref();
    let items = checkpoint.assignment().writer(writer)?;
    let Some(file) = part.file.clone() else {
        let key = checkpoint.keys().part(writer);
        return match items.items.is_empty() {
            true => Ok(None),
            false => Err(Error::damaged(key, "it names no data file, but should")),
        };
    };
    let mut stored = checkpoint.stored_files(&file, blocks);
    stored.retain(StoredFile::exists);
    Ok(Some((file, stored)))
}

fn check_size(file: &StoredFile, sizes: &Sizes) -> Result<(), Error> {
    let found = sizes.get(&file.key).map_or(&[][..], Vec::as_slice);
    file.check_objects(found)
}

/// The file must be laid out as the manifest's formulas say.
pub(crate) fn check_header(
    checkpoint: &Checkpoint,
    writer: usize,
    file: &FileEntry,
) -> Result<(), Error> {
    let items = checkpoint.assignment().writer(writer)?;
    let image = Image::new(&entries(&checkpoint.manifest().layout, &items))?;
    let stored = checkpoint.open_file(writer)?;
    let key = &stored.key;
    let misfit = || Error::damaged(key, "its header does not fit the manifest");
    if image.len != file.len_bytes {
        return Err(misfit());
    }
    let mut header = vec![0; image.header.len()];
    let read = stored.reader.read_at(0, &mut header);
    read.doing(|| format!("read `{key}`"))?;
    match image.header == header {
        true => Ok(()),
        false => Err(misfit()),
    }
}

fn check_bytes(
    checkpoint: &Checkpoint,
    writer: usize,
    sample: &Sample,
    report: &mut VerifyReport,
    progress: &dyn Fn(u64),
) -> Result<(), Error> {
    let file = match checkpoint.open_file(writer) {
        Ok(file) => file,
        Err(error) => return report.keep(error),
    };
    let stretch = sample.stretch_bytes();
    let mut buffer = stretch_buffer(file.reader.len(), stretch);
    let starts = (0..file.reader.len()).step_by(stretch);
    for (_, offset) in starts.enumerate().filter(|(n, _)| sample.takes(writer, *n)) {
        match check_stretch(checkpoint, writer, &file, offset, &mut buffer) {
            Err(error) => report.keep(error)?,
            Ok((len, damage)) => {
                report.checked_bytes += len;
                progress(len);
                report.damage.extend(damage);
            }
        }
    }
    Ok(())
}

/// Memory for a stretch of a file of `len` bytes.
pub(crate) fn stretch_buffer(len: u64, stretch: usize) -> AlignedBuffer {
    AlignedBuffer::new(usize::try_from(len).map_or(stretch, |len| len.min(stretch)))
}

/// Reads a stretch of a writer's file and compares its blocks: how many bytes they are, and what is wrong with them.
pub(crate) fn check_stretch(
    checkpoint: &Checkpoint,
    writer: usize,
    file: &SourceFile,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(u64, Vec<Error>), Error> {
    let left = usize::try_from(file.reader.len() - offset).unwrap_or(usize::MAX);
    let len = left.min(buffer.len());
    let bytes = &mut buffer[..len];
    let read = file.reader.read_at(offset, bytes);
    read.doing(|| format!("read bytes {offset}.. of `{}`", file.key))?;
    let begin = usize::try_from(offset).unwrap_or(usize::MAX);
    let crcs = file.crcs.as_deref().unwrap_or_default();
    let crcs = crcs.iter().skip(begin / BLOCK_BYTES);
    let mut damaged = Vec::new();
    for (block, (bytes, stored)) in bytes.chunks(BLOCK_BYTES).zip(crcs).enumerate() {
        let actual = crc32c(bytes);
        if actual != *stored {
            let begin = begin + block * BLOCK_BYTES;
            let range = begin..begin + bytes.len();
            let names = tensors_in(checkpoint, writer, file.data_start, &range)?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            damaged.push(damage(file, range, &names, Some(*stored), actual));
        }
    }
    Ok((len as u64, damaged))
}

/// The tensors that have bytes in `range` of a writer's file.
fn tensors_in(
    checkpoint: &Checkpoint,
    writer: usize,
    data_start: u64,
    range: &std::ops::Range<usize>,
) -> Result<Vec<String>, Error> {
    let items = checkpoint.assignment().writer(writer)?;
    let layout = &checkpoint.manifest().layout;
    let inside = items.items.iter().filter(|item| {
        let begin = data_start + item.offset;
        begin < range.end as u64 && range.start as u64 <= begin + item.len_bytes.saturating_sub(1)
    });
    Ok(inside
        .map(|item| layout.name(item.tensor).to_string())
        .collect())
}

/// What is known of a step that was never committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// The step.
    pub step: u64,
    /// The attempt.
    pub attempt: String,
    /// How many writers it should have; 0 if no part is there to say.
    pub world: usize,
    /// The writers whose parts are not there.
    pub missing: Vec<usize>,
    /// Whether its writers gave it up before all parts were there: one that came later may be of another moment.
    pub is_given_up: bool,
}

impl Unfinished {
    /// Whether every part is there, so that it can be committed.
    pub fn is_complete(&self) -> bool {
        self.world > 0 && self.missing.is_empty() && !self.is_given_up
    }

    /// What is missing, in words.
    pub fn reason(&self) -> String {
        match (self.world, self.missing.is_empty()) {
            (0, _) => format!("attempt `{}` has no parts", self.attempt),
            (_, true) if self.is_given_up => format!(
                "attempt `{}` has all parts, but some came after the other writers gave it up",
                self.attempt
            ),
            (_, true) => format!("attempt `{}` has all parts but no COMMIT", self.attempt),
            (world, false) => format!(
                "attempt `{}` has {} of {world} parts, not those of writers {}",
                self.attempt,
                world - self.missing.len(),
                list(&self.missing)
            ),
        }
    }
}

/// Whether `step` is deleted but for its files.
pub(crate) fn is_deleted(store: &dyn Store, step: u64) -> Result<bool, Error> {
    let key = deleted_key(step);
    let found = store.head(&key).doing(|| format!("look for `{key}`"))?;
    Ok(found.is_some())
}

/// Looks at the attempts of an uncommitted step.
///
/// # Errors
/// If the store cannot be listed.
pub fn unfinished(store: &dyn Store, step: u64) -> Result<Vec<Unfinished>, Error> {
    let folder = step_folder(step);
    let attempts = store
        .list_folders(&folder)
        .doing(|| format!("list `{folder}`"))?;
    attempts
        .iter()
        .map(|attempt| look_at(store, step, attempt))
        .collect()
}

fn look_at(store: &dyn Store, step: u64, attempt: &str) -> Result<Unfinished, Error> {
    let keys = AttemptKeys::new(step, attempt);
    let listing = store
        .list(&keys.folder)
        .doing(|| format!("list `{}`", keys.folder))?;
    let here: Vec<usize> = listing
        .iter()
        .filter_map(|meta| keys.writer_of_part(&meta.key))
        .collect();
    let world = here
        .iter()
        .find_map(|writer| read_head(store, &keys, *writer).ok())
        .map_or(0, |part| part.part.world);
    Ok(Unfinished {
        step,
        attempt: attempt.to_string(),
        world,
        missing: (0..world).filter(|writer| !here.contains(writer)).collect(),
        is_given_up: commit::missed_writers(store, &keys)?,
    })
}

/// Commits a step whose parts are all there; on tiers, on the one where its writers look for parts. Does nothing if it is committed.
///
/// # Errors
/// [`Error::Incomplete`] if no attempt has all its parts, or two have, or its writers gave it up before all were there; damage in the parts.
pub fn finish(store: &dyn Store, step: u64) -> Result<(), Error> {
    let store = match store.tiers() {
        Some(tiers) if tiers.is_per_node() => tiers.durable().as_ref(),
        Some(tiers) => tiers.fast().as_ref(),
        None => store,
    };
    if crate::standing::committed_attempt(store, step)?.is_some() {
        return Ok(());
    }
    if is_deleted(store, step)? {
        return Err(Error::Deleted { step });
    }
    let attempts = unfinished(store, step)?;
    let complete: Vec<&Unfinished> = attempts.iter().filter(|a| a.is_complete()).collect();
    let [only] = complete[..] else {
        let reasons: Vec<String> = attempts.iter().map(Unfinished::reason).collect();
        let reason = match complete.len() {
            0 => reasons.join("; "),
            _ => format!("several attempts are complete: {}", reasons.join("; ")),
        };
        return Err(Error::Incomplete { step, reason });
    };
    let attempt = Attempt {
        step,
        name: only.attempt.clone(),
        world: only.world,
        if_committed: IfCommitted::Refuse,
        launch: None,
        supersedes: Supersedes::Nothing,
    };
    attempt
        .commit(store)
        .inspect_err(|error| tracing::warn!(step, error = %chain(error), "cannot finish"))
}
