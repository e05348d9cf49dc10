//! The last block: the norm, the projection to the vocabulary, and the loss.

use crate::block::{Activation, Block, Keep, Pass, Saved, unpack};
use crate::config::ModelConfig;
use crate::embedding;
use crate::error::Error;
use crate::model::Options;
use crate::parts::{Linear, Norm, NormKind, Normed, cut, cut_mut};
use crate::rows::{Place, Share, check_len};
use cairn_arena::Parameter;
use cairn_collectives::numbers::{self, Number};
use cairn_kernels::Real;
use cairn_kernels::cross_entropy::CrossEntropy;
use cairn_kernels::gemm::Write;
use cairn_tensor::ReduceOp;
use std::ops::Range;

/// About how many logits a rank holds at a time.
const LOGITS_AT_ONCE: usize = 1 << 22;

/// The final norm, the projection to the vocabulary, whose rows ranks share, and the loss of each token.
///
/// Logits are computed for some rows at a time, and again in the backward: what is kept for it is the normalised rows, or their input, and one
/// number per token. If the model's embedding is tied, this block has its weight as a parameter of its own, of the same name.
#[derive(Debug)]
pub struct Head {
    norm: Norm,
    table: Linear,
    z_loss: f64,
}

/// What the backward needs.
struct Kept<R> {
    input: Vec<R>,
    normed: Option<Normed<R>>,
    log_sums: Vec<R>,
}

impl Head {
    /// The head of a model.
    pub fn new(config: &ModelConfig, options: &Options) -> Self {
        let name = if config.tie_word_embeddings {
            embedding::NAME
        } else {
            "lm_head"
        };
        Self {
            norm: Norm {
                name: "model.norm".into(),
                kind: NormKind::RootMeanSquare,
                width: config.hidden_size,
                epsilon: config.rms_norm_eps,
                partial_gradient: options.sequence_parallel,
            },
            table: embedding::table(config, name),
            z_loss: options.z_loss,
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
    ) -> Result<Vec<R>, Error> {
        self.check(pass, weights, input)?;
        let [norm, table] = cut(weights, self.lens(pass.share()));
        let normed = self.norm.gathered(pass, norm, input)?;
        let local = self.table.forward(pass.place(), table, &normed.rows);
        if pass.tp.size() == 1 {
            return Ok(local);
        }
        let rows = pass.batch.tokens.len();
        let widths = pass.share().lens(self.table.outputs);
        let counts: Vec<usize> = widths.iter().map(|width| width * rows).collect();
        let mut parts = vec![R::ZERO; rows * self.table.outputs];
        numbers::all_gather(pass.tp, &local, &counts, &mut parts)?;
        Ok(side_by_side(&parts, rows, &widths))
    }

    /// The logits of rows that one rank has alone.
    pub(crate) fn logits_alone<R: Real>(
        &self,
        place: Place<'_>,
        weights: &[R],
        input: &[R],
    ) -> Vec<R> {
        let [norm, table] = cut(weights, self.lens(place.share));
        let (rows, _) = self.norm.forward(place.pool, norm, input);
        self.table.forward(place, table, &rows)
    }

    /// How many elements a rank's slice has.
    pub(crate) fn len(&self, share: Share) -> usize {
        self.lens(share).iter().sum()
    }

    fn lens(&self, share: Share) -> [usize; 2] {
        [self.norm.len(), self.table.len(share)]
    }

    fn check<R: Real>(&self, pass: &Pass<'_>, weights: &[R], input: &[R]) -> Result<(), Error> {
        pass.batch.check()?;
        check_len("the head's slice", weights.len(), self.len(pass.share()))?;
        check_len(
            "the head's input",
            input.len(),
            pass.local_rows().len() * self.norm.width,
        )
    }

    fn check_targets(&self, targets: &[i64], tokens: usize) -> Result<(), Error> {
        check_len("the batch's targets", targets.len(), tokens)?;
        let vocab_size = self.table.outputs;
        let outside =
            |target: i64| usize::try_from(target).is_ok_and(|target| target >= vocab_size);
        match targets.iter().find(|&&target| outside(target)) {
            None => Ok(()),
            Some(&token) => Err(Error::Token { token, vocab_size }),
        }
    }

    fn loss(&self, share: Share) -> CrossEntropy {
        let columns = share.range(self.table.outputs);
        CrossEntropy {
            first: columns.start,
            width: columns.len(),
            z_loss: self.z_loss,
        }
    }

    /// The rows whose logits are held at once. Every rank cuts alike: the first holds the most columns.
    fn chunks(&self, pass: &Pass<'_>) -> impl Iterator<Item = Range<usize>> + use<> {
        let columns = self.table.outputs.div_ceil(pass.tp.size());
        let rows = pass.batch.tokens.len();
        let step = (LOGITS_AT_ONCE / columns).max(1);
        (0..rows)
            .step_by(step)
            .map(move |first| first..(first + step).min(rows))
    }

    /// The loss and the logarithm of the sum of exponentials of each of these rows.
    fn losses<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        logits: &[R],
        targets: &[i64],
    ) -> Result<(Vec<R>, Vec<R>), Error> {
        let loss = self.loss(pass.share());
        let mut maxima = vec![R::ZERO; targets.len()];
        loss.row_max(pass.pool, logits, &mut maxima);
        numbers::all_reduce(pass.tp, ReduceOp::Max, &mut maxima)?;
        let mut both = vec![R::ZERO; 2 * targets.len()];
        let (sums, target_logits) = both.split_at_mut(targets.len());
        loss.row_sums(pass.pool, logits, targets, &maxima, sums, target_logits);
        numbers::all_reduce(pass.tp, ReduceOp::Sum, &mut both)?;
        let target_logits = both.split_off(targets.len());
        let mut losses = vec![R::ZERO; targets.len()];
        loss.losses(targets, &maxima, &target_logits, &mut both, &mut losses);
        Ok((losses, both))
    }
}

