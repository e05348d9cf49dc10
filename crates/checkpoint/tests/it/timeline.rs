//! Every save leaves word of where its time went, and no save depends on that.

use crate::common::{Model, memory};
use cairn_checkpoint::timeline::{Lane, StepTimelines};
use cairn_checkpoint::{Checkpoint, SaveOptions, StepState, survey};
use cairn_store::testing::{Fault, FlakyStore, Operation, Rule};
use cairn_store::{Memory, PutMode, Store};
use std::sync::Arc;

/// Saves step 3 by four ranks and reads what they left.
fn saved(store: &Arc<dyn Store>) -> StepTimelines {
    let model = Model::on("dp=2,tp=2", 3);
    for report in model.save(store, 3, &SaveOptions::default()) {
        report.unwrap();
    }
    timelines(store)
}

fn timelines(store: &Arc<dyn Store>) -> StepTimelines {
    let checkpoint = Checkpoint::open(store.clone(), 3).unwrap();
    checkpoint.timelines().unwrap()
}

fn assert_whole(store: &Arc<dyn Store>) {
    let found = survey(store, 3, 1.0, &|_| ()).unwrap();
    assert!(matches!(found, StepState::Whole(..)), "{found:?}");
}

#[test]
fn every_rank_says_what_it_wrote_and_when() {
    let found = saved(&memory());
    let ranks: Vec<usize> = found.ranks.iter().map(|timeline| timeline.rank).collect();
    assert_eq!(ranks, [0, 1, 2, 3]);
    assert!(found.missing.is_empty() && found.unreadable.is_empty());
    for timeline in &found.ranks {
        assert_eq!((timeline.step, timeline.world), (3, 4));
        assert_eq!(timeline.len_bytes_of(Lane::Write), timeline.len_bytes);
        assert!(!timeline.lane(Lane::Commit).is_empty());
        assert!(timeline.durable() <= timeline.total);
    }
}

#[test]
fn a_store_that_takes_no_timelines_takes_the_step() {
    let flaky = FlakyStore::new(Memory::new());
    flaky.add(Rule::new([Operation::Put], Fault::NO_SPACE).on("00001.timeline"));
    let store: Arc<dyn Store> = Arc::new(flaky);
    assert_eq!(saved(&store).missing, [1]);
    assert_whole(&store);
}

#[test]
fn a_damaged_timeline_is_named_and_harms_nobody() {
    let store = memory();
    saved(&store);
    let listing = store.list("").unwrap();
    let keys = listing.iter().map(|meta| meta.key.as_str());
    let key = keys.into_iter().find(|key| key.ends_with("00002.timeline"));
    let key = key.unwrap();
    store.put(key, b"{}", PutMode::Replace).unwrap();
    let found = timelines(&store);
    assert_eq!(found.ranks.len(), 3);
    assert!(found.unreadable[0].to_string().contains(key));
    assert_whole(&store);
}
