//! The sequences that a config names, as data of a run.

use super::{Config, Source};
use crate::{Data, Error};
use cairn_data::{Budget, Cut, Loader, Sample, Samples};
use cairn_model::Batch;
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::Arc;

/// The sequences of some sources; in the order of the files if not shuffled.
pub(super) fn loader(
    config: &Config,
    sources: &[Source],
    length: usize,
    shuffled: bool,
) -> Result<Loader, Error> {
    let vocabulary = u32::try_from(config.model.config.vocab_size).unwrap_or(u32::MAX);
    let mut opened = Vec::new();
    for source in sources {
        let documents = cairn_data::open(&source.path)?;
        if let Some(tokens) = documents.vocabulary().filter(|known| *known > vocabulary) {
            return Err(Error::Vocabulary {
                path: source.path.clone(),
                tokens,
                model: vocabulary,
            });
        }
        let samples = Samples::new(documents, config.data.cut, length)?.with_vocabulary(vocabulary);
        opened.push(cairn_data::Source::new(
            &source.path,
            samples,
            source.weight,
        ));
    }
    Ok(Loader::new(
        opened,
        shuffled.then_some(config.settings.seed),
    )?)
}

/// The sequences of a loader, as data of a run.
#[derive(Debug, Clone)]
pub(super) struct Sequences(pub(super) Arc<Loader>);

impl Data for Sequences {
    fn batch(
        &mut self,
        places: Range<u64>,
    ) -> Result<Batch, Box<dyn std::error::Error + Send + Sync>> {
        Ok(batch(self.0.batch(places)?))
    }

    fn fitting(
        &mut self,
        first: u64,
        budget: Budget,
    ) -> Result<Range<u64>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.0.fitting(first, budget)?)
    }

    /// Files count by name, wherever they are.
    fn fingerprint(&self) -> Option<Value> {
        let sources = self.0.sources().iter().map(|source| {
            let documents = source.samples().documents();
            let path = documents.file();
            let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
            json!({
                "name": name,
                "documents": documents.documents(),
                "tokens": documents.tokens(),
                "weight": source.weight(),
            })
        });
        let samples = self.0.sources().first()?.samples();
        let cut = match samples.cut() {
            Cut::Stream => "stream",
            Cut::Masked => "masked",
            Cut::Packed => "packed",
            Cut::Documents => "documents",
        };
        Some(json!({
            "cut": cut,
            "length": samples.length(),
            "sources": sources.collect::<Vec<_>>(),
        }))
    }
}

/// Sequences side by side; shorter ones are filled up to the length of the longest.
fn batch(mut samples: Vec<Sample>) -> Batch {
    let lengths: Vec<usize> = samples.iter().map(Sample::len).collect();
    let length = lengths.iter().copied().max().unwrap_or(0);
    let mut batch = Batch {
        sequences: samples.len(),
        length,
        ..Batch::default()
    };
    if lengths.iter().any(|len| *len < length) {
        samples.iter_mut().for_each(|sample| sample.pad(length));
        batch.lengths = lengths;
    }
    if samples.iter().any(|sample| !sample.fields.is_empty()) {
        let fields = samples
            .iter_mut()
            .map(|sample| std::mem::take(&mut sample.fields));
        batch.fields = fields.collect();
    }
    for sample in samples {
        batch.tokens.extend(sample.tokens);
        batch.targets.extend(sample.targets);
        batch.positions.extend(sample.positions);
        batch.documents.extend(sample.documents);
        batch.samples.push(sample.position);
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_model::IGNORED;

    fn sample(position: u64, tokens: &[u32], fields: Value) -> Sample {
        let targets = tokens.iter().skip(1).map(|token| i64::from(*token));
        Sample {
            tokens: tokens.to_vec(),
            targets: targets.chain([IGNORED]).collect(),
            positions: (0..).take(tokens.len()).collect(),
            documents: vec![0; tokens.len()],
            position,
            fields: vec![serde_json::from_value(fields).ok()],
            ..Sample::default()
        }
    }

    #[test]
    fn shorter_sequences_are_filled_up_and_fields_travel_along() {
        let one = sample(7, &[5, 6, 7], json!({"page": 3}));
        let other = sample(8, &[9], Value::Null);
        let made = batch(vec![one, other]);
        assert_eq!((made.sequences, made.length), (2, 3));
        assert_eq!(made.tokens, [5, 6, 7, 9, 0, 0]);
        assert_eq!(made.targets, [6, 7, IGNORED, IGNORED, IGNORED, IGNORED]);
        assert_eq!(made.documents, [0, 0, 0, 0, 1, 1]);
        assert_eq!((made.samples, made.lengths), (vec![7, 8], vec![3, 1]));
        let page = made.fields[0][0].as_ref().map(|fields| &fields["page"]);
        assert_eq!((page, &made.fields[1][0]), (Some(&json!(3)), &None));
    }

    #[test]
    fn sequences_of_one_length_need_no_lengths() {
        let made = batch(vec![sample(0, &[1, 2], Value::Null)]);
        assert!(made.lengths.is_empty());
        assert_eq!(batch(Vec::new()), Batch::default());
    }
}
