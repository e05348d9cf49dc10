//! Bytes that change, vanish or swap places on disk are found, named and never loaded.

use crate::common::{
    Model, Specs, checkpointer, latest, load_as, memory, one, quick, replace, spec,
};
use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, LoadOptions, SaveOptions, StepState, Strictness, Target,
    World, chain, is_timeline, survey, verify,
};
use cairn_store::{Local, PutMode, Store};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A committed step that can be damaged and mended.
struct Patient {
    store: Arc<dyn Store>,
    model: Model,
    step: u64,
    objects: Vec<(String, Vec<u8>)>,
}

impl Patient {
    /// Three writers with a file and a part each, a side file, and `COMMIT`.
    fn new(store: Arc<dyn Store>, step: u64) -> Self {
        let tensors = [("bytes", "u8[40@tp]"), ("floats", "f32[7@tp, 2]")];
        let specs = tensors.map(|(name, text)| (name.to_string(), spec("tp=3", text)));
        let model = Model::new(specs.into(), step);
        let save = SaveOptions {
            assets: [("config.json".to_string(), b"{\"layers\": 1}".to_vec())].into(),
            ..SaveOptions::default()
        };
        for result in model.save(&store, step, &save) {
            result.unwrap();
        }
        let listing = store.list(&format!("step-{step:08}")).unwrap();
        // Nobody depends on a timeline, so its damage harms nobody.
        let objects: Vec<(String, Vec<u8>)> = listing
            .into_iter()
            .filter(|meta| !is_timeline(&meta.key))
            .map(|meta| (meta.key.clone(), store.get(&meta.key).unwrap()))
            .collect();
        assert_eq!(objects.len(), 3 * 2 + 2);
        Self {
            store,
            model,
            step,
            objects,
        }
    }

    fn key_of(&self, ending: &str) -> &str {
        let found = self.objects.iter().find(|(key, _)| key.ends_with(ending));
        &found.unwrap().0
    }

    fn of_kind(&self, ending: &str) -> Vec<&(String, Vec<u8>)> {
        let of_kind = self.objects.iter().filter(|(key, _)| key.ends_with(ending));
        of_kind.collect()
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        self.store.put(key, bytes, PutMode::Replace).unwrap();
    }

    fn mend(&self) {
        for (key, bytes) in &self.objects {
            self.put(key, bytes);
        }
    }

    /// A look at every byte finds damage, and names `file`; a load gives the right values or none.
    fn assert_found(&self, file: &str, what: &str) {
        let found = match survey(&self.store, self.step, 1.0, &|_| {}).unwrap() {
            StepState::Damaged(_, report) => report.damage,
            StepState::Incomplete(_) if file.ends_with("COMMIT") => return,
            other => panic!("{what} of `{file}` was not found: {other:?}"),
        };
        let named = found.iter().any(|error| chain(error).contains(file));
        assert!(named, "{what} of `{file}` was found as {found:?}");
        let Ok(checkpoint) = Checkpoint::open(self.store.clone(), self.step) else {
            return;
        };
        let one_thread = LoadOptions {
            threads: 1,
            ..LoadOptions::default()
        };
        match load_as(&checkpoint, &self.model.specs, &one_thread) {
            Err(error) => assert!(error.is_damage(), "{what} of `{file}`: {error}"),
            // What is damaged is not a tensor, then.
            Ok(_) => self.model.assert_loads(&checkpoint),
        }
    }

    fn try_flip(&self, key: &str, bytes: &[u8], at: usize) {
        let bit = at.wrapping_mul(2_654_435_761) >> 7 & 7;
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << bit;
        self.put(key, &damaged);
        self.assert_found(key, &format!("a flip of bit {bit} in byte {at}"));
        self.put(key, bytes);
    }
}

fn on_disk() -> (tempfile::TempDir, Arc<dyn Store>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Local::new(folder.path().join("run")));
    (folder, store)
}

#[test]
fn a_flipped_bit_in_any_byte_is_found() {
    let patient = Patient::new(memory(), 1);
    for (key, bytes) in &patient.objects {
        // Most of a header is padding: there a sample will do.
        let padding = key.ends_with("safetensors");
        let skip = |at: &usize| padding && (512..4064).contains(at) && !at.is_multiple_of(29);
        for at in (0..bytes.len()).filter(|at| !skip(at)) {
            patient.try_flip(key, bytes, at);
        }
    }
    patient.model.assert_whole(&latest(&patient.store));
}

#[test]
fn a_flipped_bit_on_a_real_disk_is_found() {
    let (_folder, store) = on_disk();
    let patient = Patient::new(store, 1);
    for (key, bytes) in &patient.objects {
        let last = bytes.len() - 1;
        for at in [0, 8, last / 2, last] {
            patient.try_flip(key, bytes, at);
        }
    }
}

