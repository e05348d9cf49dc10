//! Lives of snapshots, without a socket: generations, limits, deaths and readers.

use super::*;
use cairn_checkpoint::machine_clock;

const CHUNK: u64 = 8 << 20;

fn about(step: u64, writer: usize, world: usize) -> Snapshot {
    Snapshot {
        run: "file:///run".into(),
        step,
        attempt: format!("attempt-{step}"),
        writer,
        world,
        len_bytes: CHUNK,
        replace: false,
    }
}

fn table(images: u64) -> Table {
    // Documents take some, too.
    Table::new(Limits::total(images * CHUNK + 100), machine_clock())
}

/// Captures, writes and commits a snapshot.
fn save(table: &mut Table, client: ClientId, about: Snapshot) -> Room {
    let room = table.begin(client, about).unwrap();
    table.captured(client, room.snapshot, vec![1]).unwrap();
    table.written(client, room.snapshot, vec![2]).unwrap();
    table.committed(client, room.snapshot).unwrap();
    room
}

fn held(table: &Table) -> Vec<(u64, usize, &'static str)> {
    let entries = table.entries.values();
    entries
        .map(|entry| (entry.about.step, entry.about.writer, entry.stage.name()))
        .collect()
}

#[test]
fn two_images_serve_a_writer_for_ever_and_the_last_complete_one_is_always_there() {
    let mut table = table(2);
    for step in 1..10 {
        let room = table.begin(7, about(step, 0, 1)).unwrap();
        assert_eq!(room.memory.is_some(), step <= 2, "step {step}");
        if step > 1 {
            assert_eq!(held(&table)[0], (step - 1, 0, "committed"));
        }
        table.captured(7, room.snapshot, Vec::new()).unwrap();
        assert_eq!(held(&table), [(step, 0, "captured")]);
        table.committed(7, room.snapshot).unwrap();
    }
    assert_eq!(table.used_bytes(), 2 * CHUNK);
}

#[test]
fn a_writer_that_leaves_and_lives_ends_its_saves_itself() {
    let mut table = table(10);
    let room = table.begin(1, about(1, 0, 1)).unwrap();
    table.captured(1, room.snapshot, vec![1]).unwrap();
    let unfinished = table.begin(1, about(2, 0, 1)).unwrap();
    table.cut(1);
    assert_eq!(held(&table), [(1, 0, "captured")]);
    assert!(table.captured(1, unfinished.snapshot, vec![1]).is_err());
    assert!(table.has_pending(1));
    // It comes back, and its next capture takes the place of the one it left.
    let room = table.begin(2, about(3, 0, 1)).unwrap();
    table.captured(2, room.snapshot, vec![1]).unwrap();
    assert!(!table.has_pending(1));
    assert!(table.gone(1).is_empty());
    // It leaves again, and dies.
    table.cut(2);
    let orphans = table.gone(2);
    assert_eq!(orphans.len(), 1);
    assert_eq!(orphans[0].about.step, 3);
}

#[test]
fn a_capture_stays_until_all_writers_have_the_next_one() {
    let mut table = table(10);
    save(&mut table, 1, about(1, 0, 2));
    save(&mut table, 2, about(1, 1, 2));
    let first = table.begin(1, about(2, 0, 2)).unwrap().snapshot;
    let second = table.begin(2, about(2, 1, 2)).unwrap().snapshot;
    table.captured(1, first, Vec::new()).unwrap();
    assert_eq!(held(&table).len(), 4);
    table.captured(2, second, Vec::new()).unwrap();
    assert_eq!(held(&table), [(2, 0, "captured"), (2, 1, "captured")]);
}

#[test]
fn with_writers_elsewhere_a_commit_is_what_lets_the_one_before_go() {
    let mut table = table(10);
    save(&mut table, 1, about(1, 0, 2));
    let next = table.begin(1, about(2, 0, 2)).unwrap().snapshot;
    table.captured(1, next, Vec::new()).unwrap();
    assert_eq!(held(&table).len(), 2);
    table.committed(1, next).unwrap();
    assert_eq!(held(&table), [(2, 0, "committed")]);
}

#[test]
fn what_was_captured_is_orphaned_by_a_death_and_what_was_not_is_forgotten() {
    let mut table = table(10);
    save(&mut table, 1, about(1, 0, 1));
    let captured = table.begin(1, about(2, 0, 1)).unwrap().snapshot;
    table.captured(1, captured, vec![3]).unwrap();
    table.begin(1, about(3, 0, 1)).unwrap();
    let orphans = table.gone(1);
    assert_eq!(orphans.len(), 1);
    assert_eq!(
        (orphans[0].snapshot, &orphans[0].draft[..]),
        (captured, &[3][..])
    );
    assert_eq!(held(&table), [(2, 0, "sealing")]);
    assert!(table.is_sealing("file:///run"));
    table.sealed(captured, vec![4]);
    table.settled(captured, Err(failure(Prospect::Open)));
    assert_eq!(held(&table), [(2, 0, "stuck")]);
    assert_eq!(table.status(0).snapshots[0].reason.as_deref(), Some("no"));
}

