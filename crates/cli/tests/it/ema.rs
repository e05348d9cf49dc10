//! `cairn ema`, and `cairn convert --ema`.

use crate::fixture::{Place, check};
use cairn::checkpoint::ema::{Averaged, Averages, Ema};
use cairn::checkpoint::{Checkpointer, SaveOptions, State, World};
use cairn::sharding::{Mesh, Piece, Region, TensorSpec};
use cairn::store::Local;
use std::sync::Arc;

/// A run with the steps 10, 20, 30 and 40, whose weights are the step and its negative; two power averages are kept.
fn place() -> Place {
    let place = Place::empty();
    let store = Arc::new(Local::new(place.path("run")));
    let run = Checkpointer::new(store, World::single());
    let spec = |text| TensorSpec::parse(&Mesh::single(), text).unwrap();
    let (weight, half, count) = (spec("f32[2]"), spec("bf16[2]"), spec("i64[]"));
    let averaged = |name: &str, spec: &TensorSpec| Averaged {
        name: name.into(),
        spec: spec.clone(),
        pieces: vec![Piece::whole(Region::whole(&[2]))],
    };
    let tensors = vec![
        averaged("model.weight", &weight),
        averaged("model.half", &half),
    ];
    let definitions = vec![Ema::exponential(0.5), Ema::power(0.1), Ema::power(0.2)];
    let averages = Averages::new(0, definitions, tensors).unwrap();
    for step in [10_u8, 20, 30, 40] {
        let value = f32::from(step);
        let wide = [value.to_le_bytes(), (-value).to_le_bytes()].concat();
        let narrow = [&wide[2..4], &wide[6..8]].concat();
        assert!(averages.begin_update(step.into()).unwrap());
        averages.absorb(0, &wide).unwrap();
        averages.absorb(8, &narrow).unwrap();
        averages.finish_update().unwrap();
        let view = averages.view().unwrap();
        let mut state = State::new(0);
        let counter = i64::from(step).to_le_bytes();
        state.tensor("model.weight", &weight, &wide).unwrap();
        state.tensor("model.half", &half, &narrow).unwrap();
        state.tensor("step", &count, &counter).unwrap();
        state.value("lr", 0.1.into());
        view.add_to(&mut state).unwrap();
        let saving = run
            .save(step.into(), &state, &SaveOptions::default())
            .unwrap();
        saving.wait().unwrap();
    }
    place
}

/// The values of a tensor, as they are printed.
fn values(place: &Place, path: &str, name: &str) -> String {
    place.json(&["cat", path, name])["values"].to_string()
}

