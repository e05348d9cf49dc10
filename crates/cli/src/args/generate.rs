//! Arguments of `cairn generate`.

use crate::complete;
use clap::{ArgGroup, Args};

#[derive(Debug, Args)]
#[command(after_help = "\
Without a temperature the likeliest token is taken each time. The same seed gives the same text.

Examples:
  cairn generate runs/small --prompt 'Once upon'
  cairn generate hf-model --prompt 'Once upon' --temperature 0.8 --top-p 0.95 --seed 7
  cairn generate runs/small:2000 --tokens 1,5,9 --max-tokens 1 --logits --json")]
#[command(group = ArgGroup::new("start").required(true).args(["prompt", "tokens"]))]
pub(crate) struct Generate {
    /// A run, a step, or a Hugging Face folder
    #[arg(add = complete::paths())]
    pub(crate) path: String,
    /// The text to go on with
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// The tokens to go on with, in place of a text
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    pub(crate) tokens: Vec<u32>,
    /// What text becomes tokens by: a tokenizer.json, a folder with one, or `bytes`; that of the model if not given
    #[arg(long, value_name = "NAME")]
    pub(crate) tokenizer: Option<String>,
    /// How many tokens to add at most
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) max_tokens: usize,
    /// How daring to be: 0 takes the likeliest token, 1 follows the model
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// Choose among the likeliest tokens only, which together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub(crate) top_p: f64,
    /// Decides what is random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// With --json: tell the logits that each token was chosen by
    #[arg(long, requires = "json")]
    pub(crate) logits: bool,
}
