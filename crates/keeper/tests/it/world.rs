//! A keeper in this process, a run in a folder, and a tensor whose every byte is known.

use cairn_checkpoint::{Checkpointer, Error, LoadOptions, Options, Peers, Target, World};
use cairn_keeper::{Client, Limits, Server, ServerOptions, Status};
use cairn_sharding::{Mesh, TensorSpec};
use cairn_store::Store;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The one tensor of every state.
pub(crate) const NAME: &str = "weight";
/// Its rows, which the ranks share out, and the bytes of each: two ranks have several chunks each.
const ROWS: usize = 1200;
const ROW_BYTES: usize = 24 << 10;

/// A deadline that nothing but a hung test reaches.
const PATIENCE: Duration = Duration::from_secs(120);

/// The tensor, cut for a number of ranks.
pub(crate) struct Sharded {
    pub(crate) spec: TensorSpec,
    world: usize,
}

impl Sharded {
    pub(crate) fn new(world: usize) -> Self {
        let mesh = Mesh::new([("tp", world)]).unwrap();
        let spec = TensorSpec::parse(&mesh, &format!("u8[{ROWS}@tp, {ROW_BYTES}]")).unwrap();
        Self { spec, world }
    }

    /// What `rank` holds at `step`.
    pub(crate) fn bytes(&self, rank: usize, step: u64) -> Vec<u8> {
        let rows = ROWS / self.world;
        let row = |row: usize| {
            let seed = (row as u64 * 7 + step * 131).to_le_bytes();
            (0..ROW_BYTES).map(move |at| seed[at % 2] ^ at.to_le_bytes()[0])
        };
        (rank * rows..(rank + 1) * rows).flat_map(row).collect()
    }
}

/// A keeper that runs in this process, and a run beside it.
pub(crate) struct Home {
    pub(crate) folder: TempDir,
    stop: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl Home {
    /// Starts a keeper that forgets after an hour and takes up to a gibibyte.
    pub(crate) fn new() -> Self {
        Self::with(Limits::total(1 << 30), Duration::from_secs(3600))
    }

    pub(crate) fn with(limits: Limits, forget_after: Duration) -> Self {
        let mut home = Self::empty();
        let options = ServerOptions {
            limits,
            forget_after,
            ..ServerOptions::default()
        };
        let server = Server::bind(home.socket(), options, home.stop.clone()).unwrap();
        home.keeper = Some(thread::spawn(move || drop(server.run(|_| {}).unwrap())));
        home
    }

    /// A place without a keeper.
    pub(crate) fn empty() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            stop: Arc::default(),
            keeper: None,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("keeper/keeper.sock")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// The address of a folder beside the keeper.
    pub(crate) fn address(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn status(&self) -> Status {
        cairn_keeper::status(&self.socket()).unwrap()
    }

    /// Waits until what the keeper holds is so.
    pub(crate) fn wait_for(&self, what: &str, until: impl Fn(&Status) -> bool) -> Status {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if until(&status) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "no {what} in {status:#?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until `step` is at `stage`, for all of its `writers`.
    pub(crate) fn wait_for_stage(&self, step: u64, stage: &str, writers: usize) -> Status {
        self.wait_for(stage, |status| {
            let there = status.snapshots.iter();
            let there = there.filter(|held| held.step == step && held.stage == stage);
            there.count() == writers
        })
    }

    /// Tells the keeper to stop, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(keeper) = self.keeper.take() {
            keeper.join().unwrap();
        }
    }

    /// A reader of the run, with or without the keeper.
    pub(crate) fn reader(&self, with_keeper: bool) -> Checkpointer {
        let options = Options {
            keeper: with_keeper.then(|| Arc::new(Client::new(self.socket())) as _),
            ..Options::default()
        };
        Checkpointer::with_options(self.store(), World::single(), options)
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        cairn_store::open(self.run().to_str().unwrap()).unwrap()
    }

    /// Loads the newest step for `world` ranks and compares every byte. Returns the step.
    pub(crate) fn check(&self, with_keeper: bool, world: usize) -> Result<u64, Error> {
        let sharded = Sharded::new(world);
        let mut memory: Vec<Vec<u8>> = (0..world)
            .map(|_| vec![0; ROWS / world * ROW_BYTES])
            .collect();
        let ranks = memory.iter_mut().enumerate();
        let targets = ranks
            .map(|(rank, bytes)| Target::new(NAME, &sharded.spec, rank, bytes).unwrap())
            .collect();
        let reader = self.reader(with_keeper);
        let (latest, _) = reader.load_latest(targets, &LoadOptions::default())?;
        let step = latest.checkpoint.step();
        assert_eq!(latest.checkpoint.values()["step"], step);
        for (rank, bytes) in memory.iter().enumerate() {
            assert!(
                *bytes == sharded.bytes(rank, step),
                "rank {rank} of {world}"
            );
        }
        Ok(step)
    }

    /// Loads the newest step as columns for two peers that hand each other what they read, and compares every byte.
    pub(crate) fn check_peers(&self, step: u64) {
        let mesh = Mesh::new([("tp", 2)]).unwrap();
        let spec = TensorSpec::parse(&mesh, &format!("u8[{ROWS}, {ROW_BYTES}@tp]")).unwrap();
        let whole = Sharded::new(1).bytes(0, step);
        let load = |index: usize| {
            let mut peers = Peers::new(index, vec![0, 1], "peers");
            peers.folder = self.folder.path().to_path_buf();
            let options = LoadOptions {
                peers: Some(peers),
                ..LoadOptions::default()
            };
            let mut memory = vec![0; ROWS * ROW_BYTES / 2];
            let target = Target::new(NAME, &spec, index, &mut memory).unwrap();
            let reader = self.reader(true);
            let (_, report) = reader.load_latest(vec![target], &options).unwrap();
            assert!(report.received_bytes > 0);
            let rows = whole.chunks(ROW_BYTES);
            let expected = rows.flat_map(|row| &row[index * ROW_BYTES / 2..][..ROW_BYTES / 2]);
            assert!(memory.iter().eq(expected), "peer {index}");
        };
        thread::scope(|scope| {
            for index in 0..2 {
                let load = &load;
                scope.spawn(move || load(index));
            }
        });
    }

    /// Takes away the data files of every step: what is loaded then comes from memory.
    pub(crate) fn remove_data(&self) {
        remove_data(self.store().as_ref());
    }
}

/// Takes away the data files in a store.
pub(crate) fn remove_data(store: &dyn Store) {
    for meta in store.list("").unwrap() {
        if meta.key.ends_with(".safetensors") {
            store.delete(&meta.key).unwrap();
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