#[test]
fn files_cut_short_made_longer_or_deleted_are_found() {
    let (_folder, store) = on_disk();
    let patient = Patient::new(store, 1);
    for (key, bytes) in &patient.objects {
        let len = bytes.len();
        for left in [0, 1, len / 2, len - 1] {
            patient.put(key, &bytes[..left]);
            patient.assert_found(key, &format!("a cut to {left} of {len} bytes"));
        }
        for extra in [&b"\n"[..], b"\0", &[7; 70_000]] {
            patient.put(key, &[bytes, extra].concat());
            patient.assert_found(key, &format!("{} more bytes", extra.len()));
        }
        patient.store.delete(key).unwrap();
        patient.assert_found(key, "the loss");
        patient.put(key, bytes);
    }
    patient.model.assert_whole(&latest(&patient.store));
}

#[test]
fn files_that_swapped_places_are_found() {
    let (_folder, store) = on_disk();
    let patient = Patient::new(store, 1);
    for kind in [".part", ".safetensors"] {
        let files = patient.of_kind(kind);
        for (index, (key, bytes)) in files.iter().enumerate() {
            for (other_key, other_bytes) in &files[index + 1..] {
                patient.put(key, other_bytes);
                patient.put(other_key, bytes);
                patient.assert_found(key, "a swap");
                patient.assert_found(other_key, "a swap");
                patient.mend();
            }
        }
    }
}

#[test]
fn a_file_of_another_step_is_found() {
    let store = memory();
    let other = Patient::new(store.clone(), 1);
    let patient = Patient::new(store, 2);
    for ((key, bytes), (_, foreign)) in patient.objects.iter().zip(&other.objects) {
        if bytes != foreign {
            patient.put(key, foreign);
            patient.assert_found(key, "another step's file in the place");
            patient.put(key, bytes);
        }
    }
}

/// Where in one of the data files the bytes `wanted` lie.
fn place_of(store: &dyn Store, wanted: &[u8]) -> (String, usize) {
    let files = store.list("").unwrap();
    let mut places = files.iter().filter_map(|meta| {
        let bytes = store.get(&meta.key).unwrap();
        let at = bytes.windows(wanted.len()).position(|part| part == wanted);
        at.map(|at| (meta.key.clone(), at))
    });
    places.next().unwrap()
}

#[test]
fn damaged_data_is_named_by_file_tensor_and_bytes_and_the_rest_still_loads() {
    let store = memory();
    let specs = [("hurt", "u8[200000]"), ("well", "u8[200000]")]
        .map(|(name, text)| (name.to_string(), spec("single", text)));
    let model = Model::new(specs.into(), 1);
    model.save_ok(&store, 1);
    let (file, begin) = place_of(store.as_ref(), &model.whole["hurt"]);
    let at = begin + 100_000;
    let mut bytes = store.get(&file).unwrap();
    bytes[at] ^= 1;
    store.put(&file, &bytes, PutMode::Replace).unwrap();

    let checkpoint = Checkpoint::open(store, 1).unwrap();
    let block = at / 65_536 * 65_536;
    let range = format!("bytes {block}..{}", (block + 65_536).min(bytes.len()));
    let damage = verify(&checkpoint, 1.0, &|_| {}).unwrap().damage;
    let load = |name: &str| {
        let partial = LoadOptions {
            strictness: Strictness::PARTIAL,
            ..LoadOptions::default()
        };
        load_as(&checkpoint, &one(name, model.specs[name].clone()), &partial)
    };
    let error = load("hurt").unwrap_err();
    assert_eq!(damage.len(), 1, "{damage:?}");
    for text in [error.to_string(), damage[0].to_string()] {
        for part in [file.as_str(), "`hurt`", range.as_str()] {
            assert!(text.contains(part), "no {part} in: {text}");
        }
        assert!(!text.contains("`well`"), "{text}");
    }
    let (_, memory) = load("well").unwrap();
    assert_eq!(memory[&("well".to_string(), 0)], model.whole["well"]);
}

#[test]
fn latest_walks_back_to_a_good_step_and_says_why() {
    let store = memory();
    let patients: Vec<Patient> = (1..=4)
        .map(|step| Patient::new(store.clone(), step))
        .collect();
    let hurt = [
        (3, patients[3].key_of("COMMIT")),
        (2, patients[2].key_of("00002.part")),
        (1, patients[1].key_of("config.json")),
    ];
    for (index, key) in hurt {
        patients[index].put(key, b"nonsense");
    }
    let run = checkpointer(&store, &World::single(), &quick());
    let found = run.latest().unwrap();
    assert_eq!(found.checkpoint.step(), 1);
    patients[0].model.assert_loads(&found.checkpoint);
    assert_eq!(found.skipped.len(), 3);
    for (skipped, (index, key)) in found.skipped.iter().zip(hurt) {
        assert_eq!(skipped.step, patients[index].step);
        assert!(skipped.reason.contains(key), "{skipped:?}");
    }
}

