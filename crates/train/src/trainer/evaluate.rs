//! Looks at data without training.

use super::Trainer;
use crate::Error;
use crate::data::{Data, Step, counts, lengths, without_padding};
use crate::executor::Round;
use crate::report::{Evaluation, Prediction};
use cairn_collectives::{gather_values, numbers};
use cairn_tensor::ReduceOp;

impl Trainer {
    /// Looks at the first `batches` batches of `data` without training. A save of this step keeps the loss as its metric `eval_loss`.
    ///
    /// # Collective
    /// # Errors
    /// If the data has something wrong, or a rank does not come along.
    pub fn evaluate(&mut self, data: &mut dyn Data, batches: u64) -> Result<Evaluation, Error> {
        let (mut losses, mut counted, mut first) = (Vec::new(), [0], 0);
        for _ in 0..batches {
            let step = self.shares.step(data, first)?;
            let own = self.pass(&step, false)?;
            losses.extend(self.in_order(&own)?);
            counted[0] += counts(&step.batches)[0];
            first = step.places.end;
        }
        numbers::all_reduce(self.layout.dp.as_ref(), ReduceOp::Sum, &mut counted)?;
        let sum: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
        let loss = sum / counted[0].max(1) as f64;
        self.metrics.insert("eval_loss", loss);
        Ok(Evaluation {
            loss,
            tokens: counted[0].unsigned_abs(),
            losses,
        })
    }

    /// What the model predicts for the batch of `data` that begins at place `first`, on every rank: the logits of all tokens, whatever the layout.
    ///
    /// All logits of the batch are in memory at once, `[tokens, vocabulary]` in `f32`; a smaller [`batch`](crate::Settings::batch) needs less.
    ///
    /// ```
    /// use cairn_collectives::threads;
    /// use cairn_kernels::Pool;
    /// use cairn_model::{Batch, ModelConfig, Options, blocks};
    /// use cairn_train::{Error, Job, Settings, Trainer};
    /// use std::ops::Range;
    ///
    /// // A model of 11 tokens, shared by two ranks, and sequences of three tokens.
    /// let model = ModelConfig::from_json(r#"{"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 8,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2}"#)?;
    /// let sequences = |places: Range<u64>| Ok::<_, Error>(Batch {
    ///     sequences: places.clone().count(),
    ///     length: 3,
    ///     tokens: places.clone().flat_map(|_| [1, 5, 9]).collect(),
    ///     targets: places.clone().flat_map(|_| [5, 9, 2]).collect(),
    ///     positions: places.clone().flat_map(|_| 0..3).collect(),
    ///     documents: places.clone().flat_map(|_| [0; 3]).collect(),
    ///     samples: places.collect(),
    ///     ..Batch::default()
    /// });
    /// let mut settings = Settings { batch: 4, ..Settings::default() };
    /// settings.parallel.mesh = "tp=2".parse().expect("a mesh");
    ///
    /// let predictions = threads::run(2, threads::Options::default(), |world| {
    ///     let mut trainer = Trainer::new(Job {
    ///         settings: settings.clone(),
    ///         world,
    ///         pool: Pool::new(1),
    ///         blocks: blocks(&model, &Options::default()),
    ///         data: Box::new(sequences),
    ///         checkpoints: None,
    ///         stop: Default::default(),
    ///     })?;
    ///     trainer.predict(&mut { sequences }, 0)
    /// })?;
    /// assert_eq!((predictions[0].lengths.len(), predictions[0].width), (4, 11));
    /// assert_eq!(predictions[0].outputs.len(), 4 * 3 * 11);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Collective
    /// # Errors
    /// If the data has something wrong, or a rank does not come along.
    pub fn predict(&mut self, data: &mut dyn Data, first: u64) -> Result<Prediction, Error> {
        let step = self.shares.step(data, first)?;
        let own = self.pass(&step, true)?;
        let outputs = self.in_order(&own)?;
        // Those who have outputs know how long they are.
        let own = match own.is_empty() {
            true => Vec::new(),
            false => step.batches.iter().flat_map(lengths).collect(),
        };
        let all: Vec<Vec<usize>> = gather_values(self.layout.world.as_ref(), &own)?;
        let lengths: Vec<usize> = all.concat().into_iter().filter(|len| *len > 0).collect();
        let tokens: usize = lengths.iter().sum();
        Ok(Prediction {
            width: outputs.len() / tokens.max(1),
            lengths,
            outputs,
        })
    }

    /// What the last block says of the tokens of this rank's sequences; nothing if it is elsewhere, or another rank of the group says it.
    fn pass(&mut self, step: &Step, predicts: bool) -> Result<Vec<f32>, Error> {
        let round = Round {
            training: false,
            predicts,
            ..self.round(&step.batches, 1)
        };
        let own = self.executor.evaluate(&mut self.arena, round)?;
        if self.layout.tp.rank() > 0 {
            return Ok(Vec::new());
        }
        let own = step.batches.iter().zip(own);
        Ok(own
            .flat_map(|(batch, rows)| without_padding(batch, rows))
            .collect())
    }

    /// Everybody's numbers of a batch in the order of the data. The ranks of `dp` have it in their order, and the last stage knows the numbers.
    fn in_order(&self, own: &[f32]) -> Result<Vec<f32>, Error> {
        let world = self.layout.world.as_ref();
        let counts: Vec<usize> = gather_values(world, &own.len())?;
        let mut all = vec![0.0; counts.iter().sum()];
        numbers::all_gather(world, own, &counts, &mut all)?;
        Ok(all)
    }
}
