//! Where everything lies under a run's folder.
//!
//! ```text
//! lines/00000001               where line 1 of the run began
//! launches/…                   where ranks that share only a name agree on an identifier
//! step-00012000/
//!     4d1c2b…/                 one attempt, immutable
//!         00000.safetensors    what writer 0 wrote
//!         00000.part           writer 0's receipt: sizes, checksums
//!         00000.delta          instead of it, if other files hold what did not change
//!         00000.….packed       instead of one of these, compressed
//!         00000.pin            the files of earlier steps that writer 0 may refer to
//!         00000.blake3         of its blocks, for whoever saves next
//!         00000.hashes         of a signed step: the SHA-256 of each block of writer 0's file
//!         00000.timeline       where the time of rank 0 went; nobody depends on it
//!         FAILED               the first writer that gave up says why
//!         DURABLE              on a fast tier: the attempt is committed on the durable one, whose address this is
//!         files/config.json    small files that travel with the state
//!     COMMIT                   the manifest; its existence is the commit
//!     HIDDEN                   the manifest, while a pruning makes sure that the step may go; it is still committed
//!     DELETED                  the manifest of a step that was deleted, until its files are
//!     PRUNING                  the lock of who removes its manifest
//!     SIGNATURE                who vouches for the step
//!     best.tag                 whether the step has the tag `best`
//! ```

use crate::checksum::{sha256_hex, to_hex};

/// The name of the object whose existence commits a step.
pub const COMMIT: &str = "COMMIT";

/// The name of a manifest that a pruning took aside: its step is committed until that is sure that it may go.
pub const HIDDEN: &str = "HIDDEN";

/// The name of a manifest whose step was deleted, for as long as its files are there.
pub const DELETED: &str = "DELETED";

/// The name of a step's lock.
const PRUNING: &str = "PRUNING";

/// The name of objects on a fast tier that say where the durable one is: of the run, and of each attempt that is committed there.
pub(crate) const DURABLE: &str = "DURABLE";

/// The ending of files that say where the time of a save went.
const TIMELINE: &str = ".timeline";

/// The ending of files that say what a writer may refer to.
const PIN: &str = ".pin";

/// Whether the key of a file directly inside an attempt is that of a pin.
pub(crate) fn is_pin(key: &str) -> bool {
    key.ends_with(PIN)
}

/// Whether a key is that of a timeline: an account of a save, no part of what was saved.
pub fn is_timeline(key: &str) -> bool {
    key.ends_with(TIMELINE) && !key.contains("/files/")
}

/// Whether a key is that of a data file, in any form.
pub fn is_data_file(key: &str) -> bool {
    let plain = key.strip_suffix(".packed").unwrap_or(key);
    let is_asset = key.contains("/files/");
    !is_asset && (plain.ends_with(".safetensors") || plain.ends_with(".delta"))
}

/// The folder of `step`: `step-00012000`.
pub fn step_folder(step: u64) -> String {
    format!("step-{step:08}")
}

/// The step a folder name stands for.
pub fn parse_step_folder(folder: &str) -> Option<u64> {
    let step = folder.strip_prefix("step-")?.parse().ok()?;
    (step_folder(step) == folder).then_some(step)
}

/// The key of a step's manifest.
pub(crate) fn commit_key(step: u64) -> String {
    format!("{}/{COMMIT}", step_folder(step))
}

/// The key of a step's manifest while a pruning makes sure that it may go.
pub(crate) fn hidden_key(step: u64) -> String {
    format!("{}/{HIDDEN}", step_folder(step))
}

/// The key of a deleted step's manifest.
pub(crate) fn deleted_key(step: u64) -> String {
    format!("{}/{DELETED}", step_folder(step))
}

/// The key of the lock under which a step's manifest is removed.
pub(crate) fn lock_key(step: u64) -> String {
    format!("{}/{PRUNING}", step_folder(step))
}

/// The name of an attempt: the same on every rank of a launch, never the same twice.
pub(crate) fn attempt_name(launch: &str, step: u64, save_count: u64) -> String {
    let text = format!("{launch}\n{step}\n{save_count}");
    sha256_hex(text.as_bytes())[..16].to_string()
}

/// The keys of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttemptKeys {
    pub(crate) folder: String,
}

impl AttemptKeys {
    pub(crate) fn new(step: u64, attempt: &str) -> Self {
        let folder = format!("{}/{attempt}", step_folder(step));
        Self { folder }
    }

