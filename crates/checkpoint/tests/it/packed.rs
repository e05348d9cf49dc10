//! Saves that are compressed: what they write, that they read like any other, and what happens if they are damaged.

use crate::common::{Model, latest, memory, quick, together};
use crate::delta::{adapter, launch, save, train, written};
use crate::tiers;
use cairn_checkpoint::repair::{FileState, repair};
use cairn_checkpoint::{
    Checkpoint, Error, Options, SaveOptions, StepState, World, compact, survey, verify,
};
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use cairn_store::{Memory, PutMode, Store};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const MESHES: [&str; 3] = ["dp=1", "tp=2", "dp=2,tp=2"];

/// A way to damage a store.
type Spoil<'a> = &'a dyn Fn(&dyn Store);

fn packed() -> Options {
    Options {
        compress: true,
        ..quick()
    }
}

fn packed_deltas() -> Options {
    Options {
        delta: true,
        ..packed()
    }
}

/// The model of other tests, with numbers for a base that are as those of a model are: small, of either sign, their last digits random.
fn weights(mesh: &str) -> Model {
    let mut model = adapter(mesh);
    let base = model.whole.get_mut("base").unwrap();
    for (index, pair) in (0_u32..).zip(base.chunks_exact_mut(2)) {
        let noise = index.wrapping_mul(2_654_435_761) >> 16 ^ u32::from(pair[0]);
        let noise = u16::try_from(noise).unwrap();
        let weight = (f32::from(noise) / f32::from(u16::MAX) - 0.5) * 0.05;
        pair.copy_from_slice(&weight.to_le_bytes()[2..]);
    }
    model
}

fn open(store: &Arc<dyn Store>, step: u64) -> Checkpoint {
    Checkpoint::open(store.clone(), step).unwrap()
}

/// The keys of data files.
fn data(store: &dyn Store) -> Vec<String> {
    let listing = store.list("").unwrap().into_iter().map(|meta| meta.key);
    listing
        .filter(|key| cairn_checkpoint::is_data_file(key))
        .collect()
}

fn change(store: &dyn Store, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = store.get(key).unwrap();
    change(&mut bytes);
    store.put(key, &bytes, PutMode::Replace).unwrap();
}

#[test]
fn a_compressed_step_takes_less_and_loads_on_any_layout() {
    for mesh in MESHES {
        let (store, model) = (memory(), weights(mesh));
        let ranks = launch(&store, &model, &packed());
        let reports = save(&ranks, &model, 10);
        let checkpoint = open(&store, 10);
        let manifest = checkpoint.manifest();
        assert!(
            data(store.as_ref())
                .iter()
                .all(|key| key.ends_with(".packed"))
        );
        assert_eq!(manifest.stored_bytes(), written(&reports));
        assert!(
            manifest.stored_bytes() * 100 < manifest.len_bytes * 75,
            "{mesh}: {manifest:?}"
        );
        model.assert_whole(&checkpoint);
        model.assert_loads(&checkpoint);
        for other in MESHES {
            model.assert_loads_as(&checkpoint, &adapter(other).specs);
        }
        let report = verify(&checkpoint, 1.0, &|_| ()).unwrap();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
    }
}

#[test]
fn states_of_every_kind_come_back() {
    for mesh in ["dp=1", "dp=2,tp=2"] {
        // Every element type, empty tensors and scalars, most of it noise.
        let (store, model) = (memory(), Model::on(mesh, 1));
        let ranks = launch(&store, &model, &packed());
        save(&ranks, &model, 1);
        model.assert_whole(&latest(&store));
    }
}

