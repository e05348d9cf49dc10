//! A scrub finds all damage, goes on where it was cut short, and never stumbles over steps that come and go.

use crate::common::{Model, memory};
use cairn_checkpoint::retention::{Keep, plan, prune};
use cairn_checkpoint::scrub::{Record, SCRUB, ScrubOptions, scrub};
use cairn_checkpoint::{Checkpoint, Error, SaveOptions, all_steps};
use cairn_store::{PutMode, Store};
use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;

fn run(steps: impl IntoIterator<Item = u64>) -> Arc<dyn Store> {
    let store = memory();
    for step in steps {
        save(&store, step);
    }
    store
}

fn save(store: &Arc<dyn Store>, step: u64) {
    for result in Model::on("tp=2", step).save(store, step, &SaveOptions::default()) {
        result.unwrap();
    }
}

fn pass(store: &Arc<dyn Store>) -> Record {
    scrub(store, &ScrubOptions::default(), &|| false, &|_| ()).unwrap()
}

/// A pass that is cut short before its `files`-th file is read.
fn cut_short(store: &Arc<dyn Store>, files: usize) -> Record {
    let left = Cell::new(files);
    let is_enough = || {
        left.set(left.get() - 1);
        left.get() == 0
    };
    scrub(store, &ScrubOptions::default(), &is_enough, &|_| ()).unwrap()
}

fn damage(store: &dyn Store, key: &str) {
    let mut bytes = store.get(key).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    store.put(key, &bytes, PutMode::Replace).unwrap();
}

fn data_key(store: &Arc<dyn Store>, step: u64, writer: usize) -> String {
    Checkpoint::open(store.clone(), step)
        .unwrap()
        .data_key(writer)
}

#[test]
fn a_whole_run_has_no_damage_and_all_its_bytes_are_read() {
    let store = run(1..=3);
    let record = pass(&store);
    assert!(record.is_over() && record.damage.is_empty());
    assert_eq!((record.steps, record.files), (3, 6));
    let all: u64 = (1..=3)
        .map(|step| {
            Checkpoint::open(store.clone(), step)
                .unwrap()
                .manifest()
                .len_bytes
        })
        .sum();
    assert_eq!(record.checked_bytes, all);
    assert_eq!(all_steps(store.as_ref()).unwrap(), [1, 2, 3]);
}

#[test]
fn every_kind_of_damage_is_found_and_told_by_step() {
    let store = run(1..=5);
    let bytes = data_key(&store, 1, 0);
    damage(store.as_ref(), &bytes);
    let missing = data_key(&store, 2, 1);
    store.delete(&missing).unwrap();
    let part = data_key(&store, 3, 0).replace(".safetensors", ".part");
    damage(store.as_ref(), &part);
    damage(store.as_ref(), "step-00000004/COMMIT");
    let record = pass(&store);
    assert_eq!(
        record.damage.keys().copied().collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    for (step, file) in [
        (1, bytes),
        (2, missing),
        (3, part),
        (4, "step-00000004/COMMIT".into()),
    ] {
        assert!(
            record.damage[&step][0].contains(&file),
            "{:?}",
            record.damage[&step]
        );
    }
}

#[test]
fn a_pass_that_was_cut_short_reads_every_byte_once() {
    let store = run(1..=3);
    let whole = pass(&store);
    for files in 1..=6 {
        let first = cut_short(&store, files);
        assert!(!first.is_over() && first.position.is_some());
        let rest = pass(&store);
        assert!(rest.is_over());
        assert_eq!(
            rest.checked_bytes, whole.checked_bytes,
            "cut before file {files}"
        );
        assert_eq!(rest.started, first.started);
    }
}

#[test]
fn steps_that_come_and_go_while_a_pass_is_cut_short_do_no_harm() {
    let store = run(1..=3);
    cut_short(&store, 3);
    let keep = Keep {
        last: 1,
        ..Keep::default()
    };
    let plan = plan(&store, &keep, None, SystemTime::now()).unwrap();
    prune(store.as_ref(), &plan).unwrap();
    save(&store, 4);
    damage(store.as_ref(), &data_key(&store, 4, 1));
    let record = pass(&store);
    assert!(record.is_over());
    assert_eq!(record.damage.keys().copied().collect::<Vec<_>>(), [4]);
}

#[test]
fn a_record_that_makes_no_sense_begins_a_new_pass() {
    let store = run([1]);
    let nonsense = [
        "nonsense",
        r#"{"cairn":1,"position":{"step":1,"attempt":"x","writer":9,"offset":1}}"#,
        r#"{"cairn":2,"steps":99}"#,
        r#"{"cairn":1,"position":{"step":18446744073709551615,"attempt":"x","writer":0,"offset":0}}"#,
    ];
    for text in nonsense {
        store.put(SCRUB, text.as_bytes(), PutMode::Replace).unwrap();
        let record = pass(&store);
        assert!(record.is_over() && record.steps <= 1, "{text}");
    }
}

#[test]
fn a_rate_is_kept() {
    let store = run([1]);
    let options = ScrubOptions {
        bytes_per_second: Some(u64::MAX),
        restart: true,
    };
    assert!(
        scrub(&store, &options, &|| false, &|_| ())
            .unwrap()
            .is_over()
    );
}

#[test]
fn an_empty_run_is_over_at_once() {
    let record = pass(&memory());
    assert!(record.is_over() && record.steps == 0);
    let found = Checkpoint::open(memory(), 1);
    assert!(matches!(found, Err(Error::Incomplete { .. })));
}
