//! The fields of a model's config.

use super::super::fields::{Field, field};
use super::super::node::{Entry, Node, Tree};
use super::super::problem::{Place, Problem};
use super::super::reader::Reader;
use cairn_model::{Error as ModelError, ModelConfig};

/// What a model is like, if its config makes sense.
pub(super) fn understood(root: &Reader<'_>, place: &Place, text: &str) -> Option<ModelConfig> {
    let problems = match ModelConfig::from_json(text) {
        Ok(config) => return Some(config),
        Err(ModelError::Config { problems }) => problems,
        Err(other) => {
            root.problem(Problem::at(place, other.to_string()));
            return None;
        }
    };
    for problem in problems {
        root.problem(Problem {
            place: place.clone(),
            what: format!("the model: {}", problem.what),
            hint: problem.hint,
        });
    }
    None
}

/// Tells fields of a model's config that nothing reads and that look like slips; in a table of the file, all that nobody knows.
pub(super) fn slips(root: &Reader<'_>, table: Option<&Node>, place: &Place, config: &ModelConfig) {
    let entries: &[Entry] = match table.map(|node| &node.tree) {
        Some(Tree::Table(entries)) => entries,
        _ => &[],
    };
    for name in config.other.keys() {
        let entry = entries.iter().find(|entry| entry.key == *name);
        let place = entry.map_or(place, |entry| &entry.place);
        let what = format!("the model: there is no field `{name}`");
        match field(name) {
            Field::Elsewhere => {}
            Field::Slip(known) => {
                root.problem(Problem::at(place, what).hint(format!("did you mean `{known}`?")));
            }
            Field::Unknown if table.is_some() => {
                let hint =
                    "fields that only other tools read go into a file: `config = \"config.json\"`";
                root.problem(Problem::at(place, what).hint(hint));
            }
            Field::Unknown => {}
        }
    }
}
