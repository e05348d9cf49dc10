//! Rows of a table by token, where ranks may share the rows.

use crate::pool::rows_per_task;
use crate::{Pool, Real};

/// The rows of a table that a rank holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedding {
    /// The token of the first row.
    pub first: usize,
    /// How long rows are.
    pub width: usize,
}

impl Embedding {
    /// `output[tokens, width]`: each token's row of `table[rows, width]`, or zeros if the row is on another rank.
    ///
    /// # Panics
    /// If the output has other rows.
    pub fn forward<R: Real>(&self, pool: &Pool, table: &[R], tokens: &[u32], output: &mut [R]) {
        assert_eq!(output.len(), tokens.len() * self.width);
        let rows = rows_per_task(self.width);
        let width = self.width.max(1);
        let tasks = output.chunks_mut(rows * width).zip(tokens.chunks(rows));
        pool.each(tasks, |(output, tokens)| {
            for (row, &token) in output.chunks_mut(width).zip(tokens) {
                match self.row(token, table.len()) {
                    Some(start) => row.copy_from_slice(&table[start..start + width]),
                    None => row.fill(R::ZERO),
                }
            }
        });
    }

    /// Adds each row of `output_gradient[tokens, width]` to its token's row of `table_gradient[rows, width]`, from the first token to the last.
    ///
    /// # Panics
    /// If the gradient has other rows.
    pub fn backward<R: Real>(
        &self,
        pool: &Pool,
        tokens: &[u32],
        output_gradient: &[R],
        table_gradient: &mut [R],
    ) {
        assert_eq!(output_gradient.len(), tokens.len() * self.width);
        let len = table_gradient.len();
        let width = self.width.max(1);
        let block = ROWS * width;
        pool.each(
            table_gradient.chunks_mut(block).enumerate(),
            |(task, table)| {
                for (&token, gradient) in tokens.iter().zip(output_gradient.chunks(width)) {
                    let start = self
                        .row(token, len)
                        .and_then(|start| start.checked_sub(task * block));
                    let Some(row) = start.and_then(|start| table.get_mut(start..start + width))
                    else {
                        continue;
                    };
                    for (target, &gradient) in row.iter_mut().zip(gradient) {
                        *target += gradient;
                    }
                }
            },
        );
    }

    /// Where the row of a token begins in a table of `len` elements.
    fn row(&self, token: u32, len: usize) -> Option<usize> {
        let row = usize::try_from(token).ok()?.checked_sub(self.first)?;
        let start = row.checked_mul(self.width)?;
        (start < len).then_some(start)
    }
}

/// How many rows of the table a task of the backward adds to.
const ROWS: usize = 1024;
