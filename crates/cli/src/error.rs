//! What can go wrong in a command, what to do next, and which exit code says so.

use crate::units::size;
use cairn::checkpoint::Error as CheckpointError;
use cairn::formats::Error as FormatError;
use cairn::{
    checkpoint, data, formats, keeper, merge, model, plan, recipe, reshard, sharding, store,
    tensor, train,
};
use std::sync::Arc;

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, or yes.
    Done = 0,
    /// Refused, or the two sides differ.
    Differs = 1,
    /// Wrong usage, or an error.
    Failed = 2,
    /// Stored bytes are not what was written.
    Damaged = 3,
    /// A step was never committed.
    Incomplete = 4,
}

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    #[error(transparent)]
    Format(#[from] formats::Error),
    #[error(transparent)]
    Keeper(#[from] keeper::Error),
    #[error(transparent)]
    Merge(#[from] merge::Error),
    #[cfg(feature = "mpi")]
    #[error(transparent)]
    Mpi(#[from] cairn::mpi::Error),
    #[cfg(not(feature = "mpi"))]
    #[error("MPI started {processes} processes, and this `cairn` was built without MPI")]
    NoMpi { processes: usize },
    #[error("stages have no chunks with the schedule `{order}`")]
    Chunks { order: &'static str },
    #[error("tokenizer `{tokenizer}` has {}", eos_text(token.as_deref()))]
    NoEos {
        tokenizer: String,
        token: Option<String>,
    },
    #[error("there is no folder to write to")]
    NoTarget,
    #[error(transparent)]
    Plan(#[from] plan::Error),
    #[error("{}", traced(.0))]
    Recipe(recipe::Error),
    #[error(transparent)]
    Library(recipe::library::LibraryError),
    #[error(transparent)]
    Reshard(#[from] reshard::Error),
    #[error(transparent)]
    Sharding(#[from] sharding::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Tensor(#[from] tensor::Error),
    #[error(transparent)]
    Train(#[from] train::Error),
    #[error(transparent)]
    Config(#[from] train::config::Problems),
    #[error(transparent)]
    Model(#[from] model::Error),
    #[error(transparent)]
    Data(#[from] data::Error),
    #[error("there is nothing to go on with")]
    EmptyPrompt,
    #[error("the model says nothing about token {place}: its logits are not numbers")]
    NoToken { place: usize },
    #[error("cannot run `cairn train`")]
    Child(#[source] std::io::Error),
    #[error("the run `{run}` of the demo failed")]
    ChildFailed { run: String },
    #[error("all ranks together keep {}, and {} of memory are left", size(*needed), size(*available))]
    TooLittleMemory { needed: u64, available: u64 },
    #[error("cannot catch interrupts")]
    Signals(#[source] std::io::Error),
    #[error("`{path}` does not say what its model is like")]
    NoModelConfig { path: String },
    #[error("`{path}` is not a run")]
    NotARun { path: String },
    #[error("`{path}` carries no signature, and one is required")]
    Unsigned { path: String },
    #[error("a signature is required, and this verb does not look for one")]
    KeyNotUsed,
    #[error("cannot read `{path}`")]
    Read { path: String, source: store::Error },
    #[error("`{path}` is not a step")]
    NotAStep { path: String },
    #[error("`{path}` is not step {step}")]
    OtherStep { path: String, step: u64 },
    #[error("`{path}` is a step, not a run")]
    StepAsTarget { path: String, step: u64 },
    #[error("there is no step {range} in `{path}`")]
    NoSuchSteps {
        path: String,
        range: String,
        available: Vec<u64>,
    },
    #[error("there is no tensor `{name}`")]
    NoSuchTensor { name: String, near: Option<String> },
    #[error("no tensor has a name like `{pattern}`")]
    NoSuchNames {
        pattern: String,
        near: Option<String>,
    },
    #[error("there is no rank {rank} in mesh `{mesh}`")]
    NoSuchRank {
        rank: usize,
        mesh: String,
        max: usize,
    },
    #[error("cannot take `[{slice}]` of a tensor of shape {shape:?}: {reason}")]
    Slice {
        slice: String,
        shape: Vec<usize>,
        reason: String,
    },
    #[error("this is {wanted}, more than the limit of {limit}")]
    TooMuchToPrint { wanted: String, limit: String },
    #[error("cannot make the edit `{edit}`: {reason}")]
    Edit { edit: String, reason: String },
    #[error("cannot read the array `{path}`: {reason}")]
    Npy { path: String, reason: String },
    #[error("an edit of `{path}` needs another place for its result")]
    NoOut { path: String },
    #[error("`{url}` already holds {}", files.join(", "))]
    OutTaken { url: String, files: Vec<String> },
    #[error("nothing was deleted: {reason}")]
    NotConfirmed { reason: &'static str },
    #[error("cannot write the trace `{path}`")]
    Trace { path: String, source: store::Error },
    #[error("cannot write `{path}`")]
    Write { path: String, source: store::Error },
    #[error("{} timeline", no_timelines(path, *step))]
    NoTimelines { path: String, step: Option<u64> },
    #[error("cannot write to stdout")]
    Output(#[source] std::io::Error),
    #[error("cannot read the answer")]
    Input(#[source] std::io::Error),
    #[error(transparent)]
    Saving(#[from] Arc<checkpoint::Error>),
    /// The reader of our output went away; not a failure.
    #[error("stdout is closed")]
    ClosedPipe,
}

// No cause of itself: its message says it all.
impl From<recipe::Error> for Error {
    fn from(error: recipe::Error) -> Self {
        Error::Recipe(error)
    }
}

impl From<recipe::library::LibraryError> for Error {
    fn from(error: recipe::library::LibraryError) -> Self {
        match error {
            recipe::library::LibraryError::Program(error) => Error::Recipe(error),
            other => Error::Library(other),
        }
    }
}

impl Error {
    /// What the reader can do next.
    pub(crate) fn hint(&self) -> Option<String> {
        let did_you_mean = |near: &Option<String>| match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`cairn inspect --tree` lists every name".to_string(),
        };
        Some(match self {
            Error::Checkpoint(CheckpointError::StepTaken { .. }) => {
                "choose another step with `--step`, or put this one in its place with `--replace`"
                    .into()
            }
            Error::Checkpoint(CheckpointError::NothingUsable { .. }) => {
                "`cairn ls` shows every step and what is wrong with it".into()
            }
            #[cfg(not(feature = "mpi"))]
            Error::NoMpi { .. } => "build it with `--features mpi`, or start it without `mpirun`: ranks are threads then".into(),
            Error::Chunks { .. } => "use `--schedule interleaved`".into(),
            Error::TooLittleMemory { .. } => {
                "share the state out with `parallel.zero`, keep it in files with `optimizer.offload`, or train a smaller model".into()
            }
            Error::NoTarget => "name it after the config".into(),
            Error::Data(data::Error::File {
                source: store::Error::AlreadyExists { .. },
                ..
            }) => "delete it, or choose another name".into(),
            Error::NoEos { .. } => "name the token that ends documents with `--eos`".into(),
            Error::EmptyPrompt => "give at least one token: most models have one that begins a text".into(),
            Error::NoModelConfig { .. } => {
                "a folder of Hugging Face has a `config.json`, and so have steps that `cairn train` wrote".into()
            }
            Error::StepAsTarget { step, .. } => {
                format!("give the folder of the run, and the step with `--step {step}`")
            }
            Error::NoSuchSteps { available, .. } if available.is_empty() => {
                "the run has no committed steps".into()
            }
            Error::NoSuchSteps { available, .. } => {
                let newest = &available[available.len().saturating_sub(10)..];
                let newest: Vec<String> = newest.iter().map(u64::to_string).collect();
                format!("committed steps: {}", newest.join(", "))
            }
            Error::NoSuchTensor { near, .. } | Error::NoSuchNames { near, .. } => {
                did_you_mean(near)
            }
            Error::NoSuchRank { max, .. } => format!("its ranks end at {max}"),
            Error::Slice { .. } => {
                "indices are those of NumPy: `[0, 2:8, ::-1, ..., None, [1, 5]]`".into()
            }
            Error::TooMuchToPrint { .. } => "give a smaller slice, such as `'name[:4, :4]'`".into(),
            Error::Edit { .. } => {
                "an edit is `name[index] = value`, such as `'w[0, :4] = 0'` or `'w[isnan(w)] = 0'`"
                    .into()
            }
            Error::NoOut { .. } => {
                "name it with `--out`; only a run keeps the old version beside the new one".into()
            }
            Error::Checkpoint(CheckpointError::TargetTaken { .. })
            | Error::Merge(merge::Error::Checkpoint(CheckpointError::TargetTaken { .. })) => {
                "choose another place, or pass `--replace`".into()
            }
            Error::OutTaken { .. } => "choose another place with `--out`".into(),
            Error::NotConfirmed { .. } => {
                "`--dry-run` shows what would go, `--yes` deletes it".into()
            }
            _ => {
                let about = self.hint_about_steps().map(Into::into);
                return about.or_else(|| self.hint_of_library());
            }
        })
    }

    /// What to name in place of what was named.
    fn hint_about_steps(&self) -> Option<&'static str> {
        Some(match self {
            Error::Unsigned { .. } | Error::KeyNotUsed => {
                "steps of a run are signed by `cairn sign`; without `CAIRN_REQUIRE_KEY` nothing is required"
            }
            Error::NotARun { .. } => "a run is a folder with folders such as `step-00012000`",
            Error::NoTimelines { .. } => {
                "a save leaves one when it is committed; steps that `cairn reshard` wrote have none"
            }
            Error::NotAStep { .. } => "name a step: `runs/7b:12000`, or `runs/7b/step-00012000`",
            Error::OtherStep { .. } => {
                "a copy has the same step number: give a copy of the run, or of that step"
            }
            _ => return None,
        })
    }

    /// What the library says the reader can do next.
    fn hint_of_library(&self) -> Option<String> {
        match self {
            Error::Checkpoint(error) => error.hint(),
            Error::Format(error) => error.hint(),
            Error::Keeper(error) => error.hint(),
            Error::Merge(error) => error.hint(),
            Error::Plan(error) => error.hint(),
            #[cfg(feature = "mpi")]
            Error::Mpi(error) => error.hint(),
            Error::Recipe(error) => error.hint(),
            Error::Library(error) => error.hint(),
            Error::Reshard(error) => error.hint(),
            Error::Sharding(error) => error.hint(),
            Error::Store(error)
            | Error::Trace { source: error, .. }
            | Error::Read { source: error, .. }
            | Error::Write { source: error, .. } => error.hint(),
            Error::Tensor(error) => error.hint(),
            Error::Data(error) => error.hint(),
            Error::Train(error) => error.hint(),
            Error::Model(error) => error.hint(),
            _ => None,
        }
    }

    /// The exit code of a command that ends with this error.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Error::ClosedPipe => Exit::Done,
            Error::OutTaken { .. } | Error::NotConfirmed { .. } => Exit::Differs,
            Error::Unsigned { .. } | Error::KeyNotUsed => Exit::Differs,
            Error::Recipe(_) => Exit::Differs,
            Error::Data(error) => exit_of_data(error),
            Error::Format(error) => exit_of_format(error),
            Error::Merge(error) => exit_of_merge(error),
            Error::Checkpoint(error) | Error::Train(train::Error::Checkpoint(error)) => {
                exit_of(error)
            }
            _ => Exit::Failed,
        }
    }
}

fn exit_of(error: &CheckpointError) -> Exit {
    match error {
        CheckpointError::StepTaken { .. }
        | CheckpointError::RunInUse { .. }
        | CheckpointError::NotACopy { .. }
        | CheckpointError::Untrusted { .. }
        | CheckpointError::TargetTaken { .. }
        | CheckpointError::Misplaced(_)
        | CheckpointError::Unfinished { .. }
        | CheckpointError::CannotResume { .. } => Exit::Differs,
        CheckpointError::Incomplete { .. } => Exit::Incomplete,
        // A run whose newest steps are damaged, or one where nothing was ever committed.
        CheckpointError::NothingUsable { skipped, .. } if skipped.is_empty() => Exit::Incomplete,
        CheckpointError::NothingUsable { .. } => Exit::Damaged,
        CheckpointError::Format(error) => exit_of_format(error),
        error if error.is_damage() => Exit::Damaged,
        _ => Exit::Failed,
    }
}

fn exit_of_merge(error: &merge::Error) -> Exit {
    match error {
        merge::Error::Checkpoint(error) => exit_of(error),
        _ => Exit::Failed,
    }
}

fn exit_of_data(error: &data::Error) -> Exit {
    match error {
        data::Error::File {
            source: store::Error::AlreadyExists { .. },
            ..
        } => Exit::Differs,
        data::Error::Damaged { .. } | data::Error::Document { .. } => Exit::Damaged,
        _ => Exit::Failed,
    }
}

fn exit_of_format(error: &FormatError) -> Exit {
    match error {
        FormatError::Header { .. } | FormatError::Index { .. } => Exit::Damaged,
        FormatError::Damaged { .. } | FormatError::Pickle { .. } => Exit::Damaged,
        FormatError::Unfinished { .. } => Exit::Incomplete,
        FormatError::Global { .. } => Exit::Differs,
        _ => Exit::Failed,
    }
}

/// The message, and under it the statement at fault.
fn traced(error: &recipe::Error) -> String {
    let mut text = error.to_string();
    for line in error.trace().lines() {
        text.push_str("\n  ");
        text.push_str(line);
    }
    text
}

fn eos_text(token: Option<&str>) -> String {
    match token {
        Some(token) => format!("no token `{token}`"),
        None => "no token that is known to end documents".into(),
    }
}

fn no_timelines(path: &str, step: Option<u64>) -> String {
    match step {
        Some(step) => format!("step {step} of `{path}` has no"),
        None => format!("no step of `{path}` has a"),
    }
}

/// The causes of an error, outermost first, the error itself not among them.
pub(crate) fn causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(error.source(), |cause| cause.source())
        .map(ToString::to_string)
        .collect()
}