#[test]
fn a_death_during_capture_leaves_the_capture_before() {
    let mut table = table(10);
    save(&mut table, 1, about(1, 0, 1));
    table.begin(1, about(2, 0, 1)).unwrap();
    assert!(table.gone(1).is_empty());
    assert_eq!(held(&table), [(1, 0, "committed")]);
    assert_eq!(table.used_bytes(), CHUNK + 2);
}

#[test]
fn what_a_dead_launch_left_goes_when_the_next_launch_has_captured() {
    let mut table = table(3);
    save(&mut table, 1, about(1, 0, 2));
    save(&mut table, 2, about(1, 1, 2));
    table.gone(1);
    table.gone(2);
    let room = table.begin(3, about(2, 0, 1)).unwrap();
    assert_eq!(held(&table).len(), 3);
    table.captured(3, room.snapshot, Vec::new()).unwrap();
    assert_eq!(held(&table), [(2, 0, "captured")]);
    assert_eq!(table.used_bytes(), CHUNK);
}

#[test]
fn a_snapshot_that_is_read_stays_until_its_reader_leaves() {
    let mut table = table(3);
    save(&mut table, 1, about(1, 0, 1));
    let read = table.held(9, "file:///run");
    assert_eq!(read.len(), 1);
    save(&mut table, 1, about(2, 0, 1));
    // The image that is being read is not handed out again.
    let third = save(&mut table, 1, about(3, 0, 1));
    assert!(third.memory.is_some());
    assert!(table.fetch(9, read[0].snapshot).is_ok());
    assert!(table.fetch(8, read[0].snapshot).is_err());
    assert_eq!(held(&table), [(1, 0, "committed"), (3, 0, "committed")]);
    table.gone(9);
    assert_eq!(held(&table), [(3, 0, "committed")]);
}

#[test]
fn limits_hold_for_one_run_and_for_all() {
    let limits = Limits {
        max_bytes: 3 * CHUNK,
        max_run_bytes: 2 * CHUNK,
    };
    let mut table = Table::new(limits, machine_clock());
    let other = |step| Snapshot {
        run: "file:///other".into(),
        ..about(step, 0, 1)
    };
    table.begin(1, about(1, 0, 1)).unwrap();
    table.begin(1, about(2, 0, 1)).unwrap();
    let error = table.begin(1, about(3, 0, 1)).unwrap_err();
    assert!(error.to_string().contains("one run"), "{error}");
    table.begin(2, other(1)).unwrap();
    let error = table.begin(2, other(2)).unwrap_err();
    assert!(error.to_string().contains("the keeper"), "{error}");
    let huge = Snapshot {
        len_bytes: u64::MAX,
        ..other(3)
    };
    assert!(table.begin(3, huge).is_err());
    assert_eq!(table.used_bytes(), 3 * CHUNK);
}

#[test]
fn what_belongs_to_nobody_makes_room_for_another_run() {
    let mut table = table(1);
    save(&mut table, 1, about(1, 0, 1));
    let other = Snapshot {
        run: "file:///other".into(),
        ..about(1, 0, 1)
    };
    assert!(table.begin(2, other.clone()).is_err());
    table.gone(1);
    table.begin(2, other).unwrap();
    assert_eq!(held(&table), [(1, 0, "filling")]);
}

#[test]
fn idle_snapshots_are_forgotten_and_their_memory_with_them() {
    let mut table = table(2);
    save(&mut table, 1, about(1, 0, 1));
    table.forget(Duration::ZERO);
    assert_eq!(held(&table).len(), 1);
    table.gone(1);
    table.forget(Duration::from_secs(3600));
    assert_eq!(held(&table).len(), 1);
    table.forget(Duration::ZERO);
    assert_eq!((held(&table).len(), table.used_bytes()), (0, 0));
}

#[test]
fn nobody_touches_the_snapshots_of_another() {
    let mut table = table(4);
    let room = table.begin(1, about(1, 0, 1)).unwrap();
    assert!(table.captured(2, room.snapshot, Vec::new()).is_err());
    assert!(table.written(2, room.snapshot, Vec::new()).is_err());
    assert!(table.committed(2, room.snapshot).is_err());
    assert!(table.abandon(2, room.snapshot).is_err());
    assert!(table.begin(2, about(1, 0, 1)).is_err());
    assert_eq!(held(&table), [(1, 0, "filling")]);
}

