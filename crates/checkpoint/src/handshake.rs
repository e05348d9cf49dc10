//! How ranks agree on an identifier of their launch that no other launch has.
//!
//! A session name may come again: a job that is started once more with the same `--rdzv-id`, a retry loop inside one `srun`, a variable that is
//! set by hand. Parts of two launches must never meet in one step, so ranks that only share a name meet in the run's store first, once:
//!
//! ```text
//! launches/9f86d081884c7d65/          the session's name, hashed
//!     4d1c2b0a99e07f31/               the identifier that rank 0 drew for this launch
//!         offer                       rank 0 is here
//!         00001.<id>                  rank 1 is here, as the process <id>
//!         members                     rank 0: these processes are the launch
//! ```
//!
//! What a dead launch left there harms nothing: its `members` do not name the processes of this one, and nobody else writes them.

use crate::Error;
use crate::checksum::sha256_hex;
use crate::clock::Clock;
use crate::error::{Meeting, StoreContext};
use crate::world::World;
use cairn_store::{Error as StoreError, PutMode, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The folder of a run in which ranks meet.
pub(crate) const FOLDER: &str = "launches";

const OFFER: &str = "offer";
const MEMBERS: &str = "members";

/// How long a rank that waits for others rests between two looks, at first and after a while.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How often something that a store refuses is tried.
const TRIES: usize = 3;

/// How ranks that share only a name find each other.
pub(crate) struct Handshake<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) world: &'a World,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) timeout: Duration,
}

/// What a rank waits for.
enum Seen<T> {
    Done(T),
    /// The ranks that are not there yet.
    Missing(Vec<usize>),
}

