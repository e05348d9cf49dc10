//! Stores that fail, stall and lie: the cause reaches every rank, nothing is committed, and the next save works.

use crate::common::{Model, checkpointer, deadlines, latest, load_as, memory, quick, together};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, LoadOptions, Options, SaveOptions, World, chain,
};
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use cairn_store::{Local, Store};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MESH: &str = "tp=3";
const FAULTS: [Fault; 4] = [Fault::NO_SPACE, Fault::IO, Fault::DENIED, Fault::READ_ONLY];

/// Three ranks that share a store with rules, and step 1 committed.
struct Fleet {
    flaky: Arc<FlakyStore<Arc<dyn Store>>>,
    ranks: Vec<Checkpointer>,
}

impl Fleet {
    fn new(options: &Options) -> Self {
        let flaky = Arc::new(FlakyStore::new(memory()));
        let store: Arc<dyn Store> = flaky.clone();
        Model::on(MESH, 1).save_ok(&store, 1);
        let ranks = World::threads(3)
            .iter()
            .map(|world| checkpointer(&store, world, options))
            .collect();
        Self { flaky, ranks }
    }

    /// Every rank saves `step` and waits.
    fn save(&self, step: u64) -> Vec<Result<(), Arc<Error>>> {
        let (model, save) = (Model::on(MESH, step), SaveOptions::default());
        together(&self.ranks, |run, rank| {
            model.save_from(run, rank, step, &save).map(|_| ())
        })
    }

    /// Every rank saves `step` and does not look what became of it.
    fn save_unseen(&self, step: u64) -> Vec<Result<(), Error>> {
        let (model, save) = (Model::on(MESH, step), SaveOptions::default());
        together(&self.ranks, |run, rank| {
            model.start(run, rank, step, &save).map(|_| ())
        })
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.flaky.inner()
    }

    fn assert_latest(&self, step: u64) {
        let checkpoint = latest(self.store());
        assert_eq!(checkpoint.step(), step);
        Model::on(MESH, step).assert_whole(&checkpoint);
    }
}

/// Every place where a writer can fail: its file three times, its part, and for writer 0 the commit.
fn places() -> Vec<(usize, Operation, String)> {
    let mut places = vec![(0, Operation::Put, "COMMIT".to_string())];
    for writer in 0..3 {
        for operation in [Operation::Create, Operation::Write, Operation::Finish] {
            places.push((writer, operation, format!("{writer:05}.safetensors")));
        }
        places.push((writer, Operation::Put, format!("{writer:05}.part")));
    }
    places
}

fn is_cause(error: &Error, fault: Fault) -> bool {
    let Error::Store { source, .. } = error else {
        return false;
    };
    match fault {
        Fault::NO_SPACE => matches!(source, cairn_store::Error::NoSpace { .. }),
        Fault::DENIED => matches!(source, cairn_store::Error::PermissionDenied { .. }),
        Fault::READ_ONLY => matches!(source, cairn_store::Error::ReadOnly { .. }),
        _ => matches!(source, cairn_store::Error::Io { .. }),
    }
}

#[test]
fn a_failure_of_any_writer_reaches_every_rank_at_once_and_the_next_save_works() {
    let patience = Duration::from_secs(60);
    let fleet = Fleet::new(&Options {
        commit_timeout: patience,
        takeover: patience,
        ..quick()
    });
    let mut step = 1;
    for (writer, operation, key) in places() {
        for fault in FAULTS {
            let place = format!("{operation:?} of `{key}`: {fault:?}");
            fleet.flaky.add(Rule::new([operation], fault).on(&key));
            let started = Instant::now();
            let results = fleet.save(step + 1);
            assert!(started.elapsed() < patience, "{place}");
            fleet.flaky.clear();
            for (rank, result) in results.into_iter().enumerate() {
                let error = result.expect_err(&place);
                match &*error {
                    own if rank == writer => assert!(is_cause(own, fault), "{place}: {own}"),
                    Error::WriterFailed {
                        writer: by,
                        message,
                        ..
                    } => {
                        assert_eq!(*by, writer, "{place}");
                        assert!(message.contains(&key), "{place}: {message}");
                    }
                    other => panic!("{place}: rank {rank} says: {other}"),
                }
            }
            fleet.assert_latest(step);
            for result in fleet.save(step + 1) {
                result.expect(&place);
            }
            step += 1;
            fleet.assert_latest(step);
        }
    }
}

