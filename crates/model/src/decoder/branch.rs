//! A branch of a decoder layer: what is computed from normalised rows and added to them.

use crate::block::{Keep, Pass};
use crate::error::Error;
use crate::parts::{Dropout, Norm, Normed, cut, cut_mut};
use crate::rows::{Place, Share};
use cairn_arena::Parameter;
use cairn_collectives::numbers::Number;
use cairn_kernels::elementwise::add;
use cairn_kernels::{Buffer, Real};
use std::fmt::Debug;

/// What a branch computes, on all rows, with this rank's share of the parameters.
pub(crate) trait Inner: Debug + Send + Sync {
    /// What it keeps for its backward.
    type Kept<R: Real>: Send;

    /// Its parameters, whole.
    fn parameters(&self) -> Vec<Parameter>;

    /// How many elements a rank's slice has.
    fn len(&self, share: Share) -> usize;

    /// This rank's term of the output.
    fn forward<R: Real>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        rows: &[R],
        keep: Keep,
    ) -> (Buffer<R>, Self::Kept<R>);

    /// What the backward needs, computed again, without what only the output takes.
    fn again<R: Real>(&self, pass: &Pass<'_>, weights: &[R], rows: &[R]) -> Self::Kept<R> {
        self.forward(pass, weights, rows, Keep::Everything).1
    }

    /// This rank's term of the gradient of `rows`.
    fn backward<R: Real>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        rows: &[R],
        kept: Self::Kept<R>,
        output_gradient: &[R],
        gradients: &mut [R],
    ) -> Buffer<R>;
}

/// `y = x + dropout(inner(norm(x)))`.
#[derive(Debug)]
pub(crate) struct Branch<I> {
    pub(crate) norm: Norm,
    pub(crate) inner: I,
    pub(crate) dropout: Dropout,
}

/// What a branch keeps for its backward.
pub(crate) struct Kept<R: Real, I: Inner> {
    pub(crate) input: Buffer<R>,
    normed: Option<Normed<R>>,
    inner: I::Kept<R>,
}

impl<I: Inner> Branch<I> {
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = self.norm.parameters();
        parameters.extend(self.inner.parameters());
        parameters
    }

    pub(crate) fn len(&self, share: Share) -> usize {
        self.lens(share).iter().sum()
    }

    /// The rows of one rank alone, normalised, and the slice of what is inside.
    pub(crate) fn enter<'a, R: Real>(
        &self,
        place: Place<'_>,
        weights: &'a [R],
        rows: &[R],
    ) -> (Buffer<R>, &'a [R]) {
        let [norm, inner] = cut(weights, self.lens(place.share));
        (self.norm.forward(place.pool, norm, rows).0, inner)
    }

    /// The output, and what `keep` says of what it took; the rest is dropped on the way.
    pub(crate) fn forward<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: Buffer<R>,
        keep: Keep,
    ) -> Result<(Buffer<R>, Kept<R, I>), Error> {
        let [norm, inner] = cut(weights, self.lens(pass.share()));
        let normed = self.norm.gathered(pass, norm, &input)?;
        let (term, inner) = self.inner.forward(pass, inner, &normed.rows, keep);
        let normed = (keep == Keep::Everything).then_some(normed);
        let mut output = pass.reduce_rows(term, self.norm.width)?;
        self.dropout.apply(pass, &mut output, self.norm.width);
        add(pass.pool, &input, &mut output);
        let kept = Kept {
            input,
            normed,
            inner,
        };
        Ok((output, kept))
    }

    /// What is needed for a backward, from the input.
    pub(crate) fn again<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: Buffer<R>,
    ) -> Result<Kept<R, I>, Error> {
        let [norm, inner] = cut(weights, self.lens(pass.share()));
        let normed = self.norm.gathered(pass, norm, &input)?;
        let inner = self.inner.again(pass, inner, &normed.rows);
        Ok(Kept {
            input,
            normed: Some(normed),
            inner,
        })
    }

    /// The gradient of the input.
    pub(crate) fn backward<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        kept: Kept<R, I>,
        output_gradient: Buffer<R>,
        gradients: &mut [R],
    ) -> Result<Buffer<R>, Error> {
        let width = self.norm.width;
        let [norm, inner] = cut(weights, self.lens(pass.share()));
        let [norm_gradients, inner_gradients] = cut_mut(gradients, self.lens(pass.share()));
        let normed = match kept.normed {
            Some(normed) => normed,
            None => self.norm.gathered(pass, norm, &kept.input)?,
        };
        let mut gradient = pass.pool.copy(&output_gradient);
        self.dropout.apply(pass, &mut gradient, width);
        let gradient = pass.gather_rows(gradient, width)?;
        let term = self.inner.backward(
            pass,
            inner,
            &normed.rows,
            kept.inner,
            &gradient,
            inner_gradients,
        );
        let gradient = pass.reduce_rows(term, width)?;
        let found = (&kept.input[..], &normed.statistics);
        let mut gradient = self
            .norm
            .backward(pass.pool, norm, found, &gradient, norm_gradients);
        add(pass.pool, &output_gradient, &mut gradient);
        Ok(gradient)
    }

    fn lens(&self, share: Share) -> [usize; 2] {
        [self.norm.len(), self.inner.len(share)]
    }
}