    pub(crate) fn data(&self, writer: usize) -> String {
        format!("{}/{}", self.folder, data_file(writer))
    }

    pub(crate) fn delta(&self, writer: usize) -> String {
        format!("{}/{}", self.folder, delta_file(writer))
    }

    pub(crate) fn pin(&self, writer: usize) -> String {
        format!("{}/{writer:05}{PIN}", self.folder)
    }

    pub(crate) fn block_hashes(&self, writer: usize) -> String {
        format!("{}/{writer:05}.blake3", self.folder)
    }

    pub(crate) fn part(&self, writer: usize) -> String {
        format!("{}/{writer:05}.part", self.folder)
    }

    pub(crate) fn hashes(&self, writer: usize) -> String {
        format!("{}/{writer:05}.hashes", self.folder)
    }

    pub(crate) fn timeline(&self, rank: usize) -> String {
        format!("{}/{rank:05}{TIMELINE}", self.folder)
    }

    pub(crate) fn failed(&self) -> String {
        format!("{}/FAILED", self.folder)
    }

    pub(crate) fn durable(&self) -> String {
        format!("{}/{DURABLE}", self.folder)
    }

    pub(crate) fn asset(&self, name: &str) -> String {
        format!("{}/files/{name}", self.folder)
    }

    pub(crate) fn index(&self) -> String {
        format!("{}/{}", self.folder, cairn_formats::hf::INDEX_FILE)
    }

    /// The writer a key of this attempt is the part of.
    pub(crate) fn writer_of_part(&self, key: &str) -> Option<usize> {
        let name = key.strip_prefix(&self.folder)?.strip_prefix('/')?;
        name.strip_suffix(".part")?.parse().ok()
    }

    /// The writer whose pin `key` is.
    pub(crate) fn writer_of_pin(&self, key: &str) -> Option<usize> {
        let name = key.strip_prefix(&self.folder)?.strip_prefix('/')?;
        name.strip_suffix(PIN)?.parse().ok()
    }
}

/// The file a writer's data lies in, inside its attempt.
pub(crate) fn data_file(writer: usize) -> String {
    format!("{writer:05}.safetensors")
}

/// The file a writer's blocks lie in that no earlier file holds, inside its attempt.
pub(crate) fn delta_file(writer: usize) -> String {
    format!("{writer:05}.delta")
}

/// A random name for a launch, for callers that have none.
pub(crate) fn random_session() -> String {
    use std::hash::{BuildHasher, RandomState};
    // `RandomState` draws from the operating system's entropy; time and process tell two draws of one process apart.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_nanos());
    let seed = (RandomState::new().hash_one(now), std::process::id());
    to_hex(&RandomState::new().hash_one(seed).to_le_bytes())
}

#[cfg(test)]
mod tests {
    //! Names parse back, and only ours do.

    use super::*;

    #[test]
    fn step_folders_parse_back() {
        for step in [0, 7, 12_000, 99_999_999, 123_456_789_012] {
            assert_eq!(parse_step_folder(&step_folder(step)), Some(step));
        }
        for other in [
            "step-7",
            "step-",
            "step-0000000x",
            "epoch-00000001",
            "step-+0000007",
        ] {
            assert_eq!(parse_step_folder(other), None, "{other}");
        }
    }

    #[test]
    fn attempts_differ_by_launch_step_and_count() {
        let names = [
            attempt_name("a", 1, 0),
            attempt_name("a", 1, 1),
            attempt_name("a", 2, 0),
            attempt_name("b", 1, 0),
        ];
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), 4);
        assert_ne!(random_session(), random_session());
    }

    #[test]
    fn parts_are_recognised() {
        let keys = AttemptKeys::new(3, "abc");
        assert_eq!(keys.writer_of_part(&keys.part(17)), Some(17));
        assert_eq!(keys.writer_of_part(&keys.data(17)), None);
        assert_eq!(keys.writer_of_part("step-00000003/abcd/00017.part"), None);
    }

    #[test]
    fn timelines_are_told_from_data_parts_and_files_of_users() {
        let keys = AttemptKeys::new(3, "abc");
        assert!(is_timeline(&keys.timeline(17)));
        assert_eq!(keys.writer_of_part(&keys.timeline(17)), None);
        for key in [keys.data(0), keys.part(0), keys.asset("1.timeline")] {
            assert!(!is_timeline(&key), "{key}");
        }
    }
}
