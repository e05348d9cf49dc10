//! The guide says what is so: every example in it is run.

use cairn_recipe::json::{Request, compiled};
use cairn_recipe::{Compiled, Error, Program, Tensor, Tensors};
use cairn_tensor::DType;
use serde_json::Value;

const GUIDE: &str = include_str!("../../../../docs/guide/recipes.md");

/// The blocks of a language, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let start = format!("```{language}\n");
    let blocks = GUIDE.split(start.as_str()).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

fn run(text: &str, sources: &[(&str, DType, &[usize])]) -> Result<Compiled, Error> {
    let sources: Tensors = sources
        .iter()
        .map(|(name, dtype, shape)| (name.to_string(), Tensor::new(*dtype, *shape)))
        .collect();
    Program::parse(text)?.compile(&sources, None)
}

#[test]
fn the_first_example_fuses_a_llama() {
    let f32 = DType::F32;
    let compiled = run(
        blocks("text")[0],
        &[
            ("model.layers.0.self_attn.q_proj.weight", f32, &[64, 64]),
            ("model.layers.0.self_attn.k_proj.weight", f32, &[16, 64]),
            ("model.layers.0.self_attn.v_proj.weight", f32, &[16, 64]),
            ("model.layers.0.mlp.gate_proj.weight", f32, &[128, 64]),
            ("model.layers.0.mlp.up_proj.weight", f32, &[128, 64]),
            ("model.embed_tokens.weight", f32, &[100, 64]),
            ("model.rotary.inv_freq", f32, &[4]),
        ],
    );
    let compiled = compiled.unwrap();
    let shapes: Vec<&[usize]> = compiled
        .targets
        .values()
        .map(|target| target.shape.as_slice())
        .collect();
    assert_eq!(
        compiled.targets.keys().collect::<Vec<_>>(),
        ["embedding", "layers.0.gate_up", "layers.0.qkv"]
    );
    assert_eq!(shapes, [[128, 64], [256, 64], [96, 64]]);
    assert_eq!(compiled.dropped, ["model.rotary.inv_freq"]);
}

#[test]
fn every_statement_of_the_guide_runs() {
    let f32 = DType::F32;
    let sources: [(&str, DType, &[usize]); 11] = [
        ("a", f32, &[8, 8]),
        ("b", f32, &[8, 8]),
        ("c", f32, &[8, 8]),
        ("experts.0.w", f32, &[2, 3]),
        ("experts.1.w", f32, &[2, 3]),
        ("w", DType::F8E4M3, &[256, 130]),
        ("w_scale_inv", f32, &[2, 2]),
        ("gate_up_blocks", DType::U8, &[2, 4, 3, 16]),
        ("gate_up_scales", DType::U8, &[2, 4, 3]),
        ("wte", f32, &[5, 2]),
        ("q", f32, &[256, 4]),
    ];
    let mut count = 0;
    for block in &blocks("text")[1..3] {
        for statement in block.lines() {
            run(statement, &sources).unwrap_or_else(|error| panic!("{statement}: {error}"));
            count += 1;
        }
    }
    assert_eq!(count, 13);
}

#[test]
fn the_error_of_the_guide_is_what_is_said() {
    let shown = blocks("text")[3];
    let statement = shown.lines().nth(1).unwrap().split_once("  l.").unwrap().1;
    let f32 = DType::F32;
    let error = run(
        &format!("x -> _\nl.{statement}"),
        &[
            ("x", f32, &[1]),
            ("l.0.q", f32, &[8, 4]),
            ("l.0.k", f32, &[4, 4]),
            ("l.0.v", f32, &[4, 4]),
            ("l.1.q", f32, &[8, 4]),
            ("l.1.k", f32, &[3, 4]),
            ("l.1.v", f32, &[4, 4]),
        ],
    );
    let error = error.unwrap_err();
    let trace: String = error
        .trace()
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect();
    assert_eq!(
        shown,
        format!("error: {error}\n{trace}\nhint: {}\n", error.hint().unwrap())
    );
}

#[test]
fn the_json_of_the_guide_is_asked_and_answered() {
    let [request, answer] = blocks("json")[..] else {
        panic!("a request and its answer");
    };
    let answer: Value = serde_json::from_str(answer).unwrap();
    assert_eq!(
        compiled(&Request::parse(request).unwrap().compile().unwrap()),
        answer
    );
}

#[test]
fn every_kind_of_error_is_in_the_guide() {
    for kind in [
        "syntax",
        "attribute",
        "name",
        "placeholder",
        "shape",
        "dtype",
        "dropped",
        "reverse",
        "limit",
        "input",
    ] {
        assert!(GUIDE.contains(&format!("| `{kind}` |")), "{kind}");
    }
}
