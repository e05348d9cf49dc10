//! The last block: the norm, the projection to the vocabulary, and the loss.

#[cfg(test)]
mod tests;
mod vocabulary;

use crate::block::{Activation, Block, Keep, Pass, Saved, unpack};
use crate::config::ModelConfig;
use crate::embedding;
use crate::error::Error;
use crate::model::Options;
use crate::parts::{Norm, NormKind, Normed, cut, cut_mut};
use crate::rows::{Place, Share, check_len};
use cairn_arena::Parameter;
use cairn_collectives::numbers::{self, Number};
use cairn_kernels::{Buffer, Real};
use vocabulary::{LOGITS_AT_ONCE, Seen, Vocabulary};

/// The final norm, the projection to the vocabulary, whose rows ranks share, and the loss of each token.
///
/// Logits are computed for some rows at a time, and again in the backward, which needs one number per token besides the rows; only the logits of a batch
/// that is no more than that are kept. If the model's embedding is tied, this block has its weight as a parameter of its own, of the same name.
#[derive(Debug)]
pub struct Head {
    norm: Norm,
    vocabulary: Vocabulary,
}

/// What the backward needs.
struct Kept<R> {
    input: Buffer<R>,
    normed: Option<Normed<R>>,
    seen: Seen<R>,
}

impl Head {
    /// The head of a model.
    pub fn new(config: &ModelConfig, options: &Options) -> Self {
        let tied = config.tie_word_embeddings;
        let name = if tied { embedding::NAME } else { "lm_head" };
        Self {
            norm: Norm {
                name: "model.norm".into(),
                kind: NormKind::RootMeanSquare,
                width: config.hidden_size,
                epsilon: config.rms_norm_eps,
                partial_gradient: options.sequence_parallel,
            },
            vocabulary: Vocabulary {
                table: embedding::table(config, name),
                z_loss: options.z_loss,
                logits_at_once: LOGITS_AT_ONCE,
            },
        }
    }

    /// The logits of all tokens, `[tokens, vocabulary]`, the same on every rank of the group.
    ///
    /// # Collective
    /// # Errors
    /// If a rank of the group does not come along.
    pub fn logits<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: &[R],
    ) -> Result<Buffer<R>, Error> {
        self.check(pass, weights, input)?;
        let [norm, table] = cut(weights, self.lens(pass.share()));
        let normed = self.norm.gathered(pass, norm, input)?;
        let table_of = &self.vocabulary.table;
        let local = table_of.forward(pass.place(), table, &normed.rows);
        if pass.tp.size() == 1 {
            return Ok(local);
        }
        let rows = pass.batch.tokens.len();
        let widths = pass.share().lens(table_of.outputs);
        let counts: Vec<usize> = widths.iter().map(|width| width * rows).collect();
        let mut parts = pass.pool.buffer(rows * table_of.outputs);
        numbers::all_gather(pass.tp, &local, &counts, &mut parts)?;
        Ok(side_by_side(&parts, rows, &widths).into())
    }

    /// The logits of rows that one rank has alone.
    pub(crate) fn logits_alone<R: Real>(
        &self,
        place: Place<'_>,
        weights: &[R],
        input: &[R],
    ) -> Buffer<R> {
        let [norm, table] = cut(weights, self.lens(place.share));
        let (rows, _) = self.norm.forward(place.pool, norm, input);
        self.vocabulary.table.forward(place, table, &rows)
    }

    /// How many elements a rank's slice has.
    pub(crate) fn len(&self, share: Share) -> usize {
        self.lens(share).iter().sum()
    }

    fn lens(&self, share: Share) -> [usize; 2] {
        [self.norm.len(), self.vocabulary.table.len(share)]
    }

    fn check<R: Real>(&self, pass: &Pass<'_>, weights: &[R], input: &[R]) -> Result<(), Error> {
        pass.batch.check()?;
        let elements = pass.local_rows().len() * self.norm.width;
        check_len("the head's slice", weights.len(), self.len(pass.share()))?;
        check_len("the head's input", input.len(), elements)
    }
}

impl<R: Real + Number> Block<R> for Head {
    fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = self.norm.parameters();
        parameters.extend(self.vocabulary.table.parameters());
        parameters
    }

    fn forward(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: Activation<R>,
        keep: Keep,
    ) -> Result<(Activation<R>, Saved), Error> {
        self.check(pass, weights, &input)?;
        self.vocabulary.check(pass.batch)?;
        let [norm, table] = cut(weights, self.lens(pass.share()));
        let normed = self.norm.gathered(pass, norm, &input)?;
        let (losses, seen) = self.vocabulary.losses(pass, table, &normed.rows, keep)?;
        if keep == Keep::Nothing {
            return Ok((losses.into(), Box::new(())));
        }
        let kept = Kept {
            input,
            normed: (keep == Keep::Everything).then_some(normed),
            seen,
        };
        Ok((losses.into(), Box::new(kept)))
    }

    /// The logits.
    fn predict(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: Activation<R>,
    ) -> Result<Activation<R>, Error> {
        self.logits(pass, weights, &input)
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        saved: Saved,
        output_gradient: Activation<R>,
        gradients: &mut [R],
    ) -> Result<Activation<R>, Error> {
        let kept: Kept<R> = unpack(saved);
        let lens = self.lens(pass.share());
        check_len(
            "the gradient of losses",
            output_gradient.len(),
            pass.batch.tokens.len(),
        )?;
        check_len("the head's gradients", gradients.len(), lens.iter().sum())?;
        let [norm, table] = cut(weights, lens);
        let [norm_gradients, table_gradients] = cut_mut(gradients, lens);
        let normed = match kept.normed {
            Some(normed) => normed,
            None => self.norm.gathered(pass, norm, &kept.input)?,
        };
        let term = self.vocabulary.backward(
            pass,
            table,
            &normed.rows,
            kept.seen,
            &output_gradient,
            table_gradients,
        );
        let gradient = pass.reduce_rows(term, self.norm.width)?;
        let found = (&kept.input[..], &normed.statistics);
        let norm_of = &self.norm;
        Ok(norm_of.backward(pass.pool, norm, found, &gradient, norm_gradients))
    }

    fn kept_elements(&self, tokens: usize, tp: usize, keep: Keep) -> usize {
        let width = self.norm.width;
        let smallest = self.norm.local_rows(tokens, tp) * width + tokens;
        match keep {
            Keep::Nothing => 0,
            Keep::Selected | Keep::Input => smallest,
            Keep::Everything => smallest + tokens * width + self.vocabulary.kept_logits(tokens, tp),
        }
    }
}

/// Matrices of these widths that lie one after another, as one matrix.
fn side_by_side<R: Real>(parts: &[R], rows: usize, widths: &[usize]) -> Vec<R> {
    let mut whole = Vec::with_capacity(parts.len());
    for row in 0..rows {
        let mut start = 0;
        for width in widths {
            whole.extend_from_slice(&parts[start + row * width..][..*width]);
            start += rows * width;
        }
    }
    whole
}
