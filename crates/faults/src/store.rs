//! The store of a simulated process: files that are written aside, synced and moved, or an object store.
//!
//! Each thing that a system call or a request does is one operation: others run between two of them, and a fault
//! may strike at any. For files they are those of [`cairn_store::Local`].

mod answer;
mod writer;

use crate::defect::Defect;
use crate::disk::{Disk, Listed, ProcessId, TEMP, folder_of, is_temp};
use crate::fault::Operation;
use crate::scenario::Keeping;
use crate::scheduler::{pass, sleep};
use crate::world::{DURABLE, Failure, Fate, State, Tier, World, label};
use answer::{describe, failed, taken};
use cairn_store::{Error, ObjectMeta, ObjectReader, ObjectWriter, PutMode, Store};
use std::sync::Arc;
use std::time::Duration;
use writer::{SimulatedReader, SimulatedWriter};

/// For how long a listing that lags behind may show what was.
pub(crate) const MAX_LAG: Duration = Duration::from_secs(2);

/// The longest that a slow operation takes to begin, or its answer to arrive.
const MAX_SLOW_MILLIS: u64 = 400;

/// The store as one process sees it.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedStore {
    pub(crate) world: Arc<World>,
    pub(crate) process: ProcessId,
    pub(crate) tier: Tier,
}

impl SimulatedStore {
    /// Does one operation, if the world lets it.
    fn operate<T>(
        &self,
        operation: Operation,
        name: &'static str,
        key: &str,
        mut act: impl FnMut(&mut State) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.dawdle();
        let mut state = self.world.lock();
        let mut fate = state.fate(self.process, operation);
        if let Fate::Waits(duration) = fate {
            drop(state);
            sleep(&self.world, duration);
            state = self.world.lock();
            let is_alive = state.processes[self.process].is_alive;
            fate = if is_alive { Fate::Works } else { Fate::Dies };
        }
        let result = match fate {
            Fate::Works | Fate::Waits(_) => act(&mut state),
            Fate::Twice => act(&mut state).and_then(|_| act(&mut state)),
            Fate::FailsAfter => {
                act(&mut state).and_then(|_| Err(failed(key, name, Failure::Broken)))
            }
            Fate::FailsBefore(failure) => Err(failed(key, name, failure)),
            Fate::Dies => return Err(Error::Crashed),
            Fate::DiesAfter(kind) => {
                let _ = act(&mut state);
                state.die(self.process, kind);
                Err(Error::Crashed)
            }
        };
        let outcome = match &result {
            Ok(_) => String::new(),
            Err(error) => format!(": {error}"),
        };
        let is_lost = !matches!(result, Ok(_) | Err(Error::AlreadyExists { .. }));
        if is_lost && key.ends_with("/FAILED") {
            state.processes[self.process].is_muted = true;
        }
        let label = label(self.tier);
        state.note(self.process, &format!("{name} `{label}{key}`{outcome}"));
        drop(state);
        // The answer is on its way, while others already see the effect.
        self.dawdle();
        result
    }

