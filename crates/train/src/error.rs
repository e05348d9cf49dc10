//! What can go wrong with training.

use crate::parallel::Problem;
use std::sync::Arc;

/// Why a launch does not go back by itself.
const MAY_BE_GOOD: &str = "nothing says that the step is damaged, so the run does not go back to an older one: mend the cause and launch again";

/// What to do about a run that is another one.
const OTHER_RUN: &str = "give what the run began with, or begin another run in another folder";

/// What can go wrong with training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings cannot be used.
    #[error("the settings cannot be used: {}", listed(problems))]
    Settings {
        /// All that is wrong with them.
        problems: Vec<Problem>,
    },
    /// Too many steps in a row were skipped.
    #[error(
        "{skipped} steps in a row were skipped, the last is {step}: the loss or a gradient is not finite"
    )]
    NotFinite {
        /// The last of them.
        step: u64,
        /// How many there were.
        skipped: u64,
    },
    /// The data has something wrong.
    #[error("cannot get samples {first} to {last} of the data")]
    Data {
        /// The first that was asked for.
        first: u64,
        /// The last that was asked for.
        last: u64,
        /// What is wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Data has tokens that the model does not know.
    #[error(
        "`{path}` has a vocabulary of {tokens} tokens, and the model one of {model} (`vocab_size`)"
    )]
    Vocabulary {
        /// The data.
        path: String,
        /// Its vocabulary.
        tokens: u32,
        /// The model's.
        model: u32,
    },
    /// The data gave something that is not a batch.
    #[error("the data gave {reason} for samples {first} to {last}")]
    Batch {
        /// The first that was asked for.
        first: u64,
        /// The last that was asked for.
        last: u64,
        /// What it gave.
        reason: String,
    },
    /// A rank cannot load the newest step, and nothing proves that it is damaged.
    #[error("rank {rank} cannot load step {step}: {reason}")]
    CannotResume {
        /// The step.
        step: u64,
        /// The rank.
        rank: usize,
        /// What keeps it from loading.
        reason: String,
        /// What can be done about that.
        advice: Option<String>,
    },
    /// There are steps, but all are damaged.
    #[error("no checkpoint can be resumed from: {}", each(skipped))]
    NothingToResume {
        /// The steps and what is wrong with them, newest first.
        skipped: Vec<(u64, String)>,
    },
    /// The launch would not go on with the run that the step is of.
    #[error("this is not the run of step {step}: {}", changes.join(", "))]
    OtherRun {
        /// The step that the run goes on from.
        step: u64,
        /// What differs.
        changes: Vec<String>,
        /// The keys of these that may differ on purpose.
        allowable: Vec<String>,
    },
    /// A checkpoint does not say where its run was.
    #[error("step {step} was not saved by a trainer")]
    NotATrainer {
        /// The step.
        step: u64,
    },
    /// Another trainer took the run.
    #[error("the run was taken over{}", by.as_ref().map_or(String::new(), |by| format!(" by {by}")))]
    TakenOver {
        /// Who did, as far as this rank knows.
        by: Option<String>,
    },
    /// A run without a place for checkpoints was asked for one.
    #[error("the run has no place for checkpoints")]
    NoRun,
    /// Checkpoints cannot be written where they are to go.
    #[error("checkpoints cannot be written to `{url}`")]
    Unwritable {
        /// Where they are to go.
        url: String,
        /// Why not.
        source: cairn_store::Error,
    },
    /// A group of ranks failed.
    #[error(transparent)]
    Collective(#[from] cairn_collectives::Error),
    /// The memory of the rank failed.
    #[error(transparent)]
    Arena(#[from] cairn_arena::Error),
    /// A block failed.
    #[error(transparent)]
    Model(#[from] cairn_model::Error),
    /// A source of tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] cairn_data::Error),
    /// A file cannot be read.
    #[error(transparent)]
    Store(#[from] cairn_store::Error),
    /// A weight has a shape that cannot be.
    #[error(transparent)]
    Sharding(#[from] cairn_sharding::Error),
    /// There is no such schedule.
    #[error(transparent)]
    Plan(#[from] cairn_plan::Error),
    /// A checkpoint could not be saved or loaded.
    #[error(transparent)]
    Checkpoint(#[from] cairn_checkpoint::Error),
    /// A checkpoint that was saved in the background failed.
    #[error("the checkpoint of step {step} was not saved")]
    Save {
        /// The step.
        step: u64,
        /// Why not.
        source: Arc<cairn_checkpoint::Error>,
    },
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFinite { .. } => Some(
                "lower the learning rate, clip gradients, or look at the data of these steps"
                    .into(),
            ),
            Self::CannotResume { advice, .. } => Some(match advice {
                Some(advice) => format!("{advice}; {MAY_BE_GOOD}"),
                None => MAY_BE_GOOD.into(),
            }),
            Self::NothingToResume { .. } => {
                Some("look at them with `cairn verify`, or begin anew in another folder".into())
            }
            Self::OtherRun { allowable, .. } => Some(match allowable.is_empty() {
                true => OTHER_RUN.into(),
                false => format!(
                    "{OTHER_RUN}, or let it differ on purpose: `--set may_change={}`",
                    tables(allowable).join(",")
                ),
            }),
            Self::Vocabulary { tokens, .. } => Some(format!(
                "make `model.config.vocab_size` at least {tokens}, or tokenize the text with the model's tokenizer"
            )),
            Self::TakenOver { .. } => Some(
                "somebody launched it with `--take-over`, or this process stood still for long; what was saved is there".into(),
            ),
            Self::NoRun => Some("give the run a folder".into()),
            Self::Checkpoint(error) => of_checkpoint(error),
            Self::Arena(error) => error.hint(),
            Self::Unwritable { source, .. } => source.hint(),
            Self::Save { source, .. } => of_checkpoint(source),
            _ => None,
        }
    }
}

/// What to do about an error of a checkpoint, where a launch has no options to pass.
fn of_checkpoint(error: &cairn_checkpoint::Error) -> Option<String> {
    match error {
        cairn_checkpoint::Error::StepTaken { .. } => Some(
            "something else saved this step meanwhile; launch again to go on from the newest one"
                .into(),
        ),
        error => error.hint(),
    }
}

/// An error and its causes, in one line.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Keys as they are named on a command line: each once, `data` for all that is in it.
fn tables(keys: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for key in keys {
        let name = if key.starts_with("data.") {
            "data"
        } else {
            key
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn each(skipped: &[(u64, String)]) -> String {
    let skipped: Vec<String> = skipped
        .iter()
        .map(|(step, reason)| format!("step {step}: {reason}"))
        .collect();
    skipped.join("; ")
}

fn listed(problems: &[Problem]) -> String {
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    problems.join("; ")
}
