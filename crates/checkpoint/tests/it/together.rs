//! Loads by several peers, as threads and as processes: the same bytes as alone, read once, and no peer waits for a dead one.

mod processes;

use crate::common::{Model, Specs, copy_of, cut, memory, one, spec};
use crate::roundtrip::pairs;
use cairn_checkpoint::{
    Checkpoint, Checkpointer, Error, LoadOptions, LoadReport, Peers, Strictness, Target, World,
};
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use cairn_store::{PutMode, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

type Local = BTreeMap<String, Vec<u8>>;
type Loaded = Result<(LoadReport, Local), Error>;

/// A folder for peers to meet in, and a new token for each of their loads.
struct Place(TempDir);

static LOADS: AtomicUsize = AtomicUsize::new(0);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn peers(&self, ranks: &[usize]) -> Vec<LoadOptions> {
        let token = format!("load {}", LOADS.fetch_add(1, Ordering::Relaxed));
        let options = |index| options(self.0.path(), index, ranks, &token);
        (0..ranks.len()).map(options).collect()
    }

    /// How many files and folders are left.
    fn remains(&self) -> usize {
        self.0.path().read_dir().unwrap().count()
    }
}

fn options(folder: &Path, index: usize, ranks: &[usize], token: &str) -> LoadOptions {
    let mut peers = Peers::new(index, ranks.to_vec(), token);
    peers.folder = folder.to_path_buf();
    peers.timeout = Duration::from_secs(20);
    LoadOptions {
        strictness: Strictness::PARTIAL,
        threads: 2,
        peers: Some(peers),
        ..LoadOptions::default()
    }
}

/// Memory for what `rank` holds.
fn allocate(specs: &Specs, rank: usize) -> Local {
    let held = specs.iter().filter(|(_, spec)| spec.holds(rank));
    held.map(|(name, spec)| {
        let count = spec.local_element_count(rank);
        (
            name.clone(),
            vec![0xAA; spec.dtype().len_bytes(count).unwrap()],
        )
    })
    .collect()
}

fn targets<'a>(specs: &Specs, rank: usize, local: &'a mut Local) -> Vec<Target<'a>> {
    let target = |(name, bytes): (&String, &'a mut Vec<u8>)| {
        Target::new(name, &specs[name], rank, bytes).unwrap()
    };
    local.iter_mut().map(target).collect()
}

/// Loads what one rank holds.
fn load_rank(store: &Arc<dyn Store>, specs: &Specs, options: &LoadOptions) -> Loaded {
    let rank = options.peers.as_ref().and_then(Peers::rank).unwrap();
    let mut local = allocate(specs, rank);
    let checkpoint = Checkpoint::open(store.clone(), 1)?;
    let report = checkpoint.load(targets(specs, rank, &mut local), options)?;
    Ok((report, local))
}

/// Loads with a thread for each peer, each with a store of its own.
fn load_from(stores: &[Arc<dyn Store>], specs: &Specs, peers: &[LoadOptions]) -> Vec<Loaded> {
    thread::scope(|scope| {
        let peers: Vec<_> = stores
            .iter()
            .zip(peers)
            .map(|(store, options)| scope.spawn(|| load_rank(store, specs, options)))
            .collect();
        peers.into_iter().map(|peer| peer.join().unwrap()).collect()
    })
}

fn load_together(store: &Arc<dyn Store>, specs: &Specs, peers: &[LoadOptions]) -> Vec<Loaded> {
    let stores: Vec<_> = peers.iter().map(|_| store.clone()).collect();
    load_from(&stores, specs, peers)
}

/// Loads with all ranks of `target` as peers, compares every byte, and returns the reports.
pub(crate) fn assert_loads(
    model: &Model,
    store: &Arc<dyn Store>,
    target: &Specs,
) -> Vec<LoadReport> {
    let place = Place::new();
    let world = target.values().map(|spec| spec.max_rank() + 1).max();
    let ranks: Vec<usize> = (0..world.unwrap_or(1)).collect();
    let loaded = load_together(store, target, &place.peers(&ranks));
    assert_eq!(place.remains(), 0);
    let mut reports = Vec::new();
    for (rank, loaded) in loaded.into_iter().enumerate() {
        let (report, local) = loaded.unwrap();
        for (name, bytes) in local {
            let expected = cut(&target[&name], rank, &model.whole[&name]);
            assert!(
                bytes == expected,
                "`{name}` on rank {rank} of {}",
                target[&name]
            );
        }
        reports.push(report);
    }
    reports
}

