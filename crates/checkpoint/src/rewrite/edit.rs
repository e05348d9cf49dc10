//! A source in which some elements have other values, and some tensors other names.

mod renamed;
#[cfg(test)]
mod tests;

use crate::Error;
use crate::computed::{Computed, Formula, SharedSource, not_there, read_elements};
use crate::source::{Kept, StoredTensor};
use cairn_tensor::{DType, Overflow, cast, element_count, row_major_strides};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub use renamed::renamed;

/// Elements whose values are looked at together.
const STRETCH_ELEMENTS: usize = 1 << 16;

/// Which elements of a tensor get which values.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The tensor.
    pub name: String,
    /// The elements.
    pub place: Where,
    /// The type of `values`.
    pub dtype: DType,
    /// One element for all, or one for each element of a box, in row-major order.
    pub values: Vec<u8>,
}

/// Which elements of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Where {
    /// Those at these indices of each dim.
    Box(Vec<Indices>),
    /// Those whose values pass a test.
    Values(Test),
}

/// Indices of a dim at equal distances: `first`, `first + step`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indices {
    /// The first.
    pub first: usize,
    /// From one to the next; never 0.
    pub step: i128,
    /// How many.
    pub count: usize,
}

/// What is asked of a value, which is taken as an `f64`. A NaN is only [`Test::Nan`] and [`Test::NotEqual`] to everything.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "their names say what they ask")]
pub enum Test {
    Less(f64),
    LessOrEqual(f64),
    Greater(f64),
    GreaterOrEqual(f64),
    Equal(f64),
    NotEqual(f64),
    Nan,
    Infinite,
}

impl Test {
    fn passes(self, value: f64) -> bool {
        match self {
            Test::Less(bound) => value < bound,
            Test::LessOrEqual(bound) => value <= bound,
            Test::Greater(bound) => value > bound,
            Test::GreaterOrEqual(bound) => value >= bound,
            #[expect(clippy::float_cmp, reason = "equal is what was asked for")]
            Test::Equal(other) => value == other,
            #[expect(clippy::float_cmp, reason = "equal is what was asked for")]
            Test::NotEqual(other) => value != other,
            Test::Nan => value.is_nan(),
            Test::Infinite => value.is_infinite(),
        }
    }
}

/// `source` with all assignments made, one after another. Values are worked out as they are read.
///
/// # Errors
/// If there is no such tensor, a box does not fit it, or a value is none of its type.
pub fn assigned(source: SharedSource, assignments: &[Assignment]) -> Result<SharedSource, Error> {
    let aliases = source.aliases();
    let mut changes: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    let mut tensors = BTreeMap::new();
    for assignment in assignments {
        let name = aliases.get(&assignment.name).unwrap_or(&assignment.name);
        let tensor = source.find(name).ok_or_else(|| not_there(name))?;
        let change = Change::new(assignment, &tensor)?;
        changes.entry(name.clone()).or_default().push(change);
        tensors.insert(name.clone(), tensor);
    }
    let formula = Assigning {
        source: Kept::new(source.clone()),
        changes,
    };
    let computed = Computed::new(source, Arc::new(formula), tensors, |_| false);
    Ok(Arc::new(computed))
}

/// An assignment that fits its tensor.
struct Change {
    place: Where,
    /// In the tensor's type.
    values: Vec<u8>,
}

impl Change {
    fn new(assignment: &Assignment, tensor: &StoredTensor) -> Result<Self, Error> {
        let refuse = |reason: String| Error::State {
            name: assignment.name.clone(),
            reason,
        };
        if !tensor.dtype.bits().is_multiple_of(8) || tensor.dtype == DType::C64 {
            return Err(refuse(format!(
                "is {}, whose elements cannot be assigned",
                tensor.dtype
            )));
        }
        let count = match &assignment.place {
            Where::Values(_) => 1,
            Where::Box(dims) if fits(dims, &tensor.shape) => {
                let counts: Vec<usize> = dims.iter().map(|dim| dim.count).collect();
                element_count(&counts).unwrap_or(usize::MAX)
            }
            Where::Box(_) => return Err(refuse(format!("has the shape {:?}", tensor.shape))),
        };
        let given = assignment.values.len() * 8 / assignment.dtype.bits();
        if given != 1 && given != count {
            return Err(refuse(format!("gets {given} values for {count} elements")));
        }
        let values = converted(assignment, tensor.dtype, given).map_err(refuse)?;
        let place = assignment.place.clone();
        Ok(Self { place, values })
    }

    /// Changes `bytes`, the elements `elements` of a tensor.
    fn apply(&self, tensor: &StoredTensor, elements: &Range<usize>, bytes: &mut [u8]) {
        match &self.place {
            Where::Values(test) => self.apply_where(*test, tensor.dtype, bytes),
            Where::Box(dims) => self.apply_box(dims, tensor, elements, bytes),
        }
    }

