//! From `name[index] = value` to an assignment.

use super::npy;
use crate::error::Error;
use crate::slice::{Dim, Picked, Selection, split};
use cairn::checkpoint::edit::{Assignment, Indices, Test, Where};
use cairn::checkpoint::{Pattern, Source};
use cairn::tensor::{DType, element_count};

/// A test of values, made of the number it compares with.
type Comparison = fn(f64) -> Test;

/// Longer signs first.
const COMPARISONS: [(&str, Comparison); 6] = [
    (">=", Test::GreaterOrEqual),
    ("<=", Test::LessOrEqual),
    ("==", Test::Equal),
    ("!=", Test::NotEqual),
    (">", Test::Greater),
    ("<", Test::Less),
];

/// What `text` assigns to a tensor of `source`.
pub(super) fn assignment(text: &str, source: &dyn Source) -> Result<Assignment, Error> {
    let refuse = |reason: String| Error::Edit {
        edit: text.to_string(),
        reason,
    };
    let (left, value) = text
        .rsplit_once('=')
        .ok_or_else(|| refuse("there is no `=`".into()))?;
    let (name, index) = split(left.trim());
    let tensor = source.find(name).ok_or_else(|| Error::NoSuchTensor {
        name: name.to_string(),
        near: Pattern::new(name).nearest(source.names()).map(Into::into),
    })?;
    let (place, shape) = match index.and_then(|index| test(index, name)) {
        Some(test) => (Where::Values(test.map_err(refuse)?), Vec::new()),
        None => {
            let picked = Selection::new(index, &tensor.shape)?;
            let shape = picked.shape();
            (Where::Box(indices(&picked).map_err(refuse)?), shape)
        }
    };
    let (dtype, values) = values(value.trim(), &shape, &refuse)?;
    Ok(Assignment {
        name: name.to_string(),
        place,
        dtype,
        values,
    })
}

/// The test that an index is, if it is one.
fn test(index: &str, name: &str) -> Option<Result<Test, String>> {
    let index = index.trim();
    let function = |function: &str| {
        let inner = index.strip_prefix(function)?.trim_start();
        let inner = inner.strip_prefix('(')?.strip_suffix(')')?;
        (inner.trim() == name).then_some(())
    };
    if function("isnan").is_some() {
        return Some(Ok(Test::Nan));
    }
    if function("isinf").is_some() {
        return Some(Ok(Test::Infinite));
    }
    let rest = index.strip_prefix(name)?.trim_start();
    let found = COMPARISONS
        .iter()
        .find_map(|(sign, test)| Some((rest.strip_prefix(sign)?, test)));
    Some(match found {
        Some((bound, test)) => {
            let bound = bound.trim();
            let number = bound.parse().map_err(|_| format!("`{bound}` is no number"));
            number.map(test)
        }
        None => Err("a test is `>`, `>=`, `<`, `<=`, `==` or `!=` and a number".into()),
    })
}

/// The indices of every dim.
fn indices(selection: &Selection) -> Result<Vec<Indices>, String> {
    if selection.dims.iter().any(|dim| !matches!(dim, Dim::Of(_))) {
        return Err("only integers, slices and `...` can be assigned to".into());
    }
    let dim = |picked: &Picked| match picked {
        Picked::Range { first, step, count } => Ok(Indices {
            first: *first,
            step: *step,
            count: *count,
        }),
        Picked::List(_) => Err("lists of indices cannot be assigned to".into()),
    };
    selection.picked.iter().map(dim).collect()
}

/// The values of a number or a file, which has to have the shape that was picked.
fn values(
    text: &str,
    shape: &[usize],
    refuse: &dyn Fn(String) -> Error,
) -> Result<(DType, Vec<u8>), Error> {
    if text.ends_with(".npy") {
        let array = npy::read(text)?;
        let one = element_count(&array.shape) == Some(1);
        if !one && array.shape != shape {
            let found = &array.shape;
            let reason = format!("`{text}` has the shape {found:?}, and {shape:?} was picked");
            return Err(refuse(reason));
        }
        return Ok((array.dtype, array.bytes));
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Ok((DType::I64, whole.to_le_bytes().to_vec()));
    }
    if let Ok(truth) = text.parse::<bool>() {
        return Ok((DType::Bool, vec![u8::from(truth)]));
    }
    let number: f64 = text
        .parse()
        .map_err(|_| refuse(format!("`{text}` is neither a number nor a .npy file")))?;
    Ok((DType::F64, number.to_le_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_values_are_told_from_indices() {
        let of = |index| test(index, "a.b");
        assert_eq!(of("a.b > 3"), Some(Ok(Test::Greater(3.0))));
        assert_eq!(of(" a.b>=-1e3 "), Some(Ok(Test::GreaterOrEqual(-1000.0))));
        assert_eq!(of("a.b != inf"), Some(Ok(Test::NotEqual(f64::INFINITY))));
        assert_eq!(of("isnan(a.b)"), Some(Ok(Test::Nan)));
        assert_eq!(of("isinf( a.b )"), Some(Ok(Test::Infinite)));
        assert_eq!(of("0:3, ..."), None);
        assert_eq!(of("isnan(other)"), None);
        assert!(matches!(of("a.b > x"), Some(Err(_))));
        assert!(matches!(of("a.b"), Some(Err(_))));
    }
}
