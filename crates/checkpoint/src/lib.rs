//! State saved by many ranks, committed safely, loaded on any layout.
//!
//! | to | use |
//! |---|---|
//! | learn which rank this is | [`World::from_env`], [`Launch`] |
//! | describe what a rank holds | [`State`], with a [`TensorSpec`](cairn_sharding::TensorSpec) for each tensor |
//! | save it again and again | [`Outline`], made by [`State::outline`] |
//! | save it in the background | [`Checkpointer::save`] → [`Saving`] |
//! | save to a fast disk, and behind it to a durable store | [`Checkpointer::new`] on a [`Tiered`](cairn_store::Tiered) store, [`Level`] |
//! | open what is committed | [`Checkpointer::latest`], [`Checkpointer::open`] → [`Checkpoint`] |
//! | load any part, on any layout | [`Target`], [`Checkpoint::load`] |
//! | load with the other processes of a machine | [`Peers`] |
//! | see a load or a save before it runs | [`LoadPlan`], [`SavePlan`] |
//! | lay out a model by patterns over names | [`ShardRules`] |
//! | check bytes on disk | [`survey`], [`verify`], [`finish`] |
//! | tell who made a step | [`signing`], [`Checkpoint::require_key`] |
//! | find damage early, and mend it | [`scrub`], [`repair`] |
//! | write only what changed, or compressed, and undo that | [`Options::delta`], [`Options::compress`], [`compact`] |
//! | delete old steps | [`retention`] |
//! | keep a step for good | [`tags`], [`Checkpointer::tag`] |
//! | average weights over steps | [`ema`] |
//! | read tensors that are worked out on the way | [`Computed`], with a [`Formula`] |
//! | read tensors as a recipe makes them | [`Transformed`], [`recipe_tensors`], [`recast`] |
//! | not store what follows from other tensors | [`State::derive`], [`hold`] |
//! | learn what values are like, and how two sources differ | [`statistics`] |
//! | have captures outlive the process | [`keeper`], [`Options::keeper`] |
//! | see where the time of a save went | [`Timeline`], [`Checkpoint::timelines`] |
//!
//! The life of a save, and the files it leaves, are drawn in `docs/architecture.md` and `docs/format.md`.

mod assign;
mod averaging;
mod bytes;
mod capture;
mod checkpoint;
mod checkpointer;
mod checksum;
mod clock;
mod commit;
mod compact;
mod computed;
mod copies;
mod delta;
mod derived;
pub mod ema;
mod error;
mod handshake;
mod hf_index;
mod image;
mod imagined;
pub mod keeper;
mod launch;
mod layout;
mod lines;
mod load;
mod lock;
mod manifest;
mod names;
mod options;
mod outcome;
mod overlap;
mod pace;
mod packed;
mod part;
mod pattern;
mod peers;
mod place;
mod plan;
mod pool;
mod problems;
pub mod repair;
pub mod retention;
mod rewrite;
mod rules;
mod run;
mod sample;
mod save;
mod save_plan;
mod saving;
mod scope;
pub mod scrub;
mod seal;
pub mod signing;
mod source;
mod stale;
mod standing;
mod state;
pub mod statistics;
mod survey;
mod sync;
pub mod tags;
mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timeline;
mod transform;
mod upload;
mod verify;
mod workers;
mod world;
mod writer;

pub use assign::{Assignment, Item, WriterItems};
pub use averaging::{Averaging, Update};
pub use bytes::{Bytes, Promise, Stored, Watch};
pub use capture::Fenced;
pub use checkpoint::Checkpoint;
pub use checkpointer::{Checkpointer, Latest};
pub use clock::{Clock, duration_text, machine_clock, parse_age, rfc3339};
pub use commit::IfCommitted;
pub use compact::{CompactReport, compact};
pub use computed::{Computed, Formula, SharedSource, read_elements};
pub use delta::Origins;
pub use derived::{Claim, DERIVED_DTYPES, DERIVED_FROM, Derived, hold};
pub use error::{Error, Skipped, chain};
pub use launch::Launch;
pub use layout::Layout;
pub use lines::{History, Parent};
pub use load::{LoadOptions, LoadReport, MAX_LOAD_BUFFER_BYTES, load};
pub use manifest::{DeltaSummary, FORMAT_VERSION, Manifest, PackedSummary};
pub use names::{
    COMMIT, DELETED, HIDDEN, is_data_file, is_timeline, parse_step_folder, step_folder,
};
pub use options::{Options, Overlap};
pub use pace::Pace;
pub use part::AssetEntry;
pub use pattern::{Pattern, name_family};
pub use peers::{MAX_PEERS, Peers};
pub use place::{Place, find, find_with, split as split_path};
pub use plan::{LoadCost, LoadPlan};
pub use problems::{KeyProblems, Mismatch, Missing, OnProblem, Strictness};
pub use rewrite::{
    Chosen, DcpContents, ExportReport, FileContents, FileFormat, NewCheckpoint, OnUnfinished,
    PlannedFile, RewriteOptions, RewriteReport, UNFINISHED_FOLDER, edit, export_dcp, export_file,
    export_hf, export_safetensors, model_files, plan_dcp, plan_file, plan_hf, plan_safetensors,
    rewrite,
};
pub use rules::{ShardRule, ShardRules, UnusedRule};
pub use run::{all_steps, each_step};
pub use sample::Sample;
pub use save::SaveOptions;
pub use save_plan::{PlannedWriter, SavePlan};
pub use saving::{Level, SaveReport, Saving};
pub use scope::Scope;
pub use source::{Kept, ModelSource, Source, SourceFile, StoredPiece, StoredTensor};
pub use state::{MAX_NAME_BYTES, METRICS, Outline, State};
pub use survey::{StepState, survey, survey_signed};
pub use target::{Target, Wanted};
pub use timeline::Timeline;
pub use transform::{
    MAX_TRANSFORM_BUFFER_BYTES, Transformed, recast, recipe_settings, recipe_tensors,
};
pub use verify::{Unfinished, VerifyReport, finish, unfinished, verify};
pub use world::World;
