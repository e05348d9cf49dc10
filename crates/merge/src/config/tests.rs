//! Configs as users write them, and the mistakes they make.

use super::*;

fn problems(text: &str) -> Vec<String> {
    match Config::parse(text) {
        Err(Error::Config { problems }) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

const TIES: &str = "\
models:
  - model: a
    parameters:
      density: [1, 0.7, 0.1]
      weight: 1.0
  - model: b+adapter
    parameters:
      weight:
        - filter: mlp
          value: 0.5
        - value: 0
merge_method: ties
base_model: base
parameters:
  normalize: true
  int8_mask: true
dtype: float16
";

#[test]
fn a_config_with_gradients_filters_and_adapters_is_read() {
    let config = Config::parse(TIES).unwrap();
    assert_eq!(config.method.name, "ties");
    assert_eq!(config.dtype, Some(DType::F16));
    let names: Vec<String> = config.models().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["base", "a", "b+adapter"]);
    let Body::Models(models) = &config.modules[0].body else {
        panic!("models");
    };
    let weight = |name| models[1].parameters.value("weight", name, 0.0);
    assert_eq!([weight("x.mlp.y"), weight("norm")], [Some(0.5), Some(0.0)]);
    assert_eq!(models[0].parameters.value("density", "w", 0.5), Some(0.7));
    assert_eq!(config.warnings, []);
}

#[test]
fn every_mistake_is_told_at_once_with_its_line() {
    let text = "\
merge_metod: ties
merge_method: teis
models:
  - model: a
    parameter: {weight: 1}
  - {parameters: {densty: 0.5}}
dtype: bfloat61
";
    let expected = [
        "line 1: a merge has no `merge_metod`; did you mean `merge_method`?",
        "line 2: there is no merge method `teis`; did you mean `ties`?",
        "line 5: a model has no `parameter`; did you mean `parameters`?",
        "line 6: this needs a `model`",
        "line 7: `dtype: bfloat61` is not among bfloat16, float16, float32 and float64",
    ];
    assert_eq!(problems(text), expected);
}

#[test]
fn a_parameter_of_another_method_is_a_warning_and_an_unknown_one_a_mistake() {
    let text = |name: &str| {
        format!(
            "merge_method: linear\nmodels: [{{model: a, parameters: {{weight: 1, {name}: 1}}}}]"
        )
    };
    let config = Config::parse(&text("density")).unwrap();
    assert_eq!(
        config.warnings[0].to_string(),
        "line 2: `linear` does not use `density`"
    );
    let found = problems(&text("wieght"));
    assert_eq!(
        found,
        ["line 2: no method has the parameter `wieght`; did you mean `weight`?"]
    );
}

#[test]
fn a_config_names_one_thing_to_merge() {
    let none = problems("merge_method: linear");
    assert!(none[0].ends_with("this has none"), "{none:?}");
    let both = problems("merge_method: linear\nmodels: [{model: a}]\nslices: []");
    assert!(both[0].ends_with("this has models and slices"), "{both:?}");
}

#[test]
fn slices_have_ranges_of_the_same_length() {
    let slices = |first: &str, second: &str| {
        format!(
            "merge_method: slerp\nslices:\n- sources:\n  - {{model: a, layer_range: {first}}}\n  - {{model: b, layer_range: {second}}}\n"
        )
    };
    assert!(Config::parse(&slices("[0, 4]", "[2, 6]")).is_ok());
    let found = problems(&slices("[0, 4]", "[2, 5]"));
    assert_eq!(
        found,
        ["line 3: `a` gives 4 layers and `b` gives 3: they have to be as many"]
    );
    for range in ["[4, 4]", "[4, 2]", "[-1, 2]", "[0.5, 2]", "7", "[1]"] {
        let found = problems(&slices("[0, 4]", range));
        assert!(
            found[0].starts_with("line 5: a `layer_range` is"),
            "{range}: {found:?}"
        );
    }
}

#[test]
fn wrong_types_are_told_as_such() {
    let found = problems(
        "merge_method: ties\nmodels: {a: b}\nbase_model: [x]\nparameters: {normalize: maybe, lambda: [a]}",
    );
    let expected = [
        "line 2: `models` is a list, not a map",
        "line 3: a model is a path, not a list",
        "line 4: `normalize` is true or false, not text",
        "line 4: `lambda` is a number, not text",
    ];
    assert_eq!(found, expected);
}

#[test]
fn tokenizers_are_chosen_in_two_ways() {
    let with = |text: &str| format!("merge_method: linear\nmodels: [{{model: a}}]\n{text}");
    let source = |text: &str| {
        Config::parse(&with(text))
            .unwrap()
            .tokenizer
            .unwrap()
            .source
    };
    assert_eq!(source("tokenizer_source: union"), TokenizerSource::Union);
    assert_eq!(source("tokenizer: {source: base}"), TokenizerSource::Base);
    let model = TokenizerSource::Model(ModelReference::parse("b").unwrap());
    assert_eq!(source("tokenizer_source: b"), model);
    let text = "tokenizer:\n  source: union\n  pad_to_multiple_of: 64\n  tokens:\n    <a>: {source: b, force: true}\n    <b>: {source: {kind: zero}}\n    <c>: {source: {kind: model_token, model: b, token_id: 7}}";
    let tokenizer = Config::parse(&with(text)).unwrap().tokenizer.unwrap();
    assert_eq!(tokenizer.pad_to_multiple_of, Some(64));
    assert_eq!(tokenizer.tokens.len(), 3);
    assert!(tokenizer.tokens[0].2);
    let both = problems(&with("tokenizer_source: base\ntokenizer: {source: base}"));
    assert!(both[0].contains("either"));
}

#[test]
fn a_paddle_config_is_known_by_its_paths() {
    let text = r#"{
  "merge_method": "ties", "model_path_list": ["a", "b"], "base_model_path": "base",
  "weight_list": [0.3, 0.7], "reserve_p": 0.5, "ties_elect_type": "count", "n_process": 4
}"#;
    let config = Config::parse(text).unwrap();
    assert_eq!(
        config.paddle.unwrap().election,
        crate::methods::Election::Count
    );
    let wrong = r#"{"model_path_list": ["a", "b"], "merge_method": "tis",
"weight_list": [1], "reserve_p": 1.5}"#;
    let expected = [
        "line 1: there is no merge method `tis`; did you mean `ties`?",
        "line 2: `weight_list` has 1 weights for 2 models",
        "line 2: `reserve_p` lies between 0 and 1",
    ];
    assert_eq!(problems(wrong), expected);
}
