//! Files of format version 1 stay readable, and today's code still writes them.
//!
//! `fixtures/format-v1/run` was written once and never changes. What it must contain is known by formula (`golden/run.rs`),
//! not read back from it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "golden/run.rs"]
mod run;

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn::checkpoint::{
    Checkpoint, Layout, LoadOptions, Source, Target, WriterItems, is_timeline, verify,
};
use cairn::sharding::{Mesh, TensorSpec};
use cairn::store::{Local, Memory, Store};
use run::{Specs, Step, local, options, rng, steps, values, whole};
use serde_json::{Map, Value};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-v1/run");

fn golden() -> Arc<dyn Store> {
    Arc::new(Local::new(FOLDER))
}

#[test]
fn the_golden_run_loads_bit_for_bit_on_any_layout() {
    for step in steps() {
        let checkpoint = Checkpoint::open(golden(), step.step).unwrap();
        let layouts = [
            step.specs.clone(),
            step.resharded("single", ["", ""]),
            step.resharded("tp=3", ["@tp", ""]),
            step.resharded("x=2,y=2", ["@y", "@x/2"]),
        ];
        for specs in layouts {
            step.assert_loads_as(&checkpoint, &specs);
        }
    }
}

#[test]
fn every_byte_of_the_golden_run_is_intact() {
    for step in steps() {
        let checkpoint = Checkpoint::open(golden(), step.step).unwrap();
        let report = verify(&checkpoint, 1.0, &|_| ()).unwrap();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        assert_eq!(report.checked_bytes, checkpoint.manifest().len_bytes);
        let writers_with_data = step.world.min(8);
        assert_eq!(report.files, writers_with_data);
    }
}

#[test]
fn values_tags_assets_and_aliases_come_back() {
    for step in steps() {
        let checkpoint = Checkpoint::open(golden(), step.step).unwrap();
        let expected: BTreeMap<String, Value> = values(step.step)
            .map(|(name, value)| (name.to_string(), value))
            .into();
        assert_eq!(*checkpoint.values(), expected);
        for rank in 0..step.world {
            let own = checkpoint.rank_values(rank).unwrap().unwrap();
            assert_eq!(own, BTreeMap::from([("rng".to_string(), rng(rank))]));
        }
        assert_eq!(checkpoint.manifest().tags, options().tags);
        let assets: BTreeMap<String, Vec<u8>> = checkpoint.assets().unwrap().into_iter().collect();
        assert_eq!(assets, options().assets);
        let (alias, of) = step.alias;
        let aliases = checkpoint.manifest().layout.aliases();
        assert_eq!(
            *aliases,
            BTreeMap::from([(alias.to_string(), of.to_string())])
        );
    }
}

#[test]
fn the_golden_run_is_written_again_byte_for_byte() {
    let again: Arc<dyn Store> = Arc::new(Memory::new());
    for step in steps() {
        step.save(&again);
    }
    let golden = golden();
    let keys = |store: &dyn Store| -> Vec<String> {
        let listing = store.list("").unwrap();
        // When a save took how long is no part of what it saved.
        let keys = listing.into_iter().map(|meta| meta.key);
        keys.filter(|key| !is_timeline(key)).collect()
    };
    assert_eq!(keys(again.as_ref()), keys(golden.as_ref()));
    for key in keys(golden.as_ref()) {
        let [written, kept] =
            [&again, &golden].map(|store| without_times(&key, store.get(&key).unwrap()));
        assert_eq!(written, kept, "`{key}`");
    }
}

/// The worked example of `docs/format.md`: the fixture is too small for a tensor that is cut between replicas.
#[test]
fn a_large_tensor_is_cut_between_its_replicas_as_documented() {
    let mesh: Mesh = "dp=2".parse().unwrap();
    let specs = [
        ("bias", "f32[1000]"),
        ("emb", "bf16[3001, 1024]"),
        ("norm", "f32[1024]"),
    ];
    let specs =
        specs.map(|(name, text)| (name.to_string(), TensorSpec::parse(&mesh, text).unwrap()));
    let layout = Layout::new(specs.into(), BTreeMap::new());
    let files = [0, 1].map(|rank| {
        let writer = WriterItems::new(&layout, rank).unwrap();
        let lines = writer.items.iter().map(|item| {
            let (name, end) = (layout.name(item.tensor), item.offset + item.len_bytes);
            format!("{name}@{} {}..{end}", item.piece, item.offset)
        });
        lines.collect::<Vec<_>>()
    });
    assert_eq!(
        files,
        [
            ["bias@0:1000 0..4000", "emb@0:1501,0:1024 4000..3078048"],
            ["norm@0:1024 0..4096", "emb@1501:1500,0:1024 4096..3076096"],
        ]
    );
}

#[test]
#[ignore = "writes the fixture, which exists and must never change"]
fn write_the_golden_run() {
    for step in steps() {
        step.save(&golden());
    }
}

impl Step {
    /// The same tensors on another mesh; `splits` stand after the sizes of their dims.
    fn resharded(&self, mesh: &str, splits: [&str; 2]) -> Specs {
        let mesh: Mesh = mesh.parse().unwrap();
        let respec = |spec: &TensorSpec| {
            let dims = spec.shape().iter().zip(splits);
            let dims: Vec<String> = dims.map(|(len, split)| format!("{len}{split}")).collect();
            let text = format!("{}[{}]", spec.dtype(), dims.join(", "));
            TensorSpec::parse(&mesh, &text).unwrap()
        };
        let specs = self.specs.iter();
        specs
            .map(|(name, spec)| (name.clone(), respec(spec)))
            .collect()
    }

    /// Loads every rank's part of every tensor and compares all bytes with the formula.
    fn assert_loads_as(&self, checkpoint: &Checkpoint, specs: &Specs) {
        let (alias, of) = self.alias;
        let names = specs.keys().map(|name| (name.as_str(), name.as_str()));
        let mut expected = Vec::new();
        for (name, of) in names.chain([(alias, of)]) {
            let spec = &specs[of];
            let bytes = whole(of, spec, self.step);
            for rank in spec.ranks() {
                expected.push((name, spec, rank, local(spec, rank, &bytes)));
            }
        }
        let mut loaded: Vec<Vec<u8>> = expected
            .iter()
            .map(|(.., bytes)| vec![0xAA; bytes.len()])
            .collect();
        let targets = expected
            .iter()
            .zip(&mut loaded)
            .map(|((name, spec, rank, _), bytes)| Target::new(name, spec, *rank, bytes).unwrap())
            .collect();
        checkpoint.load(targets, &LoadOptions::default()).unwrap();
        for ((name, spec, rank, bytes), loaded) in expected.iter().zip(&loaded) {
            assert_eq!(loaded, bytes, "`{name}` as `{spec}` on rank {rank}");
        }
    }
}

/// The text of a sealed document without what differs between two saves, or was not recorded when the fixture was written: the time, the
/// program, the launch, and digests over these.
/// Other files stay as they are.
fn without_times(key: &str, bytes: Vec<u8>) -> Vec<u8> {
    let name = key.rsplit('/').next().unwrap_or(key);
    if name != "COMMIT" && !name.ends_with(".part") {
        return bytes;
    }
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let mut members: Map<String, Value> = serde_json::from_slice(&bytes[..end]).unwrap();
    for member in ["created", "program", "parts", "sha256"] {
        if let Some(value) = members.get_mut(member) {
            *value = Value::Null;
        }
    }
    members.shift_remove("launch");
    [serde_json::to_vec(&members).unwrap(), bytes[end..].to_vec()].concat()
}
