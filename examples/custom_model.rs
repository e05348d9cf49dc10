//! Trains a model with a block of one's own on two ranks, stops, and goes on with three: `cargo run --release --example custom_model`.

#![expect(clippy::print_stdout, reason = "a program")]

use cairn::arena::{Init, Parameter};
use cairn::collectives::{Communicator, threads};
use cairn::kernels::Pool;
use cairn::kernels::elementwise::add;
use cairn::kernels::gemm::Write;
use cairn::kernels::linear::Linear;
use cairn::model::{
    Activation, Batch, Block, Embedding, Error, Head, Keep, ModelConfig, Options, Pass, Saved,
};
use cairn::store::{Memory, Store};
use cairn::train::{self, Event, Home, Job, Settings, Trainer};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// How many tokens there are.
const VOCABULARY: u64 = 64;
/// How wide rows are.
const WIDTH: usize = 32;
/// Tokens of a sequence.
const LENGTH: usize = 64;

/// Adds to each row a linear map of the row before it in its sequence: `y[t] = x[t] + W·x[t-1]`.
#[derive(Debug)]
struct LookBack;

impl Block<f32> for LookBack {
    fn parameters(&self) -> Vec<Parameter> {
        vec![Parameter {
            name: "model.look_back.weight".into(),
            shape: vec![WIDTH, WIDTH],
            split: None,
            init: Init::Normal { deviation: 0.1 },
            decay: true,
            partial_gradient: false,
        }]
    }

    fn forward(
        &self,
        pass: &Pass<'_>,
        weights: &[f32],
        mut input: Activation<f32>,
        _: Keep,
    ) -> Result<(Activation<f32>, Saved), Error> {
        let before = rows_before(&input);
        let mut mapped = vec![0.0; input.len()];
        size(&input).forward(pass.pool, &before, weights, None, &mut mapped);
        add(pass.pool, &mapped, &mut input);
        Ok((input, Box::new(before)))
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        weights: &[f32],
        saved: Saved,
        mut gradient: Activation<f32>,
        gradients: &mut [f32],
    ) -> Result<Activation<f32>, Error> {
        let before = saved.downcast::<Vec<f32>>().expect("what forward kept");
        let size = size(&gradient);
        size.weight_gradient(pass.pool, &before, &gradient, gradients);
        let mut mapped = vec![0.0; gradient.len()];
        size.input_gradient(pass.pool, &gradient, weights, Write::Replace, &mut mapped);
        add(pass.pool, &rows_after(&mapped), &mut gradient);
        Ok(gradient)
    }
}

fn size(rows: &[f32]) -> Linear {
    Linear {
        tokens: rows.len() / WIDTH,
        inputs: WIDTH,
        outputs: WIDTH,
    }
}

/// For each row the one before it; zeros before the first of a sequence.
fn rows_before(rows: &[f32]) -> Vec<f32> {
    let mut before = vec![0.0; rows.len()];
    let len = (LENGTH - 1) * WIDTH;
    let sequences = before
        .chunks_mut(LENGTH * WIDTH)
        .zip(rows.chunks(LENGTH * WIDTH));
    sequences.for_each(|(to, from)| to[WIDTH..].copy_from_slice(&from[..len]));
    before
}

/// For each row the one after it; zeros after the last of a sequence.
fn rows_after(rows: &[f32]) -> Vec<f32> {
    let mut after = vec![0.0; rows.len()];
    let len = (LENGTH - 1) * WIDTH;
    let sequences = after
        .chunks_mut(LENGTH * WIDTH)
        .zip(rows.chunks(LENGTH * WIDTH));
    sequences.for_each(|(to, from)| to[..len].copy_from_slice(&from[WIDTH..]));
    after
}

/// Sequences of two tokens that take turns: what comes next is not the last token but the one before.
fn sequences(places: Range<u64>) -> Batch {
    let mut batch = Batch {
        sequences: places.clone().count(),
        length: LENGTH,
        samples: places.clone().collect(),
        ..Batch::default()
    };
    for place in places {
        let pair = [5, 7].map(|factor| (place * factor % VOCABULARY) as u32);
        for at in 0..LENGTH {
            batch.tokens.push(pair[at % 2]);
            batch.targets.push(pair[(at + 1) % 2].into());
        }
        batch.positions.extend((0..).take(LENGTH));
        batch.documents.extend([0; LENGTH]);
    }
    batch
}

/// Trains on the ranks of `mesh`, from where the run in `store` is, up to step `until`.
fn train(mesh: &str, store: &Arc<dyn Store>, until: u64) -> Result<(), Anything> {
    let mut settings = Settings {
        steps: until,
        batch: 12,
        ..Settings::default()
    };
    settings.parallel.mesh = mesh.parse()?;
    settings.learning_rate.peak = 1e-2;
    let config = ModelConfig::from_json(
        r#"{"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32,
            "num_hidden_layers": 1, "num_attention_heads": 1, "initializer_range": 0.5}"#,
    )?;
    let rank = |world: Arc<dyn Communicator>| -> Result<(), train::Error> {
        let is_first = world.rank() == 0;
        let embedding = Embedding::new(&config);
        let head = Head::new(&config, &Options::default());
        let mut trainer = Trainer::new(Job {
            settings: settings.clone(),
            world,
            pool: Pool::new(1),
            blocks: vec![Box::new(embedding), Box::new(LookBack), Box::new(head)],
            data: Box::new(|places| Ok::<_, String>(sequences(places))),
            checkpoints: Some(Home {
                store: store.clone(),
                options: cairn::checkpoint::Options::default(),
                assets: BTreeMap::new(),
            }),
            stop: Arc::default(),
        })?;
        trainer.resume()?;
        trainer.run(&mut |_, event| {
            if let Event::Step(report) = event
                && is_first
                && report.step.is_multiple_of(20)
            {
                println!("{mesh}: step {}, loss {:.4}", report.step, report.loss);
            }
            Ok(())
        })?;
        Ok(())
    };
    threads::run(
        settings.parallel.mesh.size(),
        threads::Options::default(),
        rank,
    )?;
    Ok(())
}

type Anything = Box<dyn std::error::Error>;

fn main() -> Result<(), Anything> {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    train("dp=2", &store, 60)?;
    // Another day, other ranks: one axis of them along the pipeline.
    train("pp=3", &store, 120)
}
