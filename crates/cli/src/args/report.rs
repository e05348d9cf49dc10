//! The arguments of `cairn report`.

use crate::complete;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Every committed save leaves word of where its time went, beside its data. All times count from the call of `save`.

Examples:
  cairn report runs/7b                               the newest step, and one line for each before it
  cairn report runs/7b --step 12000 --html save.html a page with a timeline to zoom into
  cairn report runs/7b --perfetto save.json          the same for ui.perfetto.dev
  cairn report runs/7b --last 1000 --tensorboard logs/cairn
  cairn report model/ --html model.html              what the values of every layer are like
  cairn report runs/7b --values --html both.html")]
pub(crate) struct Report {
    /// A run or one of its steps; or a model, whose values are shown
    #[arg(add = complete::paths())]
    pub(crate) path: String,
    /// The step to look at closely; the newest if not given
    #[arg(long, value_name = "N", add = complete::steps())]
    pub(crate) step: Option<u64>,
    /// The newest steps to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) last: usize,
    /// Read all tensors of the step, and show what the values of every layer are like
    #[arg(long)]
    pub(crate) values: bool,
    /// Write all of it as one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<String>,
    /// Write the step as a trace for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub(crate) perfetto: Option<String>,
    /// Write stall, duration and speed of every step as scalars for TensorBoard
    #[arg(long, value_name = "DIR")]
    pub(crate) tensorboard: Option<String>,
}
