//! What a shell offers to complete a line: paths, steps, and the names of tensors.
//!
//! The shell runs `cairn -- WORDS…` with the words of the line, so that the path is found among them. What cannot be read offers
//! nothing: a line that is not finished is no place for errors.

use crate::open::{open, open_run};
use crate::printer::Printer;
use cairn::checkpoint::all_steps;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// More names than this are offered part by part.
const MAX_NAMES: usize = 200;

/// Paths, and after `RUN:` its steps.
pub(crate) fn paths() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let run = current.to_str().and_then(|text| text.rsplit_once(':'));
        let Some((run, typed)) = run else {
            return PathCompleter::any().complete(current);
        };
        let steps = steps_of(run).into_iter().map(|step| step.to_string());
        let wanted = steps.filter(|step| step.starts_with(typed));
        candidates(wanted.map(|step| format!("{run}:{step}")))
    })
}

/// The steps of the run on the line.
pub(crate) fn steps() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let steps =
            words().find_map(|word| Some(steps_of(&word)).filter(|steps| !steps.is_empty()));
        let steps = steps
            .unwrap_or_default()
            .into_iter()
            .map(|step| step.to_string());
        candidates(steps.filter(|step| {
            current
                .to_str()
                .is_some_and(|typed| step.starts_with(typed))
        }))
    })
}

/// The names of the tensors at the path on the line.
pub(crate) fn tensors() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let typed = current.to_str().unwrap_or_default();
        let opened = words().find_map(|word| open(&word, &Printer::SILENT).ok());
        let names = opened.iter().flat_map(|opened| opened.source().names());
        let names: BTreeSet<&str> = names.filter(|name| name.starts_with(typed)).collect();
        let shown: BTreeSet<&str> = match names.len() > MAX_NAMES {
            true => names
                .iter()
                .map(|name| next_part(name, typed.len()))
                .collect(),
            false => names,
        };
        candidates(shown.into_iter().map(str::to_string))
    })
}

/// The words of the line after the verb that may be paths.
fn words() -> impl Iterator<Item = String> {
    let line = std::env::args().skip_while(|word| word != "--").skip(3);
    line.filter(|word| !word.starts_with('-') && !word.is_empty())
}

fn steps_of(path: &str) -> Vec<u64> {
    let steps = open_run(path)
        .ok()
        .and_then(|(run, _)| all_steps(run.as_ref()).ok());
    steps.unwrap_or_default()
}

/// The name up to the first dot after what is typed, with it.
fn next_part(name: &str, typed: usize) -> &str {
    let rest = name.get(typed..).unwrap_or_default();
    rest.find('.').map_or(name, |dot| &name[..typed + dot + 1])
}

fn candidates(texts: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    // A shell prints them as they are.
    let printable = texts.filter(|text| !text.chars().any(char::is_control));
    printable.map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_offered_part_by_part() {
        assert_eq!(next_part("model.layers.0.w", 0), "model.");
        assert_eq!(next_part("model.layers.0.w", 6), "model.layers.");
        assert_eq!(next_part("model.layers.0.w", 15), "model.layers.0.w");
        assert_eq!(next_part("model.norm", 8), "model.norm");
    }
}
