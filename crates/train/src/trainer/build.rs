//! From a job to a trainer.

use super::{Job, Trainer, keeper::Keeper};
use crate::Error;
use crate::ahead::Ahead;
use crate::data::Shares;
use crate::executor::Executor;
use crate::parallel::{Layout, Problem, problems};
use crate::report::Progress;
use crate::settings::{LearningRate, Optimizer, Precision, Recompute, Settings, Shape};
use crate::stage::Stage;
use cairn_arena::{Arena, Bucket, Decay, Groups, Options, Schedule, Tied};
use cairn_checkpoint::State;
use cairn_kernels::Pool;
use cairn_model::{Block, Keep};
use cairn_tensor::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// The tokens, and the length of sequences, that blocks are compared for.
const COMPARED_TOKENS: usize = 2048;

pub(super) fn trainer(job: Job) -> Result<Trainer, Error> {
    let Job {
        settings,
        world,
        pool,
        blocks,
        data,
        checkpoints,
        stop,
    } = job;
    refuse(problems(&settings, world.size(), blocks.len()))?;
    let layout = Layout::new(&settings.parallel.mesh, world)?;
    let stages = stages(&settings, &layout, &blocks)?;
    let tied = tied(&layout, &stages, &blocks)?;
    let stage = stages[layout.pp.rank()].clone();
    let blocks = own(blocks, &stage);
    let averaged = averaged(&settings, tied.as_ref(), &blocks);
    let arena = arena(&settings, &layout, tied, &blocks, &pool)?;
    let keeper = checkpoints.map(|home| {
        let mut keeper = Keeper::new(home, &settings, &layout)?;
        let mut state = State::new(layout.world.rank());
        arena.add_to(&layout.mesh, &mut state)?;
        keeper.keep_average(&state, &averaged)?;
        Ok::<_, Error>(keeper)
    });
    let shares = Shares {
        batch: settings.batch,
        tokens: settings.tokens,
        dp: (layout.dp.rank(), layout.dp.size()),
        micro_batches: settings.parallel.micro_batches,
    };
    Ok(Trainer {
        executor: executor(&settings, &layout, pool, stage, blocks)?,
        rates: rates(&settings),
        progress: Progress {
            seed: settings.seed,
            ..Progress::default()
        },
        keeper: keeper.transpose()?,
        settings,
        layout,
        arena,
        fingerprint: data.fingerprint(),
        ahead: Ahead::new(data, shares),
        shares,
        stop,
        stall: Duration::ZERO,
        metrics: BTreeMap::new(),
    })
}

fn refuse(problems: Vec<Problem>) -> Result<(), Error> {
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Settings { problems }),
    }
}

/// All stages of the pipeline.
fn stages(
    settings: &Settings,
    layout: &Layout,
    blocks: &[Box<dyn Block<f32>>],
) -> Result<Vec<Stage>, Error> {
    let (tokens, length) = (COMPARED_TOKENS, COMPARED_TOKENS);
    let costs = blocks
        .iter()
        .map(|block| block.forward_flops(tokens, length));
    let costs: Vec<f64> = costs.collect();
    let count = layout.pp.size();
    let stage = |index| Stage::new((index, count), &settings.parallel, &costs);
    (0..count).map(stage).collect()
}

/// The parameters that the first stage and the last have in common, on ranks of these.
fn tied(
    layout: &Layout,
    stages: &[Stage],
    blocks: &[Box<dyn Block<f32>>],
) -> Result<Option<Tied>, Error> {
    let mut places: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (number, stage) in stages.iter().enumerate() {
        for parameter in stage
            .blocks
            .iter()
            .flat_map(|block| blocks[*block].parameters())
        {
            places.entry(parameter.name).or_default().insert(number);
        }
    }
    places.retain(|_, stages| stages.len() > 1);
    let ends = BTreeSet::from([0, stages.len() - 1]);
    let elsewhere = places.iter().filter(|(_, stages)| **stages != ends);
    let elsewhere = elsewhere.map(|(name, stages)| Problem {
        what: format!("`{name}` is a parameter of stages {stages:?} of the pipeline"),
        hint: "only the first and the last may share parameters: use fewer stages".into(),
    });
    refuse(elsewhere.collect())?;
    let here = ends.contains(&layout.pp.rank()) && !places.is_empty();
    Ok(here.then(|| Tied {
        group: layout.ends.clone(),
        names: places.into_keys().collect(),
    }))
}

