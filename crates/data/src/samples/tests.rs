//! Sequences hold every token that can be learnt exactly once, and say which document it is of.

use super::{Cut, Samples};
use crate::testing::{counting, documents, fields, memory, written};
use crate::{Documents, Error, Fields, IGNORED, PADDING, Sample, TokenFile, TokenWriter, Width};
use proptest::prelude::*;
use serde_json::json;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn samples(lengths: &[usize], cut: Cut, length: usize) -> Vec<Sample> {
    let samples = Samples::new(documents(&counting(lengths)), cut, length).unwrap();
    (0..samples.count())
        .map(|index| samples.get(index).unwrap())
        .collect()
}

#[test]
fn windows_of_the_stream_cross_documents() {
    let all = samples(&[3, 4], Cut::Stream, 4);
    assert_eq!(all[0].tokens, [1, 2, 3, 4]);
    assert_eq!(all[0].targets, [2, 3, 4, 5]);
    assert_eq!(all[0].positions, [0, 1, 2, 3]);
    assert_eq!(all[0].documents, [0; 4]);
    assert_eq!(all[1].tokens, [5, 6, PADDING, PADDING]);
    assert_eq!(all[1].targets, [6, 7, IGNORED, IGNORED]);
    assert_eq!(all[1].documents, [0, 0, 1, 1]);
    assert_eq!(all.len(), 2);
}

#[test]
fn masked_windows_begin_again_with_every_document() {
    let all = samples(&[2, 0, 1, 6], Cut::Masked, 5);
    assert_eq!(all[0].tokens, [1, 2, 3, 4, 5]);
    assert_eq!(all[0].targets, [2, IGNORED, IGNORED, 5, 6]);
    assert_eq!(all[0].positions, [0, 1, 0, 0, 1]);
    assert_eq!(all[0].documents, [0, 0, 1, 2, 2]);
    assert_eq!(all[1].tokens, [6, 7, 8, PADDING, PADDING]);
    assert_eq!(all[1].targets, [7, 8, 9, IGNORED, IGNORED]);
    assert_eq!(all[1].positions, [0, 1, 2, 0, 1]);
}

#[test]
fn documents_are_packed_where_they_fit_best() {
    // Without their last tokens: 11 = 5 + 5 + 1, 3, 2, 4.
    let all = samples(&[12, 4, 3, 5], Cut::Packed, 5);
    let tokens: Vec<&[u32]> = all.iter().map(|sample| sample.tokens.as_slice()).collect();
    assert_eq!(
        tokens,
        [
            [1, 2, 3, 4, 5],
            [6, 7, 8, 9, 10],
            [11, 20, 21, 22, 23],
            [13, 14, 15, 17, 18]
        ]
    );
    assert_eq!(all[2].targets, [12, 21, 22, 23, 24]);
    assert_eq!(all[2].documents, [0, 1, 1, 1, 1]);
    assert_eq!(all[3].positions, [0, 1, 2, 0, 1]);
}

#[test]
fn documents_of_their_own_length_have_no_padding() {
    let all = samples(&[3, 1, 0, 6], Cut::Documents, 4);
    let tokens: Vec<&[u32]> = all.iter().map(|sample| sample.tokens.as_slice()).collect();
    assert_eq!(tokens, [vec![5, 6, 7, 8], vec![1, 2], vec![9]]);
}

#[test]
fn fields_stand_by_their_documents() {
    let store = memory();
    let mut writer = TokenWriter::create(&store, "a", Width::U32, None).unwrap();
    let about = fields(json!({"id": 1}));
    writer.push(&[1, 2], None).unwrap();
    writer.push(&[3, 4], Some(&about)).unwrap();
    writer.push(&[5, 6, 7, 8, 9], None).unwrap();
    writer.finish().unwrap();
    let file = Arc::new(TokenFile::open(&store, "a").unwrap());
    let samples = Samples::new(file.clone(), Cut::Packed, 4).unwrap();
    assert_eq!(samples.get(1).unwrap().fields, [None, Some(about.clone())]);
    assert!(samples.get(0).unwrap().fields.is_empty());
    let samples = Samples::new(file, Cut::Masked, 3).unwrap();
    assert_eq!(samples.get(0).unwrap().fields, [None, Some(about)]);
}

#[test]
fn a_token_outside_of_the_vocabulary_names_its_document() {
    let samples = Samples::new(documents(&counting(&[3, 3])), Cut::Stream, 5).unwrap();
    assert_eq!(
        samples.with_vocabulary(6).get(0).unwrap_err().to_string(),
        "document 1 of `a` is damaged: token 5 of the file is 6, and the vocabulary has 6"
    );
}

#[test]
fn documents_that_end_before_the_tokens_do_are_damaged() {
    let store = written(&counting(&[3, 3]));
    crate::testing::damage(&store, "a", |bytes| bytes[64 + 24 + 8] = 4);
    let file = Arc::new(TokenFile::open(&store, "a").unwrap());
    let samples = Samples::new(file, Cut::Masked, 5).unwrap();
    assert_eq!(
        samples.get(0).unwrap_err().to_string(),
        "`a` is damaged: its documents end at token 4 of 6"
    );
}

