//! Steps that refer to others, as `cairn ls`, `inspect`, `verify`, `prune` and `compact` see them.

use crate::fixture::Place;
use cairn::checkpoint::{Checkpointer, Options, SaveOptions, State, World};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::store::{Local, Store};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const BLOCK: u64 = 64 << 10;

/// With the run `run`: steps 10 and 20, the second of which has one block of its own.
fn place() -> Place {
    let place = Place::empty();
    let store: Arc<dyn Store> = Arc::new(Local::new(place.path("run")));
    let options = Options {
        delta: true,
        ..Options::default()
    };
    let run = Checkpointer::with_options(store, World::single(), options);
    let spec = TensorSpec::parse(&Mesh::single(), &format!("u8[{}]", 4 * BLOCK)).unwrap();
    let mut weights = vec![7; 4 << 16];
    for step in [10, 20] {
        weights[0] += 1;
        let mut state = State::new(0);
        state.tensor("weights", &spec, &weights).unwrap();
        let saving = run.save(step, &state, &SaveOptions::default()).unwrap();
        saving.wait().unwrap();
    }
    place
}

fn stdout(place: &Place, args: &[&str]) -> String {
    let output = place.output(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_step_is_as_old_as_its_state_whenever_its_files_were_written() {
    let place = place();
    let commit = fs::File::open(place.path("run/step-00000020/COMMIT")).unwrap();
    let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    commit.set_modified(yesterday).unwrap();
    let listed = place.json(&["ls", "run"]);
    assert!(listed["steps"][0]["age_seconds"].as_u64().unwrap() < 3600);
    let shown = stdout(&place, &["inspect", "run:20"]);
    assert!(shown.contains(" s ago) by cairn"), "{shown}");
}

#[test]
fn what_a_step_has_of_its_own_is_shown() {
    let place = place();
    let found = place.json(&["ls", "run"]);
    let delta = &found["steps"][0]["delta"];
    assert_eq!(delta["stored_bytes"], BLOCK);
    assert_eq!(delta["full_bytes"], 4 * BLOCK + 4096);
    assert_eq!(delta["bases"].as_object().unwrap().len(), 1);
    assert!(found["steps"][1].get("delta").is_none());
    let text = stdout(&place, &["ls", "run"]);
    assert!(text.contains("64.0 KiB of 260.0 KiB"), "{text}");
    let text = stdout(&place, &["inspect", "run"]);
    assert!(text.contains("version 2, a delta"), "{text}");
}

#[test]
fn a_compacted_step_stands_alone() {
    let place = place();
    let text = stdout(&place, &["compact", "run:20", "--dry-run"]);
    assert!(text.contains("would write 260.0 KiB"), "{text}");
    let text = stdout(&place, &["compact", "run"]);
    assert!(text.starts_with("step 20 stands alone"), "{text}");
    assert!(
        place.json(&["ls", "run"])["steps"][0]
            .get("delta")
            .is_none()
    );
    stdout(&place, &["verify", "run", "--read-data"]);
    let text = stdout(&place, &["compact", "run:20"]);
    assert_eq!(text, "step 20 refers to no other step\n");
}

#[test]
fn a_pruning_says_what_stays_for_whom() {
    let place = place();
    let prune = ["prune", "run", "--keep-last", "1", "--yes"];
    let report = place.json(&prune);
    let held = report["held"].as_object().unwrap();
    let [(file, who)] = held.iter().collect::<Vec<_>>()[..] else {
        panic!("{report}");
    };
    assert!(file.starts_with("step-00000010/") && file.ends_with("/00000.safetensors"));
    assert_eq!(who, "step 20");
    stdout(&place, &["verify", "run:20", "--read-data"]);
    let again = stdout(&place, &prune);
    assert!(again.contains("its files stay for step 20"), "{again}");
}
