//! `cairn report`, on timelines made by hand.

use crate::fixture::{Place, check};
use cairn::checkpoint::timeline::{Lane, Span, Timeline};
use cairn::store::Local;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

const NOTE: &str = "pinned memory was refused: </script><b>no locked pages</b>";

/// The run with timelines at both steps: every rank writes 2 GB in 1 s, rank 2 half a second later than the others.
fn timed() -> Place {
    let place = Place::with_run();
    for step in [10, 20] {
        for rank in 0..4 {
            leave(&place, &timeline(&place, step, rank));
        }
    }
    place
}

fn leave(place: &Place, timeline: &Timeline) {
    timeline.put(&Local::new(place.path("run")));
}

fn timeline(place: &Place, step: u64, rank: usize) -> Timeline {
    let late = if rank == 2 { 500 } else { 0 };
    let spans = BTreeMap::from([
        (Lane::Stall, vec![span(0, 3 + rank as u64, 0)]),
        (
            Lane::Copy,
            vec![span(0, 1, 5_000_000), span(1, 3, 15_000_000)],
        ),
        (
            Lane::Write,
            vec![
                span(late, late + 600, 1_200_000_000),
                span(late + 300, late + 1000, 800_000_000),
            ],
        ),
        (Lane::Sync, vec![span(late + 1000, late + 1040, 0)]),
        (Lane::Commit, vec![span(late + 1040, 2000, 0)]),
    ]);
    Timeline {
        step,
        attempt: attempt(place, step),
        rank,
        world: 4,
        started: format!("2026-11-15T09:12:{step:02}Z"),
        total: Duration::from_millis(2000 + step),
        len_bytes: 2_000_000_000,
        capture: "host image".into(),
        notes: match rank {
            1 | 3 => vec![NOTE.into()],
            _ => Vec::new(),
        },
        spans,
    }
}

fn span(begin_ms: u64, end_ms: u64, len_bytes: u64) -> Span {
    Span {
        begin: Duration::from_millis(begin_ms),
        end: Duration::from_millis(end_ms),
        len_bytes,
    }
}

/// The name of the attempt that holds a step.
fn attempt(place: &Place, step: u64) -> String {
    let parts = place.files(&format!("run/step-{step:08}"), "00000.part");
    let folder = parts[0].parent().unwrap().file_name().unwrap();
    folder.to_str().unwrap().to_string()
}

