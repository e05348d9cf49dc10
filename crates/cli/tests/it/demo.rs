//! The demo, small: the story holds, and it leaves nothing behind.

use crate::fixture::Place;
use serde_json::Value;

#[test]
fn the_demo_loses_a_rank_and_no_bit() {
    let folder = Place::empty();
    let output = folder.output(&["demo", "--dir", "work", "--gb", "0.01", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(report["differing"], Value::Array(vec![]));
    assert_eq!(report["mesh_after"], "dp=3,tp=2");
    assert!(report["compared_bytes"].as_u64() > report["state_bytes"].as_u64());
    let refused = report["uncommitted"].as_str().unwrap();
    assert!(refused.contains("waiting for writers 5 since"), "{refused}");
    assert!(!folder.path("work").exists());
}

#[test]
fn a_kept_demo_is_an_ordinary_run() {
    let folder = Place::empty();
    let output = folder.output(&["demo", "--dir", "work", "--gb", "0.01", "--keep", "--quiet"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("every bit as if nothing had happened"),
        "{table}"
    );
    let run = std::fs::read_dir(folder.path("work"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let verified = folder.output(&["verify", run.path().to_str().unwrap(), "--read-data"]);
    // Step 2 is whole; step 3 lost its writer.
    assert_eq!(verified.status.code(), Some(4));
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(text.contains("step 2  complete"), "{text}");
}
