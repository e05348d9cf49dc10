//! Blocks in a row, run forward and backward on thread ranks, with whole parameters, inputs and gradients.

use crate::samples::values;
use cairn_arena::{Bucket, Init, Parameter, Slot};
use cairn_collectives::numbers::Number;
use cairn_collectives::threads;
use cairn_kernels::{Pool, Real};
use cairn_model::{Batch, Block, Error, Keep, ModelConfig, Options, Pass, Saved, blocks};
use cairn_sharding::chunk;
use std::ops::Range;

/// How a chain is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) tp: usize,
    pub(crate) sequence_parallel: bool,
    pub(crate) keep: Keep,
    pub(crate) threads: usize,
}

impl Way {
    pub(crate) const ALONE: Self = Self {
        tp: 1,
        sequence_parallel: false,
        keep: Keep::Everything,
        threads: 1,
    };

    pub(crate) fn ranks(tp: usize, sequence_parallel: bool) -> Self {
        Self {
            tp,
            sequence_parallel,
            ..Self::ALONE
        }
    }
}

/// Some blocks of a model, with what goes into the first of them.
#[derive(Debug, Clone)]
pub(crate) struct Chain<R> {
    pub(crate) config: ModelConfig,
    pub(crate) range: Range<usize>,
    pub(crate) batch: Batch,
    /// Every parameter of every block, whole.
    pub(crate) weights: Vec<Vec<Vec<R>>>,
    /// The input of the first block, whole.
    pub(crate) input: Vec<R>,
}

/// What comes out, whole.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome<R> {
    pub(crate) output: Vec<R>,
    pub(crate) input_gradient: Vec<R>,
    pub(crate) gradients: Vec<Vec<Vec<R>>>,
}

/// What one rank has in the end.
struct Local<R> {
    output: Vec<R>,
    input_gradient: Vec<R>,
    gradients: Vec<Vec<R>>,
}

const Z_LOSS: f64 = 0.01;

fn chain_blocks<R: Real + Number>(
    config: &ModelConfig,
    range: &Range<usize>,
    sequence_parallel: bool,
) -> Vec<Box<dyn Block<R>>> {
    let options = Options {
        sequence_parallel,
        z_loss: Z_LOSS,
    };
    blocks(config, &options).drain(range.clone()).collect()
}

impl<R: Real + Number> Chain<R> {
    /// Blocks `range` of a model, with weights that look random.
    pub(crate) fn new(config: &ModelConfig, range: Range<usize>, batch: Batch) -> Self {
        let blocks = chain_blocks::<R>(config, &range, false);
        let weights = blocks.iter().map(|block| {
            let parameters = block.parameters();
            parameters.iter().map(first_values).collect()
        });
        let weights = weights.collect();
        let rows = if range.start == 0 {
            0
        } else {
            batch.tokens.len()
        };
        Self {
            config: config.clone(),
            weights,
            input: values(rows * config.hidden_size, 5, 1.0),
            range,
            batch,
        }
    }

    /// All blocks of a model.
    pub(crate) fn whole(config: &ModelConfig, batch: Batch) -> Self {
        Self::new(config, 0..config.num_hidden_layers + 2, batch)
    }

    /// Whether the last block is the head, whose outputs are losses.
    fn ends_with_head(&self) -> bool {
        self.range.end == self.config.num_hidden_layers + 2
    }

    /// The gradient that the output gets in every run.
    pub(crate) fn output_gradient(&self) -> Vec<R> {
        let width = if self.ends_with_head() {
            1
        } else {
            self.config.hidden_size
        };
        values(self.batch.tokens.len() * width, 11, 1.0)
    }

    /// Forward and backward, on all ranks of the group.
    pub(crate) fn run(&self, way: Way) -> Outcome<R> {
        let locals = threads::run(way.tp, threads::Options::default(), |group| {
            let pool = Pool::new(way.threads);
            let pass = Pass {
                pool: &pool,
                tp: &*group,
                sequence_parallel: way.sequence_parallel,
                batch: &self.batch,
                seed: 17,
                step: 3,
                training: true,
            };
            self.run_rank(&pass, way.keep)
        });
        self.join(way, &locals.unwrap())
    }

    fn run_rank(&self, pass: &Pass<'_>, keep: Keep) -> Result<Local<R>, Error> {
        let blocks = chain_blocks::<R>(&self.config, &self.range, pass.sequence_parallel);
        let share = pass.share();
        let weights = blocks.iter().zip(&self.weights).map(|(block, whole)| {
            let bucket = Bucket::new(block.parameters(), share.index, share.size);
            let parts = bucket.slots().iter().zip(whole);
            parts
                .flat_map(|(slot, whole)| part(&slot.parameter, whole, share.size, share.index))
                .collect()
        });
        let weights: Vec<Vec<R>> = weights.collect();
        let mut rows = local_rows(pass, &self.input, self.config.hidden_size).into();
        let mut saved: Vec<Saved> = Vec::new();
        for (block, weights) in blocks.iter().zip(&weights) {
            let (output, kept) = block.forward(pass, weights, rows, keep)?;
            saved.push(kept);
            rows = output;
        }
        let output = rows.to_vec();
        let mut gradients: Vec<Vec<R>> = weights
            .iter()
            .map(|weights| vec![R::ZERO; weights.len()])
            .collect();
        let gradient = match self.ends_with_head() {
            true => self.output_gradient(),
            false => local_rows(pass, &self.output_gradient(), self.config.hidden_size),
        };
        let mut gradient = gradient.into();
        if keep == Keep::Nothing {
            saved.clear();
        }
        while let Some(kept) = saved.pop() {
            let index = saved.len();
            gradient = blocks[index].backward(
                pass,
                &weights[index],
                kept,
                gradient,
                &mut gradients[index],
            )?;
        }
        Ok(Local {
            output,
            input_gradient: gradient.to_vec(),
            gradients,
        })
    }