/// A saved model of one tensor.
fn saved(mesh: &str, text: &str) -> (Model, Arc<dyn Store>) {
    let store = memory();
    let model = Model::new(one("w", spec(mesh, text)), 1);
    model.save_ok(&store, 1);
    (model, store)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn peers_load_what_each_would_load_alone((source, target) in pairs()) {
        let store = memory();
        let model = Model::new(source, 1);
        model.save_ok(&store, 1);
        assert_loads(&model, &store, &target);
        assert_loads(&model, &store, &model.specs);
    }
}

#[test]
fn every_byte_is_read_once_by_all_peers_together() {
    let (model, store) = saved("dp=4", "f32[4096@dp, 3000]");
    for (mesh, text) in [
        ("tp=4", "f32[4096, 3000@tp]"),
        ("dp=4", "f32[4096@dp, 3000]"),
        ("dp=3", "f32[4096@dp, 3000]"),
        ("dp=4", "f32[4096, 3000]"),
        ("dp=2,tp=2", "f32[4096, 3000@tp]"),
        ("tp=7", "f32[4096, 3000@tp]"),
    ] {
        let reports = assert_loads(&model, &store, &one("w", spec(mesh, text)));
        let read: Vec<u64> = reports
            .iter()
            .map(|report| report.cost.read_bytes)
            .collect();
        let (total, union) = (read.iter().sum::<u64>(), 4096 * 3000 * 4);
        assert!(total * 100 <= union * 105, "{mesh} {text}: {read:?}");
        let fair = union / reports.len() as u64;
        assert!(read.iter().all(|read| *read < fair + (9 << 20)), "{read:?}");
        let received = reports.iter().map(|report| report.received_bytes);
        let wanted = reports.iter().map(|report| report.cost.target_bytes);
        assert!(
            received
                .zip(wanted)
                .all(|(received, wanted)| received <= wanted)
        );
    }
}

#[test]
fn what_nobody_shares_is_read_as_without_peers() {
    let (model, store) = saved("dp=4", "f32[4096@dp, 300]");
    let reports = assert_loads(&model, &store, &model.specs);
    let handed: u64 = reports.iter().map(|report| report.received_bytes).sum();
    // At most the blocks on the borders.
    assert!(handed < 1 << 20, "{handed}");
    for report in &reports {
        assert_eq!(report.cost.target_bytes, 1024 * 300 * 4);
        assert_eq!(report.cost.files, 1);
    }
}

#[test]
fn peers_may_be_any_ranks_in_any_order() {
    let (model, store) = saved("dp=4", "u8[600@dp, 5000]");
    let target = one("w", spec("tp=6", "u8[600, 5000@tp]"));
    let place = Place::new();
    let ranks = [5, 0, 3];
    let loaded = load_together(&store, &target, &place.peers(&ranks));
    for (rank, loaded) in ranks.into_iter().zip(loaded) {
        let (_, local) = loaded.unwrap();
        assert!(
            local["w"] == cut(&target["w"], rank, &model.whole["w"]),
            "rank {rank}"
        );
    }
}

#[test]
fn a_slow_read_does_not_upset_the_order_of_parcels() {
    let (model, store) = saved("dp=4", "f32[4096@dp, 1000]");
    let target = one("w", spec("tp=4", "f32[4096, 1000@tp]"));
    let slow = Arc::new(FlakyStore::new(copy_of(store.as_ref())));
    for nth in [2, 7] {
        let pause = Fault::Stall(Duration::from_millis(300));
        slow.add(
            Rule::new([Operation::Read], pause)
                .on("safetensors")
                .nth(nth),
        );
    }
    let place = Place::new();
    // There are twice as many parcels as slots, and the slow one is overtaken by the next one for its slot.
    let peers = place.peers(&[0, 1, 2, 3]);
    let stores = [slow, store.clone(), store.clone(), store];
    let loaded = load_from(&stores, &target, &peers);
    for (rank, loaded) in loaded.into_iter().enumerate() {
        let (_, local) = loaded.unwrap();
        assert!(local["w"] == cut(&target["w"], rank, &model.whole["w"]));
    }
}

