//! Ranges are compared with Python's definition here; whole indices with NumPy in `bindings/python/tests/test_cat.py`.

use super::*;
use proptest::prelude::*;

fn select(index: &str, shape: &[usize]) -> Selection {
    Selection::new(Some(index), shape).unwrap()
}

fn indices(index: &str, shape: &[usize]) -> Vec<Vec<usize>> {
    let picked = select(index, shape).picked.into_iter();
    picked
        .map(|dim| (0..dim.count()).map(|nth| dim.index(nth)).collect())
        .collect()
}

/// `slice.indices(len)` and `range` as the Python reference defines them, step by step.
fn python(start: Option<i64>, stop: Option<i64>, step: i64, len: i64) -> Vec<usize> {
    let fix = |at: i64, low: i64, high: i64| {
        let at = if at < 0 { at + len } else { at };
        at.max(low).min(high)
    };
    let (low, high) = if step < 0 { (-1, len - 1) } else { (0, len) };
    let (first, end) = if step < 0 { (high, low) } else { (low, high) };
    let mut at = start.map_or(first, |at| fix(at, low, high));
    let stop = stop.map_or(end, |at| fix(at, low, high));
    let mut found = Vec::new();
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        found.push(usize::try_from(at).unwrap());
        at += step;
    }
    found
}

proptest! {
    #[test]
    fn ranges_are_python_s(
        start in proptest::option::of(-12i64..12),
        stop in proptest::option::of(-12i64..12),
        step in (-5i64..5).prop_filter("not 0", |step| *step != 0),
        len in 0usize..9,
    ) {
        let text = |n: Option<i64>| n.map_or(String::new(), |n| n.to_string());
        let slice = format!("{}:{}:{step}", text(start), text(stop));
        let expected = python(start, stop, step, len as i64);
        prop_assert_eq!(indices(&slice, &[len]), vec![expected]);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[0-9:,.\\[\\]None True-]{0,12}") {
        let _ = Selection::new(Some(&text), &[2, 0, 3]);
        let _ = split(&text);
    }
}

#[test]
fn integers_take_their_dim_away_and_dots_stand_for_the_rest() {
    let selection = select("1, ..., ::2", &[2, 3, 4, 4]);
    assert_eq!(selection.dims, [Dim::Of(1), Dim::Of(2), Dim::Of(3)]);
    assert_eq!(selection.shape(), [3, 4, 2]);
    assert_eq!(indices("-1", &[4, 2]), [vec![3], vec![0, 1]]);
    assert_eq!(indices("", &[2]), [[0, 1]]);
    assert_eq!(indices("...", &[]), Vec::<Vec<usize>>::new());
}

#[test]
fn none_adds_a_dim_and_lists_advance_together() {
    let dims = |index| select(index, &[4, 5, 6]).dims;
    assert_eq!(
        dims("None, 0, ..., None"),
        [Dim::New, Dim::Of(1), Dim::Of(2), Dim::New]
    );
    assert_eq!(dims(":, [1, 2], [0, 0]"), [Dim::Of(0), Dim::Points]);
    // Lists with something between them go to the front, and an integer counts as one of them.
    assert_eq!(dims("[1, 2], :, [0, 0]"), [Dim::Points, Dim::Of(1)]);
    assert_eq!(dims("0, :, [0, 0]"), [Dim::Points, Dim::Of(1)]);
    assert_eq!(dims(":, 0, [0, 0]"), [Dim::Of(0), Dim::Points]);
    let mut index = Vec::new();
    select("[1, -1], 2, [3]", &[4, 5, 6]).source(&[1], &mut index);
    assert_eq!(index, [3, 2, 3]);
    assert_eq!(indices("[True, False, True]", &[3]), [[0, 2]]);
}

#[test]
fn bad_slices_are_refused_with_a_reason() {
    let cases = [
        ("0,0,0", "it has 3 entries"),
        ("4", "index 4 is outside a dim of 4"),
        ("-5", "index -5 is outside a dim of 4"),
        ("[0, 9]", "index 9 is outside a dim of 4"),
        ("::0", "the step is 0"),
        ("a", "`a` is not an integer"),
        ("0,,", "an entry is empty"),
        (",0", "an entry is empty"),
        ("1:2:3:4", "too many"),
        ("...,...", "more than one"),
        ("99999999999999999999", "is not an integer"),
        ("[0, 1], [0, 1, 2]", "lists of 2 and 3 do not go together"),
        ("[True]", "a mask of 1 is for a dim of 4"),
        ("[[0]]", "`[0]` is not an integer"),
        ("[0", "a bracket is not closed"),
        ("0]", "a bracket is not opened"),
    ];
    for (slice, reason) in cases {
        let error = Selection::new(Some(slice), &[4, 4])
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason), "{slice}: {error}");
    }
}

#[test]
fn a_name_may_contain_brackets() {
    assert_eq!(split("w[0]"), ("w", Some("0")));
    assert_eq!(split("a[1].w[0:2]"), ("a[1].w", Some("0:2")));
    assert_eq!(split("w[[1, 5], 0]"), ("w", Some("[1, 5], 0")));
    assert_eq!(split("w"), ("w", None));
    assert_eq!(split("[0]"), ("[0]", None));
    assert_eq!(split("w]"), ("w]", None));
    assert_eq!(split(""), ("", None));
}
