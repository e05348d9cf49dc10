//! A run goes through its data exactly once an epoch, however it is stopped, resized and resumed.

use super::{Budget, Loader, Source, share};
use crate::testing::{counting, damage, documents, written};
use crate::{Cut, Error, IGNORED, Prefetch, Sample, Samples, State, TokenFile};
use proptest::prelude::*;
use std::sync::Arc;

/// Sources with these many samples of four tokens and these weights.
fn loader(sources: &[(u64, f64)], seed: Option<u64>) -> Loader {
    let source = |(number, &(count, weight)): (usize, &(u64, f64))| {
        let tokens = usize::try_from(count).unwrap() * 4 + 1;
        let samples = Samples::new(documents(&counting(&[tokens])), Cut::Stream, 4).unwrap();
        Source::new(format!("source {number}"), samples, weight)
    };
    Loader::new(sources.iter().enumerate().map(source).collect(), seed).unwrap()
}

#[test]
fn an_empty_source_is_named() {
    let source = |name: &str, lengths: &[usize]| {
        let samples = Samples::new(documents(&counting(lengths)), Cut::Packed, 4).unwrap();
        Source::new(name, samples, 1.0)
    };
    let error =
        Loader::new(vec![source("web", &[9]), source("books", &[1, 1, 0])], None).unwrap_err();
    assert_eq!(error.to_string(), "source `books` has no samples");
    assert!(error.hint().unwrap().contains("two tokens"));
}

#[test]
fn one_sample_is_every_sample() {
    let loader = loader(&[(1, 1.0)], Some(3));
    let batch = loader.batch(0..3).unwrap();
    let found: Vec<(u64, u64, u64)> = batch
        .iter()
        .map(|s| (s.position, s.epoch, s.index))
        .collect();
    assert_eq!(found, [(0, 0, 0), (1, 1, 0), (2, 2, 0)]);
}

#[test]
fn a_damaged_document_stops_only_those_who_read_it_and_is_named() {
    let store = written(&counting(&[9, 9, 9]));
    damage(&store, "a", |bytes| bytes[64 + 4 * 14 + 1] = 1);
    let file = Arc::new(TokenFile::open(&store, "a").unwrap());
    let samples = Samples::new(file, Cut::Masked, 9)
        .unwrap()
        .with_vocabulary(100);
    let loader = Loader::new(vec![Source::new("a", samples, 1.0)], None).unwrap();
    let said =
        "document 1 of `a` is damaged: token 14 of the file is 271, and the vocabulary has 100";
    assert_eq!(loader.batch(0..3).unwrap_err().to_string(), said);
    loader.sample(0).unwrap();
    loader.sample(2).unwrap();

    let batches = Arc::new(loader).batches((0..3).map(|position| position..position + 1));
    let mut ahead = Prefetch::new(batches, 4);
    assert_eq!(ahead.next().unwrap().unwrap()[0].position, 0);
    assert_eq!(ahead.next().unwrap().unwrap_err().to_string(), said);
    assert!(ahead.next().is_none());
}

#[test]
fn every_sample_of_every_source_comes_once_an_epoch() {
    let loader = loader(&[(3, 1.0), (10, 2.0), (7, 7.0)], Some(5));
    // 10 rounds of 1 : 2 : 7 are 3⅓, 2 and 10 epochs.
    let batch = loader.batch(0..100).unwrap();
    let mut seen = std::collections::BTreeMap::new();
    for sample in &batch {
        *seen
            .entry((sample.source, sample.epoch, sample.index))
            .or_insert(0) += 1;
    }
    assert!(seen.values().all(|count| *count == 1));
    assert_eq!(seen.len(), 10 + 20 + 70);
    assert_eq!(
        seen.keys()
            .filter(|(source, epoch, _)| (*source, *epoch) == (1, 1))
            .count(),
        10
    );
    assert_eq!(loader.epochs(100), [3, 2, 10]);
}

#[test]
fn sources_of_one_length_have_orders_of_their_own() {
    let loader = loader(&[(50, 1.0), (50, 1.0)], Some(1));
    let batch = loader.batch(0..100).unwrap();
    let order = |source: usize| -> Vec<u64> {
        batch
            .iter()
            .filter(|sample| sample.source == source)
            .map(|sample| sample.index)
            .collect()
    };
    assert_ne!(order(0), order(1));
}

#[test]
fn where_a_run_stands_is_plain_data() {
    let loader = loader(&[(3, 1.0)], None);
    let state = loader.advance(State::default(), 7, 28);
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(
        text,
        r#"{"consumed_samples":7,"consumed_tokens":28,"epoch":2}"#
    );
    assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
}

#[test]
fn positions_beyond_all_runs_are_refused() {
    let error = loader(&[(3, 1.0)], None).sample(u64::MAX).unwrap_err();
    assert!(matches!(
        error,
        Error::Limit {
            value: u64::MAX,
            ..
        }
    ));
}

