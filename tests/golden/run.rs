//! What the golden run contains: tensors by formula, spread over ranks in every way the format knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cairn::checkpoint::{Checkpointer, Options, SaveOptions, State, World};
use cairn::sharding::{Listed, TensorSpec};
use cairn::store::Store;
use cairn::tensor::{Runs, Strided};
use serde_json::json;

/// Names with the way each tensor is spread over ranks.
pub(crate) type Specs = BTreeMap<String, TensorSpec>;

/// The launch's name: attempts are named after it.
const SESSION: &str = "golden";

/// One step of the golden run.
pub(crate) struct Step {
    pub(crate) step: u64,
    pub(crate) world: usize,
    pub(crate) specs: Specs,
    /// Another name and the tensor whose memory it shares.
    pub(crate) alias: (&'static str, &'static str),
}

/// Both steps: one writer with whole tensors, then nine with everything else.
pub(crate) fn steps() -> [Step; 2] {
    [single(), sharded()]
}

fn single() -> Step {
    let tensors = [
        ("model.embed.weight", "bf16[10, 4]"),
        ("model.norm.weight", "f32[7]"),
        ("optim.step", "i64[]"),
        ("rows.none", "f32[0, 4]"),
    ];
    Step {
        step: 3,
        world: 1,
        specs: on("single", &tensors),
        alias: ("model.head.weight", "model.embed.weight"),
    }
}

fn sharded() -> Step {
    let mesh = [
        ("größe/模型 🪨 \"\\\n@", "u8[3@tp]"),
        ("mask", "u8[9@dp]"),
        ("model.embed.weight", "bf16[10@tp, 4 | at(pp=0)]"),
        ("model.layers.0.norm.weight", "f32[7 | at(pp=0)]"),
        ("model.layers.0.qkv.weight", "bf16[12@tp/3, 4 | at(pp=0)]"),
        ("model.layers.1.norm.weight", "f32[7 | at(pp=1)]"),
        ("model.layers.1.qkv.weight", "bf16[12@tp/3, 4 | at(pp=1)]"),
        ("optim.embed.master", "f32[5@tp+dp, 3]"),
        ("optim.norm.exp_avg", "f32[7, 3 | flat(dp+tp)]"),
        ("optim.qkv.exp_avg", "f32[12@tp/3, 4 | flat(dp) | at(pp=1)]"),
        ("optim.step", "i64[]"),
        ("quant.packed", "f4[4, 8@tp]"),
        ("quant.scale", "f8_e8m0[6]"),
        ("quant.weight", "f8_e4m3[6@tp, 5@dp]"),
        ("rows.few", "f64[1@tp, 2]"),
        ("rows.none", "f32[0@tp, 4]"),
    ];
    let mut specs = on("dp=2,pp=2,tp=2", &mesh);
    specs.extend(on(
        "ep=4 on [1,3,5,7]",
        &[("experts.weight", "f16[6@ep, 2]")],
    ));
    specs.extend(on("ep=2 on 2..4", &[("experts.bias", "i16[3@ep]")]));
    // Ranks 0 and 6 hold the same rows; rank 3 holds two pieces.
    let pieces = "listed(0={0:4,0:4}, 3={4:6,0:2; 4:6,2:2#0:5}, 5={4:6,2:2#5:12}, 6={0:4,0:4})";
    let listed: Listed = pieces.parse().unwrap();
    let table = TensorSpec::new("f32".parse().unwrap(), vec![10, 4], listed).unwrap();
    specs.insert("table".into(), table);
    Step {
        step: 12,
        // Rank 8 is in no mesh: a writer without data.
        world: 9,
        specs,
        alias: ("model.head.weight", "model.embed.weight"),
    }
}

/// Tensors on one mesh, each by name and text.
fn on(mesh: &str, tensors: &[(&str, &str)]) -> Specs {
    let mesh = mesh.parse().unwrap();
    let parse = |text| TensorSpec::parse(&mesh, text).unwrap();
    let specs = tensors.iter();
    specs
        .map(|(name, text)| (name.to_string(), parse(text)))
        .collect()
}

/// Byte `i` of a tensor: `(31 i + 7 step + the bytes of its name) mod 251`.
pub(crate) fn whole(name: &str, spec: &TensorSpec, step: u64) -> Vec<u8> {
    let elements = spec.shape().iter().product();
    let len = spec.dtype().len_bytes(elements).unwrap() as u64;
    let seed = 7 * step + name.bytes().map(u64::from).sum::<u64>();
    (0..len)
        .map(|i| ((31 * i + seed) % 251).to_le_bytes()[0])
        .collect()
}

/// A rank's local part of a whole tensor, box by box.
pub(crate) fn local(spec: &TensorSpec, rank: usize, whole: &[u8]) -> Vec<u8> {
    let elements = spec.local_element_count(rank);
    let mut local = vec![0; spec.dtype().len_bytes(elements).unwrap()];
    for held in spec.local_boxes(rank) {
        let from = Strided::contiguous(spec.shape())
            .region(&held.region.offset, &held.region.extent)
            .unwrap();
        let runs = Runs::between(spec.dtype(), &from, &held.local).unwrap();
        runs.copy(whole, &mut local).unwrap();
    }
    local
}

impl Step {
    /// Saves the step, one thread for each rank.
    pub(crate) fn save(&self, store: &Arc<dyn Store>) {
        thread::scope(|scope| {
            for rank in 0..self.world {
                scope.spawn(move || self.save_rank(store, rank));
            }
        });
    }

    fn save_rank(&self, store: &Arc<dyn Store>, rank: usize) {
        let held = self.specs.iter().filter(|(_, spec)| spec.holds(rank));
        let memory: BTreeMap<&str, Vec<u8>> = held
            .map(|(name, spec)| {
                let bytes = local(spec, rank, &whole(name, spec, self.step));
                (name.as_str(), bytes)
            })
            .collect();
        let mut state = State::new(rank);
        for (name, bytes) in &memory {
            state.tensor(name, &self.specs[*name], bytes).unwrap();
        }
        let (alias, of) = self.alias;
        if let Some(bytes) = memory.get(of) {
            state.tensor(alias, &self.specs[of], bytes).unwrap();
        }
        for (name, value) in values(self.step) {
            state.value(name, value);
        }
        state.rank_value("rng", rng(rank));
        let world = World::new(rank, self.world, SESSION).unwrap().unique();
        // A rank that fails in a test ends it soon.
        let soon = Options {
            commit_timeout: Duration::from_secs(20),
            ..Options::default()
        };
        let run = Checkpointer::with_options(store.clone(), world, soon);
        run.save(self.step, &state, &options())
            .unwrap()
            .wait()
            .unwrap();
    }
}

/// Plain values that all ranks share.
pub(crate) fn values(step: u64) -> [(&'static str, serde_json::Value); 3] {
    [
        ("lr", json!(0.1)),
        ("note", json!("größe")),
        (
            "sampler",
            json!({"position": step * 1000, "seeds": [u64::MAX, -1, null]}),
        ),
    ]
}

/// A plain value of one rank.
pub(crate) fn rng(rank: usize) -> serde_json::Value {
    json!([rank, 7])
}

/// Tags and assets, the same in every step.
pub(crate) fn options() -> SaveOptions {
    let assets = [
        ("config.json", "{\"model_type\": \"golden\"}\n"),
        ("tokenizer/vocab.txt", "größe\n"),
    ];
    let assets = assets.map(|(name, text)| (name.to_string(), text.as_bytes().to_vec()));
    SaveOptions {
        tags: vec!["golden".into(), "größe".into()],
        assets: assets.into(),
        ..SaveOptions::default()
    }
}