/// The blocks of a stage.
fn own(blocks: Vec<Box<dyn Block<f32>>>, stage: &Stage) -> Vec<Box<dyn Block<f32>>> {
    let mut blocks: Vec<_> = blocks.into_iter().map(Some).collect();
    let own = stage
        .blocks
        .iter()
        .filter_map(|index| blocks[*index].take());
    own.collect()
}

/// The parameters that this rank averages, and the tensors that their values are in: a tied one only where it is saved.
fn averaged(
    settings: &Settings,
    tied: Option<&Tied>,
    blocks: &[Box<dyn Block<f32>>],
) -> BTreeMap<String, String> {
    let elsewhere = tied.filter(|tied| tied.group.rank() > 0);
    let elsewhere = elsewhere.map_or(&[][..], |tied| &tied.names);
    let names = blocks.iter().flat_map(|block| block.parameters());
    let names = names.map(|parameter| parameter.name);
    let names = names.filter(|name| !elsewhere.contains(name));
    let source = |name: &String| match settings.precision {
        Precision::F32 => name.clone(),
        Precision::Bf16 => format!("optimizer.master.{name}"),
    };
    names.map(|name| (name.clone(), source(&name))).collect()
}

fn arena(
    settings: &Settings,
    layout: &Layout,
    tied: Option<Tied>,
    blocks: &[Box<dyn Block<f32>>],
    pool: &Pool,
) -> Result<Arena, Error> {
    let (index, size) = (layout.tp.rank(), layout.tp.size());
    let buckets = blocks.iter().map(|block| block.parameters());
    let buckets = buckets.map(|parameters| Bucket::new(parameters, index, size));
    let groups = Groups {
        world: layout.world.clone(),
        dp: layout.dp.clone(),
        tp: layout.tp.clone(),
        tied,
    };
    let options = Options {
        dtype: match settings.precision {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::Bf16,
        },
        stage: settings.parallel.zero.try_into()?,
        optimizer: optimizer(settings.optimizer),
        offload: settings.offload.as_ref().map(PathBuf::from),
        seed: settings.seed,
        pool: pool.clone(),
    };
    Ok(Arena::new(buckets.collect(), groups, options)?)
}

fn optimizer(chosen: Optimizer) -> cairn_arena::Optimizer {
    match chosen {
        Optimizer::AdamW { betas, epsilon, .. } => cairn_arena::Optimizer::AdamW {
            betas: [betas.0, betas.1],
            epsilon,
        },
        Optimizer::Sgd {
            momentum, nesterov, ..
        } => cairn_arena::Optimizer::Sgd { momentum, nesterov },
    }
}

fn executor(
    settings: &Settings,
    layout: &Layout,
    pool: Pool,
    stage: Stage,
    blocks: Vec<Box<dyn Block<f32>>>,
) -> Result<Executor, Error> {
    let parallel = &settings.parallel;
    let schedule = cairn_plan::Schedule::interleaved(
        layout.pp.size(),
        parallel.chunks,
        parallel.micro_batches,
    )?;
    let keep = match settings.recompute {
        Recompute::Nothing => Keep::Everything,
        Recompute::Selected => Keep::Selected,
        Recompute::Everything => Keep::Input,
    };
    Ok(Executor {
        layout: layout.clone(),
        pool,
        stage,
        blocks,
        schedule,
        sequence_parallel: parallel.sequence_parallel,
        keep,
    })
}

fn rates(settings: &Settings) -> Schedule {
    let LearningRate {
        peak,
        end,
        warmup,
        shape,
    } = settings.learning_rate;
    let (decay, stable_steps) = match shape {
        Shape::Constant => (Decay::Constant, 0),
        Shape::Linear => (Decay::Linear, 0),
        Shape::Cosine => (Decay::Cosine, 0),
        Shape::Stable { decay } => {
            let rest = settings.steps.saturating_sub(warmup);
            (Decay::Linear, rest.saturating_sub(decay))
        }
        Shape::Polynomial { power } => (Decay::Polynomial { power }, 0),
    };
    Schedule {
        peak,
        floor: end,
        warmup_steps: warmup,
        stable_steps,
        steps: settings.steps,
        decay,
    }
}
