//! Checkpoints streamed into other layouts, into Hugging Face folders and out of them, with little memory and with much.

use crate::common::{Model, Specs, bytes, len, memory, spec};
use crate::roundtrip::pairs;
use cairn_checkpoint::{
    Checkpoint, Checkpointer, DcpContents, Error, ModelSource, NewCheckpoint, RewriteOptions,
    SaveOptions, Source, State, World, export_dcp, export_hf, rewrite,
};
use cairn_formats::hf::{INDEX_FILE, SINGLE_FILE, open_folder};
use cairn_formats::safetensors::{Entry, encode};
use cairn_formats::torch_zip::tensor_frame;
use cairn_formats::{Encoding, dcp};
use cairn_store::{PutMode, Store};
use cairn_tensor::DType;
use crc_fast::{CrcAlgorithm, checksum};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Too little for anything, so one chunk is in flight; and enough for all.
const MEMORY_BYTES: [u64; 2] = [1, 1 << 30];

fn with_memory(memory_bytes: u64) -> RewriteOptions {
    RewriteOptions {
        memory_bytes,
        ..RewriteOptions::default()
    }
}

/// A checkpoint of these tensors and nothing else.
fn new_checkpoint(step: u64, target: &Model) -> NewCheckpoint {
    NewCheckpoint {
        step,
        world: target.world(),
        tensors: target.specs.clone(),
        aliases: BTreeMap::new(),
        values: BTreeMap::new(),
        save: SaveOptions::default(),
    }
}

/// Rewrites `source` as step 1 of a new run, and opens it.
fn rewritten(source: &dyn Source, new: &NewCheckpoint, memory_bytes: u64) -> Checkpoint {
    let store = memory();
    let report = rewrite(source, &store, new, &with_memory(memory_bytes)).unwrap();
    let checkpoint = Checkpoint::open(store, new.step).unwrap();
    assert_eq!(report.len_bytes, checkpoint.manifest().len_bytes);
    checkpoint
}

fn saved(model: &Model) -> Checkpoint {
    let store = memory();
    model.save_ok(&store, 1);
    Checkpoint::open(store, 1).unwrap()
}

fn check_rewrite(source: Specs, target: Specs) {
    let (source, target) = (Model::new(source, 1), Model::new(target, 1));
    let checkpoint = saved(&source);
    for memory_bytes in MEMORY_BYTES {
        let new = rewritten(&checkpoint, &new_checkpoint(1, &target), memory_bytes);
        target.assert_whole(&new);
        source.assert_loads(&new);
    }
}