#[test]
fn a_batch_that_nobody_takes_does_not_keep_its_thread() {
    let loader = Arc::new(loader(&[(3, 1.0)], Some(1)));
    let batches = loader
        .clone()
        .batches((0..).map(|step| step * 2..step * 2 + 2));
    let mut ahead = Prefetch::new(batches, 2);
    assert_eq!(ahead.next().unwrap().unwrap(), loader.batch(0..2).unwrap());
    assert_eq!(ahead.next().unwrap().unwrap(), loader.batch(2..4).unwrap());
    drop(ahead);
    assert_eq!(Arc::strong_count(&loader), 1);
}

/// One turn of a run: so many ranks, samples a rank, micro-batches, and steps before it is killed.
#[derive(Debug, Clone)]
struct Turn {
    ranks: u64,
    samples: u64,
    accumulation: u64,
    steps: u64,
    /// Steps after the last checkpoint, which are lost.
    lost: u64,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = (1u64..5, 1u64..4, 1u64..4, 0u64..4, 0u64..3);
    let turn = turn.prop_map(|(ranks, samples, accumulation, steps, lost)| Turn {
        ranks,
        samples,
        accumulation,
        steps,
        lost,
    });
    prop::collection::vec(turn, 1..8)
}

/// The samples of one step, as all ranks and micro-batches see them.
fn step(loader: &Loader, state: State, turn: &Turn) -> Vec<Sample> {
    let batch = turn.ranks * turn.samples * turn.accumulation;
    let all = state.consumed_samples..state.consumed_samples + batch;
    let mut seen = Vec::new();
    for rank in 0..turn.ranks {
        let mine = share(all.clone(), turn.ranks, rank);
        for micro in 0..turn.accumulation {
            seen.extend(
                loader
                    .batch(share(mine.clone(), turn.accumulation, micro))
                    .unwrap(),
            );
        }
    }
    seen
}

proptest! {
    #[test]
    fn kills_and_resizes_repeat_and_skip_nothing(turns in turns(), seed: u64) {
        let loader = loader(&[(5, 1.0), (13, 2.0)], Some(seed));
        let (mut state, mut seen, mut tokens) = (State::default(), Vec::new(), 0);
        for turn in &turns {
            for _ in 0..turn.steps {
                let samples = step(&loader, state, turn);
                let counted = samples.iter().map(Sample::counted).sum::<u64>();
                tokens += counted;
                state = loader.advance(state, samples.len() as u64, counted);
                seen.extend(samples);
            }
            // What was done after the checkpoint is forgotten with its state.
            let mut lost = state;
            for _ in 0..turn.lost {
                let samples = step(&loader, lost, turn);
                lost = loader.advance(lost, samples.len() as u64, 0);
            }
        }
        seen.sort_by_key(|sample| sample.position);
        prop_assert_eq!(seen.len() as u64, state.consumed_samples);
        prop_assert_eq!(tokens, state.consumed_tokens);
        prop_assert_eq!(seen, loader.batch(0..state.consumed_samples).unwrap());
    }

    #[test]
    fn shares_are_all_of_the_positions(start in 0u64..100, count in 0u64..100, ranks in 1u64..12) {
        let shares: Vec<u64> = (0..ranks).flat_map(|rank| share(start..start + count, ranks, rank)).collect();
        prop_assert_eq!(shares, (start..start + count).collect::<Vec<_>>());
    }

    #[test]
    fn batches_by_budget_depend_on_where_they_begin_alone(
        lengths in prop::collection::vec(2usize..20, 1..30), seed: u64, tokens in 1usize..60, samples in 1usize..8
    ) {
        let cut = Samples::new(documents(&counting(&lengths)), Cut::Documents, 12).unwrap();
        let loader = Loader::new(vec![Source::new("a", cut, 1.0)], Some(seed)).unwrap();
        let budget = Budget { tokens, samples };
        let mut position = 0;
        while position < 2 * loader.count() {
            let range = loader.fitting(position, budget).unwrap();
            prop_assert_eq!(range.start, position);
            let padded = |range: std::ops::Range<u64>| {
                let batch = loader.batch(range).unwrap();
                let longest = batch.iter().map(Sample::len).max().unwrap();
                (batch.len(), batch.len() * longest)
            };
            let fits = |(count, size): (usize, usize)| count <= samples && size <= tokens;
            prop_assert!(range.end == position + 1 || fits(padded(range.clone())));
            prop_assert!(!fits(padded(position..range.end + 1)));
            position = range.end;
        }
    }

    #[test]
    fn padding_teaches_nothing(length in 0usize..20) {
        let mut sample = loader(&[(2, 1.0)], None).sample(0).unwrap();
        let counted = sample.counted();
        sample.pad(length);
        prop_assert_eq!(sample.len(), length.max(4));
        prop_assert_eq!(sample.counted(), counted);
        prop_assert!(sample.targets[4..].iter().all(|target| *target == IGNORED));
    }
}
