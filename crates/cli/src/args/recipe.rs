//! Arguments of `cairn recipe`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Recipe {
    /// Show where each tensor that a recipe makes comes from
    Explain(RecipeExplain),
    /// List the recipes that ship with Cairn
    List,
    /// Print a recipe that ships with Cairn
    Show(RecipeShow),
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is printed can be changed and used as a file: `cairn recipe show llama/hf-to-megatron > mine.recipe`. A recipe whose
name says the opposite direction is the same text, run with `--reverse`.")]
pub(crate) struct RecipeShow {
    /// The name, as `cairn recipe list` has it
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A recipe is a text with one statement on a line, or JSON with `statements`. docs/guide/recipes.md
describes the language, and the JSON that comes with its own `sources` and `targets`.

Exit code 1: the recipe is wrong, or does not fit the tensors.

Examples:
  cairn recipe explain fuse.recipe --sources hf-model
  cairn recipe explain fuse.recipe --sources runs/7b --targets hf-model --reverse
  cairn recipe explain llama/hf-to-megatron --sources hf-model
  cairn recipe explain program.json --json")]
pub(crate) struct RecipeExplain {
    /// The recipe: a text or JSON file, or the name of one that ships with Cairn
    pub(crate) program: String,
    /// A checkpoint or model whose tensors are the sources
    #[arg(long, value_name = "PATH")]
    pub(crate) sources: Option<String>,
    /// A checkpoint or model whose names, shapes and types are wanted
    #[arg(long, value_name = "PATH")]
    pub(crate) targets: Option<String>,
    /// A value that the recipe asks for, in the place of what the model's config.json says; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::transform::parse_setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Run it from right to left
    #[arg(long)]
    pub(crate) reverse: bool,
}
