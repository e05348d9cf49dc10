//! Numbers about stored tensors: what their values are like, and how those of two sources differ.
//!
//! Tensors are read in stretches of [`STRETCH_ELEMENTS`], several threads at once, and what is learned of each stretch is put
//! together in the order of the stretches: memory is bounded, and the result does not depend on the number of threads.

mod checksums;
mod scan;

use crate::Error;
use crate::computed::{not_there, read_piece};
use crate::source::{Source, StoredTensor};
use cairn_tensor::{Difference, Histogram, Summary, Tolerance, element_count};
use checksums::equal_by_checksum;
use scan::{scan, stretches};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The elements read at a time; tensors whose elements share bytes are read whole.
pub const STRETCH_ELEMENTS: usize = 1 << 20;

/// What can be chosen for a look at many tensors.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// Threads that read and calculate; each takes some 30 MB.
    pub threads: usize,
    /// Whether values are counted, too.
    pub histogram: bool,
    /// Whether tensors whose stored checksums are equal are taken for equal, unread.
    pub trust_checksums: bool,
    /// Counts the bytes looked at, for a progress bar.
    pub progress: Arc<AtomicU64>,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(4, usize::from),
            histogram: false,
            trust_checksums: false,
            progress: Arc::default(),
        }
    }
}

/// What the values of a tensor are like.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Statistics {
    /// Counts and moments.
    pub summary: Summary,
    /// How often which values occur, if that was asked for.
    pub histogram: Histogram,
}

impl Statistics {
    /// Adds the values of another tensor.
    pub fn append(&mut self, next: &Self) {
        self.summary.append(&next.summary);
        self.histogram.append(&next.histogram);
    }
}

/// Looks at every element of the tensors `names`, and calls `found` with what it learned of each, in order.
///
/// # Errors
/// If there is no such tensor, or it cannot be read.
pub fn summarize(
    source: &dyn Source,
    names: &[&str],
    options: &ScanOptions,
    mut found: impl FnMut(&str, Statistics) + Send,
) -> Result<(), Error> {
    let tensors = names.iter().map(|name| find(source, name));
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    let cut = |(index, tensor): (usize, &StoredTensor)| {
        stretches(index, &tensor.shape, is_packed(tensor))
    };
    let all = tensors.iter().enumerate().flat_map(cut);
    // Stretches are taken in order: once one of a later tensor comes, nothing is missing of those before.
    let (mut current, mut learned) = (0, Statistics::default());
    scan(
        all,
        options.threads,
        |stretch| {
            let (name, tensor) = (names[stretch.tensor], &tensors[stretch.tensor]);
            let bytes = read_piece(source, name, tensor, &stretch.piece)?;
            options.note(bytes.len());
            let fails = |source| unreadable(name, source);
            let summary = Summary::of(tensor.dtype, &bytes).map_err(fails)?;
            let histogram = match options.histogram {
                true => Histogram::of(tensor.dtype, &bytes).map_err(fails)?,
                false => Histogram::default(),
            };
            Ok(Statistics { summary, histogram })
        },
        |stretch, next| {
            for name in &names[current..stretch.tensor] {
                found(name, std::mem::take(&mut learned));
            }
            current = stretch.tensor;
            learned.append(&next);
        },
    )?;
    for name in &names[current..] {
        found(name, std::mem::take(&mut learned));
    }
    Ok(())
}

/// Compares pairs of tensors of equal shape, each a name of `left` and one of `right`; the result is in the same order.
///
/// Types may differ, values are compared.
///
/// # Errors
/// If a tensor is missing or cannot be read, or the shapes of two differ.
pub fn compare(
    (left, right): (&dyn Source, &dyn Source),
    pairs: &[(&str, &str)],
    tolerance: Tolerance,
    options: &ScanOptions,
) -> Result<Vec<Difference>, Error> {
    let both = |pair: &(&str, &str)| Both::find(left, right, pair);
    let tensors = pairs.iter().map(both).collect::<Result<Vec<_>, _>>()?;
    let mut found = vec![Difference::default(); pairs.len()];
    let mut unknown = Vec::new();
    for (index, (pair, both)) in pairs.iter().zip(&tensors).enumerate() {
        if options.trust_checksums && equal_by_checksum(left, right, *pair, &both.left)? {
            let elements = element_count(&both.left.shape).unwrap_or(0);
            found[index] = Difference::none(elements as u64);
            options.note(2 * both.left.dtype.len_bytes(elements).unwrap_or(0));
        } else {
            unknown.push(index);
        }
    }
    let cut = |index: usize| stretches(index, &tensors[index].left.shape, tensors[index].whole());
    scan(
        unknown.into_iter().flat_map(cut),
        options.threads,
        |stretch| {
            let (both, (name, other)) = (&tensors[stretch.tensor], pairs[stretch.tensor]);
            let one = read_piece(left, name, &both.left, &stretch.piece)?;
            let two = read_piece(right, other, &both.right, &stretch.piece)?;
            options.note(one.len() + two.len());
            let (one, two) = ((both.left.dtype, &one[..]), (both.right.dtype, &two[..]));
            Difference::between(one, two, tolerance).map_err(|source| unreadable(name, source))
        },
        |stretch, next| found[stretch.tensor].append(&next),
    )?;
    Ok(found)
}

/// Two tensors of one shape.
struct Both {
    left: StoredTensor,
    right: StoredTensor,
}

impl Both {
    fn find(left: &dyn Source, right: &dyn Source, pair: &(&str, &str)) -> Result<Self, Error> {
        let (left, right) = (find(left, pair.0)?, find(right, pair.1)?);
        if left.shape != right.shape {
            let reason = format!("has shape {:?}, not {:?}", left.shape, right.shape);
            return Err(fault(pair.0, reason));
        }
        Ok(Self { left, right })
    }

    /// Whether they must be read whole.
    fn whole(&self) -> bool {
        is_packed(&self.left) || is_packed(&self.right)
    }
}

fn find(source: &dyn Source, name: &str) -> Result<StoredTensor, Error> {
    source.find(name).ok_or_else(|| not_there(name))
}

/// Something about a tensor that cannot be dealt with.
fn fault(name: &str, reason: String) -> Error {
    let name = name.to_string();
    Error::State { name, reason }
}

/// Whether several elements share a byte.
fn is_packed(tensor: &StoredTensor) -> bool {
    tensor.dtype.bits() < 8
}

fn unreadable(name: &str, source: cairn_tensor::Error) -> Error {
    fault(name, format!("cannot be looked at: {source}"))
}

impl ScanOptions {
    fn note(&self, len_bytes: usize) {
        self.progress.fetch_add(len_bytes as u64, Ordering::Relaxed);
    }
}
