//! The manifest: what a committed checkpoint contains, under the name `COMMIT`.
//!
//! Its size depends on the number of tensors, and by sixteen characters on the number of writers.

mod brief;

pub(crate) use brief::Brief;

use crate::Error;
use crate::clock::unix_seconds;
use crate::delta;
use crate::error::list;
use crate::layout::Layout;
use crate::lines::{self, Parent};
use crate::packed;
use crate::part::{AssetEntry, FileEntry, ReadPart, field, line_field, put_origin};
use crate::seal::{seal, unseal};
use cairn_sharding::{Distribution, Piece, Region};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The newest format version this build reads. It writes version 1 wherever a reader of that would read it rightly.
pub const FORMAT_VERSION: u64 = 2;

/// What a document may ask of its readers, as far as is known here.
const FEATURES: [&str; 3] = [delta::FEATURE, packed::FEATURE, lines::FEATURE];

/// The digits of a part's digest that the manifest keeps.
pub(crate) const DIGEST_DIGITS: usize = 16;

/// The contents of a committed checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The step.
    pub step: u64,
    /// The attempt whose files these are.
    pub attempt: String,
    /// The attempt whose state this one has, written anew.
    pub rewrite_of: Option<String>,
    /// When writer 0 finished its part: RFC 3339, UTC.
    pub created: String,
    /// The launch that saved it: an identifier that no other launch has. Versions before 0.2 did not record it.
    pub launch: Option<String>,
    /// The line that the step belongs to: 0 until the run goes back for the first time.
    pub line: u64,
    /// The committed step that came before it, if that is known.
    pub parent: Option<Parent>,
    /// The program that wrote it.
    pub program: String,
    /// Every tensor and how it is spread over the writers.
    pub layout: Layout,
    /// Plain values shared by all ranks.
    pub values: BTreeMap<String, Value>,
    /// Words the user gave this step; retention can keep by them.
    pub tags: Vec<String>,
    /// Small files that travel with the state.
    pub assets: BTreeMap<String, AssetEntry>,
    /// The bytes of all data files; of deltas, those that they stand for.
    pub len_bytes: u64,
    /// What lies in files of other attempts, if something does.
    pub delta: Option<DeltaSummary>,
    /// What of it is compressed, if something is.
    pub packed: Option<PackedSummary>,
    /// For each writer, the first digits of its part's digest.
    pub(crate) parts: Vec<String>,
}

/// How much of a step lies in its own files, and which others it needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeltaSummary {
    /// The bytes of the step's own data files, before they were compressed.
    pub stored_bytes: u64,
    /// The folders of other attempts, from that of the run on, and the files in them that the step refers to.
    pub bases: BTreeMap<String, BTreeSet<String>>,
}

impl DeltaSummary {
    /// The keys of the files that the step refers to.
    fn files(&self) -> impl Iterator<Item = String> + '_ {
        let bases = self.bases.iter();
        bases.flat_map(|(folder, files)| files.iter().map(move |file| format!("{folder}/{file}")))
    }

    /// What the parts of a step refer to together; `None` if none of them is a delta.
    fn of(files: &[&FileEntry]) -> Option<Self> {
        let mut deltas = files
            .iter()
            .filter_map(|file| file.delta.as_ref())
            .peekable();
        deltas.peek()?;
        let mut bases: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for key in deltas.flat_map(|delta| &delta.bases) {
            let (folder, file) = key.rsplit_once('/').unwrap_or(("", key));
            let files = bases.entry(folder.to_string()).or_default();
            files.insert(file.to_string());
        }
        Some(Self {
            stored_bytes: files.iter().map(|file| file.own_bytes()).sum(),
            bases,
        })
    }
}

/// How much is left of a step whose files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PackedSummary {
    /// The bytes of the step's own data files, as they are stored.
    pub stored_bytes: u64,
}

impl PackedSummary {
    /// Of the files of a step; `None` if none of them is packed.
    fn of(files: &[&FileEntry]) -> Option<Self> {
        let any = files.iter().any(|file| file.packed.is_some());
        any.then(|| Self {
            stored_bytes: files.iter().map(|file| file.stored_bytes()).sum(),
        })
    }
}

impl Manifest {
    /// Whether its data files are plain safetensors files.
    pub fn is_plain(&self) -> bool {
        self.delta.is_none() && self.packed.is_none()
    }

    /// The bytes of the step's own data files, as they are stored.
    pub fn stored_bytes(&self) -> u64 {
        let own = self.delta.as_ref().map(|delta| delta.stored_bytes);
        let packed = self.packed.map(|packed| packed.stored_bytes);
        packed.or(own).unwrap_or(self.len_bytes)
    }