/// Two documents of three tokens, of which nothing is left later.
#[derive(Debug, Default)]
struct Shrinking(AtomicBool);

impl Documents for Shrinking {
    fn file(&self) -> &str {
        "a"
    }

    fn format(&self) -> &'static str {
        "tokens"
    }

    fn documents(&self) -> u64 {
        2
    }

    fn tokens(&self) -> u64 {
        6
    }

    fn ends(&self, documents: Range<u64>) -> Result<Vec<u64>, Error> {
        let length = if self.0.load(Ordering::Relaxed) { 0 } else { 3 };
        Ok(documents.map(|document| (document + 1) * length).collect())
    }

    fn read(&self, tokens: Range<u64>) -> Result<Vec<u32>, Error> {
        Ok(tokens.map(|_| 1).collect())
    }

    fn fields(&self, _: u64) -> Result<Option<Fields>, Error> {
        Ok(None)
    }
}

#[test]
fn a_file_that_changes_under_its_reader_is_an_error() {
    let documents = Arc::new(Shrinking::default());
    let samples = Samples::new(documents.clone(), Cut::Packed, 2).unwrap();
    samples.get(1).unwrap();
    documents.0.store(true, Ordering::Relaxed);
    assert_eq!(
        samples.get(1).unwrap_err().to_string(),
        "`a` is damaged: it has changed since it was opened"
    );
}

#[test]
fn what_does_not_exist_is_refused() {
    let samples = Samples::new(documents(&counting(&[3])), Cut::Stream, 2).unwrap();
    assert_eq!(
        samples.get(1).unwrap_err().to_string(),
        "the number of a sample must be 0 to 0, not 1"
    );
    let error = Samples::new(documents(&[]), Cut::Stream, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the length of sequences must be 1 to 268435456, not 0"
    );
    for cut in [Cut::Stream, Cut::Masked, Cut::Packed, Cut::Documents] {
        assert_eq!(Samples::new(documents(&[]), cut, 4).unwrap().count(), 0);
        assert_eq!(
            Samples::new(documents(&[vec![1]]), cut, 4).unwrap().count(),
            0
        );
    }
}

#[test]
fn packing_wastes_little() {
    let lengths: Vec<usize> = (0..3_000).map(|number| 20 + number * 7919 % 900).collect();
    let all = Samples::new(documents(&counting(&lengths)), Cut::Packed, 1024).unwrap();
    let learnt: usize = lengths.iter().map(|length| length - 1).sum();
    let full = learnt.div_ceil(1024) as u64;
    assert!(
        all.count() <= full + full / 50,
        "{} sequences for {full}",
        all.count()
    );
}

fn cuts() -> impl Strategy<Value = Cut> {
    prop::sample::select(vec![Cut::Stream, Cut::Masked, Cut::Packed, Cut::Documents])
}

proptest! {
    #[test]
    fn every_target_is_learnt_once(
        mut lengths in prop::collection::vec(0usize..9, 0..30), many in any::<bool>(), cut in cuts(), length in 1usize..12
    ) {
        if many {
            // More than one group, of mostly tiny documents.
            lengths.extend((0..2_100).map(|number| number % 3));
        }
        let all = counting(&lengths);
        let mut right: Vec<(u32, i64)> = match cut {
            Cut::Stream => all.concat().windows(2).map(|pair| (pair[0], pair[1].into())).collect(),
            _ => all.iter().flat_map(|document| document.windows(2)).map(|pair| (pair[0], pair[1].into())).collect(),
        };
        let mut learnt = Vec::new();
        for sample in samples(&lengths, cut, length) {
            prop_assert!(sample.len() == length || cut == Cut::Documents && sample.len() < length);
            prop_assert_eq!(sample.targets.len(), sample.len());
            prop_assert_eq!(sample.positions.len(), sample.len());
            prop_assert_eq!(sample.documents.len(), sample.len());
            for place in 1..sample.len() {
                let same = sample.documents[place] == sample.documents[place - 1];
                prop_assert_eq!(sample.positions[place], if same { sample.positions[place - 1] + 1 } else { 0 });
            }
            let pairs = sample.tokens.iter().zip(&sample.targets).filter(|(_, target)| **target != IGNORED);
            learnt.extend(pairs.map(|(token, target)| (*token, *target)));
        }
        right.sort_unstable();
        learnt.sort_unstable();
        prop_assert_eq!(learnt, right);
    }

    #[test]
    fn lengths_are_known_before_tokens_are_read(lengths in prop::collection::vec(0usize..9, 0..30), cut in cuts(), length in 1usize..12) {
        let samples = Samples::new(documents(&counting(&lengths)), cut, length).unwrap();
        for index in 0..samples.count() {
            prop_assert_eq!(samples.length_of(index).unwrap(), samples.get(index).unwrap().len());
        }
    }
}
