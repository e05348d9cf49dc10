//! Saves that refer to earlier ones: what they write, what they need, and what happens if that is gone.

use crate::common::{
    Model, Specs, bytes, checkpointer, latest, len, memory, quick, replace, together,
};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, Options, SaveOptions, SaveReport, Source, StepState, World,
    chain, compact, survey, verify,
};
use cairn_sharding::TensorSpec;
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use cairn_store::{Memory, PutMode, Store};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const BLOCK: usize = 64 << 10;

pub(crate) fn delta() -> Options {
    Options {
        delta: true,
        ..quick()
    }
}

fn specs(mesh: &str, texts: &[(&str, String)]) -> Specs {
    let mesh = mesh.parse().unwrap();
    let spec = |text: &String| TensorSpec::parse(&mesh, text).unwrap();
    let all = texts.iter();
    all.map(|(name, text)| (name.to_string(), spec(text)))
        .collect()
}

/// A large part that stays, and small ones that change: about a hundred blocks.
pub(crate) fn adapter(mesh: &str) -> Model {
    let dims = if mesh.contains("tp") { "@tp" } else { "" };
    let specs = specs(
        mesh,
        &[
            ("adapter", format!("f32[1024{dims}]")),
            ("base", format!("bf16[3201{dims}, 1024]")),
            ("empty", "f32[0, 4]".to_string()),
            ("step", "i64[]".to_string()),
        ],
    );
    Model::new(specs, 1)
}

/// As [`adapter`], with a few blocks only.
pub(crate) fn small(mesh: &str) -> Model {
    let specs = specs(
        mesh,
        &[
            ("adapter", "f32[64@tp]".to_string()),
            ("base", format!("u8[{}@tp]", 4 * BLOCK)),
        ],
    );
    Model::new(specs, 1)
}

/// The model after another step of training that changed these tensors.
pub(crate) fn train(model: &Model, step: u64, names: &[&str]) -> Model {
    let mut next = model.clone();
    for name in names {
        let len = len(&next.specs[*name]);
        next.whole.insert(name.to_string(), bytes(name, step, len));
    }
    next
}

/// A launch: one checkpointer for each rank.
pub(crate) fn launch(
    store: &Arc<dyn Store>,
    model: &Model,
    options: &Options,
) -> Vec<Checkpointer> {
    let worlds = World::threads(model.world());
    let ranks = worlds.iter();
    ranks
        .map(|world| checkpointer(store, world, options))
        .collect()
}

pub(crate) fn save(ranks: &[Checkpointer], model: &Model, step: u64) -> Vec<SaveReport> {
    save_with(ranks, model, step, &SaveOptions::default())
}

fn save_with(
    ranks: &[Checkpointer],
    model: &Model,
    step: u64,
    options: &SaveOptions,
) -> Vec<SaveReport> {
    let act = |run: &Checkpointer, rank| model.save_from(run, rank, step, options);
    let results = together(ranks, act).into_iter();
    results.map(Result::unwrap).collect()
}

pub(crate) fn written(reports: &[SaveReport]) -> u64 {
    reports.iter().map(|report| report.len_bytes).sum()
}

fn open(store: &Arc<dyn Store>, step: u64) -> Checkpoint {
    Checkpoint::open(store.clone(), step).unwrap()
}

fn base_steps(store: &Arc<dyn Store>, step: u64) -> Vec<String> {
    let manifest = open(store, step).manifest().clone();
    let bases = manifest.delta.unwrap().bases.into_keys();
    bases
        .map(|folder| folder.split_once('/').unwrap().0.to_string())
        .collect()
}

