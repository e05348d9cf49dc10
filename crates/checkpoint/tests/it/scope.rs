//! A part of a checkpoint loads exactly, and what lies beside the part does not count.

use crate::common::{Model, Specs, load_as, memory, one, spec};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, KeyProblems, LoadOptions, SaveOptions, Scope, Source, State,
    World,
};

const NAMES: [&str; 6] = [
    "model",
    "model.weight",
    "model.layers.0.up",
    "model_ema.weight",
    "mode",
    "optim.model.weight",
];

fn specs(names: &[&str]) -> Specs {
    let spec = spec("tp=2", "f32[4@tp, 3]");
    names
        .iter()
        .map(|name| (name.to_string(), spec.clone()))
        .collect()
}

fn saved() -> (Model, Checkpoint) {
    let model = Model::new(specs(&NAMES), 1);
    let store = memory();
    model.save_ok(&store, 1);
    (model, Checkpoint::open(store, 1).unwrap())
}

fn names_under(source: &dyn Source, prefixes: &[&str]) -> Vec<String> {
    let prefixes = prefixes.iter().map(|prefix| prefix.to_string()).collect();
    let scope = Scope::new(source, prefixes);
    scope.names().into_iter().map(str::to_string).collect()
}

fn refused(source: &dyn Source, target: &Specs) -> KeyProblems {
    match load_as(source, target, &LoadOptions::default()).unwrap_err() {
        Error::Keys(problems) => *problems,
        other => panic!("{other}"),
    }
}

#[test]
fn a_prefix_takes_in_whole_words_only() {
    let (_, checkpoint) = saved();
    let under = |prefixes: &[&str]| names_under(&checkpoint, prefixes);
    assert_eq!(
        under(&["model"]),
        ["model", "model.layers.0.up", "model.weight"]
    );
    assert_eq!(
        under(&["model.layers", "mode"]),
        ["mode", "model.layers.0.up"]
    );
    assert_eq!(under(&["model", "model.weight"]), under(&["model"]));
    for nothing in ["", "model.", "odel", "weight"] {
        assert!(under(&[nothing]).is_empty(), "{nothing}");
    }
    assert!(under(&[]).is_empty());
}

#[test]
fn what_is_beside_the_part_is_not_unexpected_and_what_is_in_it_is() {
    let (model, checkpoint) = saved();
    let scope = Scope::new(&checkpoint, vec!["model".into()]);
    model.assert_loads_as(
        &scope,
        &specs(&["model", "model.weight", "model.layers.0.up"]),
    );
    let problems = refused(&scope, &specs(&["model", "model.weight"]));
    assert_eq!(problems.unexpected, ["model.layers.0.up"]);
    assert!(problems.missing.is_empty());
}

#[test]
fn a_name_outside_the_part_is_missing_even_if_it_is_stored() {
    let (_, checkpoint) = saved();
    let scope = Scope::new(&checkpoint, vec!["optim".into()]);
    let problems = refused(&scope, &specs(&["optim.model.weight", "model_ema.weight"]));
    let missing: Vec<&str> = problems
        .missing
        .iter()
        .map(|missing| missing.name.as_str())
        .collect();
    assert_eq!(missing, ["model_ema.weight"]);
    assert!(problems.unexpected.is_empty());
}

#[test]
fn an_alias_in_the_part_loads_a_tensor_outside_of_it() {
    let spec = spec("single", "u8[4]");
    let weights = [1, 2, 3, 4];
    let store = memory();
    let mut state = State::new(0);
    state.tensor("body.embed", &spec, &weights).unwrap();
    state.tensor("head.weight", &spec, &weights).unwrap();
    let run = Checkpointer::new(store.clone(), World::single());
    let saving = run.save(1, &state, &SaveOptions::default()).unwrap();
    saving.wait().unwrap();

    let checkpoint = Checkpoint::open(store, 1).unwrap();
    let scope = Scope::new(&checkpoint, vec!["head".into()]);
    assert_eq!(scope.names(), ["head.weight"]);
    assert_eq!(scope.aliases()["head.weight"], "body.embed");
    let target = one("head.weight", spec);
    let (_, memory) = load_as(&scope, &target, &LoadOptions::default()).unwrap();
    assert_eq!(memory[&("head.weight".into(), 0)], weights);

    let scope = Scope::new(&checkpoint, vec!["body".into()]);
    assert!(scope.aliases().is_empty(), "the other name is not in it");
}
