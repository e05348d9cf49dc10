//! The tensors that become one, and blocks of their elements.

use crate::Error;
use crate::input::Input;
use crate::number::Arithmetic;
use std::ops::Range;

/// The tensors of all models that become one.
pub(crate) struct Operands {
    /// The name of the tensor they become.
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: usize,
    pub(crate) inputs: Vec<Input>,
    /// Whether the first input is the base model's.
    pub(crate) has_base: bool,
    pub(crate) threads: usize,
    pub(crate) seed: u64,
}

/// The same elements of every input, in memory.
pub(crate) struct Block<A: Arithmetic> {
    bytes: Vec<u8>,
    values: Vec<Vec<A::Real>>,
}

impl<A: Arithmetic> Block<A> {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Reads the same elements of every input.
    pub(crate) fn load(
        &mut self,
        operands: &Operands,
        elements: Range<usize>,
    ) -> Result<&[Vec<A::Real>], Error> {
        self.values.resize_with(operands.inputs.len(), Vec::new);
        for (input, values) in operands.inputs.iter().zip(&mut self.values) {
            values.resize(elements.len(), A::Real::default());
            input.read::<A>(elements.clone(), &mut self.bytes, values)?;
        }
        Ok(&self.values)
    }
}

/// Lines of elements along one dim of a tensor: its rows, its columns, or all of it as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Elements of a lane.
    pub(crate) len: usize,
    /// How far apart they are.
    pub(crate) stride: usize,
}

impl Lanes {
    /// All elements as one lane.
    pub(crate) fn whole(elements: usize) -> Self {
        Self {
            len: elements,
            stride: 1,
        }
    }

    /// Lanes along `dim`; a tensor without it is one lane.
    pub(crate) fn along(shape: &[usize], dim: usize) -> Self {
        match shape.get(dim) {
            Some(len) => Self {
                len: *len,
                stride: shape[dim + 1..].iter().product(),
            },
            None => Self::whole(shape.iter().product()),
        }
    }

    /// Lanes along the last dim.
    pub(crate) fn rows(shape: &[usize]) -> Self {
        Self::along(shape, shape.len().saturating_sub(1))
    }

    /// The lane of an element.
    #[inline]
    pub(crate) fn of(self, element: usize) -> usize {
        element / (self.len * self.stride) * self.stride + element % self.stride
    }

    /// Elements of the lanes that lie among each other: the smallest stretch that holds whole lanes.
    pub(crate) fn stretch(self) -> usize {
        (self.len * self.stride).max(1)
    }

    /// How many lanes `elements` elements have.
    pub(crate) fn count(self, elements: usize) -> usize {
        elements / self.len.max(1)
    }

    /// The elements cut into stretches of whole lanes, each as short as possible but at least `least` long.
    pub(crate) fn groups(
        self,
        elements: usize,
        least: usize,
    ) -> impl ExactSizeIterator<Item = Range<usize>> + Clone {
        let size = self.stretch() * least.div_ceil(self.stretch()).max(1);
        (0..elements.div_ceil(size))
            .map(move |index| index * size..((index + 1) * size).min(elements))
    }
}

#[cfg(test)]
mod tests {
    //! Which elements form a lane.

    use super::*;

    #[test]
    fn lanes_run_along_their_dim() {
        let shape = [2, 3, 4];
        let lanes = Lanes::along(&shape, 1);
        assert_eq!(lanes.count(24), 8);
        assert_eq!([0, 4, 8].map(|at| lanes.of(at)), [0, 0, 0]);
        assert_eq!([3, 7, 11].map(|at| lanes.of(at)), [3, 3, 3]);
        assert_eq!([12, 16, 23].map(|at| lanes.of(at)), [4, 4, 7]);
        assert_eq!(Lanes::rows(&shape).of(7), 1);
        assert_eq!(Lanes::along(&[5], 1), Lanes::whole(5));
        assert_eq!(Lanes::whole(24).of(23), 0);
    }

    #[test]
    fn groups_hold_whole_lanes() {
        let groups: Vec<_> = Lanes::rows(&[5, 10]).groups(50, 15).collect();
        assert_eq!(groups, [0..20, 20..40, 40..50]);
        let mut one = Lanes::whole(50).groups(50, 15);
        assert_eq!((one.next(), one.next()), (Some(0..50), None));
    }
}
