//! Edits against an element-by-element oracle, read whole and in parts.

use super::*;
use crate::source::{ModelSource, Source};
use cairn_formats::{Model, Tensor};
use cairn_store::{Memory, PutMode, Store};
use proptest::prelude::*;

/// A source with the tensor `w` of these values, and its other name `tied`.
fn source(values: &[f32], shape: &[usize]) -> SharedSource {
    let store = Memory::new();
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    store.put("data", &bytes, PutMode::Create).unwrap();
    let mut model = Model::default();
    model
        .files
        .push(cairn_formats::DataFile::plain("data", bytes.len() as u64));
    let tensor = Tensor::whole(DType::F32, shape.to_vec(), 0, 0);
    model.tensors.insert("w".into(), tensor);
    model.aliases.insert("tied".into(), "w".into());
    Arc::new(ModelSource::new(Arc::new(store), model))
}

fn read(source: &dyn Source, elements: Range<usize>) -> Vec<f32> {
    let (_, bytes) = read_elements(source, "w", elements).unwrap();
    let values = bytes.as_chunks().0.iter();
    values.map(|value| f32::from_le_bytes(*value)).collect()
}

fn assign(place: Where, values: &[f64]) -> Assignment {
    Assignment {
        name: "tied".into(),
        place,
        dtype: DType::F64,
        values: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    }
}

fn indices(len: usize) -> impl Strategy<Value = Indices> {
    (0..len, 0..len, prop_oneof![-3_i128..0, 1..4_i128]).prop_map(move |(first, count, step)| {
        let room = if step > 0 { len - 1 - first } else { first };
        let most = room / usize::try_from(step.abs()).unwrap() + 1;
        let count = count.min(most);
        Indices { first, step, count }
    })
}

proptest! {
    #[test]
    fn a_box_gets_its_values_and_nothing_else_changes(
        dims in (indices(4), indices(3), indices(5)),
        cut in 0..60_usize,
    ) {
        let shape = [4, 3, 5];
        let mut expected: Vec<f32> = (0..60_u8).map(f32::from).collect();
        let source = source(&expected, &shape);
        let dims = [dims.0, dims.1, dims.2];
        let mut values = Vec::new();
        for a in 0..dims[0].count {
            for b in 0..dims[1].count {
                for c in 0..dims[2].count {
                    let place = (dims[0].at(a) * 3 + dims[1].at(b)) * 5 + dims[2].at(c);
                    let value = 100 + u8::try_from(values.len()).unwrap();
                    expected[place] = f32::from(value);
                    values.push(f64::from(value));
                }
            }
        }
        prop_assume!(!values.is_empty());
        let edited = assigned(source, &[assign(Where::Box(dims.to_vec()), &values)]).unwrap();
        let found = [read(edited.as_ref(), 0..cut), read(edited.as_ref(), cut..60)].concat();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn values_that_pass_a_test_are_replaced_one_assignment_after_another() {
    let values = [-5.0, f32::NAN, 2.0, f32::INFINITY, 3.0, -0.0];
    let edits = [
        assign(Where::Values(Test::Nan), &[9.0]),
        assign(Where::Values(Test::Infinite), &[8.0]),
        assign(Where::Values(Test::Greater(7.5)), &[7.0]),
        assign(Where::Values(Test::Equal(0.0)), &[1.0]),
    ];
    let edited = assigned(source(&values, &[6]), &edits).unwrap();
    assert_eq!(read(edited.as_ref(), 0..6), [-5.0, 7.0, 2.0, 7.0, 3.0, 1.0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let all = |count| Indices {
        first: 0,
        step: 1,
        count,
    };
    let cases = [
        (vec![all(2)], vec![1.0], "has the shape [2, 3]"),
        (vec![all(2), all(4)], vec![1.0], "has the shape [2, 3]"),
        (
            vec![all(2), all(3)],
            vec![1.0, 2.0],
            "gets 2 values for 6 elements",
        ),
    ];
    for (dims, values, reason) in cases {
        let refused = assigned(
            source(&[0.0; 6], &[2, 3]),
            &[assign(Where::Box(dims), &values)],
        );
        let error = refused.err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn names_are_swapped_all_at_once_and_never_shared() {
    let swap = [("w", "tied"), ("tied", "w")].map(|(old, new)| (old.into(), new.into()));
    let swapped = renamed(source(&[1.0], &[1]), &swap.into()).unwrap();
    assert_eq!(swapped.names(), ["tied", "w"]);
    assert_eq!(swapped.aliases(), [("w".into(), "tied".into())].into());
    assert_eq!(read(swapped.as_ref(), 0..1), [1.0]);
    let shared = renamed(source(&[1.0], &[1]), &[("w".into(), "tied".into())].into());
    assert!(shared.is_err());
    let missing = renamed(source(&[1.0], &[1]), &[("x".into(), "y".into())].into());
    assert!(missing.is_err());
}