/// Two ways to cut a tensor whose elements are smaller than a byte.
fn packed_pairs() -> impl Strategy<Value = (Specs, Specs)> {
    let cut = || (1..4_usize, 1..4_usize, any::<bool>());
    let dtype = prop::sample::select(vec!["f4", "f6_e2m3", "f6_e3m2"]);
    (dtype, 1..6_usize, cut(), cut()).prop_map(|(dtype, rows, from, to)| {
        let side = |(a, b, by_rows): (usize, usize, bool)| {
            let mesh = format!("a={a},b={b}");
            let dims = match by_rows {
                true => format!("{rows}@a, 24"),
                false => format!("{rows}, 24@b"),
            };
            let packed = spec(&mesh, &format!("{dtype}[{dims}]"));
            let plain = spec(&mesh, "f32[5@a, 3@b]");
            [("packed".to_string(), packed), ("plain".to_string(), plain)].into()
        };
        (side(from), side(to))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_rewrite_holds_the_same_tensors_in_any_layout((source, target) in pairs()) {
        check_rewrite(source, target);
    }

    #[test]
    fn a_rewrite_holds_the_same_packed_tensors((source, target) in packed_pairs()) {
        check_rewrite(source, target);
    }
}

/// Tensors of several chunks, in which chunks end inside elements.
fn large(mesh: &str, split: &str) -> Specs {
    [
        ("six", format!("f6_e2m3[6000{split}, 4000]")),
        ("four", format!("f4[1200{split}, 1000]")),
        ("bytes", format!("u8[3{split}]")),
        ("floats", format!("f32[1500{split}, 1000]")),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_string(), spec(mesh, &text)))
    .collect()
}

#[test]
fn files_of_many_chunks_are_rewritten_with_little_memory_and_with_much() {
    check_rewrite(large("tp=2", "@tp"), large("single", ""));
    check_rewrite(large("single", ""), large("tp=3", "@tp"));
}

#[test]
fn values_tags_aliases_and_side_files_are_carried() {
    let store = memory();
    let weights = spec("single", "f32[3]");
    let shared = bytes("head", 1, 12);
    let mut state = State::new(0);
    state.tensor("head", &weights, &shared).unwrap();
    state.tensor("tied", &weights, &shared).unwrap();
    state.value("scheduler", json!({"warmup": [1, 2.5, null]}));
    let save = SaveOptions {
        tags: vec!["best".into(), "größe".into()],
        assets: [("config.json".to_string(), b"{}\n".to_vec())].into(),
        ..SaveOptions::default()
    };
    let run = Checkpointer::new(store.clone(), World::single());
    run.save(1, &state, &save).unwrap().wait().unwrap();
    let old = run.open(1).unwrap();

    let new = NewCheckpoint {
        step: 1,
        world: 3,
        tensors: [("head".to_string(), spec("tp=3", "f32[3@tp]"))].into(),
        aliases: old.aliases(),
        values: old.values().clone(),
        save,
    };
    let new = rewritten(&old, &new, 1);
    assert_eq!(new.values(), old.values());
    assert_eq!(new.manifest().tags, old.manifest().tags);
    assert_eq!(new.aliases()["tied"], "head");
    assert_eq!(new.assets().unwrap(), old.assets().unwrap());
    let both: Specs = ["head", "tied"]
        .map(|name| (name.to_string(), weights.clone()))
        .into();
    let mut model = Model::new(both, 1);
    model.whole.insert("tied".into(), shared);
    model.assert_loads(&new);
}

#[test]
fn a_rewrite_of_damaged_data_commits_nothing() {
    let checkpoint = saved(&Model::on("tp=2", 1));
    let store = memory();
    let broken = memory();
    Model::on("tp=2", 1).save_ok(&broken, 1);
    let source = Checkpoint::open(broken.clone(), 1).unwrap();
    let key = source.data_key(1);
    let mut bytes = broken.get(&key).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    broken.put(&key, &bytes, PutMode::Replace).unwrap();

    let new = new_checkpoint(1, &Model::on("dp=3", 1));
    let error = rewrite(&source, &store, &new, &with_memory(1)).unwrap_err();
    assert!(
        error.is_damage() && error.to_string().contains(&key),
        "{error}"
    );
    let opened = Checkpoint::open(store.clone(), 1);
    assert!(matches!(opened, Err(Error::Incomplete { .. })));
    // The good copy goes to the same place after that.
    rewrite(&checkpoint, &store, &new, &with_memory(1)).unwrap();
    Model::on("dp=3", 1).assert_whole(&Checkpoint::open(store, 1).unwrap());
}

#[test]
fn a_committed_step_is_not_rewritten_by_accident() {
    let checkpoint = saved(&Model::on("tp=2", 1));
    let store = memory();
    let new = new_checkpoint(1, &Model::on("dp=3", 1));
    rewrite(&checkpoint, &store, &new, &with_memory(1)).unwrap();
    let again = rewrite(&checkpoint, &store, &new, &with_memory(1));
    assert!(matches!(again, Err(Error::StepTaken { step: 1, .. })));
}

fn open_hf(store: &Arc<dyn Store>) -> ModelSource {
    let model = open_folder(store.as_ref()).unwrap();
    ModelSource::new(store.clone(), model)
}

fn kept_files(store: &dyn Store) -> Vec<String> {
    let listing = store.list("").unwrap();
    listing.into_iter().map(|meta| meta.key).collect()
}

#[test]
fn an_export_opens_as_a_model_with_equal_tensors() {
    let model = Model::new(large("tp=2", "@tp"), 1);
    let checkpoint = saved(&model);
    let names: Vec<&str> = checkpoint.names();
    for memory_bytes in MEMORY_BYTES {
        for (shard_bytes, files) in [(u64::MAX, 1), (7 << 20, 2), (1, 4)] {
            let store = memory();
            let options = with_memory(memory_bytes);
            let report = export_hf(&checkpoint, &store, &names, shard_bytes, &options).unwrap();
            assert_eq!((report.files.len(), report.tensors), (files, 4));
            let index = store.head(INDEX_FILE).unwrap();
            assert_eq!(index.is_some(), files > 1);
            assert_eq!(report.files[0] == SINGLE_FILE, files == 1);
            model.assert_loads_as(&open_hf(&store), &large("single", ""));
        }
    }
}

/// Tensors of torch's types: one ends in a chunk where another begins, one fills several chunks, one is empty.
fn for_torch() -> Model {
    let texts = [
        ("a", "u8[5]"),
        ("b", "f32[5000, 1000]"),
        ("c", "bf16[0, 3]"),
        ("d", "i64[7]"),
    ];
    let specs = texts.map(|(name, text)| (name.to_string(), spec("single", text)));
    Model::new(specs.into(), 1)
}

#[test]
fn an_export_for_torch_holds_equal_tensors_and_their_checksums() {
    let model = for_torch();
    let checkpoint = saved(&model);
    let values = [("step".to_string(), json!(7))].into();
    for (memory_bytes, shard_bytes) in [(1, u64::MAX), (1 << 30, u64::MAX), (1 << 30, 6)] {
        let store = memory();
        let contents = DcpContents {
            names: &checkpoint.names(),
            values: &values,
            shard_bytes,
        };
        export_dcp(&checkpoint, &store, contents, &with_memory(memory_bytes)).unwrap();
        let opened = dcp::open_folder(store.as_ref(), "").unwrap();
        assert_eq!(opened.values, values);
        for (name, tensor) in &opened.tensors {
            let piece = &tensor.pieces[0];
            let Encoding::TorchArchive { len_bytes } = piece.encoding else {
                panic!("`{name}` has no archive of its own");
            };
            let file = store.get(&opened.files[piece.file].key).unwrap();
            let end = usize::try_from(piece.offset + len_bytes).unwrap();
            let frame = tensor_frame(tensor.dtype, &tensor.shape).unwrap();
            let after = &file[end - frame.after.len()..end];
            let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, &model.whole[name]);
            for at in frame.crc_at {
                assert_eq!(after[at..at + 4], crc.to_le_bytes()[..4], "{name}");
            }
        }
        model.assert_loads_as(&ModelSource::new(store, opened), &model.specs);
    }
}

