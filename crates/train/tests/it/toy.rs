//! A model of three blocks that guesses the next token from the last, and a block that fails when it is told to.

use crate::support::{Blocks, Model};
use cairn_arena::{Init, Parameter};
use cairn_kernels::cross_entropy::CrossEntropy;
use cairn_kernels::embedding::Embedding;
use cairn_kernels::gemm::Write;
use cairn_kernels::linear::Linear;
use cairn_model::{Activation, Block, Error, Keep, Pass, Saved};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How many tokens there are.
const TOKENS: u32 = 37;
const VOCABULARY: usize = TOKENS as usize;
const WIDTH: usize = 8;

/// A model with three blocks between its first and its last.
pub(crate) fn model() -> Model {
    Model::new(TOKENS, |_, _| blocks())
}

/// The same, with a block that fails on rank `rank` after each number of steps in `steps`: the one before the last, so that what it gives reaches the
/// loss and all gradients.
pub(crate) fn faulty(rank: usize, steps: Range<u64>, fault: Fault) -> Model {
    faulty_at(3, rank, steps, fault)
}

/// The same, with the last block: what it gives reaches the loss alone.
pub(crate) fn faulty_loss(rank: usize, steps: Range<u64>, fault: Fault) -> Model {
    faulty_at(4, rank, steps, fault)
}

fn faulty_at(at: usize, rank: usize, steps: Range<u64>, fault: Fault) -> Model {
    Model::new(TOKENS, move |_, world_rank| {
        let mut blocks = blocks();
        if world_rank == rank {
            let block = std::mem::replace(&mut blocks[at], Box::new(Guess));
            let (steps, fault) = (steps.clone(), fault.clone());
            blocks[at] = Box::new(Faulty {
                block,
                steps,
                fault,
            });
        }
        blocks
    })
}

fn blocks() -> Blocks {
    let turn = |number| -> Box<dyn Block<f32>> { Box::new(Turn { number }) };
    let mut blocks: Blocks = vec![Box::new(Table)];
    blocks.extend((0..3).map(turn));
    blocks.push(Box::new(Guess));
    blocks
}

fn parameter(name: String, shape: [usize; 2]) -> Parameter {
    Parameter {
        name,
        shape: shape.to_vec(),
        split: None,
        init: Init::Normal { deviation: 0.3 },
        decay: true,
        partial_gradient: false,
    }
}

/// A row of numbers for each token.
#[derive(Debug)]
struct Table;

impl Block<f32> for Table {
    fn parameters(&self) -> Vec<Parameter> {
        vec![parameter("table.weight".into(), [VOCABULARY, WIDTH])]
    }

    fn forward(
        &self,
        pass: &Pass<'_>,
        weights: &[f32],
        _: Activation<f32>,
        _: Keep,
    ) -> Result<(Activation<f32>, Saved), Error> {
        let mut rows = vec![0.0; pass.batch.tokens.len() * WIDTH];
        kernel().forward(pass.pool, weights, &pass.batch.tokens, &mut rows);
        Ok((rows.into(), Box::new(())))
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        _: &[f32],
        _: Saved,
        gradient: Activation<f32>,
        gradients: &mut [f32],
    ) -> Result<Activation<f32>, Error> {
        kernel().backward(pass.pool, &pass.batch.tokens, &gradient, gradients);
        Ok(Activation::empty())
    }
}

fn kernel() -> Embedding {
    Embedding {
        first: 0,
        width: WIDTH,
    }
}

/// Turns rows and adds them to themselves.
#[derive(Debug)]
struct Turn {
    number: usize,
}

impl Block<f32> for Turn {
    fn parameters(&self) -> Vec<Parameter> {
        let name = format!("turns.{}.weight", self.number);
        vec![parameter(name, [WIDTH, WIDTH])]
    }

    fn forward(
        &self,
        pass: &Pass<'_>,
        weights: &[f32],
        input: Activation<f32>,
        _: Keep,
    ) -> Result<(Activation<f32>, Saved), Error> {
        let mut turned = vec![0.0; input.len()];
        linear(input.len(), WIDTH).forward(pass.pool, &input, weights, None, &mut turned);
        turned
            .iter_mut()
            .zip(&*input)
            .for_each(|(sum, x)| *sum += x);
        Ok((turned.into(), Box::new(input.to_vec())))
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        weights: &[f32],
        saved: Saved,
        mut gradient: Activation<f32>,
        gradients: &mut [f32],
    ) -> Result<Activation<f32>, Error> {
        let input = saved.downcast::<Vec<f32>>().expect("what forward kept");
        let size = linear(input.len(), WIDTH);
        size.weight_gradient(pass.pool, &input, &gradient, gradients);
        let output = gradient.to_vec();
        size.input_gradient(pass.pool, &output, weights, Write::Add, &mut gradient);
        Ok(gradient)
    }
}

