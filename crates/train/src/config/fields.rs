//! Which fields a model's config may have, to tell slips from fields that only other tools read.

/// Those that decide what is trained.
const KNOWN: [&str; 22] = [
    "architectures",
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "hidden_act",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "tie_word_embeddings",
    "attention_bias",
    "attention_dropout",
    "mlp_bias",
    "initializer_range",
    "dropout",
    "layer_types",
];

/// Those that Hugging Face's configs of such models have besides.
const ELSEWHERE: [&str; 33] = [
    "_name_or_path",
    "add_cross_attention",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "initializer_factor",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "max_window_layers",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "partial_rotary_factor",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "sep_token_id",
    "sliding_window",
    "task_specific_params",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "use_sliding_window",
];

/// How alike a field of a file must be to a known one to be a slip; others belong to tools that are not known here.
const ALIKE: f64 = 0.85;

/// What a field that the model did not take is taken for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Something that other tools read.
    Elsewhere,
    /// A slip of this one.
    Slip(&'static str),
    /// Nothing that is known.
    Unknown,
}

/// What a field is taken for that decided nothing.
pub(super) fn field(name: &str) -> Field {
    if KNOWN.contains(&name) || ELSEWHERE.contains(&name) {
        return Field::Elsewhere;
    }
    let alike = |known: &&str| strsim::normalized_damerau_levenshtein(name, known);
    let best = KNOWN.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    match best.filter(|known| alike(known) >= ALIKE) {
        Some(known) => Field::Slip(known),
        None => Field::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_told_from_what_other_tools_read() {
        assert_eq!(
            field("num_key_value_head"),
            Field::Slip("num_key_value_heads")
        );
        assert_eq!(
            field("tie_word_embedding"),
            Field::Slip("tie_word_embeddings")
        );
        assert_eq!(field("rope_thetta"), Field::Slip("rope_theta"));
        assert_eq!(field("torch_dtype"), Field::Elsewhere);
        // Only Llama takes it.
        assert_eq!(field("mlp_bias"), Field::Elsewhere);
        assert_eq!(field("num_local_experts"), Field::Unknown);
    }
}
