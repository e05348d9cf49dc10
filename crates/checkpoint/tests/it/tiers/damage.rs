//! Files of the fast tier that are damaged in every block, cut short or missing: the durable copy is read, and the fast one mended.

use super::{MESH, keep_all, launch, save, tiers};
use crate::common::{Model, latest, load_as, memory, one, replace, spec};
use cairn_checkpoint::{Checkpointer, LoadOptions, SaveOptions, Target, World, chain, verify};
use cairn_store::{PutMode, Store};
use std::sync::Arc;

const BLOCK: usize = 64 << 10;

/// A run with one durable step of several blocks, and the key of its data file.
fn large() -> (Arc<dyn Store>, Arc<dyn Store>, Model, String) {
    let (fast, durable) = (memory(), memory());
    let specs = one("weights", spec("single", "u8[300000]"));
    let model = Model::new(specs, 1);
    let run = Checkpointer::new(tiers(&fast, &durable), World::single());
    model
        .save_from(&run, 0, 1, &SaveOptions::default())
        .unwrap();
    let key = latest(&durable).data_key(0);
    (fast, durable, model, key)
}

fn open(fast: &Arc<dyn Store>, durable: &Arc<dyn Store>) -> cairn_checkpoint::Checkpoint {
    let run = Checkpointer::new(tiers(fast, durable), World::single());
    let latest = run.latest().unwrap();
    assert!(latest.skipped.is_empty(), "{:?}", latest.skipped);
    latest.checkpoint
}

fn overwrite(store: &Arc<dyn Store>, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = store.get(key).unwrap();
    change(&mut bytes);
    store.put(key, &bytes, PutMode::Replace).unwrap();
}

#[test]
fn damage_in_any_block_is_read_from_the_durable_tier_and_mended() {
    let (fast, durable, model, key) = large();
    let good = fast.get(&key).unwrap();
    for block in 0..good.len().div_ceil(BLOCK) {
        overwrite(&fast, &key, |bytes| bytes[block * BLOCK] ^= 1);
        let report = model.assert_loads_as(&open(&fast, &durable), &model.specs);
        // The header is no tensor's, but shares its block with the first.
        assert_eq!(report.mended, [key.as_str()], "block {block}");
        assert_eq!(fast.get(&key).unwrap(), good, "block {block}");
    }
    assert_eq!(
        fast.list("").unwrap().len(),
        durable.list("").unwrap().len() + 2
    );
}

#[test]
fn a_file_that_is_cut_short_is_mended_and_a_missing_one_only_read_elsewhere() {
    let (fast, durable, model, key) = large();
    let good = fast.get(&key).unwrap();
    for len in [0, 1, BLOCK, good.len() - 1, good.len() + 1] {
        overwrite(&fast, &key, |bytes| bytes.resize(len, 0));
        let report = model.assert_loads_as(&open(&fast, &durable), &model.specs);
        assert_eq!(report.mended, [key.as_str()]);
        assert_eq!(fast.get(&key).unwrap(), good);
    }
    fast.delete(&key).unwrap();
    let report = model.assert_loads_as(&open(&fast, &durable), &model.specs);
    assert!(report.mended.is_empty());
    assert!(fast.head(&key).unwrap().is_none());
}

#[test]
fn damage_on_both_tiers_is_made_up_for_if_it_is_not_the_same() {
    let (fast, durable, model, key) = large();
    overwrite(&fast, &key, |bytes| bytes[BLOCK] ^= 1);
    overwrite(&durable, &key, |bytes| bytes[3 * BLOCK] ^= 1);
    let report = model.assert_loads_as(&open(&fast, &durable), &model.specs);
    assert_eq!(report.mended, [key.as_str()]);
    let alone = Checkpointer::new(fast.clone(), World::single());
    model.assert_whole(&alone.open(1).unwrap());
    // The same block on both is lost, and said to be.
    overwrite(&fast, &key, |bytes| bytes[3 * BLOCK] ^= 2);
    let lost = load_as(
        &open(&fast, &durable),
        &model.specs,
        &LoadOptions::default(),
    );
    let error = lost.unwrap_err();
    assert!(
        error.is_damage() && error.to_string().contains("weights"),
        "{error}"
    );
}

#[test]
fn every_damaged_document_is_read_from_the_durable_tier_and_replaced() {
    let (fast, durable) = (memory(), memory());
    let model = save(&launch(&tiers(&fast, &durable), 4, &keep_all()), 1);
    let documents: Vec<String> = durable
        .list("")
        .unwrap()
        .into_iter()
        .map(|meta| meta.key)
        .filter(|key| key.ends_with(".part") || key.ends_with("COMMIT"))
        .collect();
    assert_eq!(documents.len(), 5);
    for key in &documents {
        let good = fast.get(key).unwrap();
        for damage in [0, good.len() / 2, good.len() - 1] {
            overwrite(&fast, key, |bytes| bytes[damage] ^= 1);
            model.assert_whole(&open(&fast, &durable));
            assert_eq!(fast.get(key).unwrap(), good, "{key}");
        }
        fast.delete(key).unwrap();
        model.assert_whole(&open(&fast, &durable));
        fast.put(key, &good, PutMode::Create).unwrap();
    }
}

#[test]
fn damage_on_the_fast_tier_does_not_spread_to_the_durable_one() {
    let (fast, durable) = (memory(), memory());
    let model = Model::on(MESH, 1);
    model.save_ok(&fast, 1);
    let key = latest(&fast).data_key(2);
    overwrite(&fast, &key, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let run = Checkpointer::new(tiers(&fast, &durable), World::single());
    run.resume_uploads().unwrap();
    let refused = chain(&*run.wait().unwrap_err());
    assert!(
        refused.contains(&format!("`{key}` is damaged")),
        "{refused}"
    );
    assert!(
        Checkpointer::new(durable, World::single())
            .latest()
            .is_err()
    );
}

#[test]
fn a_damaged_attempt_on_the_fast_tier_does_not_hide_the_one_it_was_to_replace() {
    let (fast, durable, model, _) = large();
    let newer = Model::new(model.specs.clone(), 2);
    let alone = Checkpointer::new(fast.clone(), World::single());
    newer.save_from(&alone, 0, 1, &replace()).unwrap();
    let key = latest(&fast).data_key(0);
    overwrite(&fast, &key, |bytes| bytes[BLOCK] ^= 1);
    let run = Checkpointer::new(tiers(&fast, &durable), World::single());
    let mut loaded = vec![0; 300_000];
    let spec = spec("single", "u8[300000]");
    let target = Target::new("weights", &spec, 0, &mut loaded).unwrap();
    let (latest, _) = { run.load_latest(vec![target], &LoadOptions::default()) }.unwrap();
    model.assert_whole(&latest.checkpoint);
    assert_eq!(latest.skipped.len(), 1);
    assert_eq!(latest.skipped[0].step, 1);
}

#[test]
fn each_tier_is_verified_on_its_own() {
    let (fast, durable, _, key) = large();
    overwrite(&fast, &key, |bytes| bytes[BLOCK] ^= 1);
    let damage = |store: &Arc<dyn Store>| {
        let run = Checkpointer::new(store.clone(), World::single());
        let report = verify(&run.open(1).unwrap(), 1.0, &|_| {});
        report.unwrap().damage.len()
    };
    assert_eq!(damage(&fast), 1);
    assert_eq!(damage(&durable), 0);
    assert_eq!(damage(&tiers(&fast, &durable)), 0);
}