fn linear(elements: usize, outputs: usize) -> Linear {
    Linear {
        tokens: elements / WIDTH,
        inputs: WIDTH,
        outputs,
    }
}

/// Guesses the next token.
#[derive(Debug)]
struct Guess;

struct Guessed {
    input: Vec<f32>,
    logits: Vec<f32>,
    log_sums: Vec<f32>,
}

const LOSS: CrossEntropy = CrossEntropy {
    first: 0,
    width: VOCABULARY,
    z_loss: 0.0,
};

impl Block<f32> for Guess {
    fn parameters(&self) -> Vec<Parameter> {
        vec![parameter("guess.weight".into(), [VOCABULARY, WIDTH])]
    }

    fn forward(
        &self,
        pass: &Pass<'_>,
        weights: &[f32],
        input: Activation<f32>,
        _: Keep,
    ) -> Result<(Activation<f32>, Saved), Error> {
        let (pool, targets) = (pass.pool, &pass.batch.targets);
        let mut logits = vec![0.0; targets.len() * VOCABULARY];
        linear(input.len(), VOCABULARY).forward(pool, &input, weights, None, &mut logits);
        let [mut maxima, mut log_sums, mut at_target, mut losses] =
            [(); 4].map(|()| vec![0.0; targets.len()]);
        LOSS.row_max(pool, &logits, &mut maxima);
        LOSS.row_sums(
            pool,
            &logits,
            targets,
            &maxima,
            &mut log_sums,
            &mut at_target,
        );
        LOSS.losses(targets, &maxima, &at_target, &mut log_sums, &mut losses);
        let saved = Guessed {
            input: input.to_vec(),
            logits,
            log_sums,
        };
        Ok((losses.into(), Box::new(saved)))
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        weights: &[f32],
        saved: Saved,
        gradient: Activation<f32>,
        gradients: &mut [f32],
    ) -> Result<Activation<f32>, Error> {
        let mut saved = saved.downcast::<Guessed>().expect("what forward kept");
        let (pool, targets) = (pass.pool, &pass.batch.targets);
        LOSS.gradient(pool, targets, &saved.log_sums, &gradient, &mut saved.logits);
        let size = linear(saved.input.len(), VOCABULARY);
        size.weight_gradient(pool, &saved.input, &saved.logits, gradients);
        let mut back = vec![0.0; saved.input.len()];
        size.input_gradient(pool, &saved.logits, weights, Write::Replace, &mut back);
        Ok(back.into())
    }
}

/// What a block does besides its work.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    Panics,
    Fails,
    /// Until the others have seen it.
    Hangs(Arc<AtomicBool>),
    GivesNaN,
}

/// A block that does something else, too, in some steps.
#[derive(Debug)]
struct Faulty {
    block: Box<dyn Block<f32>>,
    /// How many steps are done before.
    steps: Range<u64>,
    fault: Fault,
}

impl Block<f32> for Faulty {
    fn parameters(&self) -> Vec<Parameter> {
        self.block.parameters()
    }

    fn forward(
        &self,
        pass: &Pass<'_>,
        weights: &[f32],
        input: Activation<f32>,
        keep: Keep,
    ) -> Result<(Activation<f32>, Saved), Error> {
        let (mut output, saved) = self.block.forward(pass, weights, input, keep)?;
        if self.steps.contains(&pass.step) {
            match &self.fault {
                Fault::Panics => panic!("the block was told to"),
                Fault::Fails => {
                    return Err(Error::Token {
                        token: 99,
                        vocab_size: 5,
                    });
                }
                Fault::Hangs(seen) => {
                    while !seen.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                Fault::GivesNaN => output.fill(f32::NAN),
            }
        }
        Ok((output, saved))
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        weights: &[f32],
        saved: Saved,
        gradient: Activation<f32>,
        gradients: &mut [f32],
    ) -> Result<Activation<f32>, Error> {
        self.block
            .backward(pass, weights, saved, gradient, gradients)
    }
}