#[test]
fn only_changed_blocks_are_written_and_every_step_loads() {
    for mesh in ["dp=1", "tp=2", "dp=2,tp=2"] {
        let (store, first) = (memory(), adapter(mesh));
        let ranks = launch(&store, &first, &delta());
        let full = written(&save(&ranks, &first, 10));
        let second = train(&first, 2, &["adapter", "step"]);
        let reports = save(&ranks, &second, 20);
        assert!(written(&reports) * 20 <= full, "{mesh}: {reports:?}");
        let third = train(&second, 3, &["step"]);
        save(&ranks, &third, 30);
        for (step, model) in [(10, &first), (20, &second), (30, &third)] {
            let checkpoint = open(&store, step);
            model.assert_whole(&checkpoint);
            assert_eq!(checkpoint.manifest().len_bytes, full);
            let delta = checkpoint.manifest().delta.as_ref();
            assert_eq!(delta.is_some(), step > 10, "{mesh}");
        }
        assert_eq!(latest(&store).step(), 30);
        let stored = open(&store, 20)
            .manifest()
            .delta
            .as_ref()
            .unwrap()
            .stored_bytes;
        assert_eq!(stored, written(&reports));
    }
}

#[test]
fn a_step_without_changes_has_no_data_file() {
    let (store, model) = (memory(), adapter("tp=2"));
    let ranks = launch(&store, &model, &delta());
    save(&ranks, &model, 1);
    assert_eq!(written(&save(&ranks, &model, 2)), 0);
    let folder = format!("step-00000002/{}", open(&store, 2).manifest().attempt);
    let listing = store.list(&folder).unwrap();
    assert!(!listing.iter().any(|meta| meta.key.ends_with(".delta")));
    model.assert_whole(&open(&store, 2));
}

#[test]
fn references_name_the_file_that_holds_the_bytes_and_no_other() {
    let (store, model) = (memory(), adapter("dp=1"));
    let ranks = launch(&store, &model, &delta());
    save(&ranks, &model, 1);
    let mut second = model.clone();
    let half = second.whole["base"].len() / 2;
    second.whole.get_mut("base").unwrap()[..half].fill(2);
    save(&ranks, &second, 2);
    let third = train(&second, 3, &["step"]);
    save(&ranks, &third, 3);
    assert_eq!(base_steps(&store, 3), ["step-00000001", "step-00000002"]);
    for meta in store.list("step-00000001").unwrap() {
        if !meta.key.ends_with(".safetensors") {
            store.delete(&meta.key).unwrap();
        }
    }
    third.assert_whole(&open(&store, 3));
}

#[test]
fn what_keeps_changing_is_referred_to_when_it_stayed_once() {
    let all = ["adapter", "base", "step"];
    for relaunched in [false, true] {
        let (store, first) = (memory(), adapter("dp=1"));
        let mut ranks = launch(&store, &first, &delta());
        let full = written(&save(&ranks, &first, 1));
        let (mut model, mut is_large) = (first.clone(), Vec::new());
        for step in 2..10 {
            if relaunched {
                ranks = launch(&store, &first, &delta());
            }
            // It changes once, stays, changes twice, and stays.
            if [2, 5, 6].contains(&step) {
                model = train(&model, step, &all);
            }
            is_large.push(written(&save(&ranks, &model, step)) * 20 > full);
            model.assert_whole(&open(&store, step));
        }
        let (no, yes) = (false, true);
        assert_eq!(is_large, [yes, no, no, yes, yes, yes, no, no]);
        first.assert_whole(&open(&store, 1));
    }
}

#[test]
fn a_new_launch_goes_on_where_the_last_one_stopped() {
    let (store, model) = (memory(), adapter("tp=2"));
    let full = written(&save(&launch(&store, &model, &delta()), &model, 1));
    let second = train(&model, 2, &["adapter"]);
    let reports = save(&launch(&store, &second, &delta()), &second, 2);
    assert!(written(&reports) * 20 <= full, "{reports:?}");
    // From a delta, too.
    let third = train(&second, 3, &["adapter"]);
    let reports = save(&launch(&store, &third, &delta()), &third, 3);
    assert!(written(&reports) * 20 <= full, "{reports:?}");
    third.assert_whole(&open(&store, 3));
}

