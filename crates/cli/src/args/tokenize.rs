//! Arguments of `cairn tokenize`.

use crate::complete;
use clap::Args;
use std::num::NonZeroUsize;

#[derive(Debug, Args)]
#[command(after_help = "\
Of .jsonl, .ndjson and .json files each line is a document; of all others, blank lines separate documents.
The file is there when all of it is; a line that cannot be used ends it all, and nothing is written.

Examples:
  cairn tokenize web.jsonl web.tokens --tokenizer models/qwen3 --append-eos
  cairn tokenize a.jsonl b.jsonl all.tokens --tokenizer tokenizer.json --field body --keep url --keep date
  cairn tokenize notes.txt notes.tokens --tokenizer bytes")]
pub(crate) struct Tokenize {
    /// Files of text or of lines of JSON
    #[arg(required = true, num_args = 1.., value_name = "IN", add = complete::paths())]
    pub(crate) inputs: Vec<String>,
    /// The file of tokens to write
    #[arg(value_name = "OUT")]
    pub(crate) target: String,
    /// A tokenizer.json, the folder of a model with one, or `bytes`
    #[arg(long, value_name = "TOKENIZER", add = complete::paths())]
    pub(crate) tokenizer: String,
    /// The field of a JSON line with its text
    #[arg(long, default_value = "text")]
    pub(crate) field: String,
    /// Carry this field of a JSON line along; may be given several times
    #[arg(long, value_name = "FIELD")]
    pub(crate) keep: Vec<String>,
    /// Carry all fields of a JSON line along
    #[arg(long, conflicts_with = "keep")]
    pub(crate) keep_all: bool,
    /// End each document with the token that the model ends documents with
    #[arg(long)]
    pub(crate) append_eos: bool,
    /// End each document with this token
    #[arg(long, value_name = "TOKEN", conflicts_with = "append_eos")]
    pub(crate) eos: Option<String>,
    /// How many threads work; as many as there are cores, if not given
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
}
