//! Goal: textbook moves get their textbook names, with the right bytes.

use cairn_reshard::{Options, Plan, plan};
use cairn_sharding::{Mesh, TensorSpec};

fn planned(source: (&str, &str), target: (&str, &str)) -> Plan {
    let spec = |(mesh, text): (&str, &str)| {
        TensorSpec::parse(&mesh.parse::<Mesh>().unwrap(), text).unwrap()
    };
    plan(&spec(source), &spec(target), &Options::default()).unwrap()
}

/// The steps of a plan between two shardings of 4 MiB on one mesh.
fn steps_on(mesh: &str, source: &str, target: &str) -> Vec<String> {
    let plan = planned((mesh, source), (mesh, target));
    plan.steps.iter().map(ToString::to_string).collect()
}

/// Source, target, and the one step between them on `tp=4`.
const TEXTBOOK: [[&str; 3]; 14] = [
    [
        "f32[1024@tp, 1024]",
        "f32[1024@tp, 1024]",
        "local over 4 ranks {0,1,2,3}: nothing moves",
    ],
    [
        "f32[1024, 1024]",
        "f32[1024@tp, 1024]",
        "slice over 4 ranks {0,1,2,3}: nothing moves",
    ],
    [
        "f32[1024@tp, 1024]",
        "f32[1024, 1024]",
        "all-gather over 4 ranks {0,1,2,3}: 12.0 MiB moved, 3.0 MiB per rank",
    ],
    [
        "f32[1024, 1024@tp]",
        "f32[1024, 1024]",
        "all-gather over 4 ranks {0,1,2,3}: 12.0 MiB moved, 3.0 MiB per rank",
    ],
    [
        "f32[1024@tp, 1024]",
        "f32[1024, 1024@tp]",
        "all-to-all over 4 ranks {0,1,2,3}: 3.0 MiB moved, 768.0 KiB per rank",
    ],
    [
        "f32[1024, 1024 | sum(tp)]",
        "f32[1024, 1024]",
        "all-reduce over 4 ranks {0,1,2,3}: 24.0 MiB moved, 6.0 MiB per rank",
    ],
    [
        "f32[1024, 1024 | sum(tp)]",
        "f32[1024@tp, 1024]",
        "reduce-scatter over 4 ranks {0,1,2,3}: 12.0 MiB moved, 3.0 MiB per rank",
    ],
    [
        "f32[1024, 1024 | avg(tp)]",
        "f32[1024, 1024 | at(tp=2)]",
        "reduce over 4 ranks {0,1,2,3}: 12.0 MiB moved, 12.0 MiB per rank",
    ],
    [
        "f32[1024, 1024@tp]",
        "f32[1024, 1024 | at(tp=0)]",
        "gather over 4 ranks {0,1,2,3}: 3.0 MiB moved, 3.0 MiB per rank",
    ],
    [
        "f32[1024, 1024 | at(tp=1)]",
        "f32[1024, 1024@tp]",
        "scatter over 4 ranks {0,1,2,3}: 3.0 MiB moved, 3.0 MiB per rank",
    ],
    [
        "f32[1024, 1024 | at(tp=3)]",
        "f32[1024, 1024]",
        "broadcast over 4 ranks {0,1,2,3}: 12.0 MiB moved, 12.0 MiB per rank",
    ],
    [
        "f32[1024, 1024 | at(tp=3)]",
        "f32[1024, 1024 | at(tp=1)]",
        "p2p over 2 ranks {1,3}: 4.0 MiB moved, 4.0 MiB per rank",
    ],
    [
        "f32[1024, 1024]",
        "f32[1024, 1024 | sum(tp)]",
        "local over 4 ranks {0,1,2,3}: nothing moves",
    ],
    [
        "f32[1024, 1024 | sum(tp)]",
        "f32[1024, 1024 | sum(tp)]",
        "local over 4 ranks {0,1,2,3}: nothing moves",
    ],
];

#[test]
fn textbook_moves_on_one_mesh_are_recognised() {
    for [source, target, step] in TEXTBOOK {
        assert_eq!(
            steps_on("tp=4", source, target),
            [step],
            "{source} → {target}"
        );
    }
}

#[test]
fn a_collective_along_one_axis_is_a_step_for_each_row() {
    assert_eq!(
        steps_on("dp=2,tp=2", "f32[1024@tp, 1024]", "f32[1024, 1024]"),
        [
            "all-gather over 2 ranks {0,1}: 4.0 MiB moved, 2.0 MiB per rank",
            "all-gather over 2 ranks {2,3}: 4.0 MiB moved, 2.0 MiB per rank",
        ]
    );
}

#[test]
fn changing_two_axes_at_once_has_no_replicated_state_between() {
    let plan = planned(
        ("a=2,b=2", "f32[1024@a, 1024@b]"),
        ("a=2,b=2", "f32[1024@b, 1024@a]"),
    );
    let lines: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "local over 2 ranks {0,3}: nothing moves",
            "all-to-all over 2 ranks {1,2}: 2.0 MiB moved, 1.0 MiB per rank",
        ]
    );
}

#[test]
fn two_ranks_that_swap_halves_do_not_gather() {
    assert_eq!(
        steps_on("tp=2", "f32[1024@tp, 1024]", "f32[1024, 1024@tp]"),
        ["all-to-all over 2 ranks {0,1}: 2.0 MiB moved, 1.0 MiB per rank"]
    );
}

#[test]
fn pipeline_stages_exchange_point_to_point() {
    let plan = planned(
        ("tp=2 on 0..2", "f32[1024@tp, 1024]"),
        ("tp=2 on 2..4", "f32[1024@tp, 1024]"),
    );
    assert_eq!(plan.steps.len(), 2);
    assert_eq!(
        plan.steps[0].to_string(),
        "p2p over 2 ranks {0,2}: 2.0 MiB moved, 2.0 MiB per rank"
    );
}

#[test]
fn a_plan_prints_as_a_whole() {
    let plan = planned(("tp=2", "u8[4@tp]"), ("tp=2", "u8[4]"));
    assert_eq!(
        plan.to_string(),
        "u8[4@tp] → u8[4]\n  \
           all-gather over 2 ranks {0,1}: 4 B moved, 2 B per rank\n\
         4 B moved in 2 messages, 4 B copied locally; a rank sends at most 2 B and receives at most 2 B"
    );
}

#[test]
fn many_ranks_are_not_all_named() {
    let steps = steps_on("tp=64", "f32[64@tp]", "f32[64]");
    assert!(
        steps[0].starts_with("all-gather over 64 ranks {0,1,2,3,4,5,6,…,63}: "),
        "{}",
        steps[0]
    );
}
