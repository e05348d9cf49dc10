//! Tries out what a store can do, on objects of its own that it removes again.

use crate::{Error, ObjectWriter, PutMode, Store};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

/// The object that throughput is measured with. Four parts, on stores that have parts.
const LARGE_BYTES: usize = 32 << 20;
/// What is written and read at a time.
const PIECE_BYTES: usize = 8 << 20;
/// How often a small object is read, to find the latency.
const LOOKS: usize = 5;
/// Clocks that differ by less than this do no harm.
const MAX_SKEW: Duration = Duration::from_secs(5 * 60);

/// What an examination found.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// The store.
    pub url: String,
    /// What was tried, in order.
    pub findings: Vec<Finding>,
    /// The median time to read a small object.
    pub latency: Duration,
    /// How fast a large object was written, in bytes per second.
    pub write_bytes_per_second: u64,
    /// How fast a large object was read, in bytes per second.
    pub read_bytes_per_second: u64,
    /// How far the clock of the store is ahead of this machine's, in seconds; negative if it is behind.
    pub clock_ahead_s: f64,
    /// Uploads in the folder that nobody has finished.
    pub unfinished_uploads: usize,
}

/// Something that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub name: &'static str,
    /// Whether it works as Cairn needs it.
    pub works: bool,
    /// What follows from that.
    pub consequence: &'static str,
}

impl Health {
    /// Whether everything works.
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.works)
    }
}

/// Tries out what `store` can do. Puts about 32 MiB there and removes them, whatever happens.
///
/// # Errors
///
/// If the store cannot be written, read or listed at all. That it lacks something is a finding.
pub fn examine(store: &dyn Store) -> Result<Health, Error> {
    let patient = Patient::new(store);
    let mut findings = Vec::new();
    let mut find = |name, works, good, bad| {
        let consequence = if works { good } else { bad };
        findings.push(Finding {
            name,
            works,
            consequence,
        });
    };
    let (replaces, latency, clock_ahead_s) = patient.small()?;
    find(
        "replace",
        replaces,
        "`COMMIT` of a step can be replaced",
        "do not replace steps here",
    );
    let is_refused = patient.refuses_taken_keys()?;
    let has_one_winner = is_refused && store.has_one_winner()?;
    find(
        "conditional create",
        has_one_winner,
        "any writer may commit; of several, one wins",
        "writer 0 alone commits, and two runs must not save the same step at once",
    );
    let (write_bytes_per_second, read_bytes_per_second, ranges_are_right) = patient.large()?;
    find(
        "large objects",
        true,
        "written in parts, from several threads",
        "",
    );
    find(
        "ranged reads",
        ranges_are_right,
        "a slice of a tensor is read alone",
        "reads are not what was written: do not use this store",
    );
    find(
        "list after write",
        patient.is_listed()?,
        "readers see a step as soon as it is committed",
        "steps may be seen late: wait before a run goes on elsewhere",
    );
    find(
        "clock",
        clock_ahead_s.abs() < MAX_SKEW.as_secs_f64(),
        "it agrees with this machine's",
        "set the clock: requests may be refused, and ages of leftovers are wrong",
    );
    Ok(Health {
        url: store.url(),
        findings,
        latency,
        write_bytes_per_second,
        read_bytes_per_second,
        clock_ahead_s,
        unfinished_uploads: store.uploads("")?.len(),
    })
}

/// A folder of the store with a name that nobody has, which goes in the end.
struct Patient<'a> {
    store: &'a dyn Store,
    folder: String,
}

