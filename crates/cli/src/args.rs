//! Every argument of the command, as types.

mod convert;
mod demo;
mod diff;
mod doctor;
mod edit;
mod ema;
mod generate;
mod keeper;
mod log;
mod mend;
mod merge;
mod plan;
mod prune;
mod recipe;
mod report;
mod sign;
mod sim;
mod stats;
mod tokenize;
mod train;
mod transform;
mod weights;
mod write;

pub(crate) use convert::{Convert, Format};
pub(crate) use demo::Demo;
pub(crate) use diff::Diff;
pub(crate) use doctor::Doctor;
pub(crate) use edit::Edit;
pub(crate) use ema::{Ema, EmaStart};
pub(crate) use generate::Generate;
pub(crate) use keeper::{Keeper, KeeperCommand, KeeperServe};
pub(crate) use log::Log;
pub(crate) use mend::{Repair, Scrub};
pub(crate) use merge::Merge;
pub(crate) use plan::{Plan, PlanLoad, PlanReshard, PlanSave};
pub(crate) use prune::{Prune, Tag};
pub(crate) use recipe::{Recipe, RecipeExplain};
pub(crate) use report::Report;
pub(crate) use sign::{Keygen, Sign};
pub(crate) use sim::{Order, Sim};
pub(crate) use stats::{Bars, Stats};
pub(crate) use tokenize::Tokenize;
pub(crate) use train::Train;
pub(crate) use transform::Transform;
pub(crate) use weights::Weights;
pub(crate) use write::{Compact, Layout, Reshard};

use crate::complete;
use crate::units::parse_percent;
use clap::{Args, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
A PATH is a run (its newest whole step is used), a step such as runs/7b/step-00012000,
a Hugging Face, torch distributed (DCP) or Megatron folder,
or one .safetensors, .pt or .bin file; in a folder or a bucket (s3://…, gs://…, az://…).

Exit codes:
  0  done, or yes
  1  refused, or the two sides differ
  2  wrong usage, or an error
  3  damaged
  4  incomplete: never committed

Examples:
  cairn inspect runs/7b                     what the newest checkpoint contains
  cairn ls runs/7b                          every step, and whether it is whole
  cairn verify runs/7b --read-data=10%      check a tenth of all bytes
  cairn cat runs/7b 'lm_head.weight[0, :8]' a few values, reading only their bytes
  cairn stats runs/7b --hist                what all values are like
  cairn diff runs/7b:11000 runs/7b:12000    what changed from one step to another";

/// Inspects, checks and rearranges the checkpoints of large models.
#[derive(Debug, Parser)]
#[command(name = "cairn", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: Global,
}

/// Options of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Global {
    /// Print one JSON object instead of text; `docs/cli.md` names its fields
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Hide notes, warnings and progress
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Tell on stderr what is being done
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Hide progress bars
    #[arg(long, global = true)]
    pub(crate) no_progress: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// When done, write everything that happened to FILE, one JSON object a line
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) trace: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a checkpoint or model contains
    Inspect(Inspect),
    /// List the steps of a run and the state of each
    Ls(Ls),
    /// Draw what was saved after what, and where the run went back
    Log(Log),
    /// Print values of a tensor, reading only their bytes
    Cat(Cat),
    /// Show what the values of tensors are like
    Stats(Stats),
    /// Tell whether two checkpoints or models are the same, and how far apart
    Diff(Diff),
    /// Show where the time of saves went, or what the values of each layer are like
    Report(Report),
    /// Check that what is stored is what was saved
    Verify(Verify),
    /// Read a run again and again, slowly, to find damage early
    Scrub(Scrub),
    /// Mend a damaged step from a copy of it
    Repair(Repair),
    /// Make a pair of keys, to sign steps and to check signatures
    Keygen(Keygen),
    /// Sign a step, so that others can tell who made it
    Sign(Sign),
    /// Try out what a store can do, and tell what follows from it
    Doctor(Doctor),
    /// Write a checkpoint or model again, laid out for another mesh
    Reshard(Reshard),
    /// Write a checkpoint or model in another format
    Convert(Convert),
    /// Change values or names of tensors, as a new version
    Edit(Edit),
    /// Average the weights of stored steps
    Ema(Ema),
    /// Merge models into one, by a mergekit config
    Merge(Merge),
    /// Turn text into a file of tokens to train on
    Tokenize(Tokenize),
    /// Show what a save, a load or a move would do
    #[command(subcommand)]
    Plan(Plan),
    /// Show when each stage of a pipeline would work, and when it would wait
    Sim(Sim),
    /// Show what a recipe makes of the tensors of a checkpoint
    #[command(subcommand)]
    Recipe(Recipe),
    /// Delete old steps of a run
    Prune(Prune),
    /// Give a step a tag, which keeps it for good
    Tag(Tag),
    /// Write a step that refers to others anew, so that it stands alone
    Compact(Compact),
    /// Train a model, from wherever its run is
    Train(Train),
    /// Keep the memory of captures, so that they survive a trainer that dies
    Keeper(Keeper),
    /// Go on with a text, as a model would
    Generate(Generate),
    /// Watch a model train, be killed, and go on elsewhere, on this machine
    Demo(Demo),
    /// Print the completions of a shell
    Completions(Completions),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairn inspect runs/7b
  cairn inspect runs/7b/step-00012000 --tree
  cairn inspect runs/7b --map model.layers.0.self_attn.q_proj.weight
  cairn inspect model.safetensors --json")]
