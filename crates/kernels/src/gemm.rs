//! Products of matrices.

#![expect(unsafe_code, reason = "the library of products takes pointers")]

use crate::{Pool, Real};
use std::ops::Range;

/// A part of a product for one thread has at least this many rows or columns, and the others at least [`ACROSS`]. The product of a part then
/// takes the same way through the library as the whole, and each element is the same sum in the same order.
const ALONG: usize = 128;
/// See [`ALONG`].
const ACROSS: usize = 16;
/// Inner lengths below this take another way.
const DEEP: usize = 3;
/// Products of fewer multiplications than this are not worth waking a thread for.
const WORTH: usize = 1 << 18;

/// A matrix to read, as a slice and the distances between neighbours in it.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, R> {
    elements: &'a [R],
    row_stride: usize,
    column_stride: usize,
}

impl<'a, R> Matrix<'a, R> {
    /// A matrix whose rows begin `row_stride` elements after one another; the elements of a row are neighbours.
    pub fn new(elements: &'a [R], row_stride: usize) -> Self {
        Self {
            elements,
            row_stride,
            column_stride: 1,
        }
    }

    /// The same elements with rows for columns.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// The rows from `row` on.
    pub(crate) fn rows_from(self, row: usize) -> Self {
        Self {
            elements: &self.elements[row * self.row_stride..],
            ..self
        }
    }

    /// The columns from `column` on.
    pub(crate) fn columns_from(self, column: usize) -> Self {
        Self {
            elements: &self.elements[column * self.column_stride..],
            ..self
        }
    }

    /// One row of `columns` neighbours.
    pub(crate) fn row(self, row: usize, columns: usize) -> &'a [R] {
        &self.elements[row * self.row_stride..][..columns]
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        holds(
            self.elements.len(),
            [(rows, self.row_stride), (columns, self.column_stride)],
        )
    }
}

/// Whether a slice of `len` elements has all places that counts and strides reach.
fn holds(len: usize, dims: [(usize, usize); 2]) -> bool {
    if dims.iter().any(|&(count, _)| count == 0) {
        return true;
    }
    let last = dims.iter().try_fold(0_usize, |last, (count, stride)| {
        last.checked_add((count - 1).checked_mul(*stride)?)
    });
    last.is_some_and(|last| last < len)
}

/// The size of a product: `[rows, inner] × [inner, columns] → [rows, columns]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// The rows of the first factor and of the result.
    pub rows: usize,
    /// The columns of the second factor and of the result.
    pub columns: usize,
    /// The columns of the first factor and the rows of the second.
    pub inner: usize,
}

/// What happens to what is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// It is replaced.
    Replace,
    /// It is added to.
    Add,
}

/// The matrix that a product is written to, row by row.
#[derive(Debug)]
pub struct Target<'a, R> {
    /// The memory.
    pub elements: &'a mut [R],
    /// How far after one another its rows begin.
    pub row_stride: usize,
    /// What happens to the old values.
    pub write: Write,
}

impl<'a, R> Target<'a, R> {
    /// Rows that begin `row_stride` elements after one another.
    pub fn new(elements: &'a mut [R], row_stride: usize, write: Write) -> Self {
        Self {
            elements,
            row_stride,
            write,
        }
    }
}

/// The product of two matrices, on all threads of the pool.
///
/// # Panics
/// If a slice is too short for its matrix, or rows of the target overlap.
pub fn matmul<R: Real>(
    pool: &Pool,
    size: Product,
    a: Matrix<'_, R>,
    b: Matrix<'_, R>,
    target: Target<'_, R>,
) {
    let part = Part::new(size, a, b, target);
    let (by_rows, cuts) = cut(size, pool.threads());
    pool.each(cuts.into_iter(), |range| {
        let part = if by_rows {
            part.rows(range)
        } else {
            part.columns(range)
        };
        // SAFETY: `Part::new` saw that all places of the product lie in the slices; the ranges do not overlap, nor do rows, so no two
        // parts write the same place, and the slice is borrowed mutably until all are done.
        unsafe { part.multiply() }
    });
}

