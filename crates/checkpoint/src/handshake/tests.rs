//! Launches whose ranks share only a name, one after another and at once.

use super::*;
use crate::clock::MachineClock;
use cairn_store::Memory;
use std::thread;

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

fn named(rank: usize, size: usize) -> World {
    World::new(rank, size, "job 1").unwrap()
}

fn agree(store: &dyn Store, world: &World, timeout: Duration) -> Result<String, Error> {
    let clock = MachineClock::shared();
    let handshake = Handshake {
        store,
        world,
        clock: &clock,
        timeout,
    };
    handshake.agree()
}

/// What each rank of a launch agrees on.
fn launch(store: &Arc<dyn Store>, size: usize) -> Vec<String> {
    let ranks: Vec<_> = (0..size)
        .map(|rank| {
            let store = store.clone();
            thread::spawn(move || {
                agree(store.as_ref(), &named(rank, size), Duration::from_secs(60))
            })
        })
        .collect();
    let agreed = ranks.into_iter().map(|rank| rank.join().unwrap().unwrap());
    agreed.collect()
}

#[test]
fn all_ranks_agree_and_launches_of_one_name_differ() {
    let store = memory();
    let first = launch(&store, 3);
    let second = launch(&store, 3);
    assert!(first.iter().all(|launch| *launch == first[0]));
    assert!(second.iter().all(|launch| *launch == second[0]));
    assert_ne!(first[0], second[0]);
}

#[test]
fn the_offer_of_a_launch_that_died_is_not_taken() {
    let store = memory();
    let dead = named(0, 2);
    let alone = agree(store.as_ref(), &dead, Duration::ZERO).unwrap_err();
    assert!(
        matches!(alone, Error::Meeting(Meeting::RanksAbsent { ref missing, .. }) if *missing == [1]),
        "{alone}"
    );
    let found = launch(&store, 2);
    assert_eq!(found[0], found[1]);
    assert_ne!(found[0], dead.process());
}

#[test]
fn a_rank_without_a_rank_0_ends_in_time_and_says_who_is_missing() {
    let store = memory();
    let error = agree(store.as_ref(), &named(1, 2), Duration::from_millis(20)).unwrap_err();
    assert!(
        matches!(error, Error::Meeting(Meeting::RanksAbsent { ref missing, .. }) if *missing == [0]),
        "{error}"
    );
    assert!(error.hint().is_some());
}

#[test]
fn two_processes_that_claim_one_rank_are_found() {
    let store = memory();
    let rank_0 = {
        let store = store.clone();
        thread::spawn(move || agree(store.as_ref(), &named(0, 3), Duration::from_secs(60)))
    };
    let twice: Vec<_> = (0..2)
        .map(|_| {
            let store = store.clone();
            thread::spawn(move || agree(store.as_ref(), &named(1, 3), Duration::from_secs(1)))
        })
        .collect();
    let error = rank_0.join().unwrap().unwrap_err();
    assert!(
        matches!(error, Error::Meeting(Meeting::RankTwice { rank: 1, .. })),
        "{error}"
    );
    twice
        .into_iter()
        .for_each(|rank| drop(rank.join().unwrap().unwrap_err()));
}

#[test]
fn what_the_ranks_left_is_cleared() {
    let store = memory();
    let agreed = launch(&store, 2);
    assert_eq!(folders(store.as_ref()).unwrap().len(), 1);
    clear(store.as_ref(), "job 1", &agreed[0]);
    assert!(folders(store.as_ref()).unwrap().is_empty());
}