#[test]
fn deltas_of_compressed_steps_are_compressed_and_refer_to_them() {
    let (store, first) = (memory(), weights("tp=2"));
    let ranks = launch(&store, &first, &packed_deltas());
    let full = written(&save(&ranks, &first, 10));
    // The last tensor of the file, whose last block is a short one.
    let mut second = train(&first, 2, &["adapter"]);
    second.whole.get_mut("base").unwrap().reverse();
    save(&ranks, &second, 20);
    let third = train(&second, 3, &["step"]);
    assert!(written(&save(&ranks, &third, 30)) * 20 <= full);
    save(&ranks, &third, 40);
    for (step, model) in [(10, &first), (20, &second), (30, &third), (40, &third)] {
        model.assert_whole(&open(&store, step));
        let whole = survey(&store, step, 1.0, &|_| ()).unwrap();
        assert!(matches!(whole, StepState::Whole(..)), "step {step}");
    }
    // A launch that does not compress refers to them as well, and the other way round.
    let plain = Options {
        compress: false,
        ..packed_deltas()
    };
    let ranks = launch(&store, &first, &plain);
    let fourth = train(&third, 4, &["step"]);
    assert!(written(&save(&ranks, &fourth, 50)) * 20 <= full);
    fourth.assert_whole(&open(&store, 50));
    assert!(open(&store, 50).manifest().packed.is_none());
    let ranks = launch(&store, &first, &packed_deltas());
    assert!(written(&save(&ranks, &train(&fourth, 5, &["step"]), 60)) * 20 <= full);
    train(&fourth, 5, &["step"]).assert_whole(&open(&store, 60));
}

#[test]
fn a_compressed_step_is_made_plain() {
    let (store, model) = (memory(), weights("tp=2"));
    save(&launch(&store, &model, &packed()), &model, 10);
    let progress = Arc::new(AtomicU64::new(0));
    let report = compact(&store, 10, &World::single(), &progress).unwrap();
    let checkpoint = open(&store, 10);
    assert_eq!(report.unwrap().len_bytes, checkpoint.manifest().len_bytes);
    assert!(checkpoint.manifest().is_plain());
    model.assert_whole(&checkpoint);
    let again = compact(&store, 10, &World::single(), &progress).unwrap();
    assert!(again.is_none());
}

#[test]
fn damage_anywhere_is_found_and_nothing_wrong_is_loaded() {
    let (store, model) = (memory(), weights("dp=1"));
    save(&launch(&store, &model, &packed()), &model, 1);
    let key = data(store.as_ref()).remove(0);
    let len = store.get(&key).unwrap().len();
    for at in (0..len).step_by(len / 97).chain(len - 60..len) {
        let spoiled: Arc<dyn Store> = Arc::new(crate::common::copy_of(store.as_ref()));
        change(spoiled.as_ref(), &key, |bytes| bytes[at] ^= 0x10);
        match survey(&spoiled, 1, 1.0, &|_| ()).unwrap() {
            StepState::Damaged(_, report) => {
                let text = format!("{:?}", report.damage);
                assert!(text.contains(&key), "{text}");
            }
            // Filling between blocks is nobody's.
            StepState::Whole(checkpoint, _) => model.assert_whole(&checkpoint),
            other => panic!("byte {at}: {other:?}"),
        }
    }
    for cut in [0, 1, len / 2, len - 1] {
        let spoiled: Arc<dyn Store> = Arc::new(crate::common::copy_of(store.as_ref()));
        change(spoiled.as_ref(), &key, |bytes| bytes.truncate(cut));
        let found = survey(&spoiled, 1, 1.0, &|_| ()).unwrap();
        assert!(matches!(found, StepState::Damaged(..)), "cut at {cut}");
    }
}

#[test]
fn compressed_steps_go_up_to_the_durable_tier_and_are_mended_from_it() {
    let (fast, durable) = (memory(), memory());
    let both = tiers::tiers(&fast, &durable);
    let options = Options {
        keep_fast: None,
        ..packed_deltas()
    };
    let ranks = tiers::launch(&both, 2, &options);
    let first = weights("tp=2");
    // Its last block is new and short.
    let mut second = first.clone();
    *second.whole.get_mut("base").unwrap().last_mut().unwrap() ^= 1;
    for (model, step) in [(&first, 10), (&second, 20)] {
        tiers::save_model(&ranks, model, step);
        model.assert_whole(&open(&durable, step));
    }
    drop(ranks);
    let keys = data(fast.as_ref());
    assert_eq!(keys, data(durable.as_ref()));
    for key in keys {
        let good = fast.get(&key).unwrap();
        for spoil in [0, 40, good.len() - 10] {
            change(fast.as_ref(), &key, |bytes| bytes[spoil] ^= 1);
            for (model, step) in [(&first, 10), (&second, 20)] {
                model.assert_loads(&open(&both, step));
            }
            let mended = fast.get(&key).unwrap() == good;
            assert!(mended, "byte {spoil} of {key}");
        }
    }
}