    /// Lets others run, for a while if this operation is a slow one.
    fn dawdle(&self) {
        let mut state = self.world.lock();
        let slow_percent = self.world.case.scenario.slow_percent;
        let process = &state.processes[self.process];
        let is_slow = process.is_alive && !process.is_immune;
        let is_slow = is_slow && state.random.chance(slow_percent);
        let millis = 1 + state.random.below(MAX_SLOW_MILLIS);
        drop(state);
        match is_slow {
            true => sleep(&self.world, Duration::from_millis(millis)),
            false => pass(),
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.world.defect == Some(defect)
    }

    fn is_files(&self) -> bool {
        self.tier != DURABLE || self.world.case.scenario.keeping == Keeping::Files
    }

    /// Begins an unpublished file beside the place of `key`.
    fn begin(&self, key: &str) -> Result<String, Error> {
        self.operate(Operation::Write, "begin", key, |state| {
            let (folder, now) = (folder_of(key), state.now);
            let number = state.random.next();
            let path = format!("{folder}/{TEMP}{number:016x}");
            let path = path.trim_start_matches('/').to_string();
            state.disks[self.tier].create(&path, self.process, now);
            Ok(path)
        })
    }

    fn write(&self, temp: &str, key: &str, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let written = self.operate(Operation::Write, "write", key, |state| {
            let now = state.now;
            state.disks[self.tier].write(temp, offset, bytes, now);
            Ok(())
        });
        match written {
            Err(Error::NoSpace { .. }) if self.has(Defect::FullDiskIgnored) => Ok(()),
            other => other,
        }
    }

    /// Makes the bytes of an unpublished file durable and gives it its name, durably.
    fn publish(&self, temp: &str, key: &str, mode: PutMode) -> Result<(), Error> {
        let early = self.has(Defect::PublishBeforeSync);
        if self.is_files() && !early {
            self.operate(Operation::Change, "sync", key, |state| {
                state.disks[self.tier].sync(temp);
                Ok(())
            })?;
        }
        let kind = match self.is_files() {
            true => Operation::Change,
            false => Operation::Conditional,
        };
        self.operate(kind, name_of(mode), key, |state| {
            if mode == PutMode::Create && state.disks[self.tier].exists(key) {
                return Err(taken(key));
            }
            let now = state.now;
            if !state.disks[self.tier].rename(temp, key, self.process, now) {
                return Err(Error::NotFound {
                    key: temp.to_string(),
                });
            }
            if !self.is_files() {
                state.disks[self.tier].sync(key);
                state.disks[self.tier].sync_up(folder_of(key));
            }
            state.look_at_commit(self.tier, key);
            Ok(())
        })?;
        if self.is_files() && !self.has(Defect::FolderNotSynced) {
            self.operate(Operation::Change, "sync the folder of", key, |state| {
                if early {
                    state.disks[self.tier].sync(key);
                }
                state.disks[self.tier].sync_up(folder_of(key));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Takes an unpublished file away, if its process still can.
    fn abandon(&self, temp: &str) {
        let mut state = self.world.lock();
        if state.processes[self.process].is_alive {
            let now = state.now;
            state.disks[self.tier].remove(temp, self.process, now);
        }
    }

    fn listed(&self, prefix: &str, what: &'static str) -> Result<Vec<Listed>, Error> {
        let lagging =
            self.tier == DURABLE && self.world.case.scenario.keeping == Keeping::LaggingObjects;
        self.operate(Operation::Read, what, prefix, |state| {
            let State {
                disks,
                random,
                now,
                processes,
                ..
            } = state;
            let lagging = lagging && !processes[self.process].is_immune;
            let lag = |when: Duration| lagging && when + MAX_LAG > *now && random.chance(50);
            Ok(disks[self.tier].list(prefix, lag))
        })
    }

    fn read<T>(
        &self,
        key: &str,
        take: impl Fn(&[u8]) -> T,
        name: &'static str,
    ) -> Result<T, Error> {
        self.operate(Operation::Read, name, key, |state| {
            let bytes = state.disks[self.tier].read(key);
            bytes.map(&take).ok_or_else(|| Error::NotFound {
                key: key.to_string(),
            })
        })
    }
}

impl Store for SimulatedStore {
    fn url(&self) -> String {
        format!("simulated:{}", label(self.tier))
    }

    fn put(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        let careless = self.has(Defect::CommitOverwrites) && key.ends_with("COMMIT");
        let mode = if careless { PutMode::Replace } else { mode };
        if !self.is_files() {
            return self.put_object(key, bytes, mode);
        }
        let temp = self.begin(key)?;
        let written = self.write(&temp, key, 0, bytes);
        let published = written.and_then(|()| self.publish(&temp, key, mode));
        published.inspect_err(|_| self.abandon(&temp))
    }

    fn create(&self, key: &str, len: u64) -> Result<Box<dyn ObjectWriter>, Error> {
        if self.world.lock().disks[self.tier].exists(key) {
            return Err(taken(key));
        }
        let temp = self.begin(key)?;
        Ok(Box::new(SimulatedWriter::new(self.clone(), temp, key, len)))
    }

    fn reader(&self, key: &str) -> Result<Box<dyn ObjectReader>, Error> {
        let bytes = self.read(key, <[u8]>::to_vec, "open")?;
        Ok(Box::new(SimulatedReader::new(self.clone(), key, bytes)))
    }

    fn get_prefix(&self, key: &str, len: usize) -> Result<Vec<u8>, Error> {
        self.read(key, |bytes| bytes[..len.min(bytes.len())].to_vec(), "get")
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Error> {
        self.operate(Operation::Read, "head", key, |state| {
            let found = state.disks[self.tier].list(folder_of(key), |_| false);
            Ok(found
                .into_iter()
                .find(|file| file.path == key)
                .map(describe))
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>, Error> {
        let files = self.listed(prefix, "list")?.into_iter();
        Ok(files
            .filter(|file| !is_temp(&file.path))
            .map(describe)
            .collect())
    }

    fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let start = if prefix.is_empty() {
            0
        } else {
            prefix.len() + 1
        };
        let files = self.listed(prefix, "list the folders of")?.into_iter();
        // A file system shows a folder as soon as something is written in it.
        let shown = files.filter(|file| self.is_files() || !is_temp(&file.path));
        let mut folders: Vec<String> = shown
            .filter_map(|file| Some(file.path[start..].split_once('/')?.0.to_string()))
            .collect();
        folders.dedup();
        Ok(folders)
    }

    /// No object store renames: it is a copy and a deletion there.
    fn rename(&self, key: &str, to: &str, mode: PutMode) -> Result<(), Error> {
        if self.is_files() {
            return self.publish(key, to, mode);
        }
        let bytes = self.read(key, <[u8]>::to_vec, "get")?;
        self.put_object(to, &bytes, mode)?;
        self.delete(key)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        self.operate(Operation::Change, "delete", key, |state| {
            let now = state.now;
            state.disks[self.tier].remove(key, self.process, now);
            if !self.is_files() {
                state.disks[self.tier].sync_up(folder_of(key));
            }
            Ok(())
        })?;
        if self.is_files() && !self.has(Defect::FolderNotSynced) {
            self.operate(Operation::Change, "sync the folder of", key, |state| {
                state.disks[self.tier].sync_up(folder_of(key));
                Ok(())
            })?;
        }
        Ok(())
    }

    fn settle(&self, prefix: &str) -> Result<(), Error> {
        if !self.is_files() {
            return Ok(());
        }
        self.operate(Operation::Change, "settle", prefix, |state| {
            state.disks[self.tier].sync_up(prefix);
            Ok(())
        })
    }

    fn sweep(&self, prefix: &str) -> Result<u64, Error> {
        self.operate(Operation::Change, "sweep", prefix, |state| {
            let State {
                disks,
                processes,
                now,
                ..
            } = state;
            let disk = &mut disks[self.tier];
            let dead = disk.leftovers(|process| !processes[process].is_alive);
            for path in &dead {
                disk.remove(path, self.process, *now);
                disk.sync_up(folder_of(path));
            }
            Ok(dead.len() as u64)
        })
    }

    fn available_bytes(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}

impl SimulatedStore {
    /// One request: the object is there and durable, or it is not.
    fn put_object(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        let kind = match mode {
            PutMode::Create => Operation::Conditional,
            PutMode::Replace => Operation::Write,
        };
        self.operate(kind, name_of(mode), key, |state| {
            if mode == PutMode::Create && state.disks[self.tier].exists(key) {
                return Err(taken(key));
            }
            let now = state.now;
            store_object(&mut state.disks[self.tier], key, bytes, self.process, now);
            state.look_at_commit(self.tier, key);
            Ok(())
        })
    }
}

/// Puts an object in one step, durably.
fn store_object(disk: &mut Disk, key: &str, bytes: &[u8], by: ProcessId, now: Duration) {
    disk.create(key, by, now);
    disk.write(key, 0, bytes, now);
    disk.sync(key);
    disk.sync_up(folder_of(key));
}

fn name_of(mode: PutMode) -> &'static str {
    match mode {
        PutMode::Create => "create",
        PutMode::Replace => "replace",
    }
}