#[test]
fn a_failure_nobody_looked_at_is_reported_by_the_next_save() {
    let fleet = Fleet::new(&quick());
    fleet
        .flaky
        .add(Rule::new([Operation::Finish], Fault::IO).on("00001.safetensors"));
    for started in fleet.save_unseen(2) {
        started.unwrap();
    }
    let reported = fleet.save_unseen(3);
    fleet.flaky.clear();
    for (rank, result) in reported.into_iter().enumerate() {
        let error = result.unwrap_err();
        let Error::PreviousSave { step: 2, source } = &error else {
            panic!("{error}");
        };
        assert_eq!(rank == 1, is_cause(source, Fault::IO), "{source}");
        assert_eq!(error.hint(), source.hint());
    }
    for result in fleet.save(3) {
        result.unwrap();
    }
    fleet.assert_latest(3);
}

#[test]
fn a_failure_somebody_looked_at_is_not_reported_again() {
    let fleet = Fleet::new(&quick());
    fleet.flaky.add(
        Rule::new([Operation::Put], Fault::IO)
            .on("00000.part")
            .nth(0),
    );
    for result in fleet.save(2) {
        result.unwrap_err();
    }
    for result in fleet.save(3) {
        result.unwrap();
    }
    fleet.assert_latest(3);
}

#[test]
fn when_no_note_of_a_failure_can_be_left_the_deadline_ends_the_wait() {
    let fleet = Fleet::new(&deadlines(200, 50));
    fleet
        .flaky
        .add(Rule::new([Operation::Create], Fault::NO_SPACE).on("00002.safetensors"));
    fleet
        .flaky
        .add(Rule::new([Operation::Put], Fault::NO_SPACE).on("FAILED"));
    let mut results = fleet.save(2);
    assert!(is_cause(
        &results.pop().unwrap().unwrap_err(),
        Fault::NO_SPACE
    ));
    for result in results {
        let error = result.unwrap_err();
        let Error::WritersMissing { missing, .. } = &*error else {
            panic!("{error}");
        };
        assert_eq!(*missing, [2]);
    }
    fleet.assert_latest(1);
}

#[test]
fn a_commit_whose_answer_is_lost_is_a_commit() {
    let fleet = Fleet::new(&quick());
    let Fault::Fail(errno) = Fault::TIMED_OUT else {
        panic!("a failure has a number");
    };
    let lost = Rule::new([Operation::Put], Fault::FailAfter(errno)).on("COMMIT");
    fleet.flaky.add(lost);
    let results = fleet.save(2);
    results[0].as_ref().unwrap_err();
    for result in &results[1..] {
        result.as_ref().unwrap();
    }
    fleet.assert_latest(2);
}

#[test]
fn stalls_shorter_than_the_deadline_do_no_harm() {
    let fleet = Fleet::new(&quick());
    let stall = Fault::Stall(Duration::from_millis(150));
    for (operation, key) in [
        (Operation::Create, "00000.safetensors"),
        (Operation::Write, "00001.safetensors"),
        (Operation::Finish, "00002.safetensors"),
        (Operation::Put, "00001.part"),
        (Operation::Put, "COMMIT"),
        (Operation::List, "step-00000002"),
    ] {
        fleet
            .flaky
            .add(Rule::new([operation], stall).on(key).nth(0));
    }
    for result in fleet.save(2) {
        result.unwrap();
    }
    fleet.assert_latest(2);
}

#[test]
fn a_failed_read_names_its_file() {
    let fleet = Fleet::new(&quick());
    let model = Model::on(MESH, 1);
    for operation in [Operation::Open, Operation::Read] {
        for file in ["00001.safetensors", "00002.part"] {
            fleet.flaky.add(Rule::new([operation], Fault::IO).on(file));
            let checkpoint = Checkpoint::open(fleet.flaky.clone(), 1).unwrap();
            let loaded = load_as(&checkpoint, &model.specs, &LoadOptions::default());
            let error = loaded.unwrap_err();
            assert!(is_cause(&error, Fault::IO), "{error}");
            assert!(!error.is_damage(), "a sick disk is no reason to go back");
            assert!(chain(&error).contains(file), "{error}");
            fleet.flaky.clear();
        }
    }
}