    fn apply_where(&self, test: Test, dtype: DType, bytes: &mut [u8]) {
        let width = dtype.bits() / 8;
        let mut wide = vec![0; 8 * STRETCH_ELEMENTS];
        for stretch in bytes.chunks_mut(width * STRETCH_ELEMENTS) {
            let wide = &mut wide[..stretch.len() / width * 8];
            cast(dtype, DType::F64, stretch, wide, Overflow::Native).expect("as many elements");
            for (element, value) in stretch.chunks_mut(width).zip(wide.as_chunks().0) {
                if test.passes(f64::from_le_bytes(*value)) {
                    element.copy_from_slice(&self.values);
                }
            }
        }
    }

    /// Goes row by row, and in each row only over the indices that are asked for.
    fn apply_box(
        &self,
        dims: &[Indices],
        tensor: &StoredTensor,
        elements: &Range<usize>,
        bytes: &mut [u8],
    ) {
        let width = tensor.dtype.bits() / 8;
        let Some((last, outer)) = dims.split_last() else {
            // A scalar; nothing of it may be asked for.
            let scalar = bytes.chunks_mut(width);
            return scalar.for_each(|element| element.copy_from_slice(&self.values));
        };
        let row_len = tensor.shape.last().copied().unwrap_or(1).max(1);
        let strides = row_major_strides(&tensor.shape[..outer.len()]);
        for row in elements.start / row_len..elements.end.div_ceil(row_len) {
            let Some(before) = position(outer, &strides, &tensor.shape, row) else {
                continue;
            };
            for nth in 0..last.count {
                let element = row * row_len + last.at(nth);
                if elements.contains(&element) {
                    let place = (element - elements.start) * width;
                    let value = (before * last.count + nth) * width % self.values.len();
                    bytes[place..place + width].copy_from_slice(&self.values[value..][..width]);
                }
            }
        }
    }
}

/// Where among the picked rows the row number `row` stands; `None` if it is not picked.
fn position(outer: &[Indices], strides: &[usize], shape: &[usize], row: usize) -> Option<usize> {
    let mut position = 0;
    for ((dim, stride), len) in outer.iter().zip(strides).zip(shape) {
        position = position * dim.count + dim.find(row / stride % len)?;
    }
    Some(position)
}

impl Indices {
    /// The index number `nth`, which is below `count`.
    fn at(&self, nth: usize) -> usize {
        let index = self.first as i128 + nth as i128 * self.step;
        usize::try_from(index).expect("inside the dim")
    }

    /// Which of them `index` is.
    fn find(&self, index: usize) -> Option<usize> {
        let distance = index as i128 - self.first as i128;
        let nth = usize::try_from(distance / self.step).ok()?;
        (distance % self.step == 0 && nth < self.count).then_some(nth)
    }
}

fn fits(dims: &[Indices], shape: &[usize]) -> bool {
    let inside = |(dim, len): (&Indices, &usize)| {
        let last = dim.count.checked_sub(1);
        let last = last.map(|last| dim.first as i128 + last as i128 * dim.step);
        dim.step != 0
            && last.is_none_or(|last| dim.first < *len && (0..*len as i128).contains(&last))
    };
    dims.len() == shape.len() && dims.iter().zip(shape).all(inside)
}

fn is_whole(dtype: DType) -> bool {
    use DType::{Bool, I8, I16, I32, I64, U8, U16, U32, U64};
    [Bool, U8, I8, U16, I16, U32, I32, U64, I64].contains(&dtype)
}

/// The values in the type of the tensor. An integer or a bool must be exactly what was given.
fn converted(assignment: &Assignment, dtype: DType, count: usize) -> Result<Vec<u8>, String> {
    let Assignment {
        dtype: from,
        values,
        ..
    } = assignment;
    let failed = |error: cairn_tensor::Error| format!("cannot take these values: {error}");
    let mut bytes = vec![0; dtype.len_bytes(count).ok_or("is too large")?];
    cast(*from, dtype, values, &mut bytes, Overflow::Native).map_err(failed)?;
    if is_whole(dtype) {
        let mut back = vec![0; values.len()];
        cast(dtype, *from, &bytes, &mut back, Overflow::Native).map_err(failed)?;
        if back != *values {
            return Err(format!("is {dtype}, which has no such value"));
        }
    }
    Ok(bytes)
}

struct Assigning {
    source: Kept,
    changes: BTreeMap<String, Vec<Change>>,
}

impl Formula for Assigning {
    fn fill(
        &self,
        name: &str,
        tensor: &StoredTensor,
        elements: Range<usize>,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let (_, stored) = read_elements(&self.source, name, elements.clone())?;
        bytes.copy_from_slice(&stored);
        for change in self.changes.get(name).into_iter().flatten() {
            change.apply(tensor, &elements, bytes);
        }
        Ok(())
    }
}