impl<'a> Patient<'a> {
    fn new(store: &'a dyn Store) -> Self {
        let number = RandomState::new().hash_one(SystemTime::now());
        let folder = format!("doctor-{number:016x}");
        Self { store, folder }
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// Puts a small object twice and reads it: whether the second is there, how long a look takes, and the store's clock.
    fn small(&self) -> Result<(bool, Duration, f64), Error> {
        let key = self.key("small");
        self.store.put(&key, b"first", PutMode::Replace)?;
        let before = SystemTime::now();
        self.store.put(&key, b"second", PutMode::Replace)?;
        let after = SystemTime::now();
        let mut looks = Vec::new();
        let mut is_new = true;
        for _ in 0..LOOKS {
            let start = Instant::now();
            is_new &= self.store.get(&key)? == b"second";
            looks.push(start.elapsed());
        }
        looks.sort();
        let stamp = self.store.head(&key)?.map_or(after, |meta| meta.modified);
        Ok((is_new, looks[LOOKS / 2], ahead(stamp, before, after)))
    }

    fn refuses_taken_keys(&self) -> Result<bool, Error> {
        let key = self.key("taken");
        self.store.put(&key, b"first", PutMode::Create)?;
        match self.store.put(&key, b"second", PutMode::Create) {
            Ok(()) => Ok(false),
            Err(Error::AlreadyExists { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Writes and reads a large object: bytes per second of both, and whether odd ranges are right.
    fn large(&self) -> Result<(u64, u64, bool), Error> {
        let key = self.key("large");
        let bytes: Vec<u8> = (0..LARGE_BYTES / 8)
            .flat_map(|index| {
                (index as u64)
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                    .to_le_bytes()
            })
            .collect();
        let start = Instant::now();
        let writer = self.store.create(&key, LARGE_BYTES as u64)?;
        write(writer.as_ref(), &bytes)?;
        writer.finish()?;
        let written = start.elapsed();
        let start = Instant::now();
        let reader = self.store.reader(&key)?;
        let mut back = vec![0; LARGE_BYTES];
        reader.read_at(0, &mut back)?;
        let read = start.elapsed();
        let (offset, mut some) = (PIECE_BYTES - 5, [0; 4099]);
        reader.read_at(offset as u64, &mut some)?;
        let is_right = back == bytes && some[..] == bytes[offset..][..some.len()];
        Ok((per_second(written), per_second(read), is_right))
    }

    fn is_listed(&self) -> Result<bool, Error> {
        let key = self.key("listed");
        self.store.put(&key, b"", PutMode::Create)?;
        let listed = self.store.list(&self.folder)?;
        let is_there = listed.iter().any(|meta| meta.key == key);
        self.store.delete(&key)?;
        let listed = self.store.list(&self.folder)?;
        Ok(is_there && listed.iter().all(|meta| meta.key != key))
    }
}

impl Drop for Patient<'_> {
    fn drop(&mut self) {
        for name in ["small", "taken", "large", "listed"] {
            if let Err(error) = self.store.delete(&self.key(name)) {
                tracing::warn!(%error, "an object of the examination is left");
            }
        }
    }
}

/// Writes pieces from several threads, as a save does.
fn write(writer: &dyn ObjectWriter, bytes: &[u8]) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let pieces = bytes.chunks(PIECE_BYTES).enumerate();
        let write = |(index, piece): (usize, &[u8])| {
            let offset = (index * PIECE_BYTES) as u64;
            writer.write_at(offset, piece)
        };
        let threads: Vec<_> = pieces
            .map(|piece| scope.spawn(move || write(piece)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Error>>| {
            thread.join().expect("no thread panics")
        };
        threads.into_iter().try_for_each(join)
    })
}

fn per_second(elapsed: Duration) -> u64 {
    let nanos = elapsed.as_nanos().max(1);
    let bytes = LARGE_BYTES as u128 * 1_000_000_000 / nanos;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// How far a stamp lies ahead of the time in which it was made, or behind. Stamps may have whole seconds only.
fn ahead(stamp: SystemTime, before: SystemTime, after: SystemTime) -> f64 {
    let early = before.duration_since(stamp).unwrap_or_default();
    let late = stamp.duration_since(after).unwrap_or_default();
    match early < Duration::from_secs(1) {
        true => late.as_secs_f64(),
        false => -early.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn a_good_store_is_found_good_and_left_empty() {
        let store = Memory::new();
        let health = examine(&store).unwrap();
        assert!(health.is_good(), "{health:?}");
        assert_eq!(health.clock_ahead_s, 0.0);
        assert!(store.list("").unwrap().is_empty());
    }

    #[test]
    fn clocks_are_compared_to_the_second() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(seconds);
        assert_eq!(ahead(at(5000), at(5100), at(5200)), 0.0);
        assert_eq!(ahead(at(9200), at(5100), at(5200)), 4.0);
        assert_eq!(ahead(at(1100), at(5100), at(5200)), -4.0);
    }
}