#[test]
fn without_good_hashes_a_new_launch_saves_in_full() {
    for damage in [b"nonsense".as_slice(), b""] {
        let (store, model) = (memory(), adapter("tp=2"));
        let full = written(&save(&launch(&store, &model, &delta()), &model, 1));
        for meta in store.list("").unwrap() {
            if meta.key.ends_with(".blake3") {
                store.put(&meta.key, damage, PutMode::Replace).unwrap();
            }
        }
        let reports = save(&launch(&store, &model, &delta()), &model, 2);
        assert_eq!(written(&reports), full);
        assert_eq!(open(&store, 2).manifest().delta, None);
        model.assert_whole(&open(&store, 2));
    }
}

#[test]
fn steps_saved_without_deltas_are_not_referred_to() {
    let (store, model) = (memory(), adapter("tp=2"));
    save(&launch(&store, &model, &quick()), &model, 1);
    assert!(!store.list("").unwrap().iter().any(|meta| {
        [".blake3", ".pin", ".delta"]
            .iter()
            .any(|end| meta.key.ends_with(end))
    }));
    save(&launch(&store, &model, &delta()), &model, 2);
    assert_eq!(open(&store, 2).manifest().delta, None);
}

#[test]
fn another_layout_is_saved_in_full_and_loads_a_delta() {
    let (store, model) = (memory(), adapter("tp=2"));
    let ranks = launch(&store, &model, &delta());
    save(&ranks, &model, 1);
    let second = train(&model, 2, &["adapter"]);
    save(&ranks, &second, 2);
    for mesh in ["dp=1", "tp=3", "dp=2,tp=2"] {
        let other = adapter(mesh);
        second.assert_loads_as(&open(&store, 2), &other.specs);
    }
    let other = Model {
        specs: adapter("tp=3").specs,
        whole: second.whole.clone(),
    };
    save(&launch(&store, &other, &delta()), &other, 3);
    assert_eq!(open(&store, 3).manifest().delta, None);
    other.assert_whole(&open(&store, 3));
}

#[test]
fn a_step_that_replaces_itself_refers_to_what_it_was() {
    let (store, model) = (memory(), adapter("tp=2"));
    let ranks = launch(&store, &model, &delta());
    let full = written(&save(&ranks, &model, 1));
    let better = train(&model, 2, &["adapter"]);
    let reports = save_with(&ranks, &better, 1, &replace());
    assert!(written(&reports) * 20 <= full);
    assert_eq!(base_steps(&store, 1), ["step-00000001"]);
    better.assert_whole(&open(&store, 1));
}

#[test]
fn a_state_without_bytes_has_nothing_to_refer_to() {
    let (store, nothing) = (memory(), specs("dp=1", &[("none", "f32[0]".to_string())]));
    for model in [Model::new(Specs::new(), 1), Model::new(nothing, 1)] {
        let ranks = launch(&store, &model, &delta());
        for step in [1, 2] {
            save_with(&ranks, &model, step, &replace());
            model.assert_whole(&open(&store, step));
        }
    }
}

#[test]
fn many_chunks_with_scattered_changes_come_back() {
    let specs = specs("dp=1", &[("w", format!("u8[{}]", 17 * (1 << 20) + 12_345))]);
    let (store, mut model) = (memory(), Model::new(specs, 1));
    let options = Options {
        staging_bytes: Some(8 << 20),
        ..delta()
    };
    let ranks = launch(&store, &model, &options);
    save(&ranks, &model, 1);
    let bytes = model.whole.get_mut("w").unwrap();
    let last = bytes.len() - 1;
    for at in [0, 5 * BLOCK, 5 * BLOCK + 1, 9 << 20, last] {
        bytes[at] ^= 0xFF;
    }
    let reports = save(&ranks, &model, 2);
    assert_eq!(written(&reports), 4 * BLOCK as u64);
    model.assert_whole(&open(&store, 2));
    let cost = model.assert_loads_as(&open(&store, 2), &model.specs).cost;
    assert!(cost.over_read() < 1.1, "{cost:?}");
}

