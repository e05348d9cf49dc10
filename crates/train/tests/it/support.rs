//! Layouts, models, data and runs that tests share.

use cairn_collectives::{Communicator, threads};
use cairn_kernels::Pool;
use cairn_model::{Batch, Block, IGNORED, ModelConfig, Options, blocks};
use cairn_store::Store;
use cairn_train::settings::{LearningRate, Optimizer, Parallel, Precision, Recompute, Shape};
use cairn_train::{Data, Error, Home, Job, Settings, StepReport, Trainer};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Sequences of a step; many layouts divide it.
const BATCH: usize = 12;
/// Tokens of a sequence.
pub(crate) const LENGTH: u32 = 7;
/// Tokens that decoders know.
pub(crate) const VOCABULARY: u32 = 53;
/// The seed of all runs.
const SEED: u64 = 5;

pub(crate) type Blocks = Vec<Box<dyn Block<f32>>>;

/// A model, made anew for each rank.
pub(crate) struct Model {
    vocabulary: u32,
    blocks: Box<Maker>,
}

/// Makes the blocks of a rank on a layout.
type Maker = dyn Fn(&Parallel, usize) -> Blocks + Send + Sync;

impl Model {
    /// The model whose blocks a layout and a rank decide.
    pub(crate) fn new(
        vocabulary: u32,
        blocks: impl Fn(&Parallel, usize) -> Blocks + Send + Sync + 'static,
    ) -> Self {
        Self {
            vocabulary,
            blocks: Box::new(blocks),
        }
    }

    /// A decoder with four layers and sizes that most meshes cut unevenly.
    pub(crate) fn decoder(architecture: &str, tied: bool, dropout: f64) -> Self {
        let config = ModelConfig::from_json(&format!(
            r#"{{"architectures": ["{architecture}"], "vocab_size": {VOCABULARY}, "hidden_size": 16, "intermediate_size": 22,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
            "initializer_range": 0.2, "tie_word_embeddings": {tied}, "dropout": {dropout}}}"#
        ));
        let config = config.expect("a config");
        Self::new(VOCABULARY, move |parallel, _| {
            let options = Options {
                sequence_parallel: parallel.sequence_parallel,
                ..Options::default()
            };
            blocks(&config, &options)
        })
    }

    /// The blocks as one rank alone has them.
    pub(crate) fn alone(&self) -> Blocks {
        (self.blocks)(&Parallel::default(), 0)
    }
}

/// One way to share out the work.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) parallel: Parallel,
    pub(crate) recompute: Recompute,
    pub(crate) precision: Precision,
    pub(crate) optimizer: Optimizer,
    /// The folder for the state of the optimizer, if it is to be in files.
    pub(crate) offload: Option<String>,
}

impl Case {
    /// A mesh, a stage of ZeRO and a number of micro-batches.
    pub(crate) fn new(mesh: &str, zero: u8, micro_batches: usize) -> Self {
        Self {
            parallel: Parallel {
                mesh: mesh.parse().expect("a mesh"),
                zero,
                micro_batches,
                ..Parallel::default()
            },
            recompute: Recompute::Nothing,
            precision: Precision::F32,
            optimizer: Optimizer::default(),
            offload: None,
        }
    }

    /// One rank, one micro-batch.
    pub(crate) fn alone() -> Self {
        Self::new("single", 0, 1)
    }

    /// Layouts of one to eight ranks: each mesh that a decoder of ours has room for, twice, with everything else chosen by turns.
    pub(crate) fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for (dp, pp, tp) in meshes() {
            for variant in 0..2 {
                let turn = cases.len();
                let order = match turn % 3 {
                    0 => format!("dp={dp},pp={pp},tp={tp}"),
                    1 => format!("tp={tp},dp={dp},pp={pp}"),
                    _ => format!("pp={pp},tp={tp},dp={dp}"),
                };
                let zero = [0, 3, 2, 1][(turn / 2 + 2 * variant) % 4];
                let mut case = Self::new(&order, zero, [1, 3, 2][turn % 3].min(BATCH / dp));
                if !BATCH.is_multiple_of(dp * case.parallel.micro_batches) {
                    case.parallel.micro_batches = 1;
                }
                case.parallel.sequence_parallel = variant == 1;
                case.parallel.chunks = match pp {
                    2 | 3 => 1 + turn / 2 % 2,
                    _ => 1,
                };
                case.recompute = [
                    Recompute::Nothing,
                    Recompute::Everything,
                    Recompute::Selected,
                ][turn / 2 % 3];
                cases.push(case);
            }
        }
        cases
    }

    pub(crate) fn settings(&self, steps: u64) -> Settings {
        Settings {
            seed: SEED,
            steps,
            batch: BATCH,
            parallel: self.parallel.clone(),
            recompute: self.recompute,
            precision: self.precision,
            optimizer: self.optimizer,
            offload: self.offload.clone(),
            learning_rate: match self.optimizer {
                Optimizer::AdamW { .. } => LearningRate {
                    peak: 1e-2,
                    end: 1e-3,
                    warmup: 3,
                    shape: Shape::Cosine,
                },
                Optimizer::Sgd { .. } => LearningRate {
                    peak: 1.0,
                    end: 1.0,
                    warmup: 0,
                    shape: Shape::Constant,
                },
            },
            ..Settings::default()
        }
    }

    /// Runs `body` on every rank of the layout.
    pub(crate) fn run<R: Send>(
        &self,
        body: impl Fn(Arc<dyn Communicator>) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let options = threads::Options {
            timeout: Duration::from_secs(60),
        };
        threads::run(self.parallel.mesh.size(), options, body)
    }
}

