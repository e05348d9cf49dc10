//! Where every answer takes a while, many questions are asked at the same time, and what comes of them is the same.

use crate::common::{Model, memory};
use cairn_checkpoint::retention::{Keep, plan};
use cairn_checkpoint::{COMMIT, Checkpoint, SaveOptions, finish, step_folder};
use cairn_store::Store;
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const LATENCY: Duration = Duration::from_millis(20);

type Far = Arc<FlakyStore<Arc<dyn Store>>>;

/// What is in `store`, far away.
fn far(store: &Arc<dyn Store>) -> Far {
    let far = FlakyStore::far(store.clone());
    let asked = [Operation::Head, Operation::List, Operation::Open];
    far.add(Rule::new(asked, Fault::Stall(LATENCY)));
    Arc::new(far)
}

#[test]
fn a_pruning_looks_at_many_steps_at_the_same_time() {
    let store = memory();
    for step in 0..12 {
        for saved in Model::on("tp=1", step).save(&store, step, &SaveOptions::default()) {
            saved.unwrap();
        }
    }
    store
        .delete(&format!("{}/{COMMIT}", step_folder(5)))
        .unwrap();
    let keep = Keep {
        last: 2,
        every: Some(4),
        ..Keep::default()
    };
    let later = SystemTime::now() + Duration::from_secs(7200);
    let abandoned = Some(Duration::from_secs(3600));
    let there = far(&store);
    let as_store: Arc<dyn Store> = there.clone();
    let planned = plan(&as_store, &keep, abandoned, later).unwrap();
    assert_eq!(planned, plan(&store, &keep, abandoned, later).unwrap());
    assert_eq!(
        planned.keep.keys().copied().collect::<Vec<_>>(),
        [0, 4, 8, 10, 11]
    );
    // A look at one step asks for two things at once.
    assert!(there.most_at_once() > 2, "{}", there.most_at_once());
}

#[test]
fn whoever_commits_reads_the_parts_of_many_writers_at_the_same_time() {
    let store = memory();
    for saved in Model::on("tp=8", 3).save(&store, 3, &SaveOptions::default()) {
        saved.unwrap();
    }
    store
        .delete(&format!("{}/{COMMIT}", step_folder(3)))
        .unwrap();
    let there = far(&store);
    finish(&there, 3).unwrap();
    assert!(there.most_at_once() > 1, "{}", there.most_at_once());
    Checkpoint::open(store, 3).unwrap().check().unwrap();
}
