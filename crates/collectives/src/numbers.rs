//! Calls of a group on slices of numbers instead of bytes.

use crate::{Communicator, Error};
use bytemuck::{Pod, cast_slice, cast_slice_mut};
use cairn_tensor::{DType, ReduceOp};

/// A number that groups combine.
pub trait Number: Pod + Send + Sync {
    /// What the others call its type.
    const DTYPE: DType;
}

impl Number for f32 {
    const DTYPE: DType = DType::F32;
}

impl Number for f64 {
    const DTYPE: DType = DType::F64;
}

impl Number for i64 {
    const DTYPE: DType = DType::I64;
}

/// Combines everybody's `numbers`, element by element, and gives all the result.
///
/// # Collective
/// # Errors
/// As [`Communicator::all_reduce`].
pub fn all_reduce<N: Number>(
    group: &dyn Communicator,
    op: ReduceOp,
    numbers: &mut [N],
) -> Result<(), Error> {
    match group.size() {
        1 => Ok(()),
        _ => group.all_reduce(N::DTYPE, op, cast_slice_mut(numbers)),
    }
}

/// Combines everybody's `numbers`, and gives each rank its part of the result; `counts` are the lengths of the parts in elements.
///
/// # Collective
/// # Errors
/// As [`Communicator::reduce_scatter`].
pub fn reduce_scatter<N: Number>(
    group: &dyn Communicator,
    op: ReduceOp,
    numbers: &[N],
    counts: &[usize],
    out: &mut [N],
) -> Result<(), Error> {
    let lens = lens_bytes::<N>(counts);
    group.reduce_scatter(
        N::DTYPE,
        op,
        cast_slice(numbers),
        &lens,
        cast_slice_mut(out),
    )
}

/// Gives all everybody's `numbers`, one after another; `counts` are their lengths in elements.
///
/// # Collective
/// # Errors
/// As [`Communicator::all_gather`].
pub fn all_gather<N: Number>(
    group: &dyn Communicator,
    numbers: &[N],
    counts: &[usize],
    out: &mut [N],
) -> Result<(), Error> {
    let lens = lens_bytes::<N>(counts);
    group.all_gather(cast_slice(numbers), &lens, cast_slice_mut(out))
}

/// Sends `numbers` to rank `to`.
///
/// # Errors
/// As [`Communicator::send`].
pub fn send<N: Number>(
    group: &dyn Communicator,
    to: usize,
    tag: u64,
    numbers: &[N],
) -> Result<(), Error> {
    group.send(to, tag, cast_slice(numbers))
}

/// Receives as many numbers as `out` has room for from rank `from`.
///
/// # Errors
/// As [`Communicator::receive`].
pub fn receive<N: Number>(
    group: &dyn Communicator,
    from: usize,
    tag: u64,
    out: &mut [N],
) -> Result<(), Error> {
    group.receive(from, tag, cast_slice_mut(out))
}

fn lens_bytes<N>(counts: &[usize]) -> Vec<usize> {
    counts.iter().map(|count| count * size_of::<N>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads;

    #[test]
    fn parts_of_different_lengths_are_summed_and_gathered_again() {
        let counts = [2, 0, 1];
        let all = threads::run(3, threads::Options::default(), |group| {
            let mine = [1.0_f32, 2.0, 3.0].map(|number| number * (group.rank() + 1) as f32);
            let mut part = vec![0.0; counts[group.rank()]];
            reduce_scatter(&*group, ReduceOp::Sum, &mine, &counts, &mut part)?;
            let mut all = [0.0; 3];
            all_gather(&*group, &part, &counts, &mut all)?;
            Ok::<_, Error>(all)
        });
        assert_eq!(all.expect("nobody fails"), [[6.0, 12.0, 18.0]; 3]);
    }
}