    /// What whoever reads it must know.
    fn needs(&self) -> Vec<&'static str> {
        let delta = self.delta.as_ref().map(|_| delta::FEATURE);
        let packed = self.packed.as_ref().map(|_| packed::FEATURE);
        // Versions that know of no lines would take an abandoned step for the newest one, and delete by number.
        let lines = (self.line > 0).then_some(lines::FEATURE);
        delta.into_iter().chain(packed).chain(lines).collect()
    }

    /// The keys of the files of other attempts that this step refers to.
    pub fn base_files(&self) -> Vec<String> {
        self.delta.iter().flat_map(DeltaSummary::files).collect()
    }

    /// Whether this is what `attempt` saved, by itself or written anew since.
    pub(crate) fn is_of(&self, attempt: &str) -> bool {
        self.attempt == attempt || self.rewrite_of.as_deref() == Some(attempt)
    }

    /// How long ago the state was saved, by the clocks of writer 0 and of this machine: a copy of the step, or one written anew, is as
    /// old. `None` if `created` is no time.
    pub fn age(&self) -> Option<Duration> {
        let saved = Duration::from_secs(unix_seconds(&self.created)?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Some(now.unwrap_or_default().saturating_sub(saved))
    }

    /// The number of writers.
    pub fn writers(&self) -> usize {
        self.parts.len()
    }

    /// Joins the parts of all writers, which must be in order and complete.
    ///
    /// Any process that does this gets the same manifest, byte for byte.
    pub(crate) fn join(parts: Vec<ReadPart>) -> Result<Self, Error> {
        let step = parts.first().map_or(0, |part| part.part.step);
        let disagree = |reason: String| Error::Disagreement { step, reason };
        check_launch(&parts).map_err(disagree)?;
        let digests = parts
            .iter()
            .map(|part| part.digest[..DIGEST_DIGITS].to_string())
            .collect();
        let hashes: Vec<u64> = parts.iter().map(|part| part.part.layout_hash).collect();
        let files = parts.iter().filter_map(|part| part.part.file.as_ref());
        let files: Vec<&FileEntry> = files.collect();
        let len_bytes = files.iter().map(|file| file.len_bytes).sum();
        let (delta, packed) = (DeltaSummary::of(&files), PackedSummary::of(&files));
        let layouts: Vec<Layout> = parts.iter().map(|part| part.part.layout.clone()).collect();
        let layout = Layout::join(layouts).map_err(disagree)?;
        layout.check_names().map_err(disagree)?;
        check_hashes(&layout, &hashes).map_err(disagree)?;
        check_cover(&layout).map_err(disagree)?;
        let first = parts.into_iter().next().map(|part| part.part);
        let first = first.ok_or_else(|| Error::Disagreement {
            step,
            reason: "there are no parts".into(),
        })?;
        Ok(Self {
            step: first.step,
            attempt: first.attempt,
            rewrite_of: first.rewrite_of,
            created: first.created,
            launch: first.launch,
            line: first.line,
            parent: first.parent,
            program: concat!("cairn ", env!("CARGO_PKG_VERSION")).into(),
            layout,
            values: first.values,
            tags: first.tags,
            assets: first.assets,
            len_bytes,
            delta,
            packed,
            parts: digests,
        })
    }

    /// The manifest's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut members = Map::new();
        put_version(&mut members, &self.needs());
        members.insert("kind".into(), json!("manifest"));
        members.insert("program".into(), json!(self.program));
        members.insert("step".into(), json!(self.step));
        members.insert("attempt".into(), json!(self.attempt));
        if let Some(attempt) = &self.rewrite_of {
            members.insert("rewrite_of".into(), json!(attempt));
        }
        members.insert("created".into(), json!(self.created));
        put_origin(
            &mut members,
            self.launch.as_ref(),
            self.line,
            self.parent.as_ref(),
        );
        members.insert("tags".into(), json!(self.tags));
        members.insert("len_bytes".into(), json!(self.len_bytes));
        if let Some(delta) = &self.delta {
            members.insert("delta".into(), json!(delta));
        }
        if let Some(packed) = &self.packed {
            members.insert("packed".into(), json!(packed));
        }
        self.layout.write_json(&mut members);
        members.insert("values".into(), json!(self.values));
        members.insert("assets".into(), json!(self.assets));
        members.insert("writers".into(), json!(self.parts.len()));
        members.insert("parts".into(), json!(self.parts.concat()));
        seal(&members).0.into_bytes()
    }

    /// Reads a manifest; `file` names it in errors.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the seal is broken or a member makes no sense, [`Error::Version`] if it is too new.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let sealed = unseal(bytes).map_err(|reason| Error::damaged(file, reason))?;
        check_version(file, &sealed.members)?;
        Self::from_members(&sealed.members).map_err(|reason| Error::damaged(file, reason))
    }

    fn from_members(members: &Map<String, Value>) -> Result<Self, String> {
        let digests: String = field(members, "parts")?;
        let writers: usize = field(members, "writers")?;
        if !digests.is_ascii() || Some(digests.len()) != writers.checked_mul(DIGEST_DIGITS) {
            return Err("`parts` does not have one digest for each writer".into());
        }
        let parts = (0..writers)
            .map(|i| digests[i * DIGEST_DIGITS..(i + 1) * DIGEST_DIGITS].to_string())
            .collect();
        Ok(Self {
            step: field(members, "step")?,
            attempt: field(members, "attempt")?,
            rewrite_of: field(members, "rewrite_of")?,
            created: field(members, "created")?,
            launch: field(members, "launch")?,
            line: line_field(members)?,
            parent: field(members, "parent")?,
            program: field(members, "program")?,
            layout: Layout::read_json(members)?,
            values: field(members, "values")?,
            tags: field(members, "tags")?,
            assets: field(members, "assets")?,
            len_bytes: field(members, "len_bytes")?,
            delta: field(members, "delta")?,
            packed: field(members, "packed")?,
            parts,
        })
    }
}

