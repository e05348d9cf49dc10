//! Runs in buckets: every verb on URLs, few requests, and what is told of stores that are weak, full of leftovers, or closed.

mod races;
mod troubles;

use crate::fixture::Place;
use cairn::checkpoint::{Checkpointer, Error, Options, SaveOptions, Saving, State, World};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::store::{PutMode, Store, open_with};
use cairn_store::testing::{BucketServer, Mishap, MishapKind};
use serde_json::Value;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

fn store(server: &BucketServer, folder: &str) -> Arc<dyn Store> {
    open_with(&server.url(folder), &server.options()).unwrap()
}

/// Runs the command with the credentials of the server.
fn cairn(place: &Place, server: &BucketServer, line: &str) -> Output {
    let args: Vec<&str> = line.split(' ').collect();
    let mut command = place.command(&args);
    command.envs(server.environment()).output().unwrap()
}

/// What the command prints with `--json`; it must succeed.
fn json(place: &Place, server: &BucketServer, line: &str) -> Value {
    let output = cairn(place, server, &format!("{line} --json"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Saves a step of one rank with `count` tensors.
fn save_many(store: Arc<dyn Store>, step: u64, count: usize) {
    let mesh: Mesh = "dp=1".parse().unwrap();
    let spec = TensorSpec::parse(&mesh, "f32[2]").unwrap();
    let names: Vec<String> = (0..count)
        .map(|index| format!("layers.{index}.w"))
        .collect();
    let mut state = State::new(0);
    for name in &names {
        state.tensor(name, &spec, &[0; 8]).unwrap();
    }
    let run = Checkpointer::new(store, World::single());
    let saving = run.save(step, &state, &SaveOptions::default()).unwrap();
    saving.wait().unwrap();
}

#[test]
fn looking_at_a_checkpoint_of_a_hundred_tensors_takes_few_requests() {
    let (place, server) = (Place::empty(), BucketServer::start());
    for step in 1..=8 {
        save_many(store(&server, "run"), step, 100);
    }
    let looks = |path: &str, most: usize| {
        server.take_requests();
        let found = json(&place, &server, &format!("inspect {}", server.url(path)));
        assert_eq!(found["step"], 8);
        let requests = server.take_requests();
        assert!(requests.len() <= most, "{path}: {requests:#?}");
        let reads_data = |request: &String| request.contains(".safetensors");
        assert!(!requests.iter().any(reads_data), "{requests:#?}");
    };
    for (path, most) in [("run/step-00000008", 5), ("run:8", 5), ("run", 7)] {
        looks(path, most);
    }
    // A newer one that nobody has committed: it is asked for, whether a pruning has it aside or has just brought it back, and whether it is deleted.
    let begun = "step-00000009/x/00000.part";
    let store = store(&server, "run");
    store.put(begun, b"", PutMode::Create).unwrap();
    looks("run", 12);
}

#[test]
fn verbs_say_of_a_bucket_what_they_say_of_a_folder() {
    let (place, server) = (Place::with_run(), BucketServer::start());
    Place::save_to(store(&server, "run"), 10, &[]);
    Place::save_to(store(&server, "run"), 20, &["eval"]);
    let same = |line: &str, field: &str| {
        let there = json(&place, &server, &line.replace("RUN", &server.url("run")));
        let here = json(&place, &server, &line.replace("RUN", "run"));
        assert!(!here[field].is_null(), "{line}: {here}");
        assert_eq!(there[field], here[field], "{line}");
    };
    same("inspect RUN", "tensors");
    same("verify RUN --read-data", "steps");
    same("cat RUN model.layers.0.q_proj.weight[1:3]", "values");
    same("stats RUN:10", "patterns");
    same("diff RUN:10 RUN:10", "same");
    same("plan load RUN --mesh tp=2", "tensors");
    assert_eq!(
        json(&place, &server, &format!("ls {}", server.url("run")))["steps"][0]["state"],
        "complete"
    );
}

#[test]
fn what_is_written_to_a_bucket_can_be_read_from_there() {
    let (place, server) = (Place::with_run(), BucketServer::start());
    let (hf, new) = (server.url("models/hf"), server.url("new"));
    json(&place, &server, &format!("convert run {hf} --to hf"));
    json(
        &place,
        &server,
        &format!("reshard {hf} {new} --mesh tp=2 --step 5"),
    );
    let weights = json(&place, &server, &format!("diff {hf} {new} --keys model.*"));
    assert_eq!(weights["same"], true, "{weights}");
    json(&place, &server, &format!("reshard run {new} --mesh dp=4"));
    json(&place, &server, &format!("prune {new} --keep-last 1 --yes"));
    let left = json(&place, &server, &format!("ls {new}"));
    assert_eq!(left["steps"].as_array().unwrap().len(), 1);
    assert_eq!(server.upload_count(), 0);
}

#[test]
fn uploads_that_nobody_finished_are_pruned_when_they_are_old() {
    let (place, server) = (Place::empty(), BucketServer::start());
    let store = store(&server, "run");
    save_many(store.clone(), 1, 1);
    std::mem::forget(
        store
            .create("step-00000002/x/00000.safetensors", 20 << 20)
            .unwrap(),
    );
    let line = format!("prune {} --incomplete", server.url("run"));
    let young = json(&place, &server, &format!("{line} --yes"));
    assert_eq!(young["uploads"], Value::Array(Vec::new()));
    assert_eq!(server.upload_count(), 1, "it may be somebody's");
    server.age_uploads(Duration::from_secs(25 * 60 * 60));
    let planned = json(&place, &server, &format!("{line} --dry-run"));
    assert_eq!(planned["uploads"][0], "step-00000002/x/00000.safetensors");
    assert_eq!(server.upload_count(), 1);
    let done = cairn(&place, &server, &format!("{line} --yes"));
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.ends_with("deleted 1 upload, 0 B\n"), "{said}");
    assert_eq!(server.upload_count(), 0);
}

#[test]
fn the_doctor_tells_a_weak_store_from_a_good_one() {
    let (place, server) = (Place::empty(), BucketServer::start());
    let line = format!("doctor {}", server.url("run"));
    assert_eq!(json(&place, &server, &line)["good"], true);
    server.ignore_conditions();
    let weak = cairn(&place, &server, &line);
    assert_eq!(weak.status.code(), Some(1));
    let said = String::from_utf8(weak.stdout).unwrap();
    assert!(said.contains("writer 0 alone commits"), "{said}");
    assert!(server.keys().is_empty());
    let nowhere = cairn(&place, &server, "doctor nowhere");
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(!place.path("nowhere").exists());
}

#[test]
fn a_bucket_that_nothing_opens_is_told_at_once() {
    let place = Place::empty();
    let mut command = place.command(&["ls", "s3://bucket/run", "--json"]);
    for name in std::env::vars().map(|(name, _)| name) {
        if name.starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command
        .env("HOME", place.path(""))
        .env("AWS_EC2_METADATA_DISABLED", "true");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    let all = error.to_string();
    assert!(all.contains("credentials: there are none"), "{all}");
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("AWS_ACCESS_KEY_ID")
    );
}

/// Starts a save by rank `rank` of two.
fn save(store: &Arc<dyn Store>, rank: usize, timeout: Duration) -> Saving {
    let mesh: Mesh = "dp=2".parse().unwrap();
    let spec = TensorSpec::parse(&mesh, "f32[4@dp]").unwrap();
    let options = Options {
        commit_timeout: timeout,
        takeover: Duration::ZERO,
        ..Options::default()
    };
    let world = World::new(rank, 2, "one launch").unwrap().unique();
    let run = Checkpointer::with_options(store.clone(), world, options);
    let mut state = State::new(rank);
    state.tensor("w", &spec, &[0; 8]).unwrap();
    run.save(7, &state, &SaveOptions::default()).unwrap()
}

#[test]
fn on_a_store_that_ignores_conditions_writer_0_alone_commits() {
    let server = BucketServer::start();
    server.ignore_conditions();
    let store = store(&server, "run");
    // Writer 0 leaves its part and dies before it commits, or gives up.
    let gone = save(&store, 0, Duration::ZERO).wait().unwrap_err();
    assert!(matches!(*gone, Error::WritersMissing { .. }), "{gone:?}");
    let failed = server
        .keys()
        .into_iter()
        .find(|key| key.ends_with("FAILED"));
    let failed = failed.unwrap();
    store.delete(failed.strip_prefix("run/").unwrap()).unwrap();
    let other = save(&store, 1, Duration::from_secs(1)).wait().unwrap_err();
    let Error::WritersMissing { missing, .. } = other.as_ref() else {
        panic!("{other:?}");
    };
    assert_eq!(*missing, [0]);
    assert!(!server.keys().iter().any(|key| key.ends_with("COMMIT")));
    // A person may: nobody else does at the same time.
    cairn::checkpoint::finish(store.as_ref(), 7).unwrap();
    assert!(server.keys().iter().any(|key| key.ends_with("COMMIT")));
}

#[test]
fn a_commit_whose_answer_is_lost_is_a_commit() {
    let server = BucketServer::start();
    server.add(Mishap {
        request: vec!["PUT", "COMMIT"],
        kind: MishapKind::LoseAnswer,
    });
    save_many(store(&server, "run"), 3, 2);
    let run = Checkpointer::new(store(&server, "run"), World::single());
    assert_eq!(run.steps().unwrap(), [3]);
}