#[test]
fn load_latest_walks_back_when_it_meets_damaged_data() {
    let store = memory();
    let patients: Vec<Patient> = (1..=2)
        .map(|step| Patient::new(store.clone(), step))
        .collect();
    let key = patients[1].key_of("00001.safetensors");
    let mut bytes = store.get(key).unwrap();
    *bytes.last_mut().unwrap() ^= 0x80;
    patients[1].put(key, &bytes);

    let run = checkpointer(&store, &World::single(), &quick());
    assert_eq!(run.latest().unwrap().checkpoint.step(), 2);
    let model = &patients[0].model;
    let specs = Specs::from([
        ("bytes".to_string(), spec("single", "u8[40]")),
        ("floats".to_string(), spec("single", "f32[7, 2]")),
    ]);
    let mut whole: Vec<(String, Vec<u8>)> = specs
        .keys()
        .map(|name| (name.clone(), vec![0xAA; model.whole[name].len()]))
        .collect();
    let targets: Vec<Target> = whole
        .iter_mut()
        .map(|(name, bytes)| Target::new(name, &specs[name], 0, bytes).unwrap())
        .collect();
    let (found, _) = run.load_latest(targets, &LoadOptions::default()).unwrap();
    assert_eq!(found.checkpoint.step(), 1);
    assert_eq!(found.skipped.len(), 1);
    assert!(found.skipped[0].reason.contains(key), "{:?}", found.skipped);
    for (name, bytes) in whole {
        assert_eq!(bytes, model.whole[&name], "{name}");
    }
}

#[test]
fn when_every_step_is_damaged_all_are_named() {
    let store = memory();
    let patients = [1, 2].map(|step| Patient::new(store.clone(), step));
    for patient in &patients {
        patient.put(patient.key_of("COMMIT"), b"");
    }
    let run = checkpointer(&store, &World::single(), &quick());
    let Err(Error::NothingUsable { skipped, .. }) = run.latest() else {
        panic!("damaged steps were used");
    };
    assert_eq!(skipped.iter().map(|s| s.step).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn a_step_with_a_damaged_manifest_is_not_lost_to_a_save_but_can_be_replaced() {
    let patient = Patient::new(memory(), 1);
    patient.put(patient.key_of("COMMIT"), b"nonsense");
    let next = Model::on("tp=2", 2);
    for result in next.save(&patient.store, 1, &SaveOptions::default()) {
        assert!(result.is_err());
    }
    assert_eq!(
        patient.store.get(patient.key_of("COMMIT")).unwrap(),
        b"nonsense"
    );
    for result in next.save(&patient.store, 1, &replace()) {
        result.unwrap();
    }
    next.assert_whole(&latest(&patient.store));
}

/// Changes the manifest of a step and seals it again, by the letter of the format.
fn rewrite_commit(patient: &Patient, change: impl FnOnce(&mut Map<String, Value>)) {
    let key = patient.key_of("COMMIT");
    let mut members: Map<String, Value> =
        serde_json::from_slice(&patient.store.get(key).unwrap()).unwrap();
    members.remove("sha256");
    change(&mut members);
    let text = serde_json::to_string(&members).unwrap();
    let body = text.strip_suffix('}').unwrap();
    let digest: String = Sha256::digest(body)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let sealed = format!("{body},\"sha256\":\"{digest}\"}}\n");
    patient.put(key, sealed.as_bytes());
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let patient = Patient::new(memory(), 1);
    rewrite_commit(&patient, |members| {
        members.insert("cairn".into(), json!(3));
    });
    let run = Checkpointer::new(patient.store.clone(), World::single());
    let errors = [
        Checkpoint::open(patient.store.clone(), 1).unwrap_err(),
        run.latest().unwrap_err(),
    ];
    for error in errors {
        let Error::Version { file, found, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((file.as_str(), *found), (patient.key_of("COMMIT"), 3));
    }
    let state = survey(&patient.store, 1, 1.0, &|_| {}).unwrap();
    assert!(matches!(state, StepState::TooNew(Error::Version { .. })));
}

#[test]
fn what_a_document_needs_and_this_build_does_not_know_is_refused_by_name() {
    let patient = Patient::new(memory(), 1);
    rewrite_commit(&patient, |members| {
        members.insert("cairn".into(), json!(2));
        members.insert("needs".into(), json!(["delta", "telepathy"]));
    });
    let error = Checkpoint::open(patient.store.clone(), 1).unwrap_err();
    assert!(error.to_string().contains("`telepathy`"), "{error}");
    let state = survey(&patient.store, 1, 1.0, &|_| {}).unwrap();
    assert!(matches!(state, StepState::TooNew(Error::Needs { .. })));
}

#[test]
fn members_that_a_later_version_1_may_add_are_ignored() {
    let patient = Patient::new(memory(), 1);
    rewrite_commit(&patient, |members| {
        members.insert("signature".into(), json!({"by": ["somebody"], "at": 1}));
    });
    patient.model.assert_whole(&latest(&patient.store));
}
