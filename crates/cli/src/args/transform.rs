//! Arguments of every verb that makes tensors of others by recipes.

use clap::Args;

/// What is made of the tensors on the way.
#[derive(Debug, Args)]
pub(crate) struct Transform {
    /// Make the tensors as a recipe says: a file, or the name of one that ships with Cairn, such as llama/hf-to-megatron; may be
    /// given several times, one after another
    #[arg(long, value_name = "FILE|NAME")]
    pub(crate) recipe: Vec<String>,
    /// A value that recipes ask for, in the place of what the model's config.json says; may be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "recipe", value_parser = parse_setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Run the recipes from right to left, the last one first
    #[arg(long, requires = "recipe")]
    pub(crate) reverse: bool,
}

pub(super) fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=VALUE".into()),
    }
}
