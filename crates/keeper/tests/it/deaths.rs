//! Trainers and keepers that are killed at chosen moments.

use crate::rank::Process;
use crate::world::Home;
use cairn_keeper::Limits;
use cairn_store::PutMode;
use std::time::Duration;

#[test]
fn a_trainer_killed_before_its_capture_is_written_has_it_written_by_the_keeper() {
    let mut home = Home::new();
    let mut trainer = Process::rank(&home.socket(), &home.run(), [0, 1], "unwritten", 1);
    trainer.wait_for("captured");
    home.wait_for_stage(1, "captured", 1);
    assert!(home.reader(false).steps().unwrap().is_empty());
    trainer.kill();
    home.wait_for_stage(1, "committed", 1);
    home.stop();
    // The keeper is gone: this comes from the folder, on another layout.
    assert_eq!(home.check(false, 3).unwrap(), 1);
    let latest = home.reader(false).latest().unwrap().checkpoint;
    let assets = cairn_checkpoint::Source::assets(&latest).unwrap();
    assert_eq!(assets, [("note.txt".to_string(), b"step 1".to_vec())]);
}

#[test]
fn a_trainer_killed_during_a_capture_leaves_the_one_before_in_memory() {
    let home = Home::new();
    let mut trainer = Process::rank(&home.socket(), &home.run(), [0, 1], "uncaptured", 3);
    trainer.wait_for("begun");
    let status = home.wait_for_stage(3, "filling", 1);
    assert_eq!(status.snapshots.len(), 2);
    trainer.kill();
    let status = home.wait_for("one snapshot", |status| status.snapshots.len() == 1);
    assert_eq!(status.snapshots[0].stage, "committed");
    home.remove_data();
    assert!(home.check(false, 2).is_err());
    assert_eq!(home.check(true, 2).unwrap(), 2);
}

#[test]
fn ranks_killed_together_are_committed_and_loaded_from_memory_on_another_layout() {
    let home = Home::new();
    let start = |rank| Process::rank(&home.socket(), &home.run(), [rank, 2], "unwritten", 2);
    let mut trainers: Vec<Process> = (0..2).map(start).collect();
    trainers
        .iter_mut()
        .for_each(|trainer| trainer.wait_for("captured"));
    home.wait_for_stage(2, "captured", 2);
    trainers.into_iter().for_each(Process::kill);
    // Asked at once: it is there, committed or not.
    assert_eq!(home.check(true, 3).unwrap(), 2);
    home.wait_for_stage(2, "committed", 2);
    assert_eq!(home.check(false, 1).unwrap(), 2);
    home.remove_data();
    assert_eq!(home.check(true, 3).unwrap(), 2);
    home.check_peers(2);
}

#[test]
fn a_rank_that_dies_alone_does_not_fail_the_save_of_the_others() {
    let home = Home::new();
    let rank = |rank, how, steps| Process::rank(&home.socket(), &home.run(), [rank, 2], how, steps);
    let mut dies = rank(1, "unwritten", 1);
    let mut lives = rank(0, "end", 1);
    dies.wait_for("captured");
    home.wait_for_stage(1, "captured", 1);
    dies.kill();
    lives.wait_for("committed 1");
    lives.join();
    assert_eq!(home.check(false, 3).unwrap(), 1);
}

#[test]
fn what_cannot_be_committed_is_loaded_from_memory_all_the_same() {
    let home = Home::new();
    let mut trainer = Process::rank(&home.socket(), &home.run(), [0, 1], "unwritten", 2);
    trainer.wait_for("captured");
    let status = home.wait_for_stage(2, "captured", 1);
    let attempt = &status.snapshots.last().unwrap().attempt;
    let failed = format!("step-00000002/{attempt}/FAILED");
    let store = home.store();
    store.put(&failed, b"{}", PutMode::Create).unwrap();
    trainer.kill();
    let status = home.wait_for_stage(2, "stuck", 1);
    let reason = status.snapshots.last().unwrap().reason.clone();
    assert!(reason.unwrap().contains("writer 0"), "{status:?}");
    assert_eq!(home.check(false, 2).unwrap(), 1);
    assert_eq!(home.check(true, 2).unwrap(), 2);
    assert_eq!(home.reader(false).steps().unwrap(), [1]);
}

#[test]
fn damage_in_the_store_is_not_hidden_by_memory() {
    let home = Home::new();
    let trainer = Process::rank(&home.socket(), &home.run(), [0, 1], "end", 2);
    trainer.join();
    let store = home.store();
    // What a step consists of is what the store says.
    let parts = store.list("step-00000002").unwrap();
    let part = parts.iter().find(|meta| meta.key.ends_with(".part"));
    store
        .put(&part.unwrap().key, b"nonsense", PutMode::Replace)
        .unwrap();
    assert_eq!(home.check(true, 2).unwrap(), 1);
}

#[test]
fn training_goes_on_when_the_keeper_is_killed_and_uses_the_next_one() {
    let home = Home::empty();
    let socket = home.socket();
    let mut keeper = Process::start(&["keeper", socket.to_str().unwrap()]);
    keeper.wait_for("listening");
    let mut trainer = Process::rank(&socket, &home.run(), [0, 1], "end", 8);
    trainer.wait_for("committed 2");
    keeper.kill();
    trainer.wait_for("committed 5");
    let mut keeper = Process::start(&["keeper", socket.to_str().unwrap()]);
    keeper.wait_for("listening");
    trainer.wait_for("committed 8");
    trainer.join();
    assert_eq!(home.check(false, 2).unwrap(), 8);
    let status = home.status();
    assert!(
        status
            .snapshots
            .iter()
            .all(|held| held.stage == "committed")
    );
    assert_eq!(home.check(true, 2).unwrap(), 8);
}

#[test]
fn a_keeper_that_is_told_to_stop_first_writes_what_it_must() {
    let mut home = Home::new();
    let mut trainer = Process::rank(&home.socket(), &home.run(), [0, 1], "unwritten", 1);
    trainer.wait_for("captured");
    home.wait_for_stage(1, "captured", 1);
    trainer.kill();
    home.wait_for("no captures", |status| {
        status.snapshots.iter().all(|held| held.stage != "captured")
    });
    home.stop();
    assert!(!home.socket().exists());
    assert_eq!(home.check(false, 2).unwrap(), 1);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "what stands in the way is no object of a store"
)]
fn a_capture_that_the_store_would_not_take_is_committed_when_the_store_is_back() {
    let home = Home::with(Limits::total(1 << 30), Duration::ZERO);
    let mut trainer = Process::rank(&home.socket(), &home.run(), [0, 1], "unwritten", 1);
    trainer.wait_for("captured");
    let status = home.wait_for_stage(1, "captured", 1);
    // The attempt's folder is in nobody's reach: a file stands in its place.
    let attempt = &status.snapshots[0].attempt;
    let step = home.run().join("step-00000001");
    let _ = std::fs::remove_dir_all(&step);
    std::fs::write(&step, attempt).unwrap();
    trainer.kill();
    let status = home.wait_for("several tries", |status| {
        status.snapshots.iter().any(|held| held.tries > 1)
    });
    assert_eq!(status.snapshots[0].stage, "stuck");
    assert_eq!(home.check(true, 2).unwrap(), 1);
    std::fs::remove_file(&step).unwrap();
    // Forgotten at once, but only when it is committed.
    home.wait_for("no snapshots", |status| status.snapshots.is_empty());
    assert_eq!(home.check(false, 2).unwrap(), 1);
}