/// The product of two matrices, on this thread.
///
/// # Panics
/// As [`matmul`].
pub(crate) fn multiply<R: Real>(
    size: Product,
    a: Matrix<'_, R>,
    b: Matrix<'_, R>,
    target: Target<'_, R>,
) {
    let part = Part::new(size, a, b, target);
    // SAFETY: `Part::new` saw that all places of the product lie in the slices, and the target is borrowed mutably.
    unsafe { part.multiply() }
}

/// Whether rows are shared out, else columns, and the ranges for `threads` threads.
fn cut(size: Product, threads: usize) -> (bool, Vec<Range<usize>>) {
    let by_rows = size.rows >= size.columns;
    let (along, across) = if by_rows {
        (size.rows, size.columns)
    } else {
        (size.columns, size.rows)
    };
    let work = along.saturating_mul(across).saturating_mul(size.inner);
    let alike = across >= ACROSS && size.inner >= DEEP && work >= WORTH;
    let parts = if alike {
        threads.min(along / ALONG).max(1)
    } else {
        1
    };
    // Ends of parts are ends of tiles of the library, to waste none.
    let end = |part: usize| match part {
        part if part == parts => along,
        part => (along * part / parts).next_multiple_of(ACROSS),
    };
    (
        by_rows,
        (0..parts).map(|part| end(part)..end(part + 1)).collect(),
    )
}

/// Memory that the parts of one product share.
#[derive(Clone, Copy)]
struct Shared<R>(*mut R);

// SAFETY: the parts of a product write to places of their own, see `matmul`.
unsafe impl<R: Send> Send for Shared<R> {}
// SAFETY: as above.
unsafe impl<R: Send> Sync for Shared<R> {}

/// A product, or the part of it that one thread computes.
#[derive(Clone, Copy)]
struct Part<'a, R> {
    size: Product,
    a: Matrix<'a, R>,
    b: Matrix<'a, R>,
    target: Shared<R>,
    row_stride: usize,
    write: Write,
}

impl<'a, R: Real> Part<'a, R> {
    /// The whole product.
    ///
    /// # Panics
    /// If a slice is too short for its matrix, or rows of the target overlap.
    fn new(size: Product, a: Matrix<'a, R>, b: Matrix<'a, R>, target: Target<'_, R>) -> Self {
        let Product {
            rows,
            columns,
            inner,
        } = size;
        assert!(a.holds(rows, inner), "the first factor is short");
        assert!(b.holds(inner, columns), "the second factor is short");
        let distinct = rows <= 1 || target.row_stride >= columns;
        assert!(distinct, "rows of the target overlap");
        let dims = [(rows, target.row_stride), (columns, 1)];
        assert!(holds(target.elements.len(), dims), "the target is short");
        Self {
            size,
            a,
            b,
            target: Shared(target.elements.as_mut_ptr()),
            row_stride: target.row_stride,
            write: target.write,
        }
    }

    fn rows(mut self, range: Range<usize>) -> Self {
        self.size.rows = range.len();
        self.a.elements = &self.a.elements[range.start * self.a.row_stride..];
        self.target = Shared(self.target.0.wrapping_add(range.start * self.row_stride));
        self
    }

    fn columns(mut self, range: Range<usize>) -> Self {
        self.size.columns = range.len();
        self.b.elements = &self.b.elements[range.start * self.b.column_stride..];
        self.target = Shared(self.target.0.wrapping_add(range.start));
        self
    }

    /// Computes it on this thread.
    ///
    /// # Safety
    /// All places of the three matrices lie in their memory, and nobody else uses those of the target.
    unsafe fn multiply(self) {
        let Product {
            rows,
            columns,
            inner,
        } = self.size;
        let step = usize::cast_signed;
        // SAFETY: as this function asks. No factors but one are used: their roundings differ between tiles and the ends of rows.
        unsafe {
            gemm::gemm(
                rows,
                columns,
                inner,
                self.target.0,
                1,
                step(self.row_stride),
                self.write == Write::Add,
                self.a.elements.as_ptr(),
                step(self.a.column_stride),
                step(self.a.row_stride),
                self.b.elements.as_ptr(),
                step(self.b.column_stride),
                step(self.b.row_stride),
                R::ONE,
                R::ONE,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}
