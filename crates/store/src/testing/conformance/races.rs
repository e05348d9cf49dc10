//! Many threads at once: one winner, no mixture, no lost object.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Check, keys, pattern};
use crate::{Error, PutMode, Store};

pub(super) const CHECKS: [Check; 4] = [
    one_of_many_creators_wins,
    one_of_many_large_creators_wins,
    readers_see_the_old_or_the_new_object,
    a_folder_may_come_and_go_under_its_writers,
];

const THREADS: u64 = 16;

/// Runs `work` in all threads at once, and returns their answers in order.
fn race<T: Send>(work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(usize::try_from(THREADS).expect("a small number"));
    std::thread::scope(|scope| {
        let spawn = |number| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(number)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| thread.join();
        let answers = threads.into_iter().map(join).collect::<Result<_, _>>();
        answers.expect("no thread panics")
    })
}

/// Asserts that one attempt succeeded, the others lost, and the store holds the winner's bytes.
///
/// On a store that says that several may win, it holds the bytes of one of them, and whoever comes later loses.
fn check_winner(store: &dyn Store, key: &str, outcomes: &[Result<(), Error>], len: usize) {
    let winners: Vec<u64> = (0..)
        .zip(outcomes)
        .filter(|(_, outcome)| outcome.is_ok())
        .map(|(number, _)| number)
        .collect();
    let most = match store.has_one_winner().expect("it can tell") {
        true => 1,
        false => outcomes.len(),
    };
    assert!(
        (1..=most).contains(&winners.len()),
        "{} winners of `{key}`: {outcomes:?}",
        winners.len()
    );
    let lost = |outcome: &&Result<(), Error>| matches!(outcome, Err(Error::AlreadyExists { .. }));
    assert_eq!(
        outcomes.iter().filter(lost).count(),
        outcomes.len() - winners.len(),
        "{outcomes:?}"
    );
    let found = store.get(key).expect("get");
    let is_theirs = |winner: &u64| found == pattern(*winner, len);
    assert!(winners.iter().any(is_theirs), "not a winner's bytes");
    let late = store.put(key, b"late", PutMode::Create);
    assert!(matches!(late, Err(Error::AlreadyExists { .. })), "{late:?}");
}

fn one_of_many_creators_wins(store: &dyn Store) {
    for round in 0..8 {
        let key = format!("step-{round}/COMMIT");
        let outcomes = race(|number| store.put(&key, &pattern(number, 5000), PutMode::Create));
        check_winner(store, &key, &outcomes, 5000);
    }
    assert_eq!(keys(store, "").len(), 8);
}

fn one_of_many_large_creators_wins(store: &dyn Store) {
    let outcomes = race(|number| {
        let writer = store.create("a/b", 50_000)?;
        writer.write_at(0, &pattern(number, 50_000))?;
        writer.finish()
    });
    check_winner(store, "a/b", &outcomes, 50_000);
    assert_eq!(keys(store, ""), ["a/b"]);
}

fn readers_see_the_old_or_the_new_object(store: &dyn Store) {
    // The length tells the version, so that a mixture shows.
    let version =
        |number: u64| pattern(number, 3000 + 977 * usize::try_from(number).expect("small"));
    store.put("a", &version(0), PutMode::Create).expect("put");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let bytes = store.get("a").expect("it always exists");
                        let number = (bytes.len() as u64 - 3000) / 977;
                        assert!(bytes == version(number), "a mixture of versions");
                    }
                })
            })
            .collect();
        for number in (1..40).map(|round| round % 8) {
            let result = store.put("a", &version(number), PutMode::Replace);
            result.expect("replace");
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("no reader panics");
        }
    });
    assert_eq!(keys(store, ""), ["a"]);
}

fn a_folder_may_come_and_go_under_its_writers(store: &dyn Store) {
    let outcomes = race(|number| {
        for round in 0..8 {
            let key = format!("a/b/{number}");
            store.put(&key, b"x", PutMode::Create)?;
            if round < 7 {
                store.delete(&key)?;
            }
        }
        Ok::<(), Error>(())
    });
    for outcome in outcomes {
        outcome.expect("folders that others remove are no error");
    }
    assert_eq!(keys(store, "a/b").len() as u64, THREADS);
}
