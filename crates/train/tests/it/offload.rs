//! What the optimizer remembers, in files.

use crate::support::{Case, Model, assert_same, train, trainer};
use cairn_checkpoint::{Checkpointer, World};
use cairn_store::{Memory, Store};
use cairn_train::settings::{Optimizer, Precision};
use cairn_train::{Error, weights};
use std::sync::Arc;
use tempfile::TempDir;

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new())
}

/// The same layout, with state in files in this folder.
fn in_files(case: &Case, folder: &TempDir) -> Case {
    let path = folder.path().to_str().expect("a path in UTF-8");
    Case {
        offload: Some(path.to_string()),
        ..case.clone()
    }
}

#[test]
fn state_in_files_gives_the_bits_of_state_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = Model::decoder("Qwen3ForCausalLM", true, 0.1);
    let mut cases: Vec<Case> = Case::all().into_iter().step_by(7).collect();
    cases[1].precision = Precision::Bf16;
    cases[2].precision = Precision::Bf16;
    cases[3].optimizer = Optimizer::Sgd {
        momentum: 0.9,
        nesterov: true,
        weight_decay: 0.1,
    };
    for case in &cases {
        let expected = train(case, &model, None, (4, 4));
        let found = train(&in_files(case, &folder), &model, None, (4, 4));
        assert_same(case, &found, &expected);
    }
    let left = folder.path().read_dir().expect("it is there").count();
    assert_eq!(left, 0, "files without names");
}

#[test]
fn a_run_goes_on_with_state_in_files_or_in_memory_by_turns() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = Model::decoder("LlamaForCausalLM", false, 0.0);
    for precision in [Precision::F32, Precision::Bf16] {
        let mut case = Case::new("dp=2,pp=2", 1, 2);
        case.precision = precision;
        let files = in_files(&case, &folder);
        let weights = |store: Arc<dyn Store>| {
            let step = Checkpointer::new(store, World::single()).open(9);
            weights::whole(&(Arc::new(step.expect("saved")) as _), &model.alone())
        };
        let (store, by_turns) = (memory(), memory());
        let expected = train(&case, &model, Some(&store), (9, 9));
        let mut found = train(&files, &model, Some(&by_turns), (3, 9));
        found.extend(train(&case, &model, Some(&by_turns), (5, 9)));
        found.extend(train(&files, &model, Some(&by_turns), (9, 9)));
        assert_same(&case, &found, &expected);
        assert_eq!(
            weights(store).expect("weights"),
            weights(by_turns).expect("weights")
        );
    }
}

/// Saves hold on to state in files while the next steps change it, and an average follows masters that are in files.
#[test]
fn saves_at_every_step_have_the_state_of_their_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = Model::decoder("LlamaForCausalLM", false, 0.0);
    let mut case = Case::new("dp=2", 1, 1);
    case.precision = Precision::Bf16;
    let run = |case: &Case| {
        let store = memory();
        let ran = case.run(|world| {
            let mut settings = case.settings(6);
            settings.checkpoints.every = Some(1);
            settings.checkpoints.ema = Some(0.5);
            trainer(settings, world, &model, Some(&store))?.run(&mut |_, _| Ok(()))
        });
        ran.unwrap_or_else(|error| panic!("{case}: {error}"));
        store
    };
    let (expected, found) = (run(&case), run(&in_files(&case, &folder)));
    let data = |store: &Arc<dyn Store>| {
        let objects = store.list("").expect("a list").into_iter();
        let data = objects.filter(|object| object.key.ends_with(".safetensors"));
        let steps = data.map(|object| {
            let (step, _) = object.key.split_once('/').expect("in a folder");
            (
                step.to_string(),
                store.get(&object.key).expect("it is there"),
            )
        });
        let mut steps: Vec<_> = steps.collect();
        steps.sort();
        steps
    };
    assert!(data(&expected) == data(&found), "the bytes differ");
}

#[test]
fn a_folder_that_cannot_be_written_to_is_named_at_once() {
    let case = Case {
        offload: Some("/proc/nowhere".into()),
        ..Case::alone()
    };
    let model = Model::decoder("LlamaForCausalLM", false, 0.0);
    let refused = case.run(|world| trainer(case.settings(1), world, &model, None).map(drop));
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::Arena(_)), "{error}");
    assert!(error.to_string().contains("in files"), "{error}");
}
