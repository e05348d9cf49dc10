//! One rank's place in a group.

use crate::Error;
use cairn_tensor::{DType, ReduceOp};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Up to so many bytes everybody combines everything; above, each combines a part and hands it out.
pub(crate) const SMALL_BYTES: usize = 16 << 10;

/// One rank's place in a group of ranks.
///
/// Buffers are bytes; `lens` are lengths in bytes, one for each rank of the group, and may differ.
pub trait Communicator: Debug + Send + Sync {
    /// Which of the group this is.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// The ranks of the group in the world, in order.
    fn world_ranks(&self) -> &[usize];

    /// Combines everybody's `bytes`, element by element, and gives all the result.
    ///
    /// # Collective
    /// # Errors
    /// If somebody does not call, calls something else, or the type cannot be combined so.
    fn all_reduce(&self, dtype: DType, op: ReduceOp, bytes: &mut [u8]) -> Result<(), Error>;

    /// Combines everybody's `bytes`, and gives each rank its part of the result: the parts lie one after another and have `lens`.
    ///
    /// # Collective
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and if the lengths do not fit the buffers.
    fn reduce_scatter(
        &self,
        dtype: DType,
        op: ReduceOp,
        bytes: &[u8],
        lens: &[usize],
        out: &mut [u8],
    ) -> Result<(), Error>;

    /// Gives all everybody's `bytes`, one after another; they have `lens`.
    ///
    /// # Collective
    /// # Errors
    /// If somebody does not call or calls something else, or the lengths do not fit the buffers.
    fn all_gather(&self, bytes: &[u8], lens: &[usize], out: &mut [u8]) -> Result<(), Error>;

    /// Sends each rank a part of `bytes` and gets a part from each; the parts lie one after another and have these lengths.
    ///
    /// # Collective
    /// # Errors
    /// If somebody does not call or calls something else, or the lengths do not fit the buffers or each other.
    fn all_to_all(
        &self,
        bytes: &[u8],
        send_lens: &[usize],
        out: &mut [u8],
        receive_lens: &[usize],
    ) -> Result<(), Error>;

    /// Gives all the `bytes` of rank `root`.
    ///
    /// # Collective
    /// # Errors
    /// If somebody does not call or calls something else.
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), Error>;

    /// Waits until all have come.
    ///
    /// # Collective
    /// # Errors
    /// If somebody does not come.
    fn barrier(&self) -> Result<(), Error>;

    /// Sends `bytes` to rank `to`; returns when they may change.
    ///
    /// # Errors
    /// If there is no such rank, or the group has ended.
    fn send(&self, to: usize, tag: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Receives what rank `from` sent with `tag`, in the order in which it was sent.
    ///
    /// # Errors
    /// If nothing comes in time, or something of another length.
    fn receive(&self, from: usize, tag: u64, out: &mut [u8]) -> Result<(), Error>;

    /// A group of those that give the same `color`, in the order of their `key`, or of their ranks if keys are equal.
    ///
    /// # Collective
    /// # Errors
    /// If somebody does not call or calls something else.
    fn split(&self, color: u64, key: u64) -> Result<Arc<dyn Communicator>, Error>;

    /// Ends the group, and every group that shares a rank with it: all calls fail with this reason.
    fn end(&self, reason: &str);
}

/// Where each part begins, and the end of the last, if `lens` fits a group of `size` and a buffer of `actual` bytes.
pub(crate) fn starts(
    call: &'static str,
    lens: &[usize],
    size: usize,
    actual: usize,
) -> Result<Vec<usize>, Error> {
    let mut starts: Vec<usize> = vec![0];
    for len in lens {
        let last = *starts.last().expect("there is one from the start");
        starts.push(last.saturating_add(*len));
    }
    let expected = *starts.last().expect("there is one from the start");
    match lens.len() == size && expected == actual {
        true => Ok(starts),
        false => Err(Error::Length {
            call,
            expected,
            actual,
        }),
    }
}

/// The part of `len` bytes that a rank of `size` combines, in whole elements.
pub(crate) fn share(dtype: DType, rank: usize, size: usize, len: usize) -> Range<usize> {
    // Elements of any type fill whole bytes in groups of eight.
    let group = dtype.bits();
    let groups = len.div_ceil(group);
    let at = |rank: usize| (groups * rank / size * group).min(len);
    at(rank)..at(rank + 1)
}

/// Refuses a buffer of another length.
pub(crate) fn fits(call: &'static str, expected: usize, bytes: &[u8]) -> Result<(), Error> {
    match bytes.len() == expected {
        true => Ok(()),
        false => Err(Error::Length {
            call,
            expected,
            actual: bytes.len(),
        }),
    }
}

/// The error of a group that has ended.
pub(crate) fn ended(reason: &str) -> Error {
    Error::Ended {
        reason: reason.to_string(),
    }
}

/// A number that travels as eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