/// Takes all timelines of a step away.
fn forget(place: &Place, step: u64) {
    for file in place.files(&format!("run/step-{step:08}"), ".timeline") {
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn the_newest_step_is_shown_closely_and_the_others_in_a_line() {
    check!(timed().cairn(&["report", "run"]), @"
    exit code 0
    ----- stdout
    training stall 6 ms of 2 s
    step 20, [TIME], 4 ranks, 18.9 KiB, host image

    RANK  STALL  FENCE       COPY      WRITE  COMMIT  DURABLE
       0   3 ms   0 ms  6.67 GB/s  2.00 GB/s  960 ms      1 s
       1   4 ms   0 ms  6.67 GB/s  2.00 GB/s  960 ms      1 s
       2   5 ms   0 ms  6.67 GB/s  2.00 GB/s  460 ms    1.5 s  slowest
       3   6 ms   0 ms  6.67 GB/s  2.00 GB/s  960 ms      1 s

    ranks 1,3: pinned memory was refused: </script><b>no locked pages</b>

    rank 2, the slowest
    stall     5 ms             ▂
    copy      3 ms  6.67 GB/s  ▁
    write      1 s  2.00 GB/s                ▂█████████████████████████████▅
    sync     40 ms                                                         ▄▆
    commit  460 ms                                                          ▃█████████████▄
                               0                                                        2 s

    STEP  STALL  DURABLE  COMMITTED      SIZE  CAPTURE
      20   6 ms    1.5 s        2 s  18.9 KiB  host image
      10   6 ms    1.5 s        2 s  18.9 KiB  host image
    ----- stderr
    ");
}

#[test]
fn any_step_can_be_shown_alone() {
    let place = timed();
    let one = place.cairn(&["report", "run/step-00000010"]);
    assert!(
        one.contains("training stall 6 ms of 2 s\nstep 10,"),
        "{one}"
    );
    assert!(!one.contains("COMMITTED"), "{one}");
    let chosen = place.json(&["report", "run", "--step", "10", "--last", "1"]);
    assert_eq!(chosen["step"]["step"], 10);
    assert_eq!(chosen["steps"][0]["step"], 20);
    assert_eq!(chosen["steps"].as_array().unwrap().len(), 2);
}

#[test]
fn json_has_the_numbers_of_every_rank_and_lane() {
    let numbers = timed().json(&["report", "run"]);
    let ranks = numbers["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 4);
    assert_eq!(numbers["step"]["slowest"], 2);
    assert_eq!(ranks[2]["lanes"]["write"]["busy_seconds"], 1.0);
    assert_eq!(ranks[2]["lanes"]["write"]["bytes_per_second"], 2e9);
    assert_eq!(ranks[2]["lanes"]["sync"]["bytes_per_second"], Value::Null);
}

#[test]
fn ranks_that_left_nothing_or_nonsense_are_named() {
    let place = timed();
    let files = place.files("run/step-00000020", ".timeline");
    fs::remove_file(&files[0]).unwrap();
    fs::remove_file(&files[1]).unwrap();
    fs::write(&files[3], b"{\"cairn\":1").unwrap();
    let said = place.cairn(&["report", "run", "--step", "20"]);
    let warnings = said.split("----- stderr").nth(1).unwrap();
    check!(warnings, @"

    warning: 2 ranks of step 20 left no timeline: 0,1
    warning: `step-00000020/[ATTEMPT]/00003.timeline` is damaged: it is not JSON: EOF while parsing an object at line 1 column 10
    ");
    let found = place.json(&["report", "run"]);
    assert_eq!(found["step"]["missing"], serde_json::json!([0, 1]));
}

#[test]
fn a_run_without_timelines_says_so() {
    let place = Place::with_run();
    forget(&place, 10);
    forget(&place, 20);
    check!(place.cairn(&["report", "run"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: no step of `run` has a timeline

    hint: a save leaves one when it is committed; steps that `cairn reshard` wrote have none
    ");
    check!(place.cairn(&["report", "run", "--step", "20"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: step 20 of `run` has no timeline

    hint: a save leaves one when it is committed; steps that `cairn reshard` wrote have none
    ");
    check!(place.cairn(&["report", "run", "--step", "15"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: there is no step 15 in `file://[DIR]/run`

    hint: committed steps: 10, 20
    ");
}

#[test]
fn the_newest_step_that_left_timelines_is_taken() {
    let place = timed();
    forget(&place, 20);
    let found = place.json(&["report", "run"]);
    assert_eq!(found["step"]["step"], 10);
    assert_eq!(found["steps"][0]["headline"], Value::Null);
    let said = place.cairn(&["report", "run"]);
    assert!(said.contains("no timeline"), "{said}");
}

#[test]
fn timelines_count_as_no_data() {
    let place = timed();
    let with = [
        place.cairn(&["ls", "run"]),
        place.cairn(&["verify", "run", "--read-data"]),
    ];
    let prune = ["prune", "run", "--keep-last", "1", "--dry-run"];
    let plan = place.json(&prune);
    forget(&place, 10);
    forget(&place, 20);
    assert_eq!(plan, place.json(&prune));
    assert_eq!(with[0], place.cairn(&["ls", "run"]));
    assert_eq!(
        seconds_apart(&with[1]),
        seconds_apart(&place.cairn(&["verify", "run", "--read-data"]))
    );
}

/// What was said, without how long it took.
fn seconds_apart(said: &str) -> String {
    said.split(" in ").next().unwrap().to_string()
}

#[test]
fn timelines_go_with_their_step() {
    let place = timed();
    assert_eq!(place.files("run", ".timeline").len(), 8);
    let pruned = place.output(&["prune", "run", "--keep-last", "1", "--yes"]);
    assert!(pruned.status.success());
    let left = place.files("run", ".timeline");
    assert_eq!(left.len(), 4);
    assert!(
        left.iter()
            .all(|file| file.to_str().unwrap().contains("step-00000020"))
    );
}

#[test]
fn a_trace_has_a_process_for_each_rank_and_spans_that_do_not_overlap() {
    let place = timed();
    let output = place.output(&["report", "run", "--perfetto", "out/trace.json"]);
    assert!(output.status.success(), "{output:?}");
    let trace = fs::read(place.path("out/trace.json")).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let mut named = BTreeSet::new();
    let mut ends: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let mut bytes = 0;
    for event in events {
        let thread = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        match event["ph"].as_str().unwrap() {
            "M" => {
                named.insert((event["name"].as_str().unwrap(), thread));
            }
            "X" => {
                assert!(named.contains(&("thread_name", thread)), "{event}");
                assert!(named.contains(&("process_name", (thread.0, 0))), "{event}");
                let begin = event["ts"].as_f64().unwrap();
                let end = ends.entry(thread).or_default();
                assert!(begin >= *end, "{event} begins before {end}");
                *end = begin + event["dur"].as_f64().unwrap();
                bytes += event["args"]["bytes"].as_u64().unwrap();
            }
            other => panic!("an event of kind {other}"),
        }
    }
    let ranks: BTreeSet<u64> = ends.keys().map(|(rank, _)| *rank).collect();
    assert_eq!(ranks, BTreeSet::from([0, 1, 2, 3]));
    assert_eq!(bytes, 4 * 2_020_000_000);
    let write: Vec<&Value> = events
        .iter()
        .filter(|event| event["name"] == "write")
        .collect();
    assert_eq!(write[0]["dur"], 600_000.0);
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let place = timed();
    let output = place.output(&["report", "run", "--html", "page.html"]);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    for outside in ["http://", "https://", "src=", "@import", "url(", "{{"] {
        assert!(!page.contains(outside), "the page contains `{outside}`");
    }
    let begin = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let (data, rest) = page[begin..].split_once("</script>").unwrap();
    assert!(!data.contains('<'), "data could end its element");
    assert!(page.len() - data.len() < 60_000, "the page itself is small");
    assert_eq!(rest.matches("</script>").count(), 1);
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["chosen"], 1);
    assert_eq!(data["steps"][1]["step"], 20);
    let rank = &data["steps"][1]["ranks"][1];
    assert_eq!(rank["notes"][0], NOTE);
    let write = Lane::ALL
        .iter()
        .position(|lane| *lane == Lane::Write)
        .unwrap();
    assert_eq!(
        rank["spans"][write.to_string()],
        serde_json::json!([
            0.0,
            600_000.0,
            1_200_000_000,
            300_000.0,
            700_000.0,
            800_000_000
        ])
    );
}

#[test]
fn tensorboard_finds_the_scalars_of_every_step() {
    let place = timed();
    let output = place.output(&["report", "run", "--tensorboard", "logs"]);
    assert!(output.status.success(), "{output:?}");
    let files = place.files("logs", ".cairn");
    assert_eq!(files.len(), 1);
    let records = records(&fs::read(&files[0]).unwrap());
    assert!(contains(&records[0], b"brain.Event:2"));
    assert_eq!(records.len(), 1 + 2 * 4);
    // A value is its tag and a little-endian f32 behind the key 0x15.
    let value = |tag: &[u8], number: f32| [tag, &[0x15], &number.to_le_bytes()].concat();
    assert!(contains(&records[1], &value(b"cairn/stall_ms", 6.0)));
    assert!(contains(&records[2], &value(b"cairn/durable_s", 1.54)));
    assert!(contains(&records[8], &value(b"cairn/write_gbps", 8.0)));
}

/// The events of an event file, by their lengths alone.
fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let len = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        found.push(bytes[12..12 + len].to_vec());
        bytes = &bytes[16 + len..];
    }
    found
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[test]
fn a_model_shows_its_values_by_kind_and_layer() {
    let place = Place::with_model();
    check!(place.cairn(&["report", "hf"]), @"
    exit code 0
    ----- stdout
    9 tensors, 2.28 k elements

    KIND                          LAYERS    STD  OVER LAYERS  ABSMAX  OVER LAYERS  NAN, INF
    lm_head.weight                     1    295                 1020                      0
    model.embed.weight                 1    295                 1020                      0
    model.layers.#.experts             2  13.85  ██               47  ██                  0
    model.layers.#.q_proj.weight       2  13.85  ██               47  ██                  0
    model.norm.weight                  1  2.291                    7                      0
    optimizer.exp_avg                  1  8.655                   29                      0
    optimizer.step                     1      0                    0                      0
    ----- stderr
    ");
    let report = place.json(&["report", "hf"]);
    let kinds = report["kinds"].as_array().unwrap();
    let queries = kinds
        .iter()
        .find(|kind| kind["kind"] == "model.layers.#.q_proj.weight");
    let layers = queries.unwrap()["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 2);
    assert_eq!(
        (&layers[1]["layer"], &layers[1]["max"]),
        (&1.into(), &47.0.into())
    );
}

#[test]
fn values_and_timelines_share_a_page() {
    let place = timed();
    let report = place.json(&["report", "run", "--values", "--html", "page.html"]);
    assert_eq!(report["values"]["tensors"], 8);
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    let (_, data) = page
        .split_once(r#"<script type="application/json" id="data">"#)
        .unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(data["steps"].as_array().map(Vec::len), Some(2));
    let kinds = data["values"]["kinds"].as_array().unwrap();
    // Every kind has a map, and every layer a histogram of all its elements.
    for kind in kinds {
        assert!(
            kind["map"]["stored"]
                .as_array()
                .is_some_and(|stored| !stored.is_empty())
        );
        for layer in kind["layers"].as_array().unwrap() {
            let bars = layer["histogram"].as_array().unwrap().iter();
            let sum: f64 = bars.map(|bar| bar.as_f64().unwrap()).sum();
            assert!(
                (sum - layer["elements"].as_f64().unwrap()).abs() <= 20.0,
                "{layer}"
            );
        }
    }
}

#[test]
fn a_run_without_timelines_has_values() {
    let place = Place::with_run();
    forget(&place, 10);
    forget(&place, 20);
    let report = place.json(&["report", "run", "--values"]);
    assert_eq!(report["tensors"], 8);
    assert!(report["path"].as_str().unwrap().ends_with("step-00000020"));
}