#[test]
fn stages_of_a_pipeline_load_beside_each_other() {
    let store = memory();
    let specs: Specs = [
        ("first", "f32[512, 700 | at(pp=0)]"),
        ("second", "f32[512, 700@dp | at(pp=1)]"),
        ("both", "f32[512@dp, 700]"),
        ("alone", "f32[512, 700 | at(pp=1) | at(dp=1)]"),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_string(), spec("pp=2,dp=2", text)))
    .collect();
    let model = Model::new(specs, 1);
    model.save_ok(&store, 1);
    assert_loads(&model, &store, &model.specs);
}

#[test]
fn strided_memory_among_peers_is_filled_as_alone() {
    let (model, store) = saved("dp=2", "u8[300@dp, 500]");
    let target = one("w", spec("tp=2", "u8[300, 500@tp]"));
    let place = Place::new();
    let peers = place.peers(&[0, 1]);
    thread::scope(|scope| {
        let plain = scope.spawn(|| load_rank(&store, &target, &peers[0]).unwrap());
        let mut transposed = vec![0; 300 * 250];
        let strides = [1, 300];
        let strided = Target::strided("w", &target["w"], 1, &mut transposed, &strides).unwrap();
        let checkpoint = Checkpoint::open(store.clone(), 1).unwrap();
        checkpoint.load(vec![strided], &peers[1]).unwrap();
        let expected = cut(&target["w"], 1, &model.whole["w"]);
        for (index, byte) in expected.iter().enumerate() {
            assert_eq!(transposed[index % 250 * 300 + index / 250], *byte);
        }
        let (_, local) = plain.join().unwrap();
        assert!(local["w"] == cut(&target["w"], 0, &model.whole["w"]));
    });
}

/// The same store with one byte of a data file changed.
fn damaged(store: &Arc<dyn Store>, step: &str) -> Arc<dyn Store> {
    let copy = copy_of(store.as_ref());
    let files = copy.list(step).unwrap();
    let file = files
        .iter()
        .find(|file| file.key.contains("1.safe"))
        .unwrap();
    let mut bytes = copy.get(&file.key).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    copy.put(&file.key, &bytes, PutMode::Replace).unwrap();
    Arc::new(copy)
}

#[test]
fn damage_that_one_peer_finds_is_damage_to_all() {
    let (_, store) = saved("dp=4", "f32[1024@dp, 1000]");
    let store = damaged(&store, "");
    for text in [
        "f32[1024, 1000@tp]",
        "f32[1024, 1000]",
        "f32[1024@tp, 1000]",
    ] {
        let place = Place::new();
        let target = one("w", spec("tp=4", text));
        let loaded = load_together(&store, &target, &place.peers(&[0, 1, 2, 3]));
        let errors: Vec<Error> = loaded.into_iter().map(Result::unwrap_err).collect();
        for error in &errors {
            assert!(error.is_damage(), "{error}");
            assert!(error.to_string().contains("tensor `w`"), "{error}");
            assert_eq!(error.to_string(), errors[0].to_string());
        }
        assert_eq!(place.remains(), 0);
    }
}

#[test]
fn peers_pass_over_a_damaged_step_together() {
    let store = memory();
    let model = Model::new(one("w", spec("dp=2", "f32[64@dp, 1000]")), 1);
    model.save_ok(&store, 1);
    model.save_ok(&store, 2);
    let store = damaged(&store, "step-00000002");
    let target = one("w", spec("tp=2", "f32[64, 1000@tp]"));
    let place = Place::new();
    let peers = place.peers(&[0, 1]);
    thread::scope(|scope| {
        for (rank, options) in peers.iter().enumerate() {
            let (store, target, model) = (&store, &target, &model);
            scope.spawn(move || {
                let run = Checkpointer::new(store.clone(), World::single());
                let mut local = allocate(target, rank);
                let loaded = run.load_latest(targets(target, rank, &mut local), options);
                let (latest, _) = loaded.unwrap();
                assert_eq!(latest.checkpoint.step(), 1);
                assert_eq!(latest.skipped.len(), 1);
                assert_eq!(local["w"], cut(&target["w"], rank, &model.whole["w"]));
            });
        }
    });
    assert_eq!(place.remains(), 0);
}

