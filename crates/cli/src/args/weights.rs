//! Arguments of every verb that writes tensors of one place to another: which ones.

use super::Transform;
use cairn::checkpoint::Pattern;
use clap::Args;

/// Which weights are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Weights")]
pub(crate) struct Weights {
    /// Write this stored average in place of the weights
    #[arg(long, value_name = "LABEL")]
    pub(crate) ema: Option<String>,
    /// Only tensors whose names match; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) keys: Vec<Pattern>,
    /// No tensors whose names match; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) drop: Vec<Pattern>,
    #[command(flatten)]
    pub(crate) transform: Transform,
}
