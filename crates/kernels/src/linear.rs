//! Linear layers: `y = x·Wᵀ + b`, with the weight as `[outputs, inputs]`.

use crate::columns::add_columns;
use crate::gemm::{Matrix, Product, Target, Write, matmul};
use crate::pool::rows_per_task;
use crate::{Pool, Real};

/// The size of a linear layer and of what passes through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    /// How many rows pass through.
    pub tokens: usize,
    /// The width before.
    pub inputs: usize,
    /// The width after.
    pub outputs: usize,
}

impl Linear {
    /// `output[tokens, outputs] = input[tokens, inputs] · weight[outputs, inputs]ᵀ + bias[outputs]`.
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn forward<R: Real>(
        self,
        pool: &Pool,
        input: &[R],
        weight: &[R],
        bias: Option<&[R]>,
        output: &mut [R],
    ) {
        let write = match bias {
            Some(bias) => {
                self.spread(pool, bias, output);
                Write::Add
            }
            None => Write::Replace,
        };
        let size = Product {
            rows: self.tokens,
            columns: self.outputs,
            inner: self.inputs,
        };
        let input = Matrix::new(input, self.inputs);
        let weight = Matrix::new(weight, self.inputs).transposed();
        let target = Target::new(output, self.outputs, write);
        matmul(pool, size, input, weight, target);
    }

    /// `input_gradient[tokens, inputs] = output_gradient[tokens, outputs] · weight[outputs, inputs]`, replaced or added to.
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn input_gradient<R: Real>(
        self,
        pool: &Pool,
        output_gradient: &[R],
        weight: &[R],
        write: Write,
        input_gradient: &mut [R],
    ) {
        let size = Product {
            rows: self.tokens,
            columns: self.inputs,
            inner: self.outputs,
        };
        let output_gradient = Matrix::new(output_gradient, self.outputs);
        let weight = Matrix::new(weight, self.inputs);
        let target = Target::new(input_gradient, self.inputs, write);
        matmul(pool, size, output_gradient, weight, target);
    }

    /// `weight_gradient[outputs, inputs] += output_gradient[tokens, outputs]ᵀ · input[tokens, inputs]`.
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn weight_gradient<R: Real>(
        self,
        pool: &Pool,
        input: &[R],
        output_gradient: &[R],
        weight_gradient: &mut [R],
    ) {
        let size = Product {
            rows: self.outputs,
            columns: self.inputs,
            inner: self.tokens,
        };
        let output_gradient = Matrix::new(output_gradient, self.outputs).transposed();
        let input = Matrix::new(input, self.inputs);
        let target = Target::new(weight_gradient, self.inputs, Write::Add);
        matmul(pool, size, output_gradient, input, target);
    }

    /// `bias_gradient[outputs] +=` the sum of the rows of `output_gradient[tokens, outputs]`.
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn bias_gradient<R: Real>(
        self,
        pool: &Pool,
        output_gradient: &[R],
        bias_gradient: &mut [R],
    ) {
        let bias_gradient = &mut bias_gradient[..self.outputs];
        add_columns(pool, self.tokens, bias_gradient, |row, columns, sums| {
            let row = &output_gradient[row * self.outputs..][columns];
            for (sum, &gradient) in sums.iter_mut().zip(row) {
                *sum += gradient;
            }
        });
    }

    /// Copies the bias to every row.
    fn spread<R: Real>(self, pool: &Pool, bias: &[R], output: &mut [R]) {
        let width = self.outputs.max(1);
        let output = &mut output[..self.tokens * self.outputs];
        pool.each(output.chunks_mut(rows_per_task(width) * width), |rows| {
            for row in rows.chunks_mut(width) {
                row.copy_from_slice(&bias[..row.len()]);
            }
        });
    }
}