impl Handshake<'_> {
    /// The identifier of this launch.
    ///
    /// # Collective
    /// Every rank calls it, and none returns before rank 0 has seen all of them.
    ///
    /// # Errors
    /// [`Meeting::RanksAbsent`] if a rank does not come in time, [`Meeting::RankTwice`] if two processes claim to be the same rank.
    pub(crate) fn agree(&self) -> Result<String, Error> {
        match self.world.rank() {
            0 => self.gather(),
            _ => self.join(),
        }
    }

    /// Rank 0: offers an identifier, and says who has taken it when all have.
    fn gather(&self) -> Result<String, Error> {
        let launch = self.world.process().to_string();
        let folder = format!("{}/{launch}", self.folder());
        let size = self.world.size().to_string();
        self.again(&mut || self.put(&format!("{folder}/{OFFER}"), size.clone()))?;
        let members = self.wait(|| self.replies(&folder))?;
        let members = members.join("\n");
        self.again(&mut || self.put(&format!("{folder}/{MEMBERS}"), members.clone()))?;
        Ok(launch)
    }

    /// The process of each rank but 0, once all are here.
    fn replies(&self, folder: &str) -> Result<Seen<Vec<String>>, Error> {
        let listing = self.store.list_files(folder);
        let listing = listing.doing(|| format!("list `{folder}`"))?;
        let mut replies = BTreeMap::new();
        for meta in &listing {
            let name = meta.key.rsplit('/').next().unwrap_or_default();
            let Some((rank, process)) = name.split_once('.') else {
                continue;
            };
            let Ok(rank) = rank.parse::<usize>() else {
                continue;
            };
            if replies.insert(rank, process.to_string()).is_some() {
                return Err(self.twice(rank));
            }
        }
        let missing: Vec<usize> = (1..self.world.size())
            .filter(|rank| !replies.contains_key(rank))
            .collect();
        Ok(match missing.is_empty() {
            true => Seen::Done(replies.into_values().collect()),
            false => Seen::Missing(missing),
        })
    }

    /// Another rank: answers every offer, and takes the first that names this process.
    fn join(&self) -> Result<String, Error> {
        let (mut answered, mut closed) = (BTreeSet::new(), BTreeSet::new());
        self.wait(|| {
            let folder = self.folder();
            let offers = self.store.list_folders(&folder);
            for launch in offers.doing(|| format!("list `{folder}`"))? {
                if closed.contains(&launch) {
                    continue;
                }
                if answered.insert(launch.clone()) && !self.answer(&launch)? {
                    answered.remove(&launch);
                    continue;
                }
                match self.is_member(&launch)? {
                    Some(true) => return Ok(Seen::Done(launch)),
                    Some(false) => drop(closed.insert(launch)),
                    None => {}
                }
            }
            Ok(Seen::Missing(vec![0]))
        })
    }

    /// Says to the rank 0 that made an offer that this process is here. Whether the offer is one for as many ranks.
    fn answer(&self, launch: &str) -> Result<bool, Error> {
        let folder = format!("{}/{launch}", self.folder());
        let Some(size) = self.read(&format!("{folder}/{OFFER}"))? else {
            return Ok(false);
        };
        if size.parse() != Ok(self.world.size()) {
            return Ok(false);
        }
        let (rank, process) = (self.world.rank(), self.world.process());
        self.put(&format!("{folder}/{rank:05}.{process}"), String::new())?;
        Ok(true)
    }

    /// Whether this process belongs to a launch; `None` if its rank 0 has not said so yet.
    fn is_member(&self, launch: &str) -> Result<Option<bool>, Error> {
        let members = self.read(&format!("{}/{launch}/{MEMBERS}", self.folder()))?;
        Ok(members.map(|members| {
            let own = members.lines().nth(self.world.rank() - 1);
            own == Some(self.world.process())
        }))
    }

    fn folder(&self) -> String {
        session_folder(self.world.session())
    }

    fn wait<T>(&self, mut look: impl FnMut() -> Result<Seen<T>, Error>) -> Result<T, Error> {
        let start = self.clock.elapsed();
        let mut pause = FIRST_PAUSE;
        loop {
            let missing = match self.again(&mut look)? {
                Seen::Done(found) => return Ok(found),
                Seen::Missing(missing) => missing,
            };
            let waited = self.clock.elapsed().saturating_sub(start);
            if waited >= self.timeout {
                return Err(Error::Meeting(Meeting::RanksAbsent {
                    session: self.world.session().to_string(),
                    missing,
                    waited,
                }));
            }
            self.clock.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tries something a few times: who cannot be heard yet cannot tell the others that it failed, so one answer that is lost must not do.
    fn again<T>(&self, what: &mut impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        for _ in 1..TRIES {
            match what() {
                Err(Error::Store { .. }) => self.clock.sleep(FIRST_PAUSE),
                result => return result,
            }
        }
        what()
    }

    fn read(&self, key: &str) -> Result<Option<String>, Error> {
        match self.store.get(key) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            bytes => {
                let bytes = bytes.doing(|| format!("read `{key}`"))?;
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
        }
    }

    /// Puts an object that only this process writes: that it is there already means that an earlier try got through.
    fn put(&self, key: &str, text: String) -> Result<(), Error> {
        match self.store.put(key, text.as_bytes(), PutMode::Create) {
            Err(StoreError::AlreadyExists { .. }) => Ok(()),
            put => put.doing(|| format!("write `{key}`")),
        }
    }

    fn twice(&self, rank: usize) -> Error {
        Error::Meeting(Meeting::RankTwice {
            session: self.world.session().to_string(),
            rank,
        })
    }
}

/// Where the ranks of launches with this session name meet.
fn session_folder(session: &str) -> String {
    format!("{FOLDER}/{}", &sha256_hex(session.as_bytes())[..16])
}

/// The folders in which the ranks of launches meet, or met.
pub(crate) fn folders(store: &dyn Store) -> Result<Vec<String>, Error> {
    let list = |folder: &str| {
        let found = store.list_folders(folder);
        found.doing(|| format!("list `{folder}`"))
    };
    let mut folders = Vec::new();
    for session in list(FOLDER)? {
        let session = format!("{FOLDER}/{session}");
        let launches = list(&session)?;
        folders.extend(launches.iter().map(|launch| format!("{session}/{launch}")));
    }
    Ok(folders)
}

/// Deletes what the ranks of `launch` left for each other. Once a step is committed, all of them have read it. Best effort.
pub(crate) fn clear(store: &dyn Store, session: &str, launch: &str) {
    let folder = format!("{}/{launch}", session_folder(session));
    let cleared = store.list_files(&folder).and_then(|listing| {
        // The offer goes last: it is what others look for.
        let mut keys: Vec<String> = listing.into_iter().map(|meta| meta.key).collect();
        keys.sort_by_key(|key| key.ends_with(OFFER));
        keys.iter().try_for_each(|key| store.delete(key))
    });
    if let Err(error) = cleared {
        tracing::debug!(folder, %error, "what a launch left was not deleted");
    }
}

#[cfg(test)]
mod tests;
