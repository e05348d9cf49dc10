//! The parts of a decoder layer, with the names and sizes that a config gives them.

use super::attention::Attention;
use super::feed_forward::FeedForward;
use crate::config::ModelConfig;
use crate::model::Options;
use crate::parts::{Cut, Dropout, Linear, Norm, NormKind};
use cairn_kernels::rotary::Rotary;

/// Makes the parts of one layer.
pub(super) struct Maker<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) options: &'a Options,
    pub(super) layer: usize,
}

impl Maker<'_> {
    /// The norm of whole rows: ranks that share the rows each see some.
    pub(super) fn norm(&self, name: &str) -> Norm {
        let width = self.config.hidden_size;
        self.norm_of(name, width, self.options.sequence_parallel)
    }

    /// A dropout of this layer.
    pub(super) fn dropout(&self, site: u64) -> Dropout {
        Dropout {
            rate: self.config.dropout,
            layer: self.layer as u64,
            site,
        }
    }

    pub(super) fn attention(&self) -> Attention {
        let config = self.config;
        let hidden = config.hidden_size;
        let queries = config.num_attention_heads * config.head_dim;
        let keys = config.num_key_value_heads * config.head_dim;
        let column =
            |name, outputs| self.linear(name, [hidden, outputs], Cut::Outputs, config.query_bias());
        // Ranks have different heads, whether they share rows or not.
        let norm = |name| self.norm_of(name, config.head_dim, true);
        Attention {
            query: column("self_attn.q_proj", queries),
            key: column("self_attn.k_proj", keys),
            value: column("self_attn.v_proj", keys),
            norms: config
                .query_norm()
                .then(|| [norm("self_attn.q_norm"), norm("self_attn.k_norm")]),
            output: self.linear(
                "self_attn.o_proj",
                [queries, hidden],
                Cut::Inputs,
                config.attention_bias,
            ),
            head_dim: config.head_dim,
            rotary: Rotary::new(config.head_dim, config.rope.theta, config.rope.scaling),
        }
    }

    pub(super) fn feed_forward(&self) -> FeedForward {
        let (hidden, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let bias = self.config.mlp_bias;
        FeedForward {
            gate: self.linear("mlp.gate_proj", [hidden, inner], Cut::Outputs, bias),
            up: self.linear("mlp.up_proj", [hidden, inner], Cut::Outputs, bias),
            down: self.linear("mlp.down_proj", [inner, hidden], Cut::Inputs, bias),
        }
    }

    fn linear(&self, name: &str, [inputs, outputs]: [usize; 2], cut: Cut, bias: bool) -> Linear {
        Linear {
            name: self.name(name),
            inputs,
            outputs,
            cut,
            bias,
            deviation: self.config.initializer_range,
        }
    }

    fn norm_of(&self, name: &str, width: usize, partial_gradient: bool) -> Norm {
        Norm {
            name: self.name(name),
            kind: NormKind::RootMeanSquare,
            width,
            epsilon: self.config.rms_norm_eps,
            partial_gradient,
        }
    }

    fn name(&self, part: &str) -> String {
        format!("model.layers.{}.{part}", self.layer)
    }
}
