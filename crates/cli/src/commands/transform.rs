//! Tensors made of others by recipes, on their way from one place to another.

use crate::args::Transform as Args;
use crate::error::Error;
use cairn::checkpoint::{SharedSource, Transformed, recipe_settings, recipe_tensors, split_path};
use cairn::recipe::Program;
use cairn::recipe::library::{self, Settings, depends_on_shards};
use cairn::store;
use std::sync::Arc;

/// What recipes make of a source.
pub(crate) struct Made {
    pub(crate) source: SharedSource,
    /// Changes with the recipes.
    pub(crate) identity: String,
    /// What the writers of the recipes may want to know.
    pub(crate) warnings: Vec<String>,
}

/// Runs the recipes of `args` on `source`, one after another.
pub(crate) fn transformed(args: &Args, source: SharedSource) -> Result<Made, Error> {
    let mut settings = recipe_settings(source.as_ref())?;
    for (name, value) in &args.set {
        settings.set(name, value);
    }
    let mut recipes: Vec<&String> = args.recipe.iter().collect();
    if args.reverse {
        recipes.reverse();
    }
    let mut texts = Vec::new();
    let mut program = Program::default();
    for name in recipes {
        let (text, next) = read(name, args.reverse, &settings)?;
        texts.push(text);
        program = program.then(next);
    }
    let shards = texts.iter().any(|text| depends_on_shards(text));
    let compiled = program.compile(&recipe_tensors(source.as_ref(), shards)?, None)?;
    Ok(Made {
        source: Arc::new(Transformed::new(source, &compiled)?),
        identity: texts.join("\n"),
        warnings: compiled.warnings,
    })
}

/// The text of a recipe (of one that ships with Cairn, its name), and the program it comes to.
pub(crate) fn read(
    name: &str,
    reverse: bool,
    settings: &Settings,
) -> Result<(String, Program), Error> {
    let (folder, file) = split_path(name);
    let found = match store::open(&folder) {
        Ok(folder) => folder.get(&file),
        Err(error) => Err(error),
    };
    let text = match found {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(store::Error::NotFound { .. }) => {
            let mut shipped = library::find(name)?;
            if reverse {
                shipped = shipped.opposite();
            }
            return Ok((shipped.name.clone(), shipped.program(settings)?));
        }
        Err(error) => return Err(error.into()),
    };
    let program = library::program(&text, reverse, settings)?;
    Ok((text, program))
}
