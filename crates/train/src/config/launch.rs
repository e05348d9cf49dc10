//! A whole run, its ranks as threads of this process.

use super::sequences::{Sequences, loader};
use super::{Config, holdings};
use crate::report::{Ending, Evaluation, Event};
use crate::trainer::{Home, Job, Resumed, Trainer};
use crate::{Error, weights};
use cairn_collectives::{Communicator, threads};
use cairn_data::Loader;
use cairn_kernels::Pool;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

/// The least memory for what is being saved, if it is limited: a few of the pieces that are written at a time.
const LEAST_STAGING_BYTES: u64 = 32 << 20;

/// What is heard of a run while it goes on, from rank 0.
#[derive(Debug, Clone)]
pub enum Moment<'a> {
    /// All is in memory and the first step begins; it follows the step that was resumed from, if there was one.
    Ready(Option<&'a Resumed>),
    /// Something happened.
    Event(Event<'a>),
    /// The data set aside was looked at after this step.
    Evaluated(u64, &'a Evaluation),
}

/// Trains until all steps are done or `stop` is set, from the newest good step of the run if there is one, and tells `watch` how it goes.
///
/// # Errors
/// If the data, the weights or the checkpoints cannot be used, or a rank fails.
pub fn launch(
    config: &Config,
    stop: &Arc<AtomicBool>,
    watch: &mut (dyn FnMut(Moment<'_>) + Send),
) -> Result<Ending, Error> {
    let inputs = Inputs::open(config)?;
    let ranks = config.settings.parallel.mesh.size();
    let cores = available_parallelism().map_or(1, usize::from);
    let watch = Mutex::new(watch);
    let endings = threads::run(ranks, threads::Options::default(), |world| {
        let pool = Pool::new((cores / ranks).max(1));
        let is_first = world.rank() == 0;
        let mut tell = |moment: Moment<'_>| {
            if is_first {
                watch.lock().unwrap_or_else(PoisonError::into_inner)(moment);
            }
        };
        rank(config, &inputs, world, pool, stop.clone(), &mut tell)
    })?;
    Ok(endings.into_iter().next().unwrap_or(Ending::Finished))
}

/// As [`launch`], for one rank with `threads` threads, whose others are elsewhere: in processes that MPI started, for example. Rank 0 tells `watch` how it goes.
///
/// # Collective
/// # Errors
/// As [`launch`], and if the world is not of the size of the mesh.
pub fn launch_rank(
    config: &Config,
    world: Arc<dyn Communicator>,
    threads: usize,
    stop: &Arc<AtomicBool>,
    watch: &mut dyn FnMut(Moment<'_>),
) -> Result<Ending, Error> {
    let inputs = Inputs::open(config)?;
    let is_first = world.rank() == 0;
    let mut tell = |moment: Moment<'_>| {
        if is_first {
            watch(moment);
        }
    };
    let pool = Pool::new(threads.max(1));
    rank(config, &inputs, world, pool, stop.clone(), &mut tell)
}

/// Opens all that a run reads, as a launch would, and reads nothing more.
///
/// # Errors
/// If the data or the tokenizer cannot be used.
pub fn check_inputs(config: &Config) -> Result<(), Error> {
    Inputs::open(config).map(drop)
}

/// What all ranks read.
struct Inputs {
    train: Arc<Loader>,
    evaluate: Option<Arc<Loader>>,
    assets: BTreeMap<String, Vec<u8>>,
}

impl Inputs {
    fn open(config: &Config) -> Result<Self, Error> {
        let length = config.data.length;
        Ok(Self {
            train: Arc::new(loader(config, &config.data.sources, length, true)?),
            evaluate: match &config.evaluation {
                Some(wanted) => Some(Arc::new(loader(config, &wanted.sources, length, false)?)),
                None => None,
            },
            assets: assets(config)?,
        })
    }
}

/// The life of one rank.
fn rank(
    config: &Config,
    inputs: &Inputs,
    world: Arc<dyn Communicator>,
    pool: Pool,
    stop: Arc<AtomicBool>,
    tell: &mut dyn FnMut(Moment<'_>),
) -> Result<Ending, Error> {
    let mut trainer = Trainer::new(Job {
        settings: config.settings.clone(),
        world,
        pool,
        blocks: config.blocks(),
        data: Box::new(Sequences(inputs.train.clone())),
        checkpoints: Some(Home {
            store: cairn_store::open(&config.address())?,
            options: cairn_checkpoint::Options {
                // All ranks copy at the same time, on the same cores.
                capture_threads: 1,
                staging_bytes: staging_bytes(config)?,
                keeper: cairn_keeper::Client::find().map(|keeper| Arc::new(keeper) as _),
                ..cairn_checkpoint::Options::default()
            },
            assets: inputs.assets.clone(),
        }),
        stop,
    })?;
    trainer.claim(config.take_over)?;
    let resumed = trainer.resume()?;
    if let (None, Some(path)) = (&resumed, &config.model.weights) {
        trainer.load_weights(&weights::open(path)?)?;
    }
    tell(Moment::Ready(resumed.as_ref()));
    trainer.run(&mut |trainer, event| {
        let step = match &event {
            Event::Step(report) => Some(report.step),
            _ => None,
        };
        tell(Moment::Event(event));
        let (Some(step), Some(wanted)) = (step, &config.evaluation) else {
            return Ok(());
        };
        let last = step == config.settings.steps;
        if !(last || step.is_multiple_of(wanted.every)) {
            return Ok(());
        }
        let Some(loader) = &inputs.evaluate else {
            return Ok(());
        };
        let evaluation = trainer.evaluate(&mut Sequences(loader.clone()), wanted.batches)?;
        tell(Moment::Evaluated(step, &evaluation));
        Ok(())
    })
}

/// The most memory for what is being saved: no limit, unless state is kept in files to save memory. Parameters must be captured before they change, but what
/// is in files has time.
fn staging_bytes(config: &Config) -> Result<Option<u64>, Error> {
    if config.settings.offload.is_none() {
        return Ok(None);
    }
    let parameters = holdings(config)?.into_iter().map(|rank| rank.parameters);
    let most = parameters.max().unwrap_or(0).saturating_mul(4);
    Ok(Some(most.max(LEAST_STAGING_BYTES)))
}

/// The small files that go into every checkpoint: with them a step is a model that other tools load.
fn assets(config: &Config) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let text = config.model.config.to_json();
    let mut assets = BTreeMap::from([("config.json".to_string(), text.into_bytes())]);
    if let Some(path) = &config.model.tokenizer {
        let (folder, name) = cairn_checkpoint::split_path(path);
        let bytes = cairn_store::open(&folder)?.get(&name)?;
        assets.insert("tokenizer.json".to_string(), bytes);
    }
    Ok(assets)
}
