//! States of many ranks made from whole tensors, so that every load can be compared with what it should give.

use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, IfCommitted, LoadOptions, LoadReport, Options, SaveOptions,
    SaveReport, Saving, Source, State, Target, World, load, verify,
};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_store::Store;
use cairn_tensor::{DType, Runs, Strided};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Names with the way each tensor is spread over ranks.
pub(crate) type Specs = BTreeMap<String, TensorSpec>;

/// One step of a made-up training run: whole tensors whose bytes depend on name and step.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) specs: Specs,
    pub(crate) whole: BTreeMap<String, Vec<u8>>,
}

impl Model {
    pub(crate) fn new(specs: Specs, step: u64) -> Self {
        let whole = specs
            .iter()
            .map(|(name, spec)| (name.clone(), bytes(name, step, len(spec))))
            .collect();
        Self { specs, whole }
    }

    /// A small transformer-like model on the given mesh: split, replicated, staged and flat tensors.
    pub(crate) fn on(mesh: &str, step: u64) -> Self {
        let mesh: Mesh = mesh.parse().unwrap();
        let has = |axis: &str| mesh.axis(axis).is_ok();
        let tp = if has("tp") { "@tp" } else { "" };
        let flat = if has("dp") { " | flat(dp)" } else { "" };
        let texts = [
            ("embed", format!("bf16[37{tp}, 16]")),
            ("layers.0.up", format!("bf16[24, 10{tp}]")),
            ("layers.0.norm", "f32[16]".to_string()),
            ("optim.embed.exp_avg", format!("f32[37{tp}, 16{flat}]")),
            ("optim.step", "i64[]".to_string()),
            ("empty", "f32[0, 4]".to_string()),
        ];
        let specs = texts
            .iter()
            .map(|(name, text)| (name.to_string(), TensorSpec::parse(&mesh, text).unwrap()))
            .collect();
        Self::new(specs, step)
    }

    pub(crate) fn world(&self) -> usize {
        self.specs
            .values()
            .map(|spec| spec.max_rank() + 1)
            .max()
            .unwrap_or(1)
    }

    /// What `rank` has in memory.
    pub(crate) fn local(&self, rank: usize) -> BTreeMap<String, Vec<u8>> {
        self.specs
            .iter()
            .filter(|(_, spec)| spec.holds(rank))
            .map(|(name, spec)| (name.clone(), cut(spec, rank, &self.whole[name])))
            .collect()
    }

