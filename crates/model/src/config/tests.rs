//! Configs go in and out unchanged, and everything wrong with one is told at once.

use super::*;

fn llama(extra: &str) -> String {
    format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 172,
        "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2{extra}}}"#
    )
}

fn problems(text: &str) -> Vec<String> {
    match ModelConfig::from_json(text) {
        Err(Error::Config { problems }) => {
            problems.into_iter().map(|problem| problem.what).collect()
        }
        other => panic!("it is refused, not {other:?}"),
    }
}

#[test]
fn a_config_comes_back_as_it_was() {
    let extras = [
        "",
        r#", "rope_theta": 5e5, "tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true, "dropout": 0.25"#,
        r#", "rope_scaling": {"type": "linear", "factor": 4}, "eos_token_id": [1, 2], "torch_dtype": "bfloat16""#,
        r#", "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}"#,
    ];
    for extra in extras {
        let config = ModelConfig::from_json(&llama(extra)).unwrap();
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
    }
    for class in ["Qwen2ForCausalLM", "Qwen3ForCausalLM"] {
        let config = ModelConfig::from_json(&llama("").replace("LlamaForCausalLM", class)).unwrap();
        assert_eq!(config.architecture.class(), class);
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
    }
}

#[test]
fn what_the_blocks_do_not_know_is_kept() {
    let config = ModelConfig::from_json(&llama(r#", "eos_token_id": 7"#)).unwrap();
    assert_eq!(config.other["eos_token_id"], 7);
    assert!(config.to_json().contains(r#""eos_token_id": 7"#));
}

#[test]
fn both_forms_of_rotary_settings_mean_the_same() {
    let old = r#", "rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 4.0}"#;
    let new = r#", "rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0}"#;
    let [old, new] = [old, new].map(|extra| ModelConfig::from_json(&llama(extra)).unwrap());
    assert_eq!(old, new);
    assert_eq!(old.rope.scaling, Scaling::Linear { factor: 4.0 });
}

#[test]
fn what_a_file_leaves_out_is_as_transformers_has_it() {
    let text = r#"{"model_type": "qwen3", "vocab_size": 10, "hidden_size": 64, "intermediate_size": 4,
        "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": null}"#;
    let config = ModelConfig::from_json(text).unwrap();
    assert_eq!((config.head_dim, config.num_key_value_heads), (128, 8));
    assert_eq!(ModelConfig::from_json(&llama("")).unwrap().head_dim, 8);
}

#[test]
fn everything_wrong_is_told_at_once() {
    let text = r#"{"architectures": ["GPT2LMHeadModel"], "vocab_size": -1, "hidden_size": 30, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 3, "hidden_act": "gelu", "use_sliding_window": true,
        "attention_dropout": 0.1, "tie_word_embeddings": 1, "rope_scaling": {"rope_type": "yarn"}}"#;
    let expected = [
        "there are no blocks for the architecture `GPT2LMHeadModel`",
        "`hidden_act` is \"gelu\": there are only blocks with `silu`",
        "the config asks for layers with a sliding window: every layer here sees the whole sequence",
        "the config asks for `attention_dropout`: attention here is computed without its probabilities being kept",
        "a width (`hidden_size`) of 30 is not a multiple of 4 heads (`num_attention_heads`)",
        "`vocab_size` is -1, not a whole number from 1 to 1048576",
        "`intermediate_size` is missing",
        "in `rope_scaling`: there is no scaling of rotary embeddings of type \"yarn\"",
        "`tie_word_embeddings` is 1, not true or false",
        "4 heads (`num_attention_heads`) cannot share 3 key and value heads (`num_key_value_heads`) evenly",
    ];
    assert_eq!(problems(text), expected);
}

#[test]
fn heads_that_cannot_be_turned_are_refused() {
    let config = |width: usize, heads: &str| {
        format!(
            r#"{{"model_type": "llama", "vocab_size": 9, "hidden_size": {width}, "intermediate_size": 4,
            "num_hidden_layers": 1, "num_attention_heads": 1{heads}}}"#
        )
    };
    let odd = |width, heads| problems(&config(width, heads));
    let told = |width| format!("`head_dim` is {width}, but rotary embeddings turn pairs");
    assert_eq!(odd(1, r#", "head_dim": 3"#), [told(3)]);
    assert_eq!(odd(1, ""), [told(1)]);
    assert_eq!(odd(6, r#", "head_dim": 5"#), [told(5)]);
    ModelConfig::from_json(&config(1, r#", "head_dim": 2"#)).unwrap();
    // What is missing is told once.
    let missing = r#"{"model_type": "llama", "vocab_size": 9, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}"#;
    assert_eq!(problems(missing), ["`hidden_size` is missing"]);
}

#[test]
fn scalings_that_make_no_sense_are_refused() {
    let scaled = |fields: &str| problems(&llama(&format!(r#", "rope_scaling": {{{fields}}}"#)));
    assert_eq!(
        scaled(r#""type": "linear", "factor": 0"#),
        ["in `rope_scaling`: `factor` is 0, not a number greater than 0"]
    );
    let llama3 =
        r#""rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4"#;
    assert_eq!(
        scaled(llama3),
        ["in `rope_scaling`: `original_max_position_embeddings` is missing"]
    );
    assert_eq!(
        scaled(&format!(
            r#"{llama3}, "original_max_position_embeddings": 8192"#
        )),
        ["in `rope_scaling`: `high_freq_factor` of 4 is not greater than `low_freq_factor` of 4"]
    );
}

#[test]
fn files_that_are_no_configs_are_refused() {
    assert!(problems("[1, 2]")[0].starts_with("it is not a JSON object"));
    assert_eq!(problems("{}")[0], "`architectures` is missing");
    let huge = llama("").replace("172", "18446744073709551615");
    assert_eq!(
        problems(&huge),
        ["`intermediate_size` is 18446744073709551615, not a whole number from 1 to 1048576"]
    );
}

#[test]
fn hints_name_what_would_fit() {
    let config = ModelConfig::from_json(&llama("")).unwrap();
    assert!(config.parallel_problems(2).is_empty());
    let problems = config.parallel_problems(3);
    assert_eq!(problems.len(), 2);
    assert_eq!(
        problems[0].hint.as_deref(),
        Some("sizes of `tp` that fit this model: 1, 2")
    );
    assert_eq!(config.parallel_problems(0).len(), 2);
}
