//! The demo, small: the story holds, and it leaves nothing behind.

use crate::fixture::Place;
use serde_json::Value;

#[test]
fn the_demo_is_killed_and_loses_nothing() {
    let folder = Place::empty();
    let args = [
        "demo", "--dir", "work", "--steps", "20", "--gb", "0.01", "--json",
    ];
    let output = folder.output(&args);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    let training = &report["training"];
    assert!(training["farthest"].as_f64().unwrap() < 1e-3, "{report:#}");
    assert!(training["resumed_from"].as_u64() < training["killed_after"].as_u64());
    assert!(
        training["resumed_from"].as_u64().unwrap() >= 5,
        "{report:#}"
    );
    let state = &report["state"];
    assert_eq!(state["differing"], Value::Array(vec![]));
    assert_eq!(state["mesh_after"], "dp=3,tp=2");
    assert!(state["compared_bytes"].as_u64() > state["state_bytes"].as_u64());
    let refused = state["uncommitted"].as_str().unwrap();
    assert!(refused.contains("waiting for writers 5 since"), "{refused}");
    assert!(!folder.path("work").exists());
}

#[test]
fn a_kept_demo_is_an_ordinary_run_with_a_picture() {
    let folder = Place::empty();
    let args = [
        "demo", "--dir", "work", "--steps", "20", "--gb", "0", "--keep", "--quiet",
    ];
    let output = folder.output(&args);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("as if nothing had happened"), "{text}");
    let work = std::fs::read_dir(folder.path("work")).unwrap();
    let run = work.into_iter().next().unwrap().unwrap().path();
    let verified = folder.output(&[
        "verify",
        run.join("killed:20").to_str().unwrap(),
        "--read-data",
    ]);
    assert_eq!(verified.status.code(), Some(0));
    let picture = std::fs::read_to_string(run.join("loss.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.matches("<path").count() > 8);
}