#[test]
fn a_file_refers_to_a_bounded_number_of_others() {
    let specs = specs("dp=1", &[("w", format!("u8[{}]", 40 * BLOCK))]);
    let (store, mut model) = (memory(), Model::new(specs, 1));
    let ranks = launch(&store, &model, &delta());
    for step in 1..=40 {
        let at = usize::try_from(step).unwrap() * BLOCK % (40 * BLOCK);
        model.whole.get_mut("w").unwrap()[at] ^= 1;
        save(&ranks, &model, step);
        let checkpoint = open(&store, step);
        let bases = checkpoint.manifest().base_files().len();
        assert!(bases <= 16, "step {step} refers to {bases} files");
        model.assert_loads(&checkpoint);
    }
}

/// A run with a delta as its step 2, and the key of the file that its step 1 wrote.
fn two_steps() -> (Arc<dyn Store>, Vec<Checkpointer>, Model, String) {
    let (store, model) = (memory(), adapter("dp=1"));
    let ranks = launch(&store, &model, &delta());
    save(&ranks, &model, 1);
    let second = train(&model, 2, &["adapter"]);
    save(&ranks, &second, 2);
    let base = open(&store, 1).data_key(0);
    (store, ranks, second, base)
}

#[test]
fn damage_in_a_base_is_named_with_the_base_and_the_step_that_refers_to_it() {
    let (store, _, second, base) = two_steps();
    let mut bytes = store.get(&base).unwrap();
    let at = bytes.len() - 20 * BLOCK;
    bytes[at] ^= 1;
    store.put(&base, &bytes, PutMode::Replace).unwrap();
    let report = verify(&open(&store, 2), 1.0, &|_| {}).unwrap();
    let [damage] = &report.damage[..] else {
        panic!("{:?}", report.damage);
    };
    let text = chain(damage);
    for part in [&base, "step-00000002", "`base`"] {
        assert!(text.contains(part), "{text}");
    }
    let options = Default::default();
    let error = crate::common::load_as(&open(&store, 2), &second.specs, &options).unwrap_err();
    assert!(
        error.is_damage() && chain(&error).contains(&base),
        "{error}"
    );
}

#[test]
fn a_base_that_is_gone_or_cut_short_is_damage_of_the_step() {
    let (store, _, second, base) = two_steps();
    let bytes = store.get(&base).unwrap();
    let cut = &bytes[..bytes.len() / 2];
    store.put(&base, cut, PutMode::Replace).unwrap();
    for gone in [false, true] {
        if gone {
            store.delete(&base).unwrap();
        }
        let state = survey(&store, 2, 0.0, &|_| {}).unwrap();
        let StepState::Damaged(Some(_), report) = state else {
            panic!("{state:?}");
        };
        let text = chain(&report.damage[0]);
        assert!(text.contains(&base) && text.contains("step 2"), "{text}");
        let error = open(&store, 2).open_file(0).unwrap_err();
        assert!(error.is_damage(), "{error}");
        assert!(
            Checkpointer::new(store.clone(), World::single())
                .latest()
                .is_err()
        );
    }
    store.put(&base, &bytes, PutMode::Replace).unwrap();
    second.assert_whole(&open(&store, 2));
}

#[test]
fn a_save_that_refers_to_a_file_that_is_gone_is_not_committed_and_the_next_is_full() {
    let (store, ranks, second, base) = two_steps();
    store.delete(&base).unwrap();
    let saved = second.save_from(&ranks[0], 0, 3, &SaveOptions::default());
    let error = saved.unwrap_err();
    let Error::BasesGone { step: 3, missing } = error.as_ref() else {
        panic!("{error}");
    };
    assert_eq!(missing, &[base]);
    assert!(Checkpoint::open(store.clone(), 3).is_err());
    save(&ranks, &second, 4);
    assert_eq!(open(&store, 4).manifest().delta, None);
    second.assert_whole(&open(&store, 4));
}

