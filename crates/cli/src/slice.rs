//! Slices as NumPy writes them: `name[0:2, ::4, ..., -1]`.

use crate::error::Error;
use cairn::sharding::Region;

/// The elements of one dim that a slice picks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picked {
    /// The first index.
    first: usize,
    /// From one index to the next; negative if they descend.
    step: i128,
    /// How many there are.
    pub(crate) count: usize,
    /// Whether the dim is left in the result; an integer takes it away.
    pub(crate) kept: bool,
}

impl Picked {
    /// The index at place `nth`, which is below `count`.
    pub(crate) fn index(&self, nth: usize) -> usize {
        let index = self.first as i128 + nth as i128 * self.step;
        usize::try_from(index).expect("picked inside the dim")
    }
}

/// Splits `name[slice]` in its two parts.
pub(crate) fn split(text: &str) -> (&str, Option<&str>) {
    let inner = text
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once('['));
    match inner {
        Some((name, slice)) if !name.is_empty() => (name, Some(slice)),
        _ => (text, None),
    }
}

/// What `slice` picks of each dim of a tensor of this shape.
///
/// # Errors
/// If it cannot be read, has more entries than the tensor has dims, or an index lies outside.
pub(crate) fn resolve(slice: Option<&str>, shape: &[usize]) -> Result<Vec<Picked>, Error> {
    let whole = |len: &usize| Picked {
        first: 0,
        step: 1,
        count: *len,
        kept: true,
    };
    let Some(slice) = slice else {
        return Ok(shape.iter().map(whole).collect());
    };
    let fail = |reason: String| Error::Slice {
        slice: slice.to_string(),
        shape: shape.to_vec(),
        reason,
    };
    let entries: Vec<&str> = match slice.trim() {
        "" => Vec::new(),
        slice => slice.split(',').map(str::trim).collect(),
    };
    let dots = entries.iter().filter(|entry| **entry == "...").count();
    if dots > 1 {
        return Err(fail("it has more than one `...`".into()));
    }
    let named = entries.len() - dots;
    let Some(rest) = shape.len().checked_sub(named) else {
        return Err(fail(format!("it has {named} entries")));
    };
    // Without `...` the dims that are not named stand at the end.
    let split = entries.iter().position(|entry| *entry == "...");
    let (front, back) = match split {
        Some(at) => (&entries[..at], &entries[at + 1..]),
        None => (&entries[..], &[][..]),
    };
    let mut picked = Vec::with_capacity(shape.len());
    for (entry, len) in front.iter().zip(shape) {
        picked.push(pick(entry, *len).map_err(fail)?);
    }
    picked.extend(shape[front.len()..][..rest].iter().map(whole));
    for (entry, len) in back.iter().zip(&shape[front.len() + rest..]) {
        picked.push(pick(entry, *len).map_err(fail)?);
    }
    Ok(picked)
}

/// The smallest box around what is picked.
pub(crate) fn bounds(picked: &[Picked]) -> Region {
    let ends = picked.iter().map(|dim| match dim.count.checked_sub(1) {
        None => (0, 0),
        Some(last) => {
            let (first, last) = (dim.index(0), dim.index(last));
            (first.min(last), first.abs_diff(last) + 1)
        }
    });
    let (offset, extent) = ends.unzip();
    Region { offset, extent }
}

/// Reads one entry: an index, or `start:stop:step`.
fn pick(entry: &str, len: usize) -> Result<Picked, String> {
    if !entry.contains(':') {
        let index = number(entry)?.ok_or("an entry is empty")?;
        let index = from_end(index, len);
        let inside = usize::try_from(index).ok().filter(|index| *index < len);
        let first = inside.ok_or_else(|| format!("index {entry} is outside a dim of {len}"))?;
        return Ok(Picked {
            first,
            step: 1,
            count: 1,
            kept: false,
        });
    }
    let parts: Vec<&str> = entry.split(':').collect();
    let [start, stop, step] = match parts[..] {
        [start, stop] => [start, stop, ""],
        [start, stop, step] => [start, stop, step],
        _ => return Err(format!("`{entry}` has too many `:`")),
    };
    let step = number(step)?.unwrap_or(1);
    range(number(start)?, number(stop)?, step, len)
}

