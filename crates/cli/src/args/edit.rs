//! Arguments of `cairn edit`.

use crate::units::parse_size;
use cairn::checkpoint::Pattern;
use clap::{ArgGroup, Args};

#[derive(Debug, Args)]
#[command(after_help = "\
An EDIT is NAME[INDEX] = VALUE, with an index of integers, slices and `...` as in NumPy; NAME[NAME > 3] = VALUE, with
`>`, `>=`, `<`, `<=`, `==`, `!=`, or isnan(NAME) or isinf(NAME); or NAME = VALUE for all of it. A VALUE is a number,
or a .npy file of the shape that the index picks. Edits are made one after another; names are those of the source.

What is edited stays as it is. A run gets a new step, laid out as the old one; for a model of another tool `--out`
says where the result goes.

Examples:
  cairn edit runs/7b 'model.norm.weight[isnan(model.norm.weight)] = 1'
  cairn edit runs/7b 'lm_head.weight[-8:] = 0' --step 12001
  cairn edit hf-model 'model.embed_tokens.weight[128000:] = new-rows.npy' --out hf-edited
  cairn edit model.safetensors --rename transformer.wte.weight=embed.weight --delete 'h.11.*' --out small.safetensors")]
#[command(group = ArgGroup::new("edits").required(true).multiple(true).args(["assignments", "rename", "delete"]))]
pub(crate) struct Edit {
    /// A run, a step, or a model or checkpoint of another tool
    pub(crate) path: String,
    /// What changes
    #[arg(value_name = "EDIT")]
    pub(crate) assignments: Vec<String>,
    /// Give a tensor another name; may be given several times
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_rename)]
    pub(crate) rename: Vec<(String, String)>,
    /// Leave out tensors whose names match; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) delete: Vec<Pattern>,
    /// Where the result goes: a folder or file in the format of the source, of a run another run
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<String>,
    /// The step to write to a run; the one after its newest if not given
    #[arg(long)]
    pub(crate) step: Option<u64>,
    /// The most data in one file of a folder; GB counts by 1000, G and GiB by 1024
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = parse_size)]
    pub(crate) shard_size: u64,
    /// The most memory for data in flight
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) memory: u64,
    /// Show what would be written, and write nothing
    #[arg(long, visible_alias = "dry-run")]
    pub(crate) plan: bool,
}

fn parse_rename(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.into(), new.into())),
        _ => Err("expected OLD=NEW".into()),
    }
}
