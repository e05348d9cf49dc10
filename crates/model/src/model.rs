//! A model as a list of blocks.

use crate::block::Block;
use crate::config::ModelConfig;
use crate::decoder::DecoderLayer;
use crate::embedding::Embedding;
use crate::head::Head;
use cairn_collectives::numbers::Number;
use cairn_kernels::Real;

/// What a config does not say about the blocks of a model.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Options {
    /// Whether the ranks that share a block share its rows, as every [`Pass`](crate::Pass) through it will say.
    pub sequence_parallel: bool,
    /// The weight z of the term `z · log²Σexp` of the loss; 0 for none.
    pub z_loss: f64,
}

/// The blocks of a model in order: the embedding, the layers, the head.
///
/// ```
/// use cairn_model::{ModelConfig, Options, blocks};
///
/// let config = ModelConfig::from_json(r#"{
///     "model_type": "qwen3", "vocab_size": 100, "hidden_size": 16, "intermediate_size": 24, "head_dim": 4,
///     "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": true
/// }"#)?;
/// let blocks = blocks::<f32>(&config, &Options::default());
/// let names: Vec<String> = blocks[1].parameters().into_iter().map(|parameter| parameter.name).collect();
/// assert_eq!(blocks.len(), 4);
/// assert_eq!(names[0], "model.layers.0.input_layernorm.weight");
/// assert_eq!(blocks[3].parameters()[1].name, "model.embed_tokens.weight");
/// # Ok::<(), cairn_model::Error>(())
/// ```
pub fn blocks<R: Real + Number>(config: &ModelConfig, options: &Options) -> Vec<Box<dyn Block<R>>> {
    let layers = 0..config.num_hidden_layers;
    let mut blocks: Vec<Box<dyn Block<R>>> = vec![Box::new(Embedding::new(config))];
    blocks.extend(
        layers.map(|layer| -> Box<dyn Block<R>> {
            Box::new(DecoderLayer::new(config, options, layer))
        }),
    );
    blocks.push(Box::new(Head::new(config, options)));
    blocks
}