    /// The wholes of what the ranks have; what all should have alike is looked at.
    fn join(&self, way: Way, locals: &[Local<R>]) -> Outcome<R> {
        let rows = |of: fn(&Local<R>) -> &Vec<R>, shared: bool| match shared {
            true => locals.iter().flat_map(of).copied().collect(),
            false => {
                assert!(locals.iter().all(|local| of(local) == of(&locals[0])));
                of(&locals[0]).clone()
            }
        };
        let blocks = chain_blocks::<R>(&self.config, &self.range, way.sequence_parallel);
        let gradients = blocks.iter().enumerate().map(|(index, block)| {
            let buckets: Vec<Bucket> = (0..way.tp)
                .map(|rank| Bucket::new(block.parameters(), rank, way.tp))
                .collect();
            let parameters = 0..buckets[0].slots().len();
            let whole = parameters.map(|parameter| {
                let slots = buckets.iter().map(|bucket| &bucket.slots()[parameter]);
                let parts = slots
                    .zip(locals)
                    .map(|(slot, local)| (slot, &local.gradients[index][slot.range.clone()]));
                whole_gradient(parts.collect())
            });
            whole.collect()
        });
        Outcome {
            output: rows(
                |local| &local.output,
                way.sequence_parallel && !self.ends_with_head(),
            ),
            input_gradient: rows(|local| &local.input_gradient, way.sequence_parallel),
            gradients: gradients.collect(),
        }
    }

    /// What the output's gradient makes of the output: the number whose slopes all gradients are.
    pub(crate) fn objective(&self, way: Way) -> f64 {
        let way = Way {
            keep: Keep::Nothing,
            ..way
        };
        let output = self.run(way).output;
        let terms = output.iter().zip(self.output_gradient());
        terms
            .map(|(value, factor)| value.to_f64() * factor.to_f64())
            .sum()
    }
}

fn first_values<R: Real>(parameter: &Parameter) -> Vec<R> {
    let count = parameter.shape.iter().product();
    let seed = parameter
        .name
        .bytes()
        .fold(1, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
    let mut first = values(count, seed, 0.5);
    if parameter.init == Init::Ones {
        first.iter_mut().for_each(|value| *value += R::ONE);
    }
    first
}

fn local_rows<R: Real>(pass: &Pass<'_>, whole: &[R], width: usize) -> Vec<R> {
    match whole.is_empty() {
        true => Vec::new(),
        false => whole[pass.local_rows().start * width..pass.local_rows().end * width].to_vec(),
    }
}

/// The columns and rows of a parameter that a rank holds.
fn part<R: Real>(parameter: &Parameter, whole: &[R], size: usize, index: usize) -> Vec<R> {
    let columns: usize = parameter.shape[1..].iter().product();
    match parameter.split {
        None => whole.to_vec(),
        Some(0) => {
            let rows = chunk(parameter.shape[0], size, index);
            whole[rows.start * columns..rows.end * columns].to_vec()
        }
        Some(_) => {
            let held = chunk(columns, size, index);
            whole
                .chunks(columns)
                .flat_map(|row| row[held.clone()].to_vec())
                .collect()
        }
    }
}

fn whole_gradient<R: Real>(parts: Vec<(&Slot, &[R])>) -> Vec<R> {
    let parameter = &parts[0].0.parameter;
    match parameter.split {
        Some(0) => parts.iter().flat_map(|(_, part)| part.to_vec()).collect(),
        Some(_) => {
            let row = |row: usize| {
                parts.iter().flat_map(move |(slot, part)| {
                    let width = slot.local_shape[1];
                    part[row * width..(row + 1) * width].to_vec()
                })
            };
            (0..parameter.shape[0]).flat_map(row).collect()
        }
        None if parameter.partial_gradient => {
            let mut sum = parts[0].1.to_vec();
            for (_, part) in &parts[1..] {
                sum.iter_mut()
                    .zip(*part)
                    .for_each(|(sum, term)| *sum += *term);
            }
            sum
        }
        None => {
            assert!(
                parts.iter().all(|(_, part)| *part == parts[0].1),
                "ranks differ in `{}`",
                parameter.name
            );
            parts[0].1.to_vec()
        }
    }
}
