//! Manifests made to do harm: whatever they say, nothing outside the run is read, written or deleted, and nothing panics.

use crate::common::Model;
use cairn_checkpoint::retention::{Keep, plan, prune};
use cairn_checkpoint::{Checkpoint, SaveOptions, Source, StepState, survey};
use cairn_store::{Local, PutMode, Store};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::SystemTime;
use tempfile::TempDir;

const COMMIT: &str = "step-00000001/COMMIT";

/// A run with steps 1 and 2, in the folder `run` of a folder with other things.
fn run() -> (TempDir, Arc<dyn Store>) {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Local::new(folder.path().join("run")));
    for step in [1, 2] {
        let save = SaveOptions {
            assets: [("config.json".to_string(), b"{}".to_vec())].into(),
            ..SaveOptions::default()
        };
        for result in Model::on("tp=2", step).save(&store, step, &save) {
            result.unwrap();
        }
    }
    Local::new(folder.path())
        .put("precious", b"precious", PutMode::Create)
        .unwrap();
    (folder, store)
}

/// Changes the manifest of step 1, and seals it again.
fn forge(store: &dyn Store, change: impl FnOnce(&mut Map<String, Value>)) {
    let mut members: Map<String, Value> =
        serde_json::from_slice(&store.get(COMMIT).unwrap()).unwrap();
    members.shift_remove("sha256");
    change(&mut members);
    let mut text = serde_json::to_string(&members).unwrap();
    text.pop();
    let digest: String = Sha256::digest(&text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    text += &format!(",\"sha256\":\"{digest}\"}}\n");
    store
        .put(COMMIT, text.as_bytes(), PutMode::Replace)
        .unwrap();
}

/// Does all that a reader does. Whatever comes of it is in words.
fn read(store: &Arc<dyn Store>) -> bool {
    let whole = matches!(survey(store, 1, 1.0, &|_| ()), Ok(StepState::Whole(..)));
    if let Ok(checkpoint) = Checkpoint::open(store.clone(), 1) {
        let assets = checkpoint.assets();
        let names: Vec<String> = checkpoint
            .names()
            .iter()
            .map(|name| name.to_string())
            .collect();
        for name in names {
            let _ = checkpoint.find(&name);
        }
        return whole && assets.is_ok();
    }
    false
}

#[test]
fn an_honest_forgery_is_read() {
    let (_folder, store) = run();
    forge(store.as_ref(), |_| ());
    assert!(read(&store));
}

#[test]
fn names_that_lead_out_of_a_run_lead_nowhere() {
    let (folder, store) = run();
    let absolute = folder.path().join("precious");
    let names = [
        "../..",
        "..",
        ".",
        "",
        "/",
        "a/../../..",
        "..\\..",
        "a\u{0}b",
        ".tmp-x",
        absolute.to_str().unwrap(),
    ];
    for name in names {
        forge(store.as_ref(), |members| members["attempt"] = json!(name));
        assert!(!read(&store), "attempt {name:?}");
    }
    let long = "x/".repeat(4000);
    for name in names.into_iter().chain(["../../../precious", &long]) {
        let (_folder, store) = run();
        let digest: String = Sha256::digest(b"precious")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        forge(store.as_ref(), |members| {
            members["assets"] = json!({name: {"len_bytes": 8, "sha256": digest}});
        });
        assert!(!read(&store), "asset {name:?}");
    }
}

#[test]
fn numbers_that_are_lies_are_refused_or_harmless() {
    let max = u64::MAX;
    let forgeries: Vec<(&str, Value)> = vec![
        ("writers", json!(max)),
        ("writers", json!(1_u64 << 60)),
        ("writers", json!(-1)),
        ("parts", json!("ä".repeat(16))),
        ("parts", json!("")),
        ("step", json!(max)),
        ("len_bytes", json!(max)),
        (
            "layouts",
            json!([{"mesh": "dp=16777215", "tensors": {"w": "f32[18446744073709551615@dp]"}}]),
        ),
        (
            "layouts",
            json!([{"mesh": "single", "tensors": {"w": "f32[4294967296, 4294967296, 4294967296]"}}]),
        ),
        (
            "layouts",
            json!([{"mesh": "a=4096,b=4095", "tensors": {"w": "f32[9223372036854775807@a+b/4096]"}}]),
        ),
        (
            "layouts",
            json!([{"mesh": "dp=99999999999999999999", "tensors": {}}]),
        ),
        (
            "layouts",
            json!([{"mesh": "single on [4294967295]", "tensors": {"w": "f32[4]"}}]),
        ),
        (
            "listed",
            json!({"w": {"dtype": "f32", "shape": [max], "pieces": {"0": ["0:18446744073709551615"]}}}),
        ),
        (
            "listed",
            json!({"w": {"dtype": "f32", "shape": [4], "pieces": {"18446744073709551615": ["0:4"]}}}),
        ),
        ("aliases", json!({"a": "b", "b": "a"})),
        ("aliases", json!({"a": "a"})),
        ("derived", json!({"a": {"dtype": "bf16", "of": "a"}})),
        ("assets", json!({"x": {"len_bytes": max, "sha256": "00"}})),
    ];
    for (member, value) in forgeries {
        let (_folder, store) = run();
        forge(store.as_ref(), |members| {
            members.insert(member.to_string(), value.clone());
        });
        let whole = read(&store);
        let plan = plan(&store, &Keep::default(), None, SystemTime::now()).unwrap();
        // A length that nobody uses may be wrong; what is read may not.
        assert!(!whole || member == "len_bytes", "{member} {value}");
        assert!(plan.keep.contains_key(&2), "{member} {value}");
    }
}

#[test]
fn a_step_of_no_writers_behind_a_link_takes_nothing_with_it() {
    let (folder, store) = run();
    let home = folder.path().join("home");
    Local::new(&home)
        .put("precious", b"precious", PutMode::Create)
        .unwrap();
    symlink(&home, folder.path().join("run/step-00000001/link")).unwrap();
    forge(store.as_ref(), |members| {
        for (name, empty) in [
            ("layouts", json!([])),
            ("listed", json!({})),
            ("aliases", json!({})),
            ("assets", json!({})),
        ] {
            members.insert(name.into(), empty);
        }
        members["attempt"] = json!("link");
        members["writers"] = json!(0);
        members["parts"] = json!("");
    });
    let plan = plan(&store, &Keep::default(), None, SystemTime::now()).unwrap();
    let _ = prune(store.as_ref(), &plan);
    assert!(home.join("precious").exists());
}

#[test]
fn manifests_that_are_noise_or_nested_without_end_are_refused() {
    let (_folder, store) = run();
    let nested = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    for text in ["", "{}", "{\"cairn\":1}\n", &nested] {
        store
            .put(COMMIT, text.as_bytes(), PutMode::Replace)
            .unwrap();
        assert!(!read(&store));
    }
    let (_folder, store) = run();
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    forge(store.as_ref(), |members| {
        members["values"] = json!({"deep": deep})
    });
    read(&store);
}
