//! Spans add up, survive JSON, and stay within their limit without losing a byte.

use super::span::{coarsen, covered, union};
use super::*;
use crate::Error;
use proptest::prelude::*;
use std::time::Instant;

fn span(begin_ms: u64, end_ms: u64, len_bytes: u64) -> Span {
    Span {
        begin: Duration::from_millis(begin_ms),
        end: Duration::from_millis(end_ms),
        len_bytes,
    }
}

fn sample() -> Timeline {
    Timeline {
        step: 100,
        attempt: "4d1c".into(),
        rank: 1,
        world: 2,
        started: "2026-11-15T09:12:07Z".into(),
        total: Duration::from_millis(6100),
        len_bytes: 3_000_000,
        capture: "host image".into(),
        notes: vec!["pinned memory was refused".into()],
        spans: BTreeMap::from([
            (Lane::Stall, vec![span(0, 3, 0)]),
            (Lane::Fence, vec![span(2, 4, 0), span(9, 9, 0)]),
            (
                Lane::Copy,
                vec![span(0, 2, 1_000_000), span(1, 3, 2_000_000)],
            ),
            (Lane::Write, vec![span(1, 5000, 3_000_000)]),
            (Lane::Commit, vec![span(5000, 6100, 0)]),
        ]),
    }
}

#[test]
fn a_timeline_without_spans_has_no_stall_and_no_rate() {
    let empty = Timeline::default();
    assert_eq!(empty.headline(), "training stall 0 ms of 0 ms");
    assert_eq!(empty.bytes_per_second(Lane::Write), None);
    assert_eq!(empty.durable(), Duration::ZERO);
    assert_eq!(empty.overlap(Lane::Copy, Lane::Write), Duration::ZERO);
}

#[test]
fn stall_and_fence_count_once_where_they_overlap() {
    let timeline = sample();
    assert_eq!(timeline.stall(), Duration::from_millis(4));
    assert_eq!(timeline.headline(), "training stall 4 ms of 6.1 s");
}

#[test]
fn threads_that_work_at_the_same_time_add_bytes_but_no_time() {
    let timeline = sample();
    assert_eq!(timeline.busy(Lane::Copy), Duration::from_millis(3));
    assert_eq!(timeline.bytes_per_second(Lane::Copy), Some(1e9));
    assert_eq!(
        timeline.overlap(Lane::Copy, Lane::Write),
        Duration::from_millis(2)
    );
    assert_eq!(timeline.durable(), Duration::from_millis(5000));
}

#[test]
fn a_timeline_reads_back_from_json() {
    let timeline = sample();
    let json = timeline.to_json();
    assert_eq!(Timeline::from_json("x", json.as_bytes()).unwrap(), timeline);
    assert_eq!(timeline.started_unix_seconds(), Some(1_794_733_927));
    assert_eq!(Timeline::default().started_unix_seconds(), None);
}

#[test]
fn members_and_lanes_of_later_versions_are_passed_over() {
    let json = sample().to_json();
    let later = json.replace(
        "\"spans\":{",
        "\"mood\":[1],\"spans\":{\"teleport\":[[1,2,3]],",
    );
    assert_ne!(json, later);
    let read = Timeline::from_json("x", later.as_bytes()).unwrap();
    assert_eq!(read, sample());
}

#[test]
fn a_timeline_that_makes_no_sense_is_refused() {
    let json = sample().to_json();
    let wrong = [
        String::new(),
        "[]".into(),
        "{}".into(),
        json[..json.len() / 2].into(),
        json.replace("[0,3000000,0]", "[4,3,0]"),
        json.replace("[0,3000000,0]", "[0,-1,0]"),
        json.replace("\"rank\":1", "\"rank\":1.5"),
    ];
    for text in wrong {
        let read = Timeline::from_json("x", text.as_bytes());
        assert!(matches!(read, Err(Error::Damaged { .. })), "{text}");
    }
    let newer = json.replace("\"cairn\":1", "\"cairn\":99");
    let read = Timeline::from_json("x", newer.as_bytes());
    assert!(matches!(read, Err(Error::Version { found: 99, .. })));
}

#[test]
fn huge_numbers_do_no_harm() {
    let json = sample().to_json();
    let huge = json
        .replace(
            "[0,3000000,0]",
            &format!("[0,{0},{0}],[1,{0},{0}]", u64::MAX),
        )
        .replace("6100000000", &u64::MAX.to_string());
    let timeline = Timeline::from_json("x", huge.as_bytes()).unwrap();
    assert_eq!(timeline.len_bytes_of(Lane::Stall), u64::MAX);
    assert_eq!(timeline.stall(), Duration::from_nanos(u64::MAX));
    timeline.headline();
}

#[test]
fn every_lane_is_found_by_its_name() {
    for (index, lane) in Lane::ALL.into_iter().enumerate() {
        assert_eq!(Lane::parse(lane.name()), Some(lane));
        assert_eq!(lane as usize, index);
    }
    assert_eq!(Lane::parse("Stall"), None);
}

