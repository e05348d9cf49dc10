//! `cairn sim`.

use crate::fixture::{Place, check};

#[test]
fn a_pipeline_is_drawn_with_what_waits() {
    let sim = ["sim", "--stages", "2", "--micro-batches", "3"];
    check!(Place::empty().cairn(&sim), @"
    exit code 0
    ----- stdout
    schedule  1f1b, 2 stages, 3 micro-batches
    time      12; the busiest stage works 9
    bubble    25.0%

    STAGE  WORKS  WAITS  KEEPS
        0      9  25.0%      2
        1      9  25.0%      1

    stage 0  0──────1──────··············0━━━━━━━━━━━━━2──────1━━━━━━━━━━━━━·······2━━━━━━━━━━━━━
    stage 1  ·······0──────0━━━━━━━━━━━━━1──────1━━━━━━━━━━━━━2──────2━━━━━━━━━━━━━··············
    ----- stderr
    ");
}

#[test]
fn chunks_divide_what_is_idle_and_layers_are_shared_out_around_the_head() {
    let sim = [
        "sim",
        "--stages",
        "2",
        "--micro-batches",
        "4",
        "--chunks",
        "2",
        "--layers",
        "10",
        "--head",
        "2",
    ];
    check!(Place::empty().cairn(&sim), @"
    exit code 0
    ----- stdout
    schedule  interleaved, 2 stages of 2 chunks, 4 micro-batches
    time      81; the busiest stage works 72
    bubble    11.1%

    STAGE  WORKS  WAITS  KEEPS  LAYERS
        0     72  11.1%      5  0-2, 6-8
        1     72  11.1%      3  3-5, 9

    stage 0  0a─1a─0b─1b─2a─···0b━━━━3a─1b━━━━2b─0a━━━━3b─1a━━━━···2b━━━━···3b━━━━2a━━━━3a━━━━
    stage 1  ···0a─1a─0b─0b━━━━1b─1b━━━━2a─0a━━━━3a─1a━━━━2b─2b━━━━3b─3b━━━━2a━━━━3a━━━━······
    ----- stderr
    ");
}

#[test]
fn the_picture_is_written_and_the_numbers_are_in_the_json() {
    let place = Place::empty();
    let sim = [
        "sim",
        "--stages",
        "4",
        "--micro-batches",
        "8",
        "--schedule",
        "gpipe",
        "--svg",
        "pipeline.svg",
    ];
    let report = place.json(&sim);
    assert_eq!(report["schedule"], "gpipe");
    assert_eq!(report["total"], 33.0);
    assert_eq!(report["busiest"], 24.0);
    assert_eq!(report["stages"][3]["peak_activations"], 8);
    let last = &report["stages"][0]["actions"][15];
    assert_eq!(last["work"], "backward");
    assert_eq!(last["micro_batch"], 7);
    assert_eq!(last["end"], 33.0);
    let picture = std::fs::read_to_string(place.path("pipeline.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    assert!(picture.contains("gpipe, 4 stages, 8 micro-batches"));
}

#[test]
fn what_cannot_be_simulated_is_explained() {
    let place = Place::empty();
    let sim = |more: &[&str]| {
        place.cairn(&[&["sim", "--stages", "4", "--micro-batches", "2"][..], more].concat())
    };
    check!(sim(&["--schedule", "1f1b", "--chunks", "2"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: stages have no chunks with the schedule `1f1b`

    hint: use `--schedule interleaved`
    ");
    check!(sim(&["--layers", "3"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot split 3 layers into 4 parts: there would be parts without a layer

    hint: use fewer stages or fewer chunks
    ");
    check!(sim(&["--layers", "8", "--split", "3,3,1,0"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot split 8 layers into 4 parts: the parts have 7 layers
    ");
    check!(sim(&["--layers", "8", "--split", "3,3,2"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: cannot split 8 layers into 4 parts: `--split` names 3
    ");
    check!(sim(&["--send=-1"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: a send cannot cost -1

    hint: costs are numbers from zero on
    ");
}