impl<R: Real + Number> Block<R> for Head {
    fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = self.norm.parameters();
        parameters.extend(self.table.parameters());
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
        self.check_targets(&pass.batch.targets, pass.batch.tokens.len())?;
        let [norm, table] = cut(weights, self.lens(pass.share()));
        let normed = self.norm.gathered(pass, norm, &input)?;
        let (mut losses, mut log_sums) = (Vec::new(), Vec::new());
        for chunk in self.chunks(pass) {
            let place = Place {
                rows: chunk.len(),
                ..pass.place()
            };
            let logits =
                self.table
                    .forward(place, table, rows_of(&normed.rows, &chunk, self.norm.width));
            let (loss, log_sum) = self.losses(pass, &logits, &pass.batch.targets[chunk])?;
            losses.extend(loss);
            log_sums.extend(log_sum);
        }
        let kept = Kept {
            input,
            normed: (keep == Keep::Everything).then_some(normed),
            log_sums,
        };
        let saved: Saved = if keep == Keep::Nothing {
            Box::new(())
        } else {
            Box::new(kept)
        };
        Ok((losses, saved))
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
        let width = self.norm.width;
        let lens = self.lens(pass.share());
        let [norm, table] = cut(weights, lens);
        let [norm_gradients, table_gradients] = cut_mut(gradients, lens);
        let normed = match kept.normed {
            Some(normed) => normed,
            None => self.norm.gathered(pass, norm, &kept.input)?,
        };
        let loss = self.loss(pass.share());
        let mut gradient = vec![R::ZERO; normed.rows.len()];
        for chunk in self.chunks(pass) {
            let place = Place {
                rows: chunk.len(),
                ..pass.place()
            };
            let rows = rows_of(&normed.rows, &chunk, width);
            let mut logits = self.table.forward(place, table, rows);
            let targets = &pass.batch.targets[chunk.clone()];
            let (log_sums, scale) = (
                &kept.log_sums[chunk.clone()],
                &output_gradient[chunk.clone()],
            );
            loss.gradient(pass.pool, targets, log_sums, scale, &mut logits);
            self.table
                .add_gradients(place, rows, &logits, table_gradients);
            let target = &mut gradient[chunk.start * width..chunk.end * width];
            self.table
                .input_gradient(place, table, &logits, Write::Replace, target);
        }
        let gradient = pass.reduce_rows(gradient, width)?;
        let found = (&kept.input[..], &normed.statistics);
        Ok(self
            .norm
            .backward(pass.pool, norm, found, &gradient, norm_gradients))
    }

    fn kept_elements(&self, tokens: usize, tp: usize, keep: Keep) -> usize {
        let width = self.norm.width;
        let local = if self.norm.partial_gradient {
            tokens.div_ceil(tp)
        } else {
            tokens
        };
        match keep {
            Keep::Nothing => 0,
            Keep::Everything => local * (width + 1) + tokens * (width + 1),
            Keep::Selected | Keep::Input => local * width + tokens,
        }
    }
}

fn rows_of<'a, R>(rows: &'a [R], range: &Range<usize>, width: usize) -> &'a [R] {
    &rows[range.start * width..range.end * width]
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
