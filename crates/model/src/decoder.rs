//! A decoder layer: attention and the feed-forward part, each added to its input.

mod attention;
mod branch;
mod cache;
mod feed_forward;
mod make;

pub(crate) use cache::Cache;

use crate::block::{Activation, Block, Keep, Pass, Saved, unpack};
use crate::config::ModelConfig;
use crate::error::Error;
use crate::model::Options;
use crate::parts::{cut, cut_mut};
use crate::rows::{Place, Share, check_len};
use attention::Attention;
use branch::Branch;
use cairn_arena::Parameter;
use cairn_collectives::numbers::Number;
use cairn_kernels::elementwise::add;
use cairn_kernels::{Buffer, Real};
use feed_forward::FeedForward;
use make::Maker;

/// A decoder layer: attention over the rows of each sequence, then the feed-forward part, each on normalised rows and added to them.
#[derive(Debug)]
pub struct DecoderLayer {
    attention: Branch<Attention>,
    feed_forward: Branch<FeedForward>,
}

/// What the backward needs, besides the weights. If only the input is kept, it is this again.
struct Kept<R: Real> {
    attention: branch::Kept<R, Attention>,
    feed_forward: branch::Kept<R, FeedForward>,
}

impl DecoderLayer {
    /// Layer `layer` of a model.
    pub fn new(config: &ModelConfig, options: &Options, layer: usize) -> Self {
        let make = Maker {
            config,
            options,
            layer,
        };
        Self {
            attention: Branch {
                norm: make.norm("input_layernorm"),
                inner: make.attention(),
                dropout: make.dropout(0),
            },
            feed_forward: Branch {
                norm: make.norm("post_attention_layernorm"),
                inner: make.feed_forward(),
                dropout: make.dropout(1),
            },
        }
    }

    /// How many elements a rank's slice has.
    pub(crate) fn len(&self, share: Share) -> usize {
        self.lens(share).iter().sum()
    }

    /// What follows from the rows of further tokens of one sequence; the cache holds what was seen of it, and then also of these.
    pub(crate) fn extend<R: Real>(
        &self,
        place: Place<'_>,
        weights: &[R],
        mut rows: Buffer<R>,
        cache: &mut Cache<R>,
    ) -> Buffer<R> {
        let [attention, feed_forward] = cut(weights, self.lens(place.share));
        let (normed, weights) = self.attention.enter(place, attention, &rows);
        let inner = &self.attention.inner;
        let output = inner.extend(place, weights, &normed, cache);
        add(place.pool, &output, &mut rows);
        let (normed, weights) = self.feed_forward.enter(place, feed_forward, &rows);
        let inner = &self.feed_forward.inner;
        let (output, _) = inner.apply(place, weights, &normed, Keep::Nothing);
        add(place.pool, &output, &mut rows);
        rows
    }

    fn check_rows(
        &self,
        pass: &Pass<'_>,
        what: &'static str,
        elements: usize,
    ) -> Result<(), Error> {
        let expected = pass.local_rows().len() * self.attention.norm.width;
        check_len(what, elements, expected)
    }

    fn lens(&self, share: Share) -> [usize; 2] {
        [self.attention.len(share), self.feed_forward.len(share)]
    }

    /// What is needed for a backward, from the input: the output is not computed again.
    fn again<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: Buffer<R>,
    ) -> Result<Kept<R>, Error> {
        let [attention, feed_forward] = cut(weights, self.lens(pass.share()));
        let keep = Keep::Everything;
        let (rows, attention) = self.attention.forward(pass, attention, input, keep)?;
        let feed_forward = self.feed_forward.again(pass, feed_forward, rows)?;
        Ok(Kept {
            attention,
            feed_forward,
        })
    }

    fn forward_kept<R: Real + Number>(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: Buffer<R>,
        keep: Keep,
    ) -> Result<(Buffer<R>, Kept<R>), Error> {
        let [attention, feed_forward] = cut(weights, self.lens(pass.share()));
        let (rows, attention) = self.attention.forward(pass, attention, input, keep)?;
        let (rows, feed_forward) = self.feed_forward.forward(pass, feed_forward, rows, keep)?;
        let kept = Kept {
            attention,
            feed_forward,
        };
        Ok((rows, kept))
    }
}

impl<R: Real + Number> Block<R> for DecoderLayer {
    fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = self.attention.parameters();
        parameters.extend(self.feed_forward.parameters());
        parameters
    }

    fn forward(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        input: Activation<R>,
        keep: Keep,
    ) -> Result<(Activation<R>, Saved), Error> {
        pass.batch.check()?;
        check_len("the layer's slice", weights.len(), self.len(pass.share()))?;
        self.check_rows(pass, "the layer's input", input.len())?;
        let (output, kept) = self.forward_kept(pass, weights, input, keep)?;
        let saved: Saved = match keep {
            Keep::Nothing => Box::new(()),
            Keep::Input => Box::new(kept.attention.input),
            Keep::Everything | Keep::Selected => Box::new(kept),
        };
        Ok((output, saved))
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        weights: &[R],
        saved: Saved,
        output_gradient: Activation<R>,
        gradients: &mut [R],
    ) -> Result<Activation<R>, Error> {
        let lens = self.lens(pass.share());
        check_len("the layer's gradients", gradients.len(), lens.iter().sum())?;
        self.check_rows(pass, "the gradient of the layer", output_gradient.len())?;
        let kept = match saved.downcast::<Kept<R>>() {
            Ok(kept) => *kept,
            Err(input) => self.again(pass, weights, unpack(input))?,
        };
        let [attention, feed_forward] = cut(weights, lens);
        let [attention_gradients, feed_forward_gradients] = cut_mut(gradients, lens);
        let gradient = self.feed_forward.backward(
            pass,
            feed_forward,
            kept.feed_forward,
            output_gradient,
            feed_forward_gradients,
        )?;
        self.attention.backward(
            pass,
            attention,
            kept.attention,
            gradient,
            attention_gradients,
        )
    }

    fn forward_flops(&self, tokens: usize, length: usize) -> f64 {
        let attention = &self.attention.inner;
        let linears = attention.linears().into_iter();
        let linears = linears.chain(self.feed_forward.inner.linears());
        let products: f64 = linears.map(|linear| linear.flops(tokens)).sum();
        // Scores and their product with values; on average a token sees half of its sequence.
        let seen = 4.0 * tokens as f64 * (length as f64 / 2.0) * attention.query.outputs as f64;
        products + seen
    }

    fn kept_elements(&self, tokens: usize, tp: usize, keep: Keep) -> usize {
        let hidden = self.attention.norm.width;
        let local = self.attention.norm.local_rows(tokens, tp);
        let queries = self.attention.inner.query.outputs.div_ceil(tp);
        let keys = self.attention.inner.key.outputs.div_ceil(tp);
        let inner = self.feed_forward.inner.gate.outputs.div_ceil(tp);
        let norms = usize::from(self.attention.inner.norms.is_some());
        let raw = norms * (queries + keys);
        let selected = local * 2 * hidden + tokens * (2 * queries + 2 * keys + 2 * inner);
        match keep {
            Keep::Nothing => 0,
            Keep::Input => local * hidden,
            Keep::Selected => selected,
            Keep::Everything => selected + tokens * (2 * hidden + inner + raw),
        }
    }
}
