//! Logits and losses, some rows at a time, where ranks share the vocabulary.

use crate::block::{Batch, Keep, Pass};
use crate::error::Error;
use crate::parts::Linear;
use crate::rows::{Place, Share, check_len};
use cairn_collectives::numbers::{self, Number};
use cairn_kernels::cross_entropy::CrossEntropy;
use cairn_kernels::gemm::Write;
use cairn_kernels::{Buffer, Real};
use cairn_tensor::ReduceOp;
use std::ops::Range;

/// About how many logits a rank holds at a time.
pub(super) const LOGITS_AT_ONCE: usize = 1 << 23;

/// The projection to a vocabulary and the loss of what it predicts.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) table: Linear,
    pub(super) z_loss: f64,
    pub(super) logits_at_once: usize,
}

/// What the backward needs besides the rows.
pub(super) struct Seen<R> {
    /// The logarithm of the sum of the exponentials of each token's logits.
    log_sums: Vec<R>,
    /// The logits of all tokens, if these are few.
    logits: Option<Buffer<R>>,
}

impl Vocabulary {
    /// Whether there is a target for each token, and each is in the vocabulary or ignored.
    pub(super) fn check(&self, batch: &Batch) -> Result<(), Error> {
        let targets = &batch.targets;
        check_len("the batch's targets", targets.len(), batch.tokens.len())?;
        let vocab_size = self.table.outputs;
        let outside = |target| usize::try_from(target).is_ok_and(|target| target >= vocab_size);
        match targets.iter().find(|&&target| outside(target)) {
            None => Ok(()),
            Some(&token) => Err(Error::Token { token, vocab_size }),
        }
    }

    /// The loss of each token, and what the backward needs.
    pub(super) fn losses<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        rows: &[R],
        keep: Keep,
    ) -> Result<(Vec<R>, Seen<R>), Error> {
        let tokens = pass.batch.tokens.len();
        let (mut losses, mut log_sums, mut kept) = (Vec::new(), Vec::new(), None);
        for chunk in self.chunks(pass) {
            let place = Place {
                rows: chunk.len(),
                ..pass.place()
            };
            let logits = self.table.forward(place, weights, self.rows(rows, &chunk));
            let (loss, log_sum) = self.some_losses(pass, &logits, &pass.batch.targets[chunk])?;
            losses.extend(loss);
            log_sums.extend(log_sum);
            kept = (keep == Keep::Everything && place.rows == tokens).then_some(logits);
        }
        let logits = kept;
        Ok((losses, Seen { log_sums, logits }))
    }

    /// This rank's term of the gradient of the rows.
    pub(super) fn backward<R: Real>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        rows: &[R],
        mut seen: Seen<R>,
        output_gradient: &[R],
        gradients: &mut [R],
    ) -> Buffer<R> {
        let width = self.table.inputs;
        let loss = self.loss(pass.share());
        let mut gradient = pass.pool.buffer(rows.len());
        for chunk in self.chunks(pass) {
            let place = Place {
                rows: chunk.len(),
                ..pass.place()
            };
            let input = self.rows(rows, &chunk);
            let kept = seen.logits.take();
            let mut logits = kept.unwrap_or_else(|| self.table.forward(place, weights, input));
            let targets = &pass.batch.targets[chunk.clone()];
            let log_sums = &seen.log_sums[chunk.clone()];
            let factors = &output_gradient[chunk.clone()];
            loss.gradient(pass.pool, targets, log_sums, factors, &mut logits);
            let target = &mut gradient[chunk.start * width..chunk.end * width];
            let table = &self.table;
            table.add_gradients(place, input, &logits, gradients);
            table.input_gradient(place, weights, &logits, Write::Replace, target);
        }
        gradient
    }

    /// How many logits of `tokens` tokens a rank keeps, if it keeps everything.
    pub(super) fn kept_logits(&self, tokens: usize, tp: usize) -> usize {
        match tokens <= self.rows_at_once(tp) {
            true => tokens * self.table.outputs.div_ceil(tp),
            false => 0,
        }
    }

    /// The loss of each of these rows, and the logarithm of the sum of the exponentials of its logits.
    fn some_losses<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        logits: &[R],
        targets: &[i64],
    ) -> Result<(Vec<R>, Vec<R>), Error> {
        let loss = self.loss(pass.share());
        let mut maxima = vec![R::ZERO; targets.len()];
        loss.row_max(pass.pool, logits, &mut maxima);
        numbers::all_reduce(pass.tp, ReduceOp::Max, &mut maxima)?;
        let mut sums = vec![R::ZERO; 2 * targets.len()];
        let (exponentials, target_logits) = sums.split_at_mut(targets.len());
        loss.row_sums(
            pass.pool,
            logits,
            targets,
            &maxima,
            exponentials,
            target_logits,
        );
        numbers::all_reduce(pass.tp, ReduceOp::Sum, &mut sums)?;
        let target_logits = sums.split_off(targets.len());
        let mut losses = vec![R::ZERO; targets.len()];
        loss.losses(targets, &maxima, &target_logits, &mut sums, &mut losses);
        Ok((losses, sums))
    }

    fn loss(&self, share: Share) -> CrossEntropy {
        let columns = share.range(self.table.outputs);
        CrossEntropy {
            first: columns.start,
            width: columns.len(),
            z_loss: self.z_loss,
        }
    }

    /// The rows whose logits are held at once, the same on every rank.
    fn chunks(&self, pass: &Pass<'_>) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = pass.batch.tokens.len();
        let step = self.rows_at_once(pass.tp.size());
        let starts = (0..rows).step_by(step);
        starts.map(move |start| start..(start + step).min(rows))
    }

    fn rows_at_once(&self, tp: usize) -> usize {
        let columns = self.table.outputs.div_ceil(tp);
        (self.logits_at_once / columns).max(1)
    }

    fn rows<'a, R>(&self, rows: &'a [R], range: &Range<usize>) -> &'a [R] {
        &rows[range.start * self.table.inputs..range.end * self.table.inputs]
    }
}
