//! What a low-rank adapter adds to a weight: `B · A · scale`.

use std::ops::Range;

/// The change to one weight.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Delta {
    /// `rank` × the width of the input.
    pub(crate) a: Vec<f32>,
    /// The width of the output × `rank`.
    pub(crate) b: Vec<f32>,
    pub(crate) rank: usize,
    /// The width of the input, and of the output.
    pub(crate) widths: (usize, usize),
    pub(crate) scale: f32,
    /// Whether the weight is stored with its input first.
    pub(crate) is_transposed: bool,
}

impl Delta {
    /// The shape of the weight it fits.
    pub(crate) fn shape(&self) -> [usize; 2] {
        let (input, output) = self.widths;
        match self.is_transposed {
            true => [input, output],
            false => [output, input],
        }
    }

    /// Gives `take` the change to each of some elements of the weight, with their places from the first.
    pub(crate) fn each(&self, elements: Range<usize>, mut take: impl FnMut(usize, f32)) {
        let [_, width] = self.shape();
        let mut line = Vec::new();
        let mut at = elements.start;
        while at < elements.end {
            let row = at / width;
            let columns = at % width..(at % width + elements.end - at).min(width);
            self.row(row, columns.clone(), &mut line);
            for (column, change) in line.iter().enumerate() {
                take(at + column - elements.start, change * self.scale);
            }
            at += columns.len();
        }
    }

    /// A part of a row of `B · A`, or of its transpose.
    fn row(&self, row: usize, columns: Range<usize>, line: &mut Vec<f32>) {
        let (input, _) = self.widths;
        line.clear();
        line.resize(columns.len(), 0.0);
        for k in 0..self.rank {
            if self.is_transposed {
                let factor = self.a[k * input + row];
                for (sum, column) in line.iter_mut().zip(columns.clone()) {
                    *sum += factor * self.b[column * self.rank + k];
                }
            } else {
                let factor = self.b[row * self.rank + k];
                let a = &self.a[k * input..][columns.clone()];
                for (sum, a) in line.iter_mut().zip(a) {
                    *sum += factor * a;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! The product, in one piece and in many, straight and transposed.

    use super::*;

    fn delta(is_transposed: bool) -> Delta {
        Delta {
            a: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            b: vec![1.0, 0.0, 0.0, 1.0],
            rank: 2,
            widths: (3, 2),
            scale: 2.0,
            is_transposed,
        }
    }

    fn all(delta: &Delta, cut: usize) -> Vec<f32> {
        let mut out = vec![0.0; 6];
        let (head, tail) = out.split_at_mut(cut);
        delta.each(0..cut, |at, change| head[at] = change);
        delta.each(cut..6, |at, change| tail[at] = change);
        out
    }

    #[test]
    fn the_change_is_the_scaled_product() {
        for cut in 0..=6 {
            assert_eq!(all(&delta(false), cut), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
            assert_eq!(all(&delta(true), cut), [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]);
        }
    }
}
