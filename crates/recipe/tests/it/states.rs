//! Optimizer state follows its parameter, whoever named it.

use cairn_recipe::{Error, Program, Step, Target, Tensor, Tensors};
use cairn_tensor::DType;
use std::collections::BTreeMap;

fn tensors(list: &[(&str, DType, &[usize])]) -> Tensors {
    let tensor = |(name, dtype, shape): &(&str, DType, &[usize])| {
        (name.to_string(), Tensor::new(*dtype, *shape))
    };
    list.iter().map(tensor).collect()
}

fn run(
    text: &str,
    sources: &Tensors,
    targets: Option<&Tensors>,
) -> Result<BTreeMap<String, Target>, Error> {
    Ok(Program::parse(text)?.compile(sources, targets)?.targets)
}

fn sources_of(target: &Target) -> Vec<&str> {
    let pieces = target.pieces.as_ref().unwrap().iter();
    pieces
        .map(|piece| piece.source.as_ref().unwrap().name.as_str())
        .collect()
}

#[test]
fn state_goes_where_its_parameter_goes_and_keeps_its_values() {
    let cases = [
        ("a.w_0", "b.w_0", "c.w_0"),
        ("a.exp_avg", "b.exp_avg", "c.exp_avg"),
        (
            "optim.state.a.exp_avg_sq",
            "optim.state.b.exp_avg_sq",
            "optim.state.c.exp_avg_sq",
        ),
        (
            "optimizer.state.exp_avg.a",
            "optimizer.state.exp_avg.b",
            "optimizer.state.exp_avg.c",
        ),
    ];
    for (first, second, made) in cases {
        let two = [2, 3];
        let sources = tensors(&[
            ("a", DType::F32, &two),
            ("b", DType::F32, &two),
            (first, DType::F32, &two),
            (second, DType::F32, &two),
        ]);
        let targets = run("a^T, b^T -> c, axis=0, dtype=bfloat16", &sources, None).unwrap();
        assert_eq!(targets.keys().collect::<Vec<_>>(), ["c", made], "{made}");
        assert_eq!(
            (targets["c"].dtype, targets[made].dtype),
            (DType::Bf16, DType::F32)
        );
        assert_eq!(sources_of(&targets[made]), [first, second]);
        assert_eq!(
            targets[made].pieces.as_ref().unwrap()[1].steps,
            [Step::Permute(vec![1, 0])]
        );
    }
}

#[test]
fn state_without_the_word_model_belongs_to_the_parameter_with_it() {
    let sources = tensors(&[
        ("model.a", DType::F32, &[2]),
        ("optim.state.a.exp_avg", DType::F32, &[2]),
    ]);
    let targets = run("model.a -> model.b", &sources, None).unwrap();
    assert_eq!(
        targets.keys().collect::<Vec<_>>(),
        ["model.b", "optim.state.b.exp_avg"]
    );
}

#[test]
fn numbers_of_a_whole_parameter_are_those_of_its_first_source() {
    let sources = tensors(&[
        ("a", DType::F32, &[2]),
        ("b", DType::F32, &[2]),
        ("a.beta1_pow_acc_0", DType::F32, &[1]),
        ("b.beta1_pow_acc_0", DType::F32, &[1]),
        ("optim.state.a.step", DType::F32, &[]),
        ("optim.state.b.step", DType::F32, &[]),
    ]);
    let targets = run("b, a -> c, axis=0", &sources, None).unwrap();
    assert_eq!(
        sources_of(&targets["c.beta1_pow_acc_0"]),
        ["b.beta1_pow_acc_0"]
    );
    assert_eq!(
        sources_of(&targets["optim.state.c.step"]),
        ["optim.state.b.step"]
    );
}

#[test]
fn state_that_only_a_part_of_the_sources_has_is_not_made_up() {
    let sources = tensors(&[
        ("a", DType::F32, &[2]),
        ("b", DType::F32, &[2]),
        ("a.w_0", DType::F32, &[2]),
    ]);
    let compiled = Program::parse("a, b -> c, axis=0")
        .unwrap()
        .compile(&sources, None)
        .unwrap();
    assert_eq!(compiled.targets.keys().collect::<Vec<_>>(), ["c"]);
    assert!(
        compiled.warnings[0].contains("`c.w_0`"),
        "{:?}",
        compiled.warnings
    );
    let targets = tensors(&[("c.w_0", DType::F32, &[4])]);
    let error = run("a, b -> c, axis=0", &sources, Some(&targets)).unwrap_err();
    assert_eq!(
        (error.kind(), error.statement()),
        ("name", Some("a, b -> c, axis=0"))
    );
}

#[test]
fn a_parameter_may_be_known_by_its_state_alone() {
    let sources = tensors(&[("a.w_0", DType::F32, &[2])]);
    let targets = tensors(&[("b.w_0", DType::F32, &[2])]);
    assert_eq!(
        sources_of(&run("a -> b", &sources, Some(&targets)).unwrap()["b.w_0"]),
        ["a.w_0"]
    );
    assert_eq!(
        run("a -> b", &sources, None)
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["b.w_0"]
    );
    let parameter = tensors(&[("b", DType::F32, &[2])]);
    assert_eq!(
        run("a -> b", &sources, Some(&parameter))
            .unwrap_err()
            .kind(),
        "name"
    );
}

#[test]
fn the_state_of_a_target_that_keeps_its_own_value_keeps_its_own() {
    let targets = tensors(&[
        ("b", DType::F32, &[2]),
        ("b.w_0", DType::F32, &[2]),
        ("b.beta1_pow_acc_0", DType::F32, &[1]),
    ]);
    let made = run("_ -> b", &Tensors::new(), Some(&targets)).unwrap();
    assert!(made.values().all(|target| target.pieces.is_none()) && made.len() == 3);
}

#[test]
fn a_statement_about_state_is_refused() {
    let sources = tensors(&[("a", DType::F32, &[2]), ("a.w_0", DType::F32, &[2])]);
    let error = run("a.w_0 -> b.w_0", &sources, None).unwrap_err();
    assert_eq!(error.kind(), "name");
    assert!(
        error.to_string().contains("follows its parameter `a`"),
        "{error}"
    );
}

#[test]
fn what_a_statement_makes_by_that_name_is_no_state() {
    let targets = tensors(&[("x.w_0", DType::F32, &[2]), ("x.w_1", DType::F32, &[2])]);
    let made = run(
        "a -> x.w[0:2], axis=0",
        &tensors(&[("a", DType::F32, &[4])]),
        Some(&targets),
    )
    .unwrap();
    assert_eq!(
        (sources_of(&made["x.w_0"]), sources_of(&made["x.w_1"])),
        (vec!["a"], vec!["a"])
    );
}
