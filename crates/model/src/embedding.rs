//! The first block: a row of a table for each token.

use crate::block::{Activation, Block, Keep, Pass, Saved};
use crate::config::ModelConfig;
use crate::error::Error;
use crate::parts::{Cut, Linear};
use crate::rows::{Share, check_len};
use cairn_arena::Parameter;
use cairn_collectives::numbers::Number;
use cairn_kernels::embedding as kernel;
use cairn_kernels::{Buffer, Pool, Real};

/// What the table of the embedding is called.
pub(crate) const NAME: &str = "model.embed_tokens";

/// A row of a table for each token; ranks share the rows of the table.
#[derive(Debug)]
pub struct Embedding {
    table: Linear,
}

/// The table of a vocabulary as the weight of a linear layer: a row for each token that goes in, or a column of logits for each that comes out.
pub(crate) fn table(config: &ModelConfig, name: &str) -> Linear {
    Linear {
        name: name.into(),
        inputs: config.hidden_size,
        outputs: config.vocab_size,
        cut: Cut::Outputs,
        bias: false,
        deviation: config.initializer_range,
    }
}

impl Embedding {
    /// The embedding of a model.
    pub fn new(config: &ModelConfig) -> Self {
        Self {
            table: table(config, NAME),
        }
    }

    /// The rows of `tokens`, or zeros where a row is another rank's.
    ///
    /// # Errors
    /// [`Error::Token`] if one is not in the vocabulary.
    pub(crate) fn rows<R: Real>(
        &self,
        pool: &Pool,
        share: Share,
        weights: &[R],
        tokens: &[u32],
    ) -> Result<Buffer<R>, Error> {
        let vocab_size = self.table.outputs;
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocab_size) {
            return Err(Error::Token {
                token: token.into(),
                vocab_size,
            });
        }
        let mut rows = pool.buffer(tokens.len() * self.table.inputs);
        self.kernel(share).forward(pool, weights, tokens, &mut rows);
        Ok(rows)
    }

    fn kernel(&self, share: Share) -> kernel::Embedding {
        kernel::Embedding {
            first: share.range(self.table.outputs).start,
            width: self.table.inputs,
        }
    }
}

impl<R: Real + Number> Block<R> for Embedding {
    fn parameters(&self) -> Vec<Parameter> {
        self.table.parameters()
    }

    fn forward(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        _: Activation<R>,
        _: Keep,
    ) -> Result<(Activation<R>, Saved), Error> {
        pass.batch.check()?;
        check_len(
            "the embedding's slice",
            weights.len(),
            self.table.len(pass.share()),
        )?;
        let rows = self.rows(pass.pool, pass.share(), weights, &pass.batch.tokens)?;
        let rows = pass.reduce_rows(rows, self.table.inputs)?;
        Ok((rows, Box::new(())))
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        _: &[R],
        _: Saved,
        output_gradient: Activation<R>,
        gradients: &mut [R],
    ) -> Result<Activation<R>, Error> {
        let width = self.table.inputs;
        let elements = pass.local_rows().len() * width;
        check_len(
            "the embedding's gradients",
            gradients.len(),
            self.table.len(pass.share()),
        )?;
        check_len(
            "the gradient of the embedding",
            output_gradient.len(),
            elements,
        )?;
        let rows = pass.gather_rows(output_gradient, width)?;
        let kernel = self.kernel(pass.share());
        kernel.backward(pass.pool, &pass.batch.tokens, &rows, gradients);
        Ok(Buffer::empty())
    }

    /// Rows are copied.
    fn forward_flops(&self, _: usize, _: usize) -> f64 {
        0.0
    }
}
