//! Trainers that want one run: on the same machine, on others, at the same time.

use super::*;
use cairn_store::Memory;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

/// Time that passes when somebody sleeps.
#[derive(Debug, Default)]
struct Hours {
    millis: AtomicU64,
    /// A trainer elsewhere that lives.
    beats: Option<(Arc<dyn Store>, u64)>,
}

impl Clock for Hours {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }

    fn now(&self) -> SystemTime {
        // Nothing here may ask: clocks of machines differ.
        SystemTime::UNIX_EPOCH
    }

    fn sleep(&self, duration: Duration) {
        let millis = u64::try_from(duration.as_millis()).unwrap();
        let counter = self.millis.fetch_add(millis, Ordering::Relaxed);
        if let Some((store, number)) = &self.beats
            && counter >= 3000
        {
            let beat = Beat {
                counter,
                over: false,
            };
            put(store, &beat_key(*number), &beat);
        }
    }
}

fn put(store: &Arc<dyn Store>, key: &str, value: &impl Serialize) {
    store.put(key, &bytes_of(value), PutMode::Replace).unwrap();
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

fn take(store: &Arc<dyn Store>, clock: Hours, take_over: bool) -> Result<Lease, Error> {
    let request = LeaseRequest {
        launch: "mine",
        take_over,
        stop: &AtomicBool::new(false),
        clock: Arc::new(clock),
    };
    Lease::take(store.clone(), &request)
}

/// A claim of a process that this one cannot look at.
fn elsewhere(store: &Arc<dyn Store>, number: u64) {
    let mut claim = Claim::own("theirs");
    claim.host = "elsewhere".into();
    if let Some(process) = &mut claim.process {
        process.boot = "another".into();
    }
    put(store, &claim_key(number), &claim);
    let beat = Beat {
        counter: 5,
        over: false,
    };
    put(store, &beat_key(number), &beat);
}

fn in_use(result: Result<Lease, Error>) -> String {
    match result.map(drop) {
        Err(error @ Error::RunInUse { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_run_of_a_living_process_is_refused_at_once_and_free_when_it_leaves() {
    let store = memory();
    let first = take(&store, Hours::default(), false).unwrap();
    let begun = Instant::now();
    let told = in_use(take(&store, Hours::default(), false));
    assert!(begun.elapsed() < Duration::from_secs(5));
    let pid = std::process::id();
    assert!(told.contains(&format!("process {pid} on ")), "{told}");
    assert!(told.contains("it is running"), "{told}");
    drop(first);
    let second = take(&store, Hours::default(), false).unwrap();
    assert_eq!(second.lost_to(), None);
    second.clear_leftovers().unwrap();
    assert_eq!(numbers(store.as_ref()).unwrap(), [2]);
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_dead_process_of_this_machine_is_followed_at_once() {
    let store = memory();
    let mut claim = Claim::own("dead");
    claim.process.as_mut().unwrap().started -= 1;
    put(&store, &claim_key(4), &claim);
    let clock = Hours::default();
    let lease = take(&store, clock, false).unwrap();
    assert_eq!(lease.held.number, 5);
    assert_eq!(lease.held.clock.elapsed(), Duration::ZERO, "nobody waited");
}

#[test]
fn another_machine_that_is_silent_for_long_enough_loses_the_run() {
    let store = memory();
    elsewhere(&store, 1);
    let lease = take(&store, Hours::default(), false).unwrap();
    assert_eq!(lease.held.number, 2);
    assert!(lease.held.clock.elapsed() >= SILENCE);
}

#[test]
fn another_machine_that_gives_signs_of_life_keeps_the_run() {
    let store = memory();
    elsewhere(&store, 1);
    let clock = Hours {
        beats: Some((store.clone(), 1)),
        ..Hours::default()
    };
    let told = in_use(take(&store, clock, false));
    assert!(told.contains("on `elsewhere`"), "{told}");
    assert!(told.contains("a sign of life 0 s ago"), "{told}");
    assert_eq!(numbers(store.as_ref()).unwrap(), [1]);
}

#[test]
fn a_run_may_be_taken_over_and_its_trainer_finds_out() {
    let store = memory();
    let first = take(&store, Hours::default(), false).unwrap();
    let second = take(&store, Hours::default(), true).unwrap();
    first.held.beat();
    let told = first.lost_to().expect("it is lost");
    assert!(told.contains("process"), "{told}");
    drop(first);
    let beat: Beat = read(store.as_ref(), &beat_key(2)).unwrap().unwrap();
    assert!(!beat.over, "who lost the run does not free it for others");
    assert_eq!(second.lost_to(), None);
}

#[test]
fn a_trainer_that_stood_still_looks_before_it_goes_on() {
    let store = memory();
    let lease = take(&store, Hours::default(), false).unwrap();
    elsewhere(&store, 9);
    lease.held.clock.sleep(Duration::from_secs(3600));
    let told = lease.lost_to().expect("it is lost");
    assert!(told.contains("elsewhere"), "{told}");
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn of_many_that_take_a_free_run_one_gets_it() {
    let store = memory();
    let mut claim = Claim::own("dead");
    claim.process.as_mut().unwrap().started -= 1;
    put(&store, &claim_key(1), &claim);
    let taken: Vec<Option<Lease>> = thread::scope(|scope| {
        let take = || take(&store, Hours::default(), false).ok();
        let all: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(taken.iter().flatten().count(), 1);
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn what_a_killed_trainer_left_goes_and_nothing_else() {
    use crate::names::{AttemptKeys, attempt_name};
    let store = memory();
    let mut claim = Claim::own("killed");
    claim.process.as_mut().unwrap().started -= 1;
    put(&store, &claim_key(1), &claim);
    elsewhere(&store, 2);
    let data = |launch: &str, step| {
        let keys = AttemptKeys::new(step, &attempt_name(launch, step, 1));
        let key = format!("{}/r00000.safetensors", keys.folder);
        store.put(&key, b"half", PutMode::Create).unwrap();
        key
    };
    let left = [data("killed", 4), data("killed", 7)];
    let others = [data("theirs", 7), data("somebody", 7)];
    let lease = take(&store, Hours::default(), true).unwrap();
    assert_eq!(lease.clear_leftovers().unwrap(), 2);
    let is_there = |key: &String| store.head(key).unwrap().is_some();
    assert!(!left.iter().any(is_there));
    assert!(others.iter().all(is_there));
    assert_eq!(lease.clear_leftovers().unwrap(), 0);
}
