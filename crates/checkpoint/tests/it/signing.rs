//! Every byte of a signed step is covered: whatever is changed, with or without its checksums, is refused.

use crate::common::{Model, copy_of, memory};
use cairn_checkpoint::repair::repair;
use cairn_checkpoint::signing::{PublicKey, SIGNATURE, SecretKey, sign};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, LoadOptions, Options, SaveOptions, Source, StepState, Target,
    World, survey_signed,
};
use cairn_store::{PutMode, Store};
use std::sync::Arc;

fn model() -> Model {
    Model::on("tp=2", 1)
}

fn signed() -> (Arc<dyn Store>, SecretKey) {
    let store = memory();
    let save = SaveOptions {
        assets: [("config.json".to_string(), b"{}".to_vec())].into(),
        ..SaveOptions::default()
    };
    for result in model().save(&store, 1, &save) {
        result.unwrap();
    }
    let key = SecretKey::generate().unwrap();
    let checkpoint = Checkpoint::open(store.clone(), 1).unwrap();
    let done = sign(&checkpoint, &key, &|_| ()).unwrap();
    assert_eq!(done.len_bytes, checkpoint.manifest().len_bytes);
    (store, key)
}

fn open(store: &Arc<dyn Store>, key: &PublicKey) -> Result<Checkpoint, Error> {
    Checkpoint::open(store.clone(), 1)?.require_key(key)
}

/// Reads everything there is in a step.
fn read_all(store: &Arc<dyn Store>, key: &PublicKey) -> Result<(), Error> {
    let checkpoint = open(store, key)?;
    for writer in 0..checkpoint.manifest().writers() {
        checkpoint.rank_values(writer)?;
    }
    checkpoint.assets()?;
    let model = model();
    for rank in 0..model.world() {
        let mut local = model.local(rank);
        let targets = local
            .iter_mut()
            .map(|(name, bytes)| Target::new(name, &model.specs[name], rank, bytes))
            .collect::<Result<_, _>>()?;
        // Without checksums: the signature does not depend on them.
        let options = LoadOptions {
            verify: false,
            ..LoadOptions::default()
        };
        checkpoint.load(targets, &options)?;
    }
    Ok(())
}

#[test]
fn a_signed_step_is_whole_for_its_key_and_refused_for_any_other() {
    let (store, key) = signed();
    read_all(&store, &key.public()).unwrap();
    model().assert_whole(&open(&store, &key.public()).unwrap());
    let other = SecretKey::generate().unwrap().public();
    assert!(matches!(open(&store, &other), Err(Error::Untrusted { .. })));
    let found = survey_signed(&store, 1, &other, 1.0, &|_| ()).unwrap();
    assert!(matches!(found, StepState::Untrusted(_)));
}

#[test]
fn a_bit_that_is_changed_in_the_signature_is_noticed() {
    let (store, key) = signed();
    let object = format!("step-00000001/{SIGNATURE}");
    let bytes = store.get(&object).unwrap();
    for bit in (0..bytes.len() * 8).step_by(19) {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        store.put(&object, &changed, PutMode::Replace).unwrap();
        // The line that ends the file, and the case of a digit, mean nothing.
        let harmless =
            bytes[bit / 8] == b'\n' || bytes[bit / 8].eq_ignore_ascii_case(&changed[bit / 8]);
        assert!(
            harmless || open(&store, &key.public()).is_err(),
            "bit {bit}"
        );
    }
}

#[test]
fn every_byte_of_every_file_is_covered() {
    let (start, key) = signed();
    let keys: Vec<String> = start
        .list("")
        .unwrap()
        .into_iter()
        .map(|meta| meta.key)
        .collect();
    let covered = |key: &String| !key.ends_with(".timeline") && !key.ends_with(".index.json");
    for file in keys.iter().filter(|key| covered(key)) {
        let bytes = start.get(file).unwrap();
        let places = (0..bytes.len()).step_by((bytes.len() / 23).max(1));
        for at in places.chain([bytes.len() - 1]) {
            if bytes[at] == b'\n' && file.ends_with(SIGNATURE) {
                continue;
            }
            let store: Arc<dyn Store> = Arc::new(copy_of(start.as_ref()));
            let mut changed = bytes.clone();
            changed[at] ^= 0x04;
            store.put(file, &changed, PutMode::Replace).unwrap();
            let read = read_all(&store, &key.public());
            let verified = survey_signed(&store, 1, &key.public(), 1.0, &|_| ()).unwrap();
            // Padding and empty pieces are not loaded, but they are verified.
            let refused = !matches!(verified, StepState::Whole(..));
            assert!(refused, "byte {at} of {file}: {read:?}");
        }
    }
}