pub(crate) struct Inspect {
    /// A run, a step, or a model or checkpoint of another tool
    #[arg(add = complete::paths())]
    pub(crate) path: String,
    /// List every tensor, as a tree
    #[arg(long)]
    pub(crate) tree: bool,
    /// Draw which rank holds what of a tensor, and where it is stored
    #[arg(long, value_name = "NAME", conflicts_with = "tree", add = complete::tensors())]
    pub(crate) map: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairn ls runs/7b
  cairn ls runs/7b --json | jq '.steps[] | select(.state != \"complete\")'")]
pub(crate) struct Ls {
    /// The folder of a run
    #[arg(add = complete::paths())]
    pub(crate) run: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairn verify runs/7b                            structure of every step; reads no tensor data
  cairn verify runs/7b/step-00012000 --read-data  every byte of one step
  cairn verify runs/7b --read-data=10%            a tenth of the bytes of every step
  cairn verify runs/7b:12000 --key release.pub    every byte is what the owner of the key signed
  cairn verify runs/7b --finish                   commit saves that lack nothing but their commit")]
pub(crate) struct Verify {
    /// A run (all its steps) or one step; models without checksums are checked for structure
    #[arg(add = complete::paths())]
    pub(crate) path: String,
    /// Read this share of the data and compare its checksums
    #[arg(long, value_name = "SHARE", num_args = 0..=1, require_equals = true,
        default_missing_value = "100%", value_parser = parse_percent)]
    pub(crate) read_data: Option<f64>,
    /// Where the share lies; without it, elsewhere each time
    #[arg(long, value_name = "N", requires = "read_data")]
    pub(crate) seed: Option<u64>,
    /// Commit steps whose parts are all there
    #[arg(long)]
    pub(crate) finish: bool,
    /// Refuse steps that this key, or the one in this file, did not sign; all data is read, unless a share is given
    #[arg(long, value_name = "PUBLIC")]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Indices are those of NumPy: integers, start:stop:step, negative numbers, `...`, `None`,
lists such as [1, 5], and masks such as [True, False].

Examples:
  cairn cat runs/7b 'model.norm.weight[:8]'
  cairn cat runs/7b 'model.embed_tokens.weight[[0, 50256], :4]'
  cairn cat runs/7b 'model.embed_tokens.weight[-1, ::512]'
  cairn cat model.safetensors lm_head.weight --json
  cairn cat runs/7b:12000 lm_head.weight --npy head.npy")]
pub(crate) struct Cat {
    /// A run, a step, or a model or checkpoint of another tool
    #[arg(add = complete::paths())]
    pub(crate) path: String,
    /// A tensor's name, perhaps with an index: 'name[0:2, ::4]'
    #[arg(add = complete::tensors())]
    pub(crate) tensor: String,
    /// Print every value, however many there are
    #[arg(long)]
    pub(crate) full: bool,
    /// Write the values to FILE for numpy.load, in place of printing them
    #[arg(long, value_name = "FILE")]
    pub(crate) npy: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The script completes verbs and options. To have steps and the names of tensors completed, too, let the
shell ask the command: put `source <(COMPLETE=bash cairn)` into ~/.bashrc, `source <(COMPLETE=zsh cairn)`
into ~/.zshrc, or `COMPLETE=fish cairn | source` into ~/.config/fish/config.fish.

Examples:
  cairn completions bash > /etc/bash_completion.d/cairn
  cairn completions zsh > ~/.zfunc/_cairn")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}
