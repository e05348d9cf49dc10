//! Deltas on tiers: what goes up, what stays on the fast tier for them, and what happens if their bases are gone.

use super::{launch, save_model, tiers};
use crate::common::{Model, latest, memory, together};
use crate::delta::{adapter, delta, small, train};
use cairn_checkpoint::{Checkpointer, Error, Level, Options, SaveOptions};
use cairn_store::{PutMode, Store, Tiered};
use std::sync::Arc;

const MESH: &str = "tp=2";

fn options() -> Options {
    Options {
        keep_fast: Some(1),
        ..delta()
    }
}

/// The bytes of the data files of a step.
fn data_bytes(store: &Arc<dyn Store>, step: u64) -> u64 {
    let listing = store.list(&format!("step-{step:08}")).unwrap();
    let data = listing
        .iter()
        .filter(|meta| meta.key.ends_with(".safetensors") || meta.key.ends_with(".delta"));
    data.map(|meta| meta.len).sum()
}

/// A full step and two deltas on top of it.
fn three_steps(ranks: &[Checkpointer]) -> [Model; 3] {
    let first = adapter(MESH);
    let second = train(&first, 2, &["adapter"]);
    let third = train(&second, 3, &["step"]);
    let models = [first, second, third];
    for (model, step) in models.iter().zip([10, 20, 30]) {
        save_model(ranks, model, step);
    }
    models
}

fn open(store: &Arc<dyn Store>, step: u64) -> cairn_checkpoint::Checkpoint {
    cairn_checkpoint::Checkpoint::open(store.clone(), step).unwrap()
}

#[test]
fn only_what_changed_goes_up_and_every_step_loads_from_the_durable_tier_alone() {
    let (fast, durable) = (memory(), memory());
    let ranks = launch(&tiers(&fast, &durable), 2, &options());
    let models = three_steps(&ranks);
    assert!(data_bytes(&durable, 20) * 20 <= data_bytes(&durable, 10));
    for (model, step) in models.iter().zip([10, 20, 30]) {
        model.assert_whole(&open(&durable, step));
    }
}

#[test]
fn a_delta_with_the_last_and_short_block_of_its_image_goes_up() {
    let (fast, durable) = (memory(), memory());
    let ranks = launch(&tiers(&fast, &durable), 2, &options());
    let first = small(MESH);
    let second = train(&first, 2, &["base"]);
    save_model(&ranks, &first, 10);
    save_model(&ranks, &second, 20);
    second.assert_whole(&open(&durable, 20));
    second.assert_whole(&open(&tiers(&fast, &durable), 20));
}

#[test]
fn files_that_a_delta_refers_to_stay_on_the_fast_tier_as_long_as_it_does() {
    let (fast, durable) = (memory(), memory());
    let ranks = launch(&tiers(&fast, &durable), 2, &options());
    let models = three_steps(&ranks);
    drop(ranks);
    models[2].assert_whole(&latest(&fast));
    assert!(fast.head("step-00000010/COMMIT").unwrap().is_none());
    assert!(data_bytes(&fast, 10) > 0);

    // Full steps push them out.
    let plain = Options {
        delta: false,
        ..options()
    };
    let ranks = launch(&tiers(&fast, &durable), 2, &plain);
    for step in [40, 50] {
        save_model(&ranks, &models[2], step);
    }
    drop(ranks);
    for step in [10, 20, 30, 40] {
        assert_eq!(data_bytes(&fast, step), 0, "step {step}");
        assert!(fast.list(&format!("step-{step:08}")).unwrap().is_empty());
    }
    models[0].assert_whole(&open(&tiers(&fast, &durable), 10));
}

#[test]
fn a_damaged_block_of_a_base_comes_from_the_durable_tier() {
    let (fast, durable) = (memory(), memory());
    let ranks = launch(&tiers(&fast, &durable), 2, &options());
    let models = three_steps(&ranks);
    let listing = fast.list("step-00000010").unwrap();
    for meta in listing.iter().filter(|m| m.key.ends_with(".safetensors")) {
        let mut bytes = fast.get(&meta.key).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fast.put(&meta.key, &bytes, PutMode::Replace).unwrap();
    }
    models[2].assert_whole(&open(&tiers(&fast, &durable), 30));
}

#[test]
fn a_delta_whose_base_left_the_durable_tier_is_told_and_the_next_save_is_full() {
    let (fast, durable) = (memory(), memory());
    let ranks = launch(&tiers(&fast, &durable), 2, &options());
    let first = adapter(MESH);
    save_model(&ranks, &first, 10);
    for meta in durable.list("step-00000010").unwrap() {
        durable.delete(&meta.key).unwrap();
    }
    let second = train(&first, 2, &["adapter"]);
    let tried = together(&ranks, |run, rank| {
        let saving = second.start(run, rank, 20, &SaveOptions::default());
        let saving = saving.unwrap();
        saving.wait_for(Level::Local).unwrap();
        saving.wait().unwrap_err()
    });
    for error in tried {
        assert!(
            matches!(*error, Error::BasesGone { step: 20, .. }),
            "{error}"
        );
    }
    second.assert_whole(&open(&tiers(&fast, &durable), 20));
    save_model(&ranks, &second, 30);
    second.assert_whole(&open(&durable, 30));
}

#[test]
fn nodes_with_fast_tiers_of_their_own_save_no_deltas() {
    let store: Arc<dyn Store> = Arc::new(Tiered::per_node(memory(), memory()));
    let ranks = launch(&store, 2, &options());
    let model = adapter(MESH);
    for error in together(&ranks, |run, rank| {
        let saving = model.start(run, rank, 10, &SaveOptions::default());
        saving.unwrap_err()
    }) {
        assert!(error.to_string().contains("`delta`"), "{error}");
    }
}