/// Begins a document: with version 1, or, if its readers must know features, with the one that has those, and their names.
pub(crate) fn put_version(members: &mut Map<String, Value>, needs: &[&str]) {
    let version = if needs.is_empty() { 1 } else { FORMAT_VERSION };
    members.insert("cairn".into(), json!(version));
    if !needs.is_empty() {
        members.insert("needs".into(), json!(needs));
    }
}

/// Refuses documents of a newer version, and those that need something unknown, by name.
pub(crate) fn check_version(file: &str, members: &Map<String, Value>) -> Result<(), Error> {
    let found = members.get("cairn").and_then(Value::as_u64).unwrap_or(0);
    match found {
        0 => return Err(Error::damaged(file, "it has no format version")),
        1..=FORMAT_VERSION => {}
        found => {
            return Err(Error::Version {
                file: file.into(),
                found,
                supported: FORMAT_VERSION,
            });
        }
    }
    let needs: Option<Vec<String>> =
        field(members, "needs").map_err(|reason| Error::damaged(file, reason))?;
    let known = |feature: &String| FEATURES.contains(&feature.as_str());
    match needs.into_iter().flatten().find(|feature| !known(feature)) {
        None => Ok(()),
        Some(feature) => Err(Error::Needs {
            file: file.into(),
            feature,
        }),
    }
}

/// Parts of one step come from one launch: those of two would be of two moments.
fn check_launch(parts: &[ReadPart]) -> Result<(), String> {
    let launches = parts.iter().map(|read| read.part.launch.as_ref());
    let first = parts.first().and_then(|read| read.part.launch.as_ref());
    let others: Vec<usize> = launches
        .enumerate()
        .filter_map(|(writer, launch)| (launch != first).then_some(writer))
        .collect();
    match others.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "the parts of writers {} come from another launch than that of writer 0",
            list(&others)
        )),
    }
}

/// Every writer must have had the same idea of the tensors it holds.
fn check_hashes(layout: &Layout, sent: &[u64]) -> Result<(), String> {
    let hashes = layout.entry_hashes();
    let wrong: Vec<usize> = (0..sent.len())
        .filter(|writer| layout.hash_held_by(*writer, &hashes) != sent[*writer])
        .collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "writers {} describe the tensors they hold otherwise than the writers that hold them first",
            list(&wrong)
        )),
    }
}

/// Listed pieces must cover their tensor; formulas do by construction.
fn check_cover(layout: &Layout) -> Result<(), String> {
    for (name, spec) in layout.iter() {
        let Distribution::Listed(listed) = spec.distribution() else {
            continue;
        };
        let held = listed.by_rank().values().flatten();
        let boxes: Vec<Region> = held
            .flat_map(Piece::boxes)
            .map(|held| held.region)
            .collect();
        if let Some(hole) = first_hole(&Region::whole(spec.shape()), &boxes) {
            return Err(format!(
                "nobody holds the elements `{hole}` of tensor `{name}`"
            ));
        }
    }
    Ok(())
}

/// A box of `whole` that none of `boxes` covers.
pub(crate) fn first_hole(whole: &Region, boxes: &[Region]) -> Option<Region> {
    let mut left = vec![whole.clone()];
    for held in boxes {
        left = left.iter().flat_map(|open| open.subtract(held)).collect();
    }
    left.into_iter().find(|open| !open.is_empty())
}
