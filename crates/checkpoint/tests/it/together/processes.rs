//! Peers that are processes: this test program again, running one ignored test for each rank.

use super::{load_rank, options};
use crate::common::{Model, Specs, cut, one, spec};
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use cairn_store::{Local, Store};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const ROOT: &str = "CAIRN_TEST_ROOT";
const RANK: &str = "CAIRN_TEST_RANK";
const WORLD: &str = "CAIRN_TEST_WORLD";
const STALLED: &str = "CAIRN_TEST_STALLED";

/// Enough for several parcels from every peer to every other.
const ROWS: usize = 12_000;

fn source() -> Model {
    Model::new(one("w", spec("dp=4", &format!("f32[{ROWS}@dp, 1000]"))), 1)
}

fn target(world: usize) -> Specs {
    let text = format!("f32[{ROWS}, 1000@tp]");
    one("w", spec(&format!("tp={world}"), &text))
}

#[test]
#[ignore = "the other tests of this file run it in processes of its own"]
fn peer() {
    let variable = |name| std::env::var(name).unwrap();
    let root = variable(ROOT);
    let [rank, world]: [usize; 2] = [RANK, WORLD].map(|name| variable(name).parse().unwrap());
    let store = FlakyStore::new(Local::new(Path::new(&root).join("run")));
    if variable(STALLED) == rank.to_string() {
        // It has delivered something, but not all.
        let hour = Fault::Stall(Duration::from_secs(3600));
        store.add(Rule::new([Operation::Read], hour).on("safetensors").nth(1));
    }
    let store: Arc<dyn Store> = Arc::new(store);
    let ranks: Vec<usize> = (0..world).collect();
    let mut options = options(&Path::new(&root).join("meet"), rank, &ranks, "one");
    options.threads = 1;
    match load_rank(&store, &target(world), &options) {
        Ok((report, local)) => {
            let expected = cut(&target(world)["w"], rank, &source().whole["w"]);
            assert!(local["w"] == expected, "other bytes than were saved");
            println!("read {} bytes", report.cost.read_bytes);
        }
        Err(error) => println!("failed: {error}"),
    }
}

fn start(root: &Path, rank: usize, world: usize, stalled: Option<usize>) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "together::processes::peer"])
        .args(["--ignored", "--nocapture"])
        .env(ROOT, root)
        .env(RANK, rank.to_string())
        .env(WORLD, world.to_string())
        .env(STALLED, stalled.map_or("-".into(), |rank| rank.to_string()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A folder with a saved run and a place to meet.
fn saved() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("meet")).unwrap();
    let store: Arc<dyn Store> = Arc::new(Local::new(folder.path().join("run")));
    source().save_ok(&store, 1);
    folder
}

fn remains(root: &Path) -> usize {
    root.join("meet").read_dir().unwrap().count()
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn processes_read_every_byte_once() {
    let folder = saved();
    for world in [1, 2, 3, 4] {
        let peers: Vec<Child> = (0..world)
            .map(|rank| start(folder.path(), rank, world, None))
            .collect();
        let mut read = 0;
        for peer in peers {
            let output = peer.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", text(output));
            let text = text(output);
            let words = text.split_whitespace();
            let number = words.skip_while(|word| *word != "read").nth(1);
            read += number
                .unwrap_or_else(|| panic!("{text}"))
                .parse::<usize>()
                .unwrap();
        }
        let union = ROWS * 1000 * 4;
        assert!(
            read >= union && read * 100 <= union * 105,
            "{world}: {read}"
        );
        assert_eq!(remains(folder.path()), 0);
    }
}

#[test]
fn a_killed_peer_is_named_by_the_others_at_once() {
    let folder = saved();
    let mut peers: Vec<Child> = (0..4)
        .map(|rank| start(folder.path(), rank, 4, Some(2)))
        .collect();
    // Until all have come, and the one that will not go on has begun.
    let note = |rank: usize| {
        let meet = folder.path().join("meet").read_dir().unwrap();
        let folders = meet.map(|entry| entry.unwrap().path());
        let notes = folders.map(|folder| folder.join(format!("{rank}.note")));
        notes.filter_map(|note| std::fs::metadata(note).ok()).next()
    };
    let patience = Instant::now();
    while !(0..4).all(|rank| note(rank).is_some()) {
        assert!(
            patience.elapsed() < Duration::from_secs(60),
            "they did not come"
        );
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(300));
    let mut victim = peers.remove(2);
    victim.kill().unwrap();
    victim.wait().unwrap();
    let killed = Instant::now();
    for peer in peers {
        let text = text(peer.wait_with_output().unwrap());
        let named = "failed: rank 2 did not deliver its part of the load: it ended before";
        assert!(text.contains(named), "{text}");
    }
    assert!(
        killed.elapsed() < Duration::from_secs(10),
        "their timeout is 20 s"
    );
    assert_eq!(remains(folder.path()), 0);
}
