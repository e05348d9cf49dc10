//! How much memory is taken, by whom, and that it is given back.

use crate::rank::Process;
use crate::world::{Home, NAME, Sharded, remove_data};
use cairn_checkpoint::{Checkpointer, LoadOptions, Options, SaveOptions, State, Target, World};
use cairn_keeper::{Client, Limits};
use cairn_store::Tiered;
use std::sync::Arc;
use std::time::Duration;

/// Saves steps `steps` of a run of one rank, each to its end.
fn save(home: &Home, run: &str, steps: std::ops::Range<u64>) -> Checkpointer {
    save_at(home, &home.address(run), steps)
}

fn save_at(home: &Home, address: &str, steps: std::ops::Range<u64>) -> Checkpointer {
    let options = Options {
        keeper: Some(Arc::new(Client::new(home.socket()))),
        ..Options::default()
    };
    let store = cairn_store::open(address).unwrap();
    let checkpointer = Checkpointer::with_options(store, World::single(), options);
    let sharded = Sharded::new(1);
    for step in steps {
        let bytes = sharded.bytes(0, step);
        let mut state = State::new(0);
        state.tensor(NAME, &sharded.spec, &bytes).unwrap();
        state.value("step", step.into());
        let saving = checkpointer.save(step, &state, &SaveOptions::default());
        saving.unwrap().wait().unwrap();
    }
    checkpointer
}

#[test]
fn a_capture_goes_into_the_keepers_memory_and_takes_none_of_the_trainers() {
    let home = Home::new();
    let checkpointer = save(&home, "run", 1..5);
    assert_eq!(checkpointer.staging_bytes(), 0);
    let status = home.status();
    let steps: Vec<u64> = status.snapshots.iter().map(|held| held.step).collect();
    assert_eq!(steps, [4]);
    let image = status.snapshots[0].len_bytes.next_multiple_of(8 << 20);
    assert!(status.used_bytes >= 2 * image && status.used_bytes < 2 * image + (1 << 20));
    drop(checkpointer);
    home.remove_data();
    assert_eq!(home.check(true, 3).unwrap(), 4);
}

#[test]
fn a_run_on_tiers_is_read_from_memory_too() {
    let home = Home::new();
    let (fast, durable) = (home.address("fast"), home.address("durable"));
    let address = Tiered::address(&fast, &durable, false);
    let checkpointer = save_at(&home, &address, 1..3);
    for tier in [fast, durable] {
        remove_data(cairn_store::open(&tier).unwrap().as_ref());
    }
    let sharded = Sharded::new(1);
    let mut bytes = vec![0; sharded.bytes(0, 2).len()];
    let target = Target::new(NAME, &sharded.spec, 0, &mut bytes).unwrap();
    let opened = checkpointer.open(2).unwrap();
    opened.load(vec![target], &LoadOptions::default()).unwrap();
    assert!(bytes == sharded.bytes(0, 2));
}

#[test]
fn what_does_not_fit_is_saved_without_the_keeper() {
    let home = Home::with(Limits::total(1 << 20), Duration::from_secs(3600));
    let checkpointer = save(&home, "run", 1..3);
    assert!(checkpointer.staging_bytes() > 0);
    assert!(home.status().snapshots.is_empty());
    assert!(home.status().used_bytes == 0);
    assert_eq!(home.check(true, 2).unwrap(), 2);
}

#[test]
fn runs_at_the_same_time_do_not_disturb_each_other() {
    let home = Home::new();
    let first = save(&home, "run", 1..4);
    let second = save(&home, "other", 1..3);
    let status = home.status();
    assert_eq!(status.snapshots.len(), 2);
    assert_eq!(status.clients, 2);
    drop((first, second));
    assert_eq!(home.check(true, 2).unwrap(), 3);
}

#[test]
fn memory_is_given_back_when_nobody_wants_it() {
    let home = Home::with(Limits::total(1 << 30), Duration::ZERO);
    let trainer = Process::rank(&home.socket(), &home.run(), [0, 1], "end", 3);
    trainer.join();
    home.wait_for("no memory", |status| status.used_bytes == 0);
    home.wait_for("no clients", |status| status.clients == 0);
    assert_eq!(home.check(true, 2).unwrap(), 3);
}

#[test]
fn a_reader_keeps_what_it_reads_and_nothing_after_that() {
    let home = Home::with(Limits::total(1 << 30), Duration::ZERO);
    let checkpointer = save(&home, "run", 1..2);
    let opened = home.reader(true).latest().unwrap();
    drop(checkpointer);
    let status = home.wait_for("one client", |status| status.clients == 1);
    assert_eq!(status.snapshots[0].readers, 1);
    drop(opened);
    home.wait_for("no memory", |status| status.used_bytes == 0);
}

#[test]
fn preparing_takes_the_keepers_memory() {
    let home = Home::new();
    let options = Options {
        keeper: Some(Arc::new(Client::new(home.socket()))),
        ..Options::default()
    };
    let checkpointer = Checkpointer::with_options(home.store(), World::single(), options);
    let sharded = Sharded::new(1);
    let bytes = sharded.bytes(0, 1);
    let mut state = State::new(0);
    state.tensor(NAME, &sharded.spec, &bytes).unwrap();
    checkpointer.prepare(&state).unwrap();
    let status = home.status();
    assert!(status.used_bytes > 0 && status.snapshots.is_empty());
    assert_eq!(checkpointer.staging_bytes(), 0);
}