    pub(crate) fn state<'a>(&self, rank: usize, local: &'a BTreeMap<String, Vec<u8>>) -> State<'a> {
        let mut state = State::new(rank);
        for (name, bytes) in local {
            state.tensor(name, &self.specs[name], bytes).unwrap();
        }
        state.value("lr", serde_json::json!(0.1));
        state.rank_value("rng", serde_json::json!([rank, 7]));
        state
    }

    /// Saves with one thread for each rank and waits for all.
    pub(crate) fn save(
        &self,
        store: &Arc<dyn Store>,
        step: u64,
        save: &SaveOptions,
    ) -> Vec<Result<SaveReport, Arc<Error>>> {
        let worlds = World::threads(self.world());
        self.launch(store, &worlds, step, save, &quick())
    }

    /// Saves with one thread for each of `worlds`, which need not be every rank, and waits for all.
    pub(crate) fn launch(
        &self,
        store: &Arc<dyn Store>,
        worlds: &[World],
        step: u64,
        save: &SaveOptions,
        options: &Options,
    ) -> Vec<Result<SaveReport, Arc<Error>>> {
        thread::scope(|scope| {
            let ranks: Vec<_> = worlds
                .iter()
                .map(|world| {
                    scope.spawn(|| {
                        let run = checkpointer(store, world, options);
                        self.save_from(&run, world.rank(), step, save)
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    pub(crate) fn save_rank(
        &self,
        store: &Arc<dyn Store>,
        world: World,
        step: u64,
        save: &SaveOptions,
    ) -> Result<SaveReport, Arc<Error>> {
        let run = checkpointer(store, &world, &quick());
        self.save_from(&run, world.rank(), step, save)
    }

    /// Saves `rank`'s state by a checkpointer that has a past, and waits.
    pub(crate) fn save_from(
        &self,
        run: &Checkpointer,
        rank: usize,
        step: u64,
        save: &SaveOptions,
    ) -> Result<SaveReport, Arc<Error>> {
        self.start(run, rank, step, save).map_err(Arc::new)?.wait()
    }

    /// Starts to save `rank`'s state.
    pub(crate) fn start(
        &self,
        run: &Checkpointer,
        rank: usize,
        step: u64,
        save: &SaveOptions,
    ) -> Result<Saving, Error> {
        let local = self.local(rank);
        run.save(step, &self.state(rank, &local), save)
    }

    pub(crate) fn save_ok(&self, store: &Arc<dyn Store>, step: u64) {
        for report in self.save(store, step, &SaveOptions::default()) {
            report.unwrap();
        }
    }

    /// Loads from `source` as `target` lays it out, all ranks together, and compares every byte.
    pub(crate) fn assert_loads_as(&self, source: &dyn Source, target: &Specs) -> LoadReport {
        let (report, memory) = load_as(source, target, &LoadOptions::default()).unwrap();
        for ((name, rank), bytes) in memory {
            let expected = cut(&target[&name], rank, &self.whole[&name]);
            assert_eq!(
                bytes, expected,
                "`{name}` on rank {rank} of {}",
                target[&name]
            );
        }
        report
    }

    pub(crate) fn assert_loads(&self, checkpoint: &Checkpoint) {
        self.assert_loads_as(checkpoint, &self.specs);
    }

    /// Every byte on disk is as it was written, and every rank gets back what it saved.
    pub(crate) fn assert_whole(&self, checkpoint: &Checkpoint) {
        let report = verify(checkpoint, 1.0, &|_| {}).unwrap();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        self.assert_loads(checkpoint);
    }
}

type Memory = BTreeMap<(String, usize), Vec<u8>>;

/// Loads every rank's part of every tensor.
pub(crate) fn load_as(
    source: &dyn Source,
    specs: &Specs,
    options: &LoadOptions,
) -> Result<(LoadReport, Memory), Error> {
    let mut memory = Memory::new();
    for (name, spec) in specs {
        for rank in (0..=spec.max_rank()).filter(|rank| spec.holds(*rank)) {
            let len = spec
                .dtype()
                .len_bytes(spec.local_element_count(rank))
                .unwrap();
            memory.insert((name.clone(), rank), vec![0xAA; len]);
        }
    }
    let targets = memory
        .iter_mut()
        .map(|((name, rank), bytes)| Target::new(name, &specs[name], *rank, bytes).unwrap())
        .collect();
    let report = load(source, targets, options)?;
    Ok((report, memory))
}

/// A rank's local part of a whole tensor, by definition of its boxes.
pub(crate) fn cut(spec: &TensorSpec, rank: usize, whole: &[u8]) -> Vec<u8> {
    let len = spec
        .dtype()
        .len_bytes(spec.local_element_count(rank))
        .unwrap();
    let mut local = vec![0; len];
    for held in spec.local_boxes(rank) {
        let from = Strided::contiguous(spec.shape())
            .region(&held.region.offset, &held.region.extent)
            .unwrap();
        let runs = Runs::between(spec.dtype(), &from, &held.local).unwrap();
        runs.copy(whole, &mut local).unwrap();
    }
    local
}

pub(crate) fn len(spec: &TensorSpec) -> usize {
    spec.dtype()
        .len_bytes(spec.shape().iter().product())
        .unwrap()
}

/// Bytes that differ between tensors, steps and places.
pub(crate) fn bytes(name: &str, step: u64, len: usize) -> Vec<u8> {
    let mut state = name
        .bytes()
        .fold(step.wrapping_mul(0x9E37_79B9) + 1, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bytes.extend_from_slice(&(state >> 8).to_le_bytes()[..7]);
    }
    bytes.truncate(len);
    bytes
}

/// Deadlines for tests: long enough for a slow machine, short enough to end.
pub(crate) fn quick() -> Options {
    Options {
        commit_timeout: Duration::from_secs(20),
        takeover: Duration::from_secs(5),
        ..Options::default()
    }
}

/// Deadlines in milliseconds for tests in which somebody does not come.
pub(crate) fn deadlines(commit_timeout_ms: u64, takeover_ms: u64) -> Options {
    Options {
        commit_timeout: Duration::from_millis(commit_timeout_ms),
        takeover: Duration::from_millis(takeover_ms),
        capture_threads: 1,
        ..Options::default()
    }
}

pub(crate) fn checkpointer(
    store: &Arc<dyn Store>,
    world: &World,
    options: &Options,
) -> Checkpointer {
    Checkpointer::with_options(store.clone(), world.clone(), options.clone())
}

/// Does the same on every rank at once.
pub(crate) fn together<T: Send>(
    ranks: &[Checkpointer],
    act: impl Fn(&Checkpointer, usize) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .iter()
            .enumerate()
            .map(|(rank, run)| {
                scope.spawn({
                    let act = &act;
                    move || act(run, rank)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// Save options that put a committed step's successor in its place.
pub(crate) fn replace() -> SaveOptions {
    SaveOptions {
        if_committed: IfCommitted::Replace,
        ..SaveOptions::default()
    }
}

/// The newest good step, with nothing passed over.
pub(crate) fn latest(store: &Arc<dyn Store>) -> Checkpoint {
    let run = Checkpointer::new(store.clone(), World::single());
    let latest = run.latest().unwrap();
    assert!(latest.skipped.is_empty(), "{:?}", latest.skipped);
    latest.checkpoint
}

/// Another disk with the same objects.
pub(crate) fn copy_of(store: &dyn Store) -> cairn_store::Memory {
    let copy = cairn_store::Memory::new();
    for meta in store.list("").unwrap() {
        let bytes = store.get(&meta.key).unwrap();
        copy.put(&meta.key, &bytes, cairn_store::PutMode::Create)
            .unwrap();
    }
    copy
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(cairn_store::Memory::new())
}

pub(crate) fn spec(mesh: &str, text: &str) -> TensorSpec {
    TensorSpec::parse(&mesh.parse().unwrap(), text).unwrap()
}

pub(crate) fn one(name: &str, spec: TensorSpec) -> Specs {
    [(name.to_string(), spec)].into()
}

pub(crate) fn f32s(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub(crate) const F32: DType = DType::F32;