/// The indices of `start:stop:step`, clamped to the dim as Python does.
fn range(
    start: Option<i128>,
    stop: Option<i128>,
    step: i128,
    len: usize,
) -> Result<Picked, String> {
    if step == 0 {
        return Err("the step is 0".into());
    }
    let last = len as i128;
    // Going down, the places before the first and after the last index are -1 and len - 1.
    let (low, high) = if step > 0 { (0, last) } else { (-1, last - 1) };
    let place = |at: i128| from_end(at, len).clamp(low, high);
    let start = start.map_or(if step > 0 { low } else { high }, place);
    let stop = stop.map_or(if step > 0 { high } else { low }, place);
    let distance = if step > 0 { stop - start } else { start - stop };
    let count = (distance.max(0) + step.abs() - 1) / step.abs();
    Ok(Picked {
        first: usize::try_from(start).unwrap_or(0),
        step,
        count: usize::try_from(count).expect("no more than the dim has"),
        kept: true,
    })
}

fn from_end(index: i128, len: usize) -> i128 {
    if index < 0 {
        index + len as i128
    } else {
        index
    }
}

/// Reads an integer; nothing is none.
fn number(text: &str) -> Result<Option<i128>, String> {
    match text.trim() {
        "" => Ok(None),
        text => {
            let number: Result<i64, _> = text.parse();
            number
                .map(|n| Some(n.into()))
                .map_err(|_| format!("`{text}` is not an integer"))
        }
    }
}

#[cfg(test)]
mod tests {
    //! Python's own rule for ranges is the oracle.

    use super::*;
    use proptest::prelude::*;

    fn indices(slice: &str, shape: &[usize]) -> Vec<Vec<usize>> {
        let picked = resolve(Some(slice), shape).unwrap();
        let indices = |dim: Picked| (0..dim.count).map(|nth| dim.index(nth)).collect();
        picked.into_iter().map(indices).collect()
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
    }

    #[test]
    fn integers_take_their_dim_away_and_dots_stand_for_the_rest() {
        let picked = resolve(Some("1, ..., ::2"), &[2, 3, 4, 4]).unwrap();
        let kept: Vec<bool> = picked.iter().map(|dim| dim.kept).collect();
        assert_eq!(kept, [false, true, true, true]);
        assert_eq!((picked[3].index(1), picked[3].count), (2, 2));
        assert_eq!(indices("-1", &[4, 2]), [vec![3], vec![0, 1]]);
        assert_eq!(indices("", &[2]), [[0, 1]]);
        assert_eq!(indices("...", &[]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn the_bounds_hold_what_is_picked_and_nothing_picked_is_empty() {
        let picked = resolve(Some("5:1:-2, 3:3"), &[8, 4]).unwrap();
        assert_eq!(bounds(&picked).to_string(), "3:3,0:0");
    }

    #[test]
    fn bad_slices_are_refused_with_a_reason() {
        let cases = [
            ("0,0,0", "it has 3 entries"),
            ("4", "index 4 is outside a dim of 4"),
            ("-5", "index -5 is outside a dim of 4"),
            ("::0", "the step is 0"),
            ("a", "`a` is not an integer"),
            ("0,,", "it has 3 entries"),
            (",0", "an entry is empty"),
            ("1:2:3:4", "too many"),
            ("...,...", "more than one"),
            ("99999999999999999999", "is not an integer"),
        ];
        for (slice, reason) in cases {
            let error = resolve(Some(slice), &[4, 4]).unwrap_err().to_string();
            assert!(error.contains(reason), "{slice}: {error}");
        }
    }

    #[test]
    fn a_name_may_contain_brackets() {
        assert_eq!(split("w[0]"), ("w", Some("0")));
        assert_eq!(split("a[1].w[0:2]"), ("a[1].w", Some("0:2")));
        assert_eq!(split("w"), ("w", None));
        assert_eq!(split("[0]"), ("[0]", None));
    }
}