#[test]
fn a_listing_that_comes_late_does_not_hide_a_base() {
    let flaky = Arc::new(FlakyStore::new(Memory::new()));
    let (store, first) = (flaky.clone() as Arc<dyn Store>, small("tp=2"));
    let ranks = launch(&store, &first, &delta());
    save(&ranks, &first, 1);
    flaky.add(Rule::new([Operation::List], Fault::Lag).on("step-00000001"));
    let second = train(&first, 2, &["adapter"]);
    save(&ranks, &second, 2);
    flaky.clear();
    assert_eq!(base_steps(&store, 2), ["step-00000001"]);
}

#[test]
fn a_step_whose_base_was_deleted_meanwhile_is_saved_in_full() {
    let (store, ranks, second, _) = two_steps();
    store.delete("step-00000002/COMMIT").unwrap();
    save(&ranks, &second, 3);
    assert_eq!(open(&store, 3).manifest().delta, None);
    second.assert_whole(&open(&store, 3));
}

#[test]
fn readers_are_told_what_they_must_know() {
    let (store, _, _, _) = two_steps();
    let text = |key: &str| String::from_utf8(store.get(key).unwrap()).unwrap();
    assert!(text("step-00000001/COMMIT").starts_with("{\"cairn\":1,\"kind\""));
    let commit = text("step-00000002/COMMIT");
    assert!(
        commit.starts_with("{\"cairn\":2,\"needs\":[\"delta\"],\"kind\""),
        "{commit}"
    );
}

#[test]
fn a_compacted_step_stands_alone_and_its_files_are_plain() {
    let (store, ranks, second, base) = two_steps();
    let attempt = open(&store, 2).manifest().attempt.clone();
    let progress = Arc::new(AtomicU64::new(0));
    let report = compact(&store, 2, &World::single(), &progress)
        .unwrap()
        .unwrap();
    assert_eq!(report.files, 1);
    let checkpoint = open(&store, 2);
    assert_eq!(checkpoint.manifest().delta, None);
    assert_eq!(checkpoint.manifest().rewrite_of, Some(attempt));
    assert_eq!(report.len_bytes, checkpoint.manifest().len_bytes);
    assert_eq!(
        checkpoint.rank_values(0).unwrap().unwrap()["rng"],
        serde_json::json!([0, 7])
    );
    assert_eq!(
        compact(&store, 2, &World::single(), &progress).unwrap(),
        None
    );
    store.delete(&base).unwrap();
    second.assert_whole(&checkpoint);
    // The step that the checkpointer remembers is no longer there as it was.
    save(&ranks, &second, 3);
    second.assert_whole(&open(&store, 3));
    // A new launch refers to the compacted step.
    let third = train(&second, 3, &["adapter"]);
    store.delete("step-00000003/COMMIT").unwrap();
    save(&launch(&store, &third, &delta()), &third, 4);
    assert_eq!(base_steps(&store, 4), ["step-00000002"]);
    third.assert_whole(&open(&store, 4));
}

#[test]
fn a_damaged_base_is_not_compacted() {
    let (store, _, _, base) = two_steps();
    let attempt = open(&store, 2).manifest().attempt.clone();
    let mut bytes = store.get(&base).unwrap();
    let at = bytes.len() - 20 * BLOCK;
    bytes[at] ^= 1;
    store.put(&base, &bytes, PutMode::Replace).unwrap();
    let error = compact(&store, 2, &World::single(), &Arc::default()).unwrap_err();
    assert!(
        error.is_damage() && chain(&error).contains(&base),
        "{error}"
    );
    assert_eq!(open(&store, 2).manifest().attempt, attempt);
}