#[test]
fn a_peer_that_does_not_come_is_named() {
    let (_, store) = saved("dp=2", "u8[600@dp, 5000]");
    let target = one("w", spec("tp=3", "u8[600, 5000@tp]"));
    let place = Place::new();
    let mut peers = place.peers(&[0, 1, 2]);
    for options in &mut peers {
        options.peers.as_mut().unwrap().timeout = Duration::from_millis(300);
    }
    let started = Instant::now();
    let loaded = load_together(&store, &target, &peers[..2]);
    for loaded in loaded {
        let error = loaded.unwrap_err();
        assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
        assert!(error.to_string().starts_with("rank 2 did not deliver"));
        assert!(error.hint().is_some());
    }
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_peer_that_fails_tells_the_others_why() {
    let (_, store) = saved("dp=2", "u8[600@dp, 5000]");
    let target = one("w", spec("tp=3", "u8[600, 5000@tp]"));
    let flaky = Arc::new(FlakyStore::new(copy_of(store.as_ref())));
    flaky.add(Rule::new([Operation::Read], Fault::IO).on("safetensors"));
    let place = Place::new();
    let stores = [store.clone(), flaky, store];
    let started = Instant::now();
    let loaded = load_from(&stores, &target, &place.peers(&[0, 1, 2]));
    assert!(started.elapsed() < Duration::from_secs(5));
    let errors: Vec<Error> = loaded.into_iter().map(Result::unwrap_err).collect();
    assert!(matches!(errors[1], Error::Store { .. }), "{}", errors[1]);
    for error in [&errors[0], &errors[2]] {
        assert!(
            matches!(error, Error::PeerFailed { rank: 1, .. }),
            "{error}"
        );
    }
    assert_eq!(place.remains(), 0);
}

#[test]
fn key_problems_of_one_peer_end_the_load_of_all() {
    let (_, store) = saved("dp=2", "u8[600@dp, 5000]");
    let mut target = one("w", spec("tp=2", "u8[600, 5000@tp]"));
    let extra = spec("tp=2", "u8[7 | at(tp=1)]");
    target.insert("missing".into(), extra);
    let place = Place::new();
    let mut loaded = load_together(&store, &target, &place.peers(&[0, 1]));
    let own = loaded.remove(1).unwrap_err();
    assert!(matches!(own, Error::Keys(_)), "{own}");
    let heard = loaded.remove(0).unwrap_err();
    assert!(
        matches!(heard, Error::PeerFailed { rank: 1, .. }),
        "{heard}"
    );
    assert!(heard.to_string().contains("missing"), "{heard}");
}

#[test]
fn peers_that_want_different_things_find_out() {
    let (_, store) = saved("dp=2", "u8[600@dp, 5000]");
    let [one_way, other] =
        ["u8[600, 5000@tp]", "u8[600@tp, 5000]"].map(|text| one("w", spec("tp=2", text)));
    let place = Place::new();
    let peers = place.peers(&[0, 1]);
    let errors = thread::scope(|scope| {
        let first = scope.spawn(|| load_rank(&store, &one_way, &peers[0]));
        let second = load_rank(&store, &other, &peers[1]);
        [first.join().unwrap(), second].map(Result::unwrap_err)
    });
    let disagree = |error: &Error| matches!(error, Error::PeersDisagree { .. });
    assert!(errors.iter().any(disagree), "{errors:?}");
    assert_eq!(place.remains(), 0);
}

#[test]
fn a_token_serves_one_load_at_a_time() {
    let (_, store) = saved("dp=2", "u8[600@dp, 5000]");
    let target = one("w", spec("tp=2", "u8[600, 5000@tp]"));
    let place = Place::new();
    let peers = place.peers(&[0, 1]);
    let twice = [peers[0].clone(), peers[0].clone(), peers[1].clone()];
    let loaded = load_together(&store, &target, &twice);
    assert!(loaded[..2].iter().any(Result::is_err));
}

#[test]
fn peers_that_make_no_sense_are_refused() {
    let (_, store) = saved("dp=2", "u8[600@dp, 5000]");
    let target = one("w", spec("tp=2", "u8[600, 5000@tp]"));
    let place = Place::new();
    let many: Vec<usize> = (0..65).collect();
    for (index, ranks) in [(0, &[][..]), (2, &[0, 1]), (0, &[0, 0]), (0, &many[..])] {
        let mut options = place.peers(&[0, 1]).remove(0);
        let peers = options.peers.as_mut().unwrap();
        (peers.index, peers.ranks) = (index, ranks.to_vec());
        let mut local = allocate(&target, 0);
        let checkpoint = Checkpoint::open(store.clone(), 1).unwrap();
        let loaded = checkpoint.load(targets(&target, 0, &mut local), &options);
        assert!(matches!(loaded, Err(Error::Peers { .. })), "{ranks:?}");
    }
    assert_eq!(place.remains(), 0);
}
