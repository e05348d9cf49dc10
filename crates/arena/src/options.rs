//! What can be chosen for the memory of a rank.

use crate::{Error, Optimizer};
use cairn_collectives::Communicator;
use cairn_kernels::Pool;
use cairn_tensor::DType;
use std::path::PathBuf;
use std::sync::Arc;

/// What the ranks of the `dp` axis share out, instead of holding all of it each. Later stages share out more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stage {
    /// Nothing: gradients are summed and every rank makes the same step.
    #[default]
    Nothing,
    /// The optimizer's state and master weights; each rank makes its part of the step.
    Optimizer,
    /// Gradients, too: each micro-batch leaves only the rank's part of their sum.
    Gradients,
    /// Parameters, too: they are gathered for each pass through a block.
    Parameters,
}

impl TryFrom<u8> for Stage {
    type Error = Error;

    /// The stage by the number that papers give it, 0 to 3.
    fn try_from(stage: u8) -> Result<Self, Error> {
        match stage {
            0 => Ok(Self::Nothing),
            1 => Ok(Self::Optimizer),
            2 => Ok(Self::Gradients),
            3 => Ok(Self::Parameters),
            _ => Err(Error::Stage { stage }),
        }
    }
}

/// What can be chosen for the memory of a rank.
#[derive(Debug, Clone)]
pub struct Options {
    /// What parameters are stored as: `f32`, or `bf16` beside `f32` masters.
    pub dtype: DType,
    /// What the ranks of the `dp` axis share out.
    pub stage: Stage,
    /// How parameters follow gradients.
    pub optimizer: Optimizer,
    /// The folder for files that hold what the optimizer remembers, in place of memory. They have no names, and go with the process.
    pub offload: Option<PathBuf>,
    /// Decides the first values.
    pub seed: u64,
    /// The threads of this rank.
    pub pool: Pool,
}

/// The groups that this rank is in.
#[derive(Debug, Clone)]
pub struct Groups {
    /// All ranks that train the model.
    pub world: Arc<dyn Communicator>,
    /// Those that hold the same parameters for other data.
    pub dp: Arc<dyn Communicator>,
    /// Those that hold other parts of the same parameters.
    pub tp: Arc<dyn Communicator>,
    /// Those of other stages that have parameters in common with this one; none if there are none.
    pub tied: Option<Tied>,
}

/// Parameters that stages of a pipeline have in common: an embedding that is also the head.
#[derive(Debug, Clone)]
pub struct Tied {
    /// One rank of each stage that has them, the first stage first; it is the one that saves them.
    pub group: Arc<dyn Communicator>,
    /// Their names, in the same order on every rank.
    pub names: Vec<String>,
}