#[test]
fn a_sick_disk_does_not_send_latest_back_to_an_older_step() {
    let fleet = Fleet::new(&quick());
    for result in fleet.save(2) {
        result.unwrap();
    }
    let rule = Rule::new([Operation::Read], Fault::IO).on("step-00000002");
    fleet.flaky.add(rule);
    let found = fleet.ranks[0].latest();
    assert!(is_cause(&found.unwrap_err(), Fault::IO));
}

#[test]
fn bytes_damaged_on_the_way_are_caught() {
    let fleet = Fleet::new(&quick());
    let model = Model::on(MESH, 1);
    let file = "00001.safetensors";
    let checkpoint = Checkpoint::open(fleet.flaky.clone(), 1).unwrap();
    for offset in [0, 4096, 4100] {
        let flip = Fault::FlipBit { offset, bit: 3 };
        fleet.flaky.add(Rule::new([Operation::Read], flip).on(file));
        let loaded = load_as(&checkpoint, &model.specs, &LoadOptions::default());
        let error = loaded.unwrap_err();
        assert!(error.is_damage(), "{error}");
        for part in [file, "tensor `", "bytes 0.."] {
            assert!(error.to_string().contains(part), "no {part} in: {error}");
        }
        fleet.flaky.clear();
    }
    let cut = Fault::Truncate { len: 4097 };
    fleet.flaky.add(Rule::new([Operation::Open], cut).on(file));
    let loaded = load_as(&checkpoint, &model.specs, &LoadOptions::default());
    assert!(loaded.unwrap_err().is_damage());
    fleet.flaky.clear();
    model.assert_loads(&checkpoint);
}

const ROOT: &str = "CAIRN_CHECKPOINT_TEST_ROOT";

/// Runs an ignored test of this file on a small disk mounted for it alone.
///
/// Where none can be mounted there is nothing to run, and a store with rules has to do.
fn run_on_disk(options: &str, test: &str) {
    let place = tempfile::tempdir().unwrap();
    let mount =
        format!("mount -t tmpfs -o {options} none \"${ROOT}\" || exit 1; exec \"$0\" \"$@\"");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("errors::{test}"), "--ignored"])
        .env(ROOT, place.path())
        .output();
    let Ok(output) = output else { return };
    let printed = String::from_utf8_lossy(&output.stdout);
    let ran = printed.contains("running 1 test");
    assert!(!ran || output.status.success(), "{printed}");
}

/// The disk that was mounted for this process.
fn mounted() -> (PathBuf, Arc<dyn Store>) {
    let root = PathBuf::from(std::env::var_os(ROOT).unwrap());
    let store = Arc::new(Local::new(root.join("run")));
    (root, store)
}

fn big(step: u64) -> Model {
    let spec = crate::common::spec("tp=2", "u8[3000000@tp]");
    Model::new(crate::common::one("big", spec), step)
}

#[test]
fn a_full_disk_fails_the_save_and_keeps_the_steps() {
    run_on_disk("size=8m", "full_disk");
}

#[test]
#[ignore = "another test runs it on a small disk"]
fn full_disk() {
    let (_, store) = mounted();
    big(1).save_ok(&store, 1);
    big(2).save_ok(&store, 2);
    let results = big(3).save(&store, 3, &SaveOptions::default());
    let full = |result: &Result<_, Arc<Error>>| {
        let error = result.as_ref().unwrap_err();
        is_cause(error, Fault::NO_SPACE)
    };
    assert!(results.iter().any(full), "{results:?}");
    let checkpoint = latest(&store);
    assert_eq!(checkpoint.step(), 2);
    big(2).assert_whole(&checkpoint);
    Model::on("tp=2", 4).save_ok(&store, 4);
    Model::on("tp=2", 4).assert_whole(&latest(&store));
}

#[test]
fn a_read_only_disk_fails_the_save_and_still_loads() {
    run_on_disk("size=8m", "read_only_disk");
}

#[test]
#[ignore = "another test runs it on a disk that becomes read-only"]
fn read_only_disk() {
    let (root, store) = mounted();
    big(1).save_ok(&store, 1);
    let remount = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&root)
        .status();
    assert!(remount.unwrap().success());
    let worlds = World::threads(2);
    let options = deadlines(300, 100);
    for result in big(2).launch(&store, &worlds, 2, &SaveOptions::default(), &options) {
        assert!(is_cause(&result.unwrap_err(), Fault::READ_ONLY));
    }
    big(1).assert_whole(&latest(&store));
}
