//! Norms of rows, as parts of a block.

use super::{cut, cut_mut};
use crate::block::Pass;
use crate::error::Error;
use cairn_arena::{Init, Parameter};
use cairn_collectives::numbers::Number;
use cairn_kernels::norm::{LayerNorm, RmsNorm};
use cairn_kernels::{Buffer, Pool, Real};

/// Which norm it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Rows are divided by their root mean square; there is a weight.
    RootMeanSquare,
    /// Rows lose their mean and are divided by their deviation; there are a weight and a bias.
    Layer,
}

/// A norm of rows, or of heads. Every rank holds all of its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Norm {
    /// The name of its parameters, without `.weight` and `.bias`.
    pub name: String,
    /// Which one.
    pub kind: NormKind,
    /// The width of a row.
    pub width: usize,
    /// What is added before the root is taken.
    pub epsilon: f64,
    /// Whether the ranks that share a block see different rows.
    pub partial_gradient: bool,
}

/// What a norm found out about each row.
#[derive(Debug, Clone, PartialEq)]
pub enum Statistics<R> {
    /// One over the root mean square.
    RootMeanSquare(Vec<R>),
    /// The mean, and one over the deviation.
    Layer(Vec<[R; 2]>),
}

/// All rows, normalised, and what the norm found out about those of this rank.
#[derive(Debug)]
pub struct Normed<R> {
    /// The rows.
    pub rows: Buffer<R>,
    /// What was found out.
    pub statistics: Statistics<R>,
}

impl Norm {
    /// Its parameters.
    pub fn parameters(&self) -> Vec<Parameter> {
        let parameter = |name: &str, init| Parameter {
            name: format!("{}.{name}", self.name),
            shape: vec![self.width],
            split: None,
            init,
            decay: false,
            partial_gradient: self.partial_gradient,
        };
        match self.kind {
            NormKind::RootMeanSquare => vec![parameter("weight", Init::Ones)],
            NormKind::Layer => vec![
                parameter("weight", Init::Ones),
                parameter("bias", Init::Zeros),
            ],
        }
    }

    /// How many elements its slice has.
    pub fn len(&self) -> usize {
        self.lens().iter().sum()
    }

    /// Whether its slice has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows of `input` normalised, and what the backward needs to know about each.
    pub fn forward<R: Real>(
        &self,
        pool: &Pool,
        weights: &[R],
        input: &[R],
    ) -> (Buffer<R>, Statistics<R>) {
        let [weight, bias] = cut(weights, self.lens());
        let epsilon = self.epsilon;
        let rows = input.len() / self.width;
        let mut output = pool.buffer(input.len());
        let statistics = match self.kind {
            NormKind::RootMeanSquare => {
                let mut inverse = vec![R::ZERO; rows];
                RmsNorm { weight, epsilon }.forward(pool, input, &mut output, &mut inverse);
                Statistics::RootMeanSquare(inverse)
            }
            NormKind::Layer => {
                let mut statistics = vec![[R::ZERO; 2]; rows];
                let norm = LayerNorm {
                    weight,
                    bias,
                    epsilon,
                };
                norm.forward(pool, input, &mut output, &mut statistics);
                Statistics::Layer(statistics)
            }
        };
        (output, statistics)
    }

    /// All rows, normalised: the begin of a parallel region.
    ///
    /// # Collective
    /// # Errors
    /// If a rank of the group does not come along.
    pub fn gathered<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: &[R],
    ) -> Result<Normed<R>, Error> {
        let (rows, statistics) = self.forward(pass.pool, weights, input);
        let rows = pass.gather_rows(rows, self.width)?;
        Ok(Normed { rows, statistics })
    }

    /// The gradient of the input; those of the parameters are added to `gradients`.
    pub fn backward<R: Real>(
        &self,
        pool: &Pool,
        weights: &[R],
        (input, statistics): (&[R], &Statistics<R>),
        output_gradient: &[R],
        gradients: &mut [R],
    ) -> Buffer<R> {
        let [weight, bias] = cut(weights, self.lens());
        let [weight_gradient, bias_gradient] = cut_mut(gradients, self.lens());
        let epsilon = self.epsilon;
        let mut input_gradient = pool.buffer(input.len());
        let target = &mut input_gradient;
        match statistics {
            Statistics::RootMeanSquare(inverse) => {
                let norm = RmsNorm { weight, epsilon };
                norm.backward(
                    pool,
                    input,
                    inverse,
                    output_gradient,
                    target,
                    weight_gradient,
                );
            }
            Statistics::Layer(statistics) => {
                let norm = LayerNorm {
                    weight,
                    bias,
                    epsilon,
                };
                let both = [weight_gradient, bias_gradient];
                norm.backward(pool, input, statistics, output_gradient, target, both);
            }
        }
        input_gradient
    }

    /// How many of `tokens` rows a rank normalises at most, if it is a norm of rows.
    pub(crate) fn local_rows(&self, tokens: usize, tp: usize) -> usize {
        match self.partial_gradient {
            true => tokens.div_ceil(tp),
            false => tokens,
        }
    }

    /// The lengths of weight and bias.
    fn lens(&self) -> [usize; 2] {
        match self.kind {
            NormKind::RootMeanSquare => [self.width, 0],
            NormKind::Layer => [self.width; 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of the outputs, each times a number of its own, and the gradients of input and parameters.
    fn run(norm: &Norm, weights: &[f64], input: &[f64]) -> (f64, Vec<f64>, Vec<f64>) {
        let pool = Pool::new(1);
        let factors: Vec<f64> = (0..input.len()).map(|it| (it as f64).cos()).collect();
        let (output, statistics) = norm.forward(&pool, weights, input);
        let mut gradients = vec![0.0; weights.len()];
        let found = (input, &statistics);
        let input_gradient = norm.backward(&pool, weights, found, &factors, &mut gradients);
        let sum = output.iter().zip(factors).map(|(a, b)| a * b).sum();
        (sum, input_gradient.to_vec(), gradients)
    }

    #[test]
    fn both_kinds_have_slopes_for_gradients() {
        for kind in [NormKind::RootMeanSquare, NormKind::Layer] {
            let norm = Norm {
                name: "norm".into(),
                kind,
                width: 5,
                epsilon: 1e-3,
                partial_gradient: false,
            };
            let count: usize = norm.parameters().iter().map(|it| it.shape[0]).sum();
            assert_eq!(count, norm.len());
            let weights: Vec<f64> = (0..count).map(|it| 1.0 + (it as f64).sin()).collect();
            let input: Vec<f64> = (0..15).map(|it| f64::from(it * it % 7)).collect();
            let (_, input_gradient, gradients) = run(&norm, &weights, &input);
            let both = [weights, input].concat();
            for (place, gradient) in [gradients, input_gradient].concat().into_iter().enumerate() {
                let at = |step: f64| {
                    let mut moved = both.clone();
                    moved[place] += step;
                    run(&norm, &moved[..count], &moved[count..]).0
                };
                let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
                assert!(
                    (slope - gradient).abs() < 1e-7,
                    "{kind:?}, {place}: {gradient} instead of {slope}"
                );
            }
        }
    }
}
