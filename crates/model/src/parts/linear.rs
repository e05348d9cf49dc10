//! A linear layer that the ranks of the `tp` axis share.

use super::{cut, cut_mut};
use crate::rows::{Place, Share};
use cairn_arena::{Init, Parameter};
use cairn_kernels::gemm::Write;
use cairn_kernels::linear as kernel;
use cairn_kernels::{Buffer, Real};

/// Which dim of a weight ranks share out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Each has some outputs of all inputs, and gives these columns.
    Outputs,
    /// Each has some inputs of all outputs, and gives one term of a sum over the ranks.
    Inputs,
}

/// A linear layer `y = x·Wᵀ + b` that ranks share. Its slice holds the weight, then the bias.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// The name of its parameters, without `.weight` and `.bias`.
    pub name: String,
    /// The width of what it gets.
    pub inputs: usize,
    /// The width of what it gives.
    pub outputs: usize,
    /// What ranks share out.
    pub cut: Cut,
    /// Whether it has a bias. If inputs are cut, every rank holds all of it and the first adds it.
    pub bias: bool,
    /// The standard deviation of its first weights.
    pub deviation: f64,
}

impl Linear {
    /// Its parameters, whole.
    pub fn parameters(&self) -> Vec<Parameter> {
        let outputs_cut = (self.cut == Cut::Outputs).then_some(0);
        let weight = Parameter {
            name: format!("{}.weight", self.name),
            shape: vec![self.outputs, self.inputs],
            split: outputs_cut.or(Some(1)),
            init: Init::Normal {
                deviation: self.deviation,
            },
            decay: true,
            partial_gradient: false,
        };
        let bias = self.bias.then(|| Parameter {
            name: format!("{}.bias", self.name),
            shape: vec![self.outputs],
            split: outputs_cut,
            init: Init::Zeros,
            decay: false,
            partial_gradient: false,
        });
        [weight].into_iter().chain(bias).collect()
    }

    /// How many elements a rank's slice has.
    pub fn len(&self, share: Share) -> usize {
        self.lens(share).iter().sum()
    }

    /// The width of what a rank gives.
    pub fn local_outputs(&self, share: Share) -> usize {
        match self.cut {
            Cut::Outputs => share.range(self.outputs).len(),
            Cut::Inputs => self.outputs,
        }
    }

    /// What follows from `input`: this rank's columns, or its term.
    pub fn forward<R: Real>(&self, place: Place<'_>, weights: &[R], input: &[R]) -> Buffer<R> {
        let size = self.size(place);
        let [weight, bias] = cut(weights, self.lens(place.share));
        let adds_bias = self.bias && (self.cut == Cut::Outputs || place.share.index == 0);
        let bias = adds_bias.then_some(bias);
        let mut output = place.pool.buffer(size.tokens * size.outputs);
        size.forward(place.pool, input, weight, bias, &mut output);
        output
    }

    /// Writes or adds to `input_gradient` what follows from the gradient of the output.
    pub fn input_gradient<R: Real>(
        &self,
        place: Place<'_>,
        weights: &[R],
        output_gradient: &[R],
        write: Write,
        input_gradient: &mut [R],
    ) {
        let [weight, _] = cut(weights, self.lens(place.share));
        let size = self.size(place);
        size.input_gradient(place.pool, output_gradient, weight, write, input_gradient);
    }

    /// Adds the gradients of the parameters to `gradients`.
    pub fn add_gradients<R: Real>(
        &self,
        place: Place<'_>,
        input: &[R],
        output_gradient: &[R],
        gradients: &mut [R],
    ) {
        let [weight, bias] = cut_mut(gradients, self.lens(place.share));
        let size = self.size(place);
        size.weight_gradient(place.pool, input, output_gradient, weight);
        if self.bias {
            size.bias_gradient(place.pool, output_gradient, bias);
        }
    }

    /// The additions and multiplications for `tokens` rows, on all ranks together.
    pub(crate) fn flops(&self, tokens: usize) -> f64 {
        2.0 * tokens as f64 * self.inputs as f64 * self.outputs as f64
    }

    fn local_inputs(&self, share: Share) -> usize {
        match self.cut {
            Cut::Outputs => self.inputs,
            Cut::Inputs => share.range(self.inputs).len(),
        }
    }

    fn size(&self, place: Place<'_>) -> kernel::Linear {
        kernel::Linear {
            tokens: place.rows,
            inputs: self.local_inputs(place.share),
            outputs: self.local_outputs(place.share),
        }
    }

    /// The lengths of this rank's weight and bias.
    fn lens(&self, share: Share) -> [usize; 2] {
        let outputs = self.local_outputs(share);
        [
            outputs * self.local_inputs(share),
            if self.bias { outputs } else { 0 },
        ]
    }
}