#[test]
fn the_average_of_some_steps_is_a_model() {
    let place = place();
    check!(place.cairn(&["ema", "run:20..40:10", "out", "--decay", "0.5"]), @"
    exit code 0
    ----- stdout
    wrote    a Hugging Face model to `out`
    average  decay 0.5, from a copy, over 3 steps
    from     `run:20` to `run:40`
    tensors  3, 2 averaged
    size     4.0 KiB
    memory   at most 1.2 GiB

    FILE               TENSORS     SIZE
    model.safetensors        3  4.0 KiB
    ----- stderr
    wrote 4.0 KiB in [SECONDS] s
    ");
    // 20, then halfway to 30, then halfway to 40.
    assert_eq!(values(&place, "out", "model.weight"), "[32.5,-32.5]");
    assert_eq!(values(&place, "out", "model.half"), "[32.5,-32.5]");
    assert_eq!(values(&place, "out", "step"), "40");
    assert_eq!(place.json(&["inspect", "out"])["tensors"], 3);
}

#[test]
fn what_is_kept_while_training_is_what_is_worked_out_later() {
    let place = place();
    for (label, average) in [
        ("0.5", ["--decay", "0.5"]),
        ("power-0.1", ["--power", "0.1"]),
    ] {
        let later = ["ema", "run", label, average[0], average[1]];
        assert!(place.output(&later).status.success());
        let kept = [
            "convert",
            "run",
            "kept",
            "--to",
            "hf",
            "--ema",
            label,
            "--replace",
        ];
        assert!(place.output(&kept).status.success());
        for name in ["model.weight", "model.half"] {
            assert_eq!(
                values(&place, label, name),
                values(&place, "kept", name),
                "{name} of {label}"
            );
        }
    }
}

#[test]
fn an_average_becomes_a_step_of_a_run() {
    let place = place();
    check!(place.cairn(&["ema", "run:10", "run:40", "new", "--uniform", "--to", "cairn", "--names", "model.*"]), @"
    exit code 0
    ----- stdout
    wrote    step 40 of `new`
    average  uniform mean, of `model.*`, over 2 steps
    from     `run:10` to `run:40`
    tensors  2, 2 averaged
    size     4.0 KiB
    memory   at most 1.2 GiB

    FILE               TENSORS     SIZE
    00000.safetensors        2  4.0 KiB
    ----- stderr
    wrote 4.0 KiB in [SECONDS] s
    ");
    assert_eq!(values(&place, "new", "model.weight"), "[25,-25]");
    let other = [
        "ema", "run", "new", "--decay", "0.5", "--to", "cairn", "--step", "41",
    ];
    assert_eq!(place.json(&other)["step"], 41);
    assert_eq!(values(&place, "new", "model.weight"), "[31.25,-31.25]");
    check!(place.cairn(&["ema", "run", "new", "--uniform", "--to", "cairn"]), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: step 40 is already committed (attempt `[ATTEMPT]`)

    hint: choose another step with `--step`, or put this one in its place with `--replace`
    ");
}

#[test]
fn models_of_other_tools_are_averaged_too() {
    let place = place();
    for step in ["10", "30"] {
        let from = format!("run/step-000000{step}");
        assert!(
            place
                .output(&["convert", &from, step, "--to", "hf"])
                .status
                .success()
        );
    }
    assert!(
        place
            .output(&["ema", "10", "30", "out", "--uniform"])
            .status
            .success()
    );
    assert_eq!(values(&place, "out", "model.weight"), "[20,-20]");
    check!(place.cairn(&["ema", "10", "30", "./30", "--uniform", "--replace"]), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: `file://[DIR]/30` is a part of what is read here, `file://[DIR]/30`, which stays as it is

    hint: choose another place for the result
    ");
    check!(place.cairn(&["ema", "10", "out", "--uniform"]), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: `file://[DIR]/out` already holds model.safetensors

    hint: choose another place, or pass `--replace`
    ");
}

#[test]
fn a_width_that_was_not_kept_is_made_afterwards() {
    let place = place();
    check!(place.cairn(&["ema", "run", "out", "--post-hoc", "0.15", "--dry-run"]), @"
    exit code 0
    ----- stdout
    would write  a Hugging Face model to `out`
    average      power 0.15, made from 8 averages
    from         `run:10` to `run:40`
    profile      off by 1.75 %
    tensors      3, 2 averaged
    size         4.0 KiB
    memory       at most 1.2 GiB

    FILE               TENSORS     SIZE
    model.safetensors        3  4.0 KiB
    ----- stderr
    ");
    assert!(
        place
            .output(&["ema", "run", "out", "--post-hoc", "0.1"])
            .status
            .success()
    );
    let kept = ["convert", "run", "kept", "--to", "hf", "--ema", "power-0.1"];
    assert!(place.output(&kept).status.success());
    assert_eq!(
        values(&place, "out", "model.half"),
        values(&place, "kept", "model.half")
    );
    let dry = place.json(&["ema", "run", "other", "--post-hoc", "0.1", "--dry-run"]);
    assert_eq!(dry["terms"].as_array().unwrap().len(), 8);
}

#[test]
fn an_average_takes_the_place_of_the_weights() {
    let place = place();
    check!(place.cairn(&["convert", "run", "out", "--to", "hf", "--ema", "0.5"]), @"
    exit code 0
    ----- stdout
    wrote     a Hugging Face model to `out`
    average   `0.5` in place of the weights
    tensors   3
    files     1 file, 4.0 KiB
    memory    at most 512.0 MiB
    left out  values lr

    FILE               TENSORS     SIZE
    model.safetensors        3  4.0 KiB
    ----- stderr
    wrote 4.0 KiB in [SECONDS] s
    ");
    assert_eq!(values(&place, "out", "model.weight"), "[31.25,-31.25]");
    // Without it the averages stay where they are.
    assert!(
        place
            .output(&["convert", "run", "plain", "--to", "hf"])
            .status
            .success()
    );
    assert_eq!(values(&place, "plain", "model.weight"), "[40,-40]");
    assert_eq!(place.json(&["inspect", "plain"])["tensors"], 3);
}

#[test]
fn mistakes_say_what_there_is() {
    let place = place();
    check!(place.cairn(&["convert", "run", "out", "--to", "hf", "--ema", "0.9"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: there is no average `0.9` in the checkpoint

    hint: its averages are `0.5`, `power-0.1`, `power-0.2`; training can start another one anew
    ");
    check!(place.cairn(&["ema", "run:10..40:15", "out", "--uniform"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: there is no step 25 in `run`

    hint: committed steps: 10, 20, 30, 40
    ");
    check!(place.cairn(&["ema", "run", "out", "--decay", "1.5"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: the average `1.5` has decay 1.5, which is not in 0..1
    ");
    check!(place.cairn(&["ema", "run", "out", "--uniform", "--names", "modle.*"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: no tensor has a name like `modle.*`

    hint: did you mean `model.half`?
    ");
    check!(place.cairn(&["ema", "run", "out"]), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: the following required arguments were not provided:
      <--decay <D>|--power <SIGMA>|--uniform|--post-hoc <SIGMA>>

    Usage: cairn ema <--decay <D>|--power <SIGMA>|--uniform|--post-hoc <SIGMA>> <SOURCE>... <TARGET>

    For more information, try '--help'.
    ");
    assert!(!place.path("out").exists());
}

#[test]
fn damage_in_a_step_stops_the_average_with_its_own_exit_code() {
    let place = place();
    let file = &place.files("run/step-00000020", ".safetensors")[0];
    let mut bytes = std::fs::read(file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(file, bytes).unwrap();
    let output = place.output(&["ema", "run", "out", "--uniform"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}
