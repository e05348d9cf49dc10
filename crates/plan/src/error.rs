//! What can go wrong with plans.

use crate::Action;

/// What can go wrong with plans.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no schedule like this.
    #[error(
        "there is no schedule of {micro_batches} micro-batches over {stages} stages of {chunks} chunks: {reason}"
    )]
    Schedule {
        /// How many stages were asked for.
        stages: usize,
        /// How many chunks of layers on each stage were asked for.
        chunks: usize,
        /// How many micro-batches were asked for.
        micro_batches: usize,
        /// Why not.
        reason: String,
    },
    /// A stage does what is not there to be done.
    #[error("stage {stage} has no `{action}` to do")]
    Unknown {
        /// The stage.
        stage: usize,
        /// What it does.
        action: Action,
    },
    /// A stage does something again.
    #[error("stage {stage} does `{action}` twice")]
    Twice {
        /// The stage.
        stage: usize,
        /// What it does.
        action: Action,
    },
    /// A stage leaves something out.
    #[error("stage {stage} never does `{action}`")]
    Missing {
        /// The stage.
        stage: usize,
        /// What it does not do.
        action: Action,
    },
    /// Stages wait for each other.
    #[error("the schedule stops: {}", waiting.iter().map(|(stage, action)| format!("stage {stage} waits for the input of `{action}`")).collect::<Vec<_>>().join(", "))]
    Deadlock {
        /// Each stage that waits, and what it could do next.
        waiting: Vec<(usize, Action)>,
    },
    /// Layers cannot be split so.
    #[error("cannot split {layers} layers into {parts} parts: {reason}")]
    Split {
        /// How many layers there are.
        layers: usize,
        /// How many parts were asked for.
        parts: usize,
        /// Why not.
        reason: String,
    },
    /// A model has too many layers.
    #[error("{layers} layers are more than the limit of {limit}")]
    TooManyLayers {
        /// How many there are.
        layers: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Something cannot take this long.
    #[error("{what} cannot cost {cost}")]
    Cost {
        /// What.
        what: String,
        /// Its cost.
        cost: f64,
    },
    /// There are not as many costs as parts.
    #[error("{costs} costs do not fit the {parts} parts of the model")]
    Costs {
        /// How many costs there are.
        costs: usize,
        /// How many parts.
        parts: usize,
    },
    /// A chart would be too large.
    #[error("a chart of {actions} actions is more than the limit of {limit}")]
    TooMuchToDraw {
        /// How many actions there are.
        actions: usize,
        /// How many are drawn at most.
        limit: usize,
    },
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Split { layers, parts, .. } if parts > layers => {
                "use fewer stages or fewer chunks".into()
            }
            Self::Deadlock { .. } => {
                "each stage does its actions in order; let one that waits do earlier what another needs"
                    .into()
            }
            Self::Cost { .. } => "costs are numbers from zero on".into(),
            _ => return None,
        })
    }
}