#[test]
fn an_export_does_not_overwrite_a_model() {
    let checkpoint = saved(&Model::on("tp=2", 1));
    let store = memory();
    store
        .put(SINGLE_FILE, b"precious", PutMode::Create)
        .unwrap();
    let names = checkpoint.names();
    let exported = export_hf(&checkpoint, &store, &names, u64::MAX, &with_memory(1));
    assert!(matches!(exported, Err(Error::TargetTaken { .. })));
    assert_eq!(store.get(SINGLE_FILE).unwrap(), b"precious");
    assert_eq!(kept_files(store.as_ref()), [SINGLE_FILE]);
}

/// Puts a safetensors file with these tensors, as any other tool would.
fn put_safetensors(store: &dyn Store, key: &str, model: &Model, names: &[&str]) {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for name in names {
        let spec = &model.specs[*name];
        let begin = data.len() as u64;
        data.extend_from_slice(&model.whole[*name]);
        entries.push(Entry {
            name: (*name).to_string(),
            dtype: spec.dtype(),
            shape: spec.shape().to_vec(),
            begin,
            end: begin + len(spec) as u64,
        });
    }
    let file = [encode(&entries, &[("format", "pt")], 8).unwrap(), data].concat();
    store.put(key, &file, PutMode::Create).unwrap();
}

#[test]
fn a_hugging_face_model_becomes_a_sharded_checkpoint() {
    let texts = |tp: &str| {
        [
            ("embed", format!("bf16[37{tp}, 16]")),
            ("four", format!("f4[6{tp}, 8]")),
            ("six", format!("f6_e3m2[5{tp}, 8]")),
            ("scale", format!("f8_e8m0[9{tp}]")),
            ("scalar", "f64[]".to_string()),
            ("none", format!("f32[0, 4{tp}]")),
        ]
    };
    let laid_out = |mesh: &str, tp: &str| {
        let specs = texts(tp).map(|(name, text)| (name.to_string(), spec(mesh, &text)));
        Model::new(specs.into(), 1)
    };
    let model = laid_out("single", "");
    let store = memory();
    let files = [
        (
            "model-00001-of-00002.safetensors",
            ["embed", "four", "none"],
        ),
        (
            "model-00002-of-00002.safetensors",
            ["six", "scale", "scalar"],
        ),
    ];
    let mut weight_map = BTreeMap::new();
    for (file, names) in &files {
        put_safetensors(store.as_ref(), file, &model, names);
        weight_map.extend(names.map(|name| (name, file)));
    }
    let index = json!({"metadata": {}, "weight_map": weight_map}).to_string();
    let put = |key: &str, text: &str| store.put(key, text.as_bytes(), PutMode::Create).unwrap();
    put(INDEX_FILE, &index);
    put("config.json", "{\"hidden\": 16}");

    let source = open_hf(&store);
    let target = laid_out("dp=2,tp=3", "@tp");
    target.assert_loads_as(&source, &target.specs);
    let mut new = new_checkpoint(7, &target);
    new.save.assets = source.assets().unwrap().into_iter().collect();
    for memory_bytes in MEMORY_BYTES {
        let checkpoint = rewritten(&source, &new, memory_bytes);
        target.assert_whole(&checkpoint);
        assert_eq!(checkpoint.assets().unwrap()[0].0, "config.json");
        assert_eq!(checkpoint.find("six").unwrap().dtype, DType::F6E3M2);
    }
}
