//! Goal: what cannot be done is said, with what to do next.

use cairn_reshard::{Error, Options, execute, plan};
use cairn_sharding::{Mesh, TensorSpec};

fn spec(text: &str) -> TensorSpec {
    TensorSpec::parse(&Mesh::new([("tp", 2)]).unwrap(), text).unwrap()
}

#[test]
fn different_tensors_are_refused() {
    let error = plan(&spec("f32[4]"), &spec("f32[5]"), &Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the source is f32[4] and the target f32[5]"
    );
    assert!(plan(&spec("f32[4]"), &spec("i32[4]"), &Options::default()).is_err());
}

#[test]
fn a_hole_in_the_source_is_named() {
    let source = spec("f32[4, 4 | listed(0={0:2,0:4}, 3={2:2,0:3})]");
    let error = plan(&source, &spec("f32[4, 4@tp]"), &Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no source rank holds `2:2,3:1`, which target rank 1 needs"
    );
    assert!(error.hint().is_some());
}

#[test]
fn buffers_must_be_there_and_have_the_right_length() {
    let plan = plan(&spec("f32[4@tp]"), &spec("f32[4]"), &Options::default()).unwrap();
    let mut targets = vec![vec![]; 2];
    let error = execute(&plan, &[vec![0; 8]], &mut targets).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no source buffer for rank 1: 1 were given"
    );
    let error = execute(&plan, &[vec![0; 8], vec![0; 9]], &mut targets).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the source buffer of rank 1 has 9 bytes instead of 8"
    );
    let error = execute(&plan, &[vec![0; 8], vec![0; 8]], &mut targets[..1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no target buffer for rank 1: 1 were given"
    );
}

#[test]
fn cuts_inside_a_byte_are_refused() {
    let error = plan(&spec("f4[6@tp]"), &spec("f4[6]"), &Options::default()).unwrap_err();
    assert_eq!(
        error,
        Error::PartialByte {
            dtype: "f4".parse().unwrap(),
            elements: 3
        }
    );
    assert_eq!(
        error.hint().unwrap(),
        "cut dims so that every part has a multiple of 2 elements"
    );
}

#[test]
fn types_smaller_than_a_byte_move_in_whole_bytes() {
    let plan = plan(&spec("f4[8@tp]"), &spec("f4[8]"), &Options::default()).unwrap();
    let mut targets = vec![vec![]; 2];
    execute(&plan, &[[0x21, 0x43], [0x65, 0x07]], &mut targets).unwrap();
    assert_eq!(targets, vec![vec![0x21, 0x43, 0x65, 0x07]; 2]);
}

#[test]
fn becoming_a_product_or_a_sum_keeps_the_value_once() {
    let mut targets = vec![vec![]; 2];
    for (target, second) in [
        ("f32[2 | prod(tp)]", 1.0f32),
        ("f32[2 | sum(tp)]", 0.0),
        ("f32[2 | max(tp)]", 5.0),
    ] {
        let plan = plan(&spec("f32[2]"), &spec(target), &Options::default()).unwrap();
        let value = [5.0f32, 5.0].map(f32::to_le_bytes).concat();
        execute(&plan, &[value.clone(), value.clone()], &mut targets).unwrap();
        assert_eq!(targets, [value, [second; 2].map(f32::to_le_bytes).concat()]);
    }
}

#[test]
fn empty_tensors_and_empty_lists_need_nothing() {
    let plan = plan(
        &spec("f32[0 | listed()]"),
        &spec("f32[0@tp]"),
        &Options::default(),
    )
    .unwrap();
    assert!(plan.steps.is_empty());
    let (none, mut targets) = (Vec::<Vec<u8>>::new(), vec![vec![1], vec![2]]);
    execute(&plan, &none, &mut targets).unwrap();
    assert!(targets.iter().all(Vec::is_empty));
}
