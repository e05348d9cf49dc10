//! `cairn recipe list` and `cairn recipe show`: the recipes that ship with Cairn.

use crate::error::{Error, Exit};
use crate::printer::Printer;
use crate::table::Table;
use cairn::recipe::library::{self, Shipped};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct List {
    recipes: Vec<Listed>,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    about: &'static str,
    /// What it asks of the model's `config.json`, or of `--set`.
    settings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    recipe: Listed,
    /// Whether the text is run from right to left.
    reverse: bool,
    text: String,
}

impl From<&Shipped> for Listed {
    fn from(recipe: &Shipped) -> Self {
        Self {
            name: recipe.name.clone(),
            about: recipe.about,
            settings: recipe.settings(),
        }
    }
}

pub(super) fn list(printer: &Printer) -> Result<Exit, Error> {
    let recipes = library::list().iter().map(Listed::from).collect();
    let list = List { recipes };
    printer.report(&list, || {
        let mut table = Table::new(&["NAME", "ABOUT"]);
        for recipe in &list.recipes {
            table.row(vec![recipe.name.as_str().into(), recipe.about.into()]);
        }
        table.render(printer.paint())
    })?;
    Ok(Exit::Done)
}

pub(super) fn show(name: &str, printer: &Printer) -> Result<Exit, Error> {
    let recipe = library::find(name)?;
    let shown = Shown {
        recipe: Listed::from(&recipe),
        reverse: recipe.is_reverse(),
        text: recipe.text()?,
    };
    printer.report(&shown, || shown.text.clone())?;
    if shown.reverse {
        printer.note("the text is run from right to left: use it with `--reverse`");
    }
    Ok(Exit::Done)
}