#[test]
fn the_short_last_block_of_a_delta_goes_up_and_is_mended_where_nothing_is_compressed() {
    let (fast, durable) = (memory(), memory());
    let options = Options {
        compress: false,
        keep_fast: None,
        ..packed_deltas()
    };
    let ranks = tiers::launch(&tiers::tiers(&fast, &durable), 2, &options);
    let first = weights("tp=2");
    let mut second = first.clone();
    *second.whole.get_mut("base").unwrap().last_mut().unwrap() ^= 1;
    for (model, step) in [(&first, 10), (&second, 20)] {
        tiers::save_model(&ranks, model, step);
        model.assert_whole(&open(&durable, step));
    }
}

#[test]
fn compressed_steps_and_deltas_are_repaired_from_a_copy() {
    for options in [
        packed_deltas(),
        Options {
            compress: false,
            ..packed_deltas()
        },
    ] {
        let (store, first) = (memory(), weights("tp=2"));
        let ranks = launch(&store, &first, &options);
        save(&ranks, &first, 10);
        let second = train(&first, 2, &["adapter"]);
        save(&ranks, &second, 20);
        let copy: Arc<dyn Store> = Arc::new(crate::common::copy_of(store.as_ref()));
        let keys = data(store.as_ref());
        assert!(keys.len() > 2, "{keys:?}");
        for key in keys {
            let damages: [Spoil; 3] = [
                &|store| change(store, &key, |bytes| bytes[100] ^= 1),
                &|store| change(store, &key, |bytes| bytes.truncate(bytes.len() / 2)),
                &|store| store.delete(&key).unwrap(),
            ];
            for spoil in damages {
                let spoiled: Arc<dyn Store> = Arc::new(crate::common::copy_of(store.as_ref()));
                spoil(spoiled.as_ref());
                for step in [20, 10] {
                    let planned = repair(&spoiled, step, &copy, true, &|_| ()).unwrap();
                    let report = repair(&spoiled, step, &copy, false, &|_| ()).unwrap();
                    assert_eq!(planned, report);
                    assert!(report.is_whole(), "{key}: {report:?}");
                }
                second.assert_whole(&open(&spoiled, 20));
                first.assert_whole(&open(&spoiled, 10));
            }
        }
        // What is damaged in both is lost, and named.
        let key = data(store.as_ref()).pop().unwrap();
        for side in [&store, &copy] {
            change(side.as_ref(), &key, |bytes| bytes[100] ^= 1);
        }
        let report = repair(&store, 20, &copy, false, &|_| ()).unwrap();
        let lost = report
            .files
            .iter()
            .filter(|file| file.state == FileState::Lost);
        assert_eq!(
            lost.map(|file| file.file.as_str()).collect::<Vec<_>>(),
            [key]
        );
    }
}

#[test]
fn an_older_reader_would_be_told_what_it_lacks() {
    let (store, model) = (memory(), weights("dp=1"));
    save(&launch(&store, &model, &packed()), &model, 1);
    let commit = String::from_utf8(store.get("step-00000001/COMMIT").unwrap()).unwrap();
    assert!(
        commit.starts_with(r#"{"cairn":2,"needs":["packed"],"#),
        "{commit}"
    );
}

#[test]
fn a_save_that_fails_leaves_no_packed_file_behind() {
    let flaky = Arc::new(FlakyStore::new(Memory::new()));
    let (store, model) = (flaky.clone() as Arc<dyn Store>, weights("dp=1"));
    flaky.add(Rule::new([Operation::Write], Fault::Fail(28)).on(".packed"));
    let ranks = launch(&store, &model, &packed());
    let failed = together(&ranks, |run, rank| {
        model.save_from(run, rank, 1, &SaveOptions::default())
    });
    assert!(failed.iter().all(Result::is_err));
    assert!(data(store.as_ref()).is_empty());
    let opened = Checkpoint::open(store, 1);
    assert!(matches!(opened, Err(Error::Incomplete { .. })));
}