#[test]
fn images_of_a_length_that_is_not_wanted_any_more_are_let_go() {
    let mut table = table(3);
    let first = table.begin(1, about(1, 0, 1)).unwrap();
    table.abandon(1, first.snapshot).unwrap();
    let larger = Snapshot {
        len_bytes: 2 * CHUNK,
        ..about(2, 0, 1)
    };
    let second = table.begin(1, larger).unwrap();
    assert_eq!(second.images, [second.image.unwrap()]);
    assert_eq!(table.used_bytes(), 2 * CHUNK);
}

#[test]
fn a_writer_without_data_takes_no_memory() {
    let mut table = table(0);
    let empty = Snapshot {
        len_bytes: 0,
        ..about(1, 0, 1)
    };
    let room = table.begin(1, empty).unwrap();
    assert!(room.image.is_none() && room.memory.is_none());
}

/// The table's clock, which a test sets.
#[derive(Debug, Default)]
struct Hand(std::sync::Mutex<Duration>);

impl Clock for Hand {
    fn elapsed(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn now(&self) -> std::time::SystemTime {
        std::time::SystemTime::UNIX_EPOCH
    }

    fn sleep(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

fn failure(prospect: Prospect) -> Failure {
    Failure {
        reason: "no".into(),
        prospect,
    }
}

/// Captures snapshots whose writers die, and which cannot be committed.
fn stuck(table: &mut Table, client: ClientId, about: Snapshot, prospect: Prospect) -> u64 {
    let snapshot = table.begin(client, about).unwrap().snapshot;
    table.captured(client, snapshot, vec![1]).unwrap();
    assert_eq!(table.gone(client).len(), 1);
    table.sealed(snapshot, vec![2]);
    table.settled(snapshot, Err(failure(prospect)));
    snapshot
}

#[test]
fn what_is_committed_nowhere_is_not_forgotten_and_makes_room_for_nobody() {
    let mut table = table(1);
    stuck(&mut table, 1, about(1, 0, 1), Prospect::Open);
    table.forget(Duration::ZERO);
    let other = Snapshot {
        run: "file:///other".into(),
        ..about(1, 0, 1)
    };
    assert!(table.begin(2, other.clone()).is_err());
    assert_eq!(held(&table), [(1, 0, "stuck")]);
    assert_eq!(table.last_copies().len(), 1);
    // It is tried again, and nobody takes its memory meanwhile.
    table.hurry(None);
    let due = table.due();
    assert_eq!(due.len(), 1);
    assert!(table.due().is_empty());
    assert!(table.begin(2, other.clone()).is_err());
    table.settled(due[0].snapshot, Ok(()));
    assert!(table.last_copies().is_empty());
    table.begin(2, other).unwrap();
}

#[test]
fn what_is_stuck_is_tried_again_less_and_less_often() {
    let hand = Arc::new(Hand::default());
    let mut table = Table::new(Limits::total(CHUNK + 100), hand.clone());
    let snapshot = stuck(&mut table, 1, about(1, 0, 1), Prospect::Open);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let begun = hand.elapsed();
        while table.due().is_empty() {
            hand.sleep(Duration::from_secs(1));
        }
        pauses.push((hand.elapsed() - begun).as_secs());
        table.settled(snapshot, Err(failure(Prospect::Open)));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    let status = &table.status(0).snapshots[0];
    assert_eq!((status.tries, status.seconds), (9, 183.0));
}

#[test]
fn a_step_that_was_given_up_stays_if_it_can_be_read_as_a_whole() {
    let mut table = table(3);
    stuck(&mut table, 1, about(1, 0, 2), Prospect::GivenUp);
    table.forget(Duration::ZERO);
    assert_eq!(held(&table), []);
    let [first, second] = [0, 1].map(|writer| {
        let client = writer as ClientId;
        let snapshot = table.begin(client, about(2, writer, 2)).unwrap().snapshot;
        table.captured(client, snapshot, vec![1]).unwrap();
        snapshot
    });
    for (client, snapshot) in [(0, first), (1, second)] {
        table.gone(client);
        table.sealed(snapshot, vec![2]);
        table.settled(snapshot, Err(failure(Prospect::GivenUp)));
    }
    table.forget(Duration::ZERO);
    assert_eq!(held(&table), [(2, 0, "stuck"), (2, 1, "stuck")]);
}

#[test]
fn a_snapshot_of_a_step_that_is_committed_otherwise_is_not_kept() {
    let mut table = table(1);
    stuck(&mut table, 1, about(1, 0, 1), Prospect::Taken);
    table.hurry(None);
    assert!(table.due().is_empty());
    table.forget(Duration::ZERO);
    assert_eq!(held(&table), []);
}