#[test]
fn a_forgery_that_keeps_all_checksums_is_refused() {
    let (store, key) = signed();
    let checkpoint = Checkpoint::open(store.clone(), 1).unwrap();
    let data = checkpoint.data_key(0);
    let mut bytes = store.get(&data).unwrap();
    // Bytes that are changed by a multiple of the polynomial of CRC-32C keep it.
    let at = bytes.len() - 8;
    let multiple = 0x1_1EDC_6F41_u64;
    for bit in 0..33 {
        if multiple >> (32 - bit) & 1 == 1 {
            bytes[at + bit / 8] ^= 1 << (bit % 8);
        }
    }
    store.put(&data, &bytes, PutMode::Replace).unwrap();
    // Nothing that finds accidents sees it.
    let report = cairn_checkpoint::verify(&checkpoint, 1.0, &|_| ()).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let found = survey_signed(&store, 1, &key.public(), 1.0, &|_| ()).unwrap();
    assert!(matches!(found, StepState::Untrusted(_)), "{found:?}");
}

#[test]
fn several_people_may_sign_and_a_new_save_is_signed_by_nobody() {
    let (store, key) = signed();
    let second = SecretKey::generate().unwrap();
    let checkpoint = Checkpoint::open(store.clone(), 1).unwrap();
    sign(&checkpoint, &second, &|_| ()).unwrap();
    sign(&checkpoint, &second, &|_| ()).unwrap();
    for key in [&key, &second] {
        read_all(&store, &key.public()).unwrap();
    }
    for result in model().save(&store, 1, &crate::common::replace()) {
        result.unwrap();
    }
    let refused = open(&store, &key.public()).map(drop);
    assert!(
        matches!(refused, Err(Error::Untrusted { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_checkpointer_with_a_key_opens_nothing_else() {
    let (store, key) = signed();
    for result in Model::on("tp=2", 2).save(&store, 2, &SaveOptions::default()) {
        result.unwrap();
    }
    let options = Options {
        require_key: Some(key.public()),
        ..Options::default()
    };
    let run = Checkpointer::with_options(store.clone(), World::single(), options);
    assert_eq!(run.open(1).unwrap().step(), 1);
    for refused in [run.open(2).map(drop), run.latest().map(drop)] {
        assert!(
            matches!(refused, Err(Error::Untrusted { step: 2, .. })),
            "{refused:?}"
        );
    }
    sign(&Checkpoint::open(store, 2).unwrap(), &key, &|_| ()).unwrap();
    assert_eq!(run.latest().unwrap().checkpoint.step(), 2);
}

#[test]
fn damage_is_not_signed_and_a_repair_keeps_the_signature() {
    let (store, key) = signed();
    let copy: Arc<dyn Store> = Arc::new(copy_of(store.as_ref()));
    let checkpoint = Checkpoint::open(store.clone(), 1).unwrap();
    let data = checkpoint.data_key(1);
    let mut bytes = store.get(&data).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    store.put(&data, &bytes, PutMode::Replace).unwrap();
    let refused = sign(&checkpoint, &key, &|_| ());
    assert!(refused.is_err_and(|error| error.is_damage()));
    repair(&store, 1, &copy, false, &|_| ()).unwrap();
    read_all(&store, &key.public()).unwrap();
}

#[test]
fn a_newer_format_of_steps_leaves_signatures_as_they_are() {
    let (store, _) = signed();
    let text = store.get(&format!("step-00000001/{SIGNATURE}")).unwrap();
    let begins = br#"{"cairn":1,"kind":"signature","step":1,"#;
    assert_eq!(&text[..begins.len()], begins);
}