#[test]
fn a_recorder_keeps_spans_notes_and_the_way_of_capture() {
    let recorder = Recorder::new();
    let clone = recorder.clone();
    drop(clone.span(Lane::Write).bytes(5));
    let open = recorder.span(Lane::Sync);
    recorder.capture("ring");
    recorder.note("twice");
    recorder.note("twice");
    let timeline = recorder.timeline();
    assert_eq!(timeline.capture, "ring");
    assert_eq!(timeline.notes, ["twice"]);
    assert_eq!(timeline.len_bytes_of(Lane::Write), 5);
    assert!(timeline.lane(Lane::Sync).is_empty(), "it has not ended");
    drop(open);
    let later = recorder.timeline();
    assert_eq!(later.lane(Lane::Sync).len(), 1);
}

#[test]
fn what_lies_before_the_save_is_cut_off() {
    let before = Instant::now();
    let origin = before + Duration::from_millis(10);
    let recorder = Recorder::since(origin);
    let end = origin + Duration::from_millis(5);
    recorder.add(Lane::Plan, before, end, 0);
    recorder.add(Lane::Pack, end, before, 0);
    let timeline = recorder.timeline();
    assert_eq!(timeline.lane(Lane::Plan), [span(0, 5, 0)]);
    assert_eq!(timeline.lane(Lane::Pack), [span(5, 5, 0)]);
}

#[test]
fn a_lane_stays_within_its_limit_and_loses_no_byte() {
    let recorder = Recorder::new();
    let origin = Instant::now();
    let at = |millis: usize| origin + Duration::from_millis(millis as u64);
    let count = 5 * MAX_SPANS_PER_LANE;
    for index in 0..count {
        recorder.add(Lane::Write, at(10 * index), at(10 * index + 4), 1);
    }
    let timeline = recorder.timeline();
    assert!(timeline.lane(Lane::Write).len() <= MAX_SPANS_PER_LANE);
    assert_eq!(timeline.len_bytes_of(Lane::Write), count as u64);
}

#[test]
fn a_coarse_timeline_keeps_lanes_that_are_short_enough_as_they_are() {
    let timeline = sample();
    let coarse = timeline.clone().coarse(1);
    assert_eq!(coarse.lane(Lane::Copy), [span(0, 3, 3_000_000)]);
    assert_eq!(coarse.lane(Lane::Fence), [span(2, 9, 0)]);
    assert_eq!(coarse.lane(Lane::Write), timeline.lane(Lane::Write));
    assert_eq!(timeline.clone().coarse(2), timeline);
}

#[test]
fn the_step_is_as_slow_as_its_slowest_rank() {
    let mut late = sample();
    late.rank = 0;
    late.total += Duration::from_millis(1);
    late.spans.insert(Lane::Sync, vec![span(5000, 5500, 0)]);
    let step = StepTimelines {
        ranks: vec![late, sample()],
        ..StepTimelines::default()
    };
    assert_eq!(step.slowest().map(|timeline| timeline.rank), Some(0));
    assert_eq!(step.durable(), Duration::from_millis(5500));
    assert_eq!(step.total(), Duration::from_millis(6101));
    assert_eq!(step.headline(), "training stall 4 ms of 6.1 s");
    assert!(StepTimelines::default().slowest().is_none());
}

#[test]
fn threads_record_at_the_same_time() {
    let recorder = Recorder::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| drop(recorder.span(Lane::Checksum).bytes(1))));
        }
    });
    let timeline = recorder.timeline();
    assert_eq!(timeline.len_bytes_of(Lane::Checksum), 400);
}

prop_compose! {
    fn spans()(list in prop::collection::vec((0_u64..200, 0_u64..20, 0_u64..9), 0..40)) -> Vec<Span> {
        list.into_iter().map(|(begin, len, bytes)| span(begin, begin + len, bytes)).collect()
    }
}

fn bytes(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.len_bytes).sum()
}

proptest! {
    #[test]
    fn a_union_covers_exactly_the_moments_of_its_spans(spans in spans()) {
        let whole = union(&spans);
        // Each millisecond [t, t + 1) lies in the union if and only if it lies in a span.
        let inside = |spans: &[Span], t: u64| spans.iter().any(|s| s.begin <= Duration::from_millis(t) && Duration::from_millis(t) < s.end);
        for t in 0..230 {
            prop_assert_eq!(inside(&spans, t), inside(&whole, t), "at {} ms", t);
        }
        prop_assert!(whole.windows(2).all(|pair| pair[0].end < pair[1].begin));
        prop_assert_eq!(bytes(&whole), bytes(&spans));
    }

    #[test]
    fn coarser_spans_are_few_and_cover_what_the_fine_ones_did(spans in spans(), most in 0_usize..20) {
        let coarse = coarsen(&spans, most);
        prop_assert!(coarse.len() <= most.max(1));
        prop_assert_eq!(bytes(&coarse), bytes(&spans));
        let both = [coarse.clone(), spans.clone()].concat();
        prop_assert_eq!(covered(&union(&both)), covered(&coarse));
    }
}