fn meshes() -> impl Iterator<Item = (usize, usize, usize)> {
    let meshes = (1..=4).flat_map(|dp| (1..=4).map(move |pp| (dp, pp)));
    let meshes = meshes.flat_map(|(dp, pp)| (1..=2).map(move |tp| (dp, pp, tp)));
    meshes.filter(|(dp, pp, tp)| dp * pp * tp <= 8)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parallel {
            mesh,
            zero,
            chunks,
            micro_batches,
            sequence_parallel,
            ..
        } = &self.parallel;
        write!(
            f,
            "{mesh} zero {zero} chunks {chunks} micro-batches {micro_batches}"
        )?;
        write!(f, " sp {sequence_parallel} recompute {:?}", self.recompute)
    }
}

/// Sequences of two documents in which the next token mostly follows from the last; some tokens do not count.
pub(crate) fn data(vocabulary: u32) -> Box<dyn Data> {
    Box::new(move |places: Range<u64>| Ok::<_, String>(batch(vocabulary, places)))
}

fn batch(vocabulary: u32, places: Range<u64>) -> Batch {
    let mut batch = Batch {
        sequences: places.clone().count(),
        length: LENGTH as usize,
        samples: places.clone().collect(),
        ..Batch::default()
    };
    for place in places {
        let mut token = noise(place) % vocabulary;
        let border = 3 + noise(place) % 3;
        for position in 0..LENGTH {
            let noise = noise(place * u64::from(LENGTH) + u64::from(position));
            let next = (3 * token + 1 + noise % 4 / 3) % vocabulary;
            let counts = !(noise >> 8).is_multiple_of(7);
            let document = u32::from(position >= border);
            batch.tokens.push(token);
            batch
                .targets
                .push(if counts { next.into() } else { IGNORED });
            batch.documents.push(document);
            batch.positions.push(position - document * border);
            token = next;
        }
    }
    batch
}

/// A number that looks random.
fn noise(seed: u64) -> u32 {
    let mixed = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 40) as u32
}

/// One rank of a run.
pub(crate) fn trainer(
    settings: Settings,
    world: Arc<dyn Communicator>,
    model: &Model,
    store: Option<&Arc<dyn Store>>,
) -> Result<Trainer, Error> {
    stoppable(settings, world, model, store, Arc::default())
}

/// One rank of a run that `stop` ends.
pub(crate) fn stoppable(
    settings: Settings,
    world: Arc<dyn Communicator>,
    model: &Model,
    store: Option<&Arc<dyn Store>>,
    stop: Arc<AtomicBool>,
) -> Result<Trainer, Error> {
    Trainer::new(Job {
        blocks: (model.blocks)(&settings.parallel, world.rank()),
        settings,
        world,
        pool: Pool::new(1),
        data: data(model.vocabulary),
        checkpoints: store.map(|store| Home {
            store: store.clone(),
            options: cairn_checkpoint::Options::default(),
            assets: BTreeMap::new(),
        }),
        stop,
    })
}

/// The reports of rank 0 from the newest step in `store`, if there is one, up to step `until` of `steps`; that one is saved there.
pub(crate) fn train(
    case: &Case,
    model: &Model,
    store: Option<&Arc<dyn Store>>,
    (until, steps): (u64, u64),
) -> Vec<StepReport> {
    let all = case.run(|world| {
        let mut trainer = trainer(case.settings(steps), world, model, store)?;
        if store.is_some() {
            trainer.resume()?;
        }
        let mut reports = Vec::new();
        while trainer.progress().step < until {
            reports.push(trainer.step()?);
        }
        if store.is_some() {
            trainer.finish()?;
        }
        Ok(reports)
    });
    let mut all = all.unwrap_or_else(|error| panic!("{case}: {error}"));
    let first = all.swap_remove(0);
    for reports in all {
        assert_same(case, &reports, &first);
    }
    first
}

/// Checks that losses and norms of two runs agree. The optimizer makes much of what rounding does to the smallest gradients; losses tell little of
/// that, norms more.
pub(crate) fn assert_close(case: &Case, actual: &[StepReport], expected: &[StepReport]) {
    assert_eq!(actual.len(), expected.len());
    for (actual, expected) in actual.iter().zip(expected) {
        let near = |a: f64, b: f64, most: f64| (a - b).abs() <= most * b.abs();
        assert!(
            near(actual.loss, expected.loss, 1e-5)
                && near(actual.gradient_norm, expected.gradient_norm, 1e-3),
            "{case}: {actual:?} instead of {expected:?}"
        );
        assert_eq!(actual.step, expected.step);
        assert_eq!(actual.tokens, expected.tokens);
    }
}

/// Checks that two runs have the same bits.
pub(crate) fn assert_same(case: &Case, actual: &[StepReport], expected: &[StepReport]) {
    let bits = |report: &StepReport| {
        let [loss, norm] = [report.loss, report.gradient_norm].map(f64::to_bits);
        (report.step, loss, norm)
    };
    let bits = |reports: &[StepReport]| reports.iter().map(bits).collect::<Vec<_>>();
    assert_eq!(bits(actual), bits(expected), "{case}");
}
