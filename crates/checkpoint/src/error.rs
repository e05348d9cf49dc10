//! Everything that can go wrong while saving, committing and loading, each with what to do next.

mod chain;
mod context;
mod damage;
mod hint;
mod meeting;
mod misplaced;
mod skipped;
mod text;

pub use chain::chain;
pub(crate) use context::StoreContext;
pub use meeting::Meeting;
pub use misplaced::Misplaced;
pub use skipped::Skipped;
pub(crate) use text::list;
use text::{quoted, skipped_text};

use crate::problems::KeyProblems;
use std::sync::Arc;
use std::time::Duration;

/// Why an operation on a checkpoint did not succeed. Nothing is harmed by any of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error("cannot {action}")]
    Store {
        /// What was being done.
        action: String,
        /// The store's reason.
        source: cairn_store::Error,
    },
    /// A path or URL is none that a store can lie at.
    #[error(transparent)]
    Address(cairn_store::Error),
    /// A mesh, sharding or shape does not hold together.
    #[error("tensor `{name}` cannot be placed")]
    Placement {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        source: cairn_sharding::Error,
    },
    /// A shard rule cannot be read or does not fit its mesh.
    #[error("cannot use the shard rule `{rule}`")]
    Rule {
        /// The rule, as it was given.
        rule: String,
        /// What is wrong with it.
        source: cairn_sharding::Error,
    },
    /// A copy does not fit its buffers.
    #[error("tensor `{name}` cannot be copied")]
    Copy {
        /// The tensor.
        name: String,
        /// What does not fit.
        source: cairn_tensor::Error,
    },
    /// A model in another format cannot be read.
    #[error(transparent)]
    Format(#[from] cairn_formats::Error),
    /// The state handed in cannot be saved or loaded as it is.
    #[error("`{name}` {reason}")]
    State {
        /// The tensor or value.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The step is committed already, by another attempt.
    #[error("step {step} is already committed (attempt `{attempt}`)")]
    StepTaken {
        /// The step.
        step: u64,
        /// The attempt that holds it.
        attempt: String,
    },
    /// The variables of a launcher do not say which rank this is.
    #[error("the launch is not clear: {} {reason}", list(&quoted(variables)))]
    Launch {
        /// The variables.
        variables: Vec<&'static str>,
        /// What is wrong with them.
        reason: String,
    },
    /// Several ranks have no name for their launch.
    #[error("`{launcher}` started {size} ranks and gave their launch no name")]
    NoSession {
        /// Who started them.
        launcher: &'static str,
        /// How many.
        size: usize,
    },
    /// Another launch with the same session name has begun to save this step.
    #[error("step {step} was begun by another launch that is also called `{session}`")]
    SessionReused {
        /// The step.
        step: u64,
        /// The name both launches have.
        session: String,
    },
    /// The ranks of a launch did not find each other.
    #[error(transparent)]
    Meeting(#[from] Meeting),
    /// Another trainer has the run.
    #[error("`{url}` is being trained by {holder}: {seen}")]
    RunInUse {
        /// The run.
        url: String,
        /// The process and its machine.
        holder: String,
        /// The launch of that process.
        launch: String,
        /// How it is known to live.
        seen: String,
    },
    /// Not every writer delivered in time.
    #[error("step {step} is waiting for writers {} since {} s", list(missing), waited.as_secs())]
    WritersMissing {
        /// The step.
        step: u64,
        /// The writers whose parts are not there.
        missing: Vec<usize>,
        /// How long they were waited for.
        waited: Duration,
    },
    /// Another writer of the same save gave up.
    #[error("writer {writer} could not save step {step}: {message}")]
    WriterFailed {
        /// The step.
        step: u64,
        /// The writer.
        writer: usize,
        /// Its own words.
        message: String,
    },
    /// The caller of a rank decided not to save.
    #[error("it was given up: {reason}")]
    GivenUp {
        /// Why.
        reason: String,
    },
    /// The parts of a save contradict each other.
    #[error("the writers of step {step} disagree: {reason}")]
    Disagreement {
        /// The step.
        step: u64,
        /// Who says what.
        reason: String,
    },
    /// The save before this one failed and nobody looked at it.
    #[error("the previous save, of step {step}, failed")]
    PreviousSave {
        /// The step that is not safe.
        step: u64,
        /// Why.
        source: Arc<Error>,
    },
    /// A step is on the fast tier and could not be brought to the durable one.
    #[error("step {step} could not be uploaded; it is on the fast tier only")]
    NotUploaded {
        /// The step.
        step: u64,
        /// Why.
        source: Arc<Error>,
    },
    /// A model lies where another is to be written, or a file where one of its files is.
    #[error("`{url}` already holds {}", list(files))]
    TargetTaken {
        /// The folder.
        url: String,
        /// What is in the way.
        files: Vec<String>,
    },
    /// A model cannot be written where it was to be, or read from where it lies.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
    /// A rewrite to the same place was cut short.
    #[error("`{url}` holds an unfinished conversion, in `{folder}`")]
    Unfinished {
        /// Where it was to be written.
        url: String,
        /// Where what there is of it lies.
        folder: String,
    },
    /// A rewrite that was cut short cannot be taken up again.
    #[error("cannot go on with the unfinished conversion in `{url}`: {reason}")]
    CannotResume {
        /// Where it was to be written.
        url: String,
        /// Why not.
        reason: String,
    },
    /// There is nothing at a path.
    #[error("`{path}` does not exist")]
    NoSuchPath {
        /// The path.
        path: String,
    },
    /// What lies at a path is neither ours nor in a format that is known.
    #[error("`{path}` is not a checkpoint or model")]
    NotACheckpoint {
        /// The path.
        path: String,
    },
    /// There is no such step.
    #[error("there is no step {step} in `{url}`")]
    NoSuchStep {
        /// The step asked for.
        step: u64,
        /// The run.
        url: String,
        /// The committed steps.
        available: Vec<u64>,
    },
    /// No step of the run can be used.
    #[error("`{url}` has no usable checkpoint{}", skipped_text(skipped))]
    NothingUsable {
        /// The run.
        url: String,
        /// The steps that were passed over, newest first, and why.
        skipped: Vec<Skipped>,
    },
    /// A step was started but never committed.
    #[error("step {step} was never committed: {reason}")]
    Incomplete {
        /// The step.
        step: u64,
        /// What is missing.
        reason: String,
    },
    /// The step was deleted, perhaps while it was being read.
    #[error("step {step} was deleted")]
    Deleted {
        /// The step.
        step: u64,
    },
    /// A signature is required, and the step has none that fits.
    #[error("step {step} cannot be trusted: {reason}")]
    Untrusted {
        /// The step.
        step: u64,
        /// What is missing or wrong.
        reason: String,
    },
    /// A key cannot be used.
    #[error("this key cannot be used: {reason}")]
    Key {
        /// Why not.
        reason: String,
    },
    /// What should mend a step is no copy of it.
    #[error("`{url}` has no copy of step {step}: {reason}")]
    NotACopy {
        /// Where the copy should be.
        url: String,
        /// The step to mend.
        step: u64,
        /// What is different.
        reason: String,
    },
    /// A word cannot be a tag.
    #[error("`{name}` cannot be the name of a tag")]
    TagName {
        /// The word.
        name: String,
    },
    /// A rule of retention cannot be read.
    #[error("`{text}` says nothing about which steps to keep")]
    KeepRule {
        /// The rule.
        text: String,
        /// What it should look like.
        expected: &'static str,
    },
    /// Bytes on disk are not the ones that were written.
    #[error("`{file}` is damaged: {reason}")]
    Damaged {
        /// The file.
        file: String,
        /// Which bytes, which tensors, and how it was noticed.
        reason: String,
    },
    /// The checkpoint was written by a newer Cairn.
    #[error("`{file}` has format version {found}, this build reads up to {supported}")]
    Version {
        /// The file.
        file: String,
        /// Its version.
        found: u64,
        /// The newest one understood here.
        supported: u64,
    },
    /// The checkpoint needs something of its readers that this build does not know.
    #[error("`{file}` needs `{feature}`, which this build does not know")]
    Needs {
        /// The file.
        file: String,
        /// What it needs.
        feature: String,
    },
    /// Files that a save refers to are gone, or belong to no step that can be read.
    #[error("step {step} refers to files that are gone, or whose step is damaged: {}", list(&quoted(&missing.iter().map(String::as_str).collect::<Vec<_>>())))]
    BasesGone {
        /// The step.
        step: u64,
        /// The files.
        missing: Vec<String>,
    },
    /// A background thread stopped without a result. This is a defect of Cairn.
    #[error("the background save stopped unexpectedly: {message}")]
    Stopped {
        /// What it said last.
        message: String,
    },
    /// The processes that should load together are not described well.
    #[error("these peers cannot load together: {reason}")]
    Peers {
        /// What is wrong with them.
        reason: String,
    },
    /// Another process of the same load is dead or silent.
    #[error("rank {rank} did not deliver its part of the load: {reason}")]
    PeerLost {
        /// The rank.
        rank: usize,
        /// What is known of it.
        reason: String,
    },
    /// Another process of the same load gave up.
    #[error("rank {rank} could not load its part: {message}")]
    PeerFailed {
        /// The rank.
        rank: usize,
        /// Its own words.
        message: String,
    },
    /// Another process of the same load wants something else.
    #[error("rank {rank} loads other tensors, or from another checkpoint, under the same token")]
    PeersDisagree {
        /// The rank.
        rank: usize,
    },
    /// The state could not be copied.
    #[error("cannot capture the state")]
    Capture {
        /// What the device or the memory said.
        source: cairn_device::Error,
    },
    /// Tensors were changed while they were being copied.
    #[error("the state was changed while it was being captured: {}", list(&quoted(&names.iter().map(String::as_str).collect::<Vec<_>>())))]
    Torn {
        /// The tensors.
        names: Vec<String>,
    },
    /// The save was cancelled.
    #[error("the save was cancelled")]
    Cancelled,
    /// The step was passed over.
    #[error("step {step} was skipped: {reason}")]
    Skipped {
        /// The step.
        step: u64,
        /// Why.
        reason: String,
    },
    /// The definition of an average makes no sense.
    #[error("the average `{label}` {reason}")]
    Average {
        /// Its label.
        label: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A checkpoint has an average under the label, but another one.
    #[error("the average is defined as {wanted}, but stored as {stored}")]
    AverageChanged {
        /// The label of both.
        label: String,
        /// What is stored.
        stored: String,
        /// What was asked for.
        wanted: String,
    },
    /// A checkpoint does not have an average.
    #[error("there is no average `{label}` in the checkpoint")]
    NoSuchAverage {
        /// The label asked for.
        label: String,
        /// Those there are.
        available: Vec<String>,
    },
    /// Names, shapes or types of checkpoint and target do not fit.
    #[error("{0}")]
    Keys(Box<KeyProblems>),
}
