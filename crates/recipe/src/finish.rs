//! What a program comes to: the tensors that are asked for, or that are left over, and the state that follows them.

mod states;

use crate::compiled::{Compiled, Target};
use crate::engine::{Running, Stage};
use crate::error::{Error, Problem};
use crate::expand::Part;
use crate::operation::{Item, Kind};
use crate::state::{Grouped, Style, split};
use crate::tensors::{Tensor, Tensors, nearest};
use crate::value::Value;
use cairn_tensor::element_count;
use std::collections::{BTreeMap, BTreeSet};

/// The most names a warning lists.
const MAX_LISTED: usize = 5;

/// Everything that the end of a compilation needs.
#[derive(Debug)]
pub(crate) struct Finish<'a> {
    /// The programs that run one after another, and what each begins with.
    pub(crate) stages: &'a [Stage<'a>],
    pub(crate) inputs: &'a [BTreeMap<String, Item>],
    pub(crate) grouped: &'a Grouped,
    pub(crate) targets: Option<&'a Tensors>,
}

/// What there is for a target.
enum Found<'a> {
    Item(&'a Item),
    /// The model's own value.
    Own,
}

/// Takes what is asked for from the tensors at the end of a program.
pub(crate) fn finish(finish: &Finish<'_>) -> Result<Compiled, Error> {
    let mut compiled = Compiled::default();
    let (Some((stage, before)), Some(inputs)) = (finish.stages.split_last(), finish.inputs.last())
    else {
        return Ok(compiled);
    };
    let mut dropped = None;
    for (stage, inputs) in before.iter().zip(finish.inputs) {
        let earlier = stage.run(inputs, Kind::Parameters)?;
        compiled.warnings.extend(earlier.warnings);
        dropped.get_or_insert(earlier.dropped);
    }
    let running = stage.run(inputs, Kind::Parameters)?;
    compiled.warnings.extend(running.warnings.iter().cloned());
    // Only sources are dropped; what a program leaves to the next is not read from anywhere.
    let dropped = dropped.unwrap_or_else(|| running.dropped.clone());
    compiled.dropped = dropped.iter().map(|name| name.to_string()).collect();
    let mut finisher = Finisher {
        finish,
        stage,
        running: &running,
        dropped,
        compiled,
    };
    match finish.targets {
        None => finisher.leftover()?,
        Some(targets) => finisher.declared(targets)?,
    }
    Ok(finisher.compiled)
}

struct Finisher<'a> {
    finish: &'a Finish<'a>,
    stage: &'a Stage<'a>,
    running: &'a Running<'a>,
    dropped: BTreeSet<&'a str>,
    compiled: Compiled,
}

impl Finisher<'_> {
    fn leftover(&mut self) -> Result<(), Error> {
        for (name, item) in self.running.leftover() {
            if let Item::Value(value) = item
                && !self.is_implied(&value)
            {
                self.check_dropped(self.running, &name, &value, None)?;
                self.compiled.targets.insert(name, target(&value));
            }
        }
        self.leftover_states()
    }

    fn declared(&mut self, targets: &Tensors) -> Result<(), Error> {
        let mut states: BTreeMap<Style, Vec<(&str, String)>> = BTreeMap::new();
        let mut wanted: BTreeSet<String> = BTreeSet::new();
        for (name, tensor) in targets {
            let known = |name: &str| {
                targets.contains_key(name)
                    || self.running.made.contains_key(name)
                    || self.running.inputs.contains_key(name)
            };
            // What a statement made by this very name is no state: `x.w[0:2]` is `x.w_0` and `x.w_1`.
            let made = self.running.made.contains_key(name.as_str());
            match split(name, known).filter(|_| !made) {
                Some((parameter, style)) => {
                    wanted.insert(parameter.clone());
                    states.entry(style).or_default().push((name, parameter));
                }
                None => {
                    wanted.insert(name.clone());
                    self.parameter(name, tensor)?;
                }
            }
        }
        for (style, targets_of) in states {
            self.declared_states(style, &targets_of, targets)?;
        }
        self.warn_of_unused(&wanted);
        Ok(())
    }

    fn parameter(&mut self, name: &str, declared: &Tensor) -> Result<(), Error> {
        let made = match self.find(self.running, name)? {
            Found::Own => own(declared),
            Found::Item(Item::Value(value)) if !self.is_implied(value) => {
                self.check(self.running, name, value, declared, true)?;
                self.check_dropped(self.running, name, value, None)?;
                target(value)
            }
            Found::Item(_) => return Err(self.no_source(name).into()),
        };
        self.compiled.targets.insert(name.to_owned(), made);
        Ok(())
    }

    /// What there is for a target: what a statement made, the model's own value, or the source of that name.
    fn find<'b>(&self, running: &'b Running<'_>, name: &str) -> Result<Found<'b>, Problem> {
        if let Some(made) = running.made.get(name) {
            return Ok(Found::Item(&made.item));
        }
        if running.initialised.contains(name) {
            return Ok(Found::Own);
        }
        let input = running.inputs.get(name);
        input.map(Found::Item).ok_or_else(|| self.no_source(name))
    }

    fn no_source(&self, name: &str) -> Problem {
        let inputs = self.running.inputs.keys().map(String::as_str);
        let near = nearest(name, inputs.chain(self.running.made.keys().copied()));
        let target = name.to_owned();
        Problem::NoSource { target, near }
    }

    /// Whether it is made of a parameter that is only known by its state.
    fn is_implied(&self, value: &Value) -> bool {
        let implied = &self.finish.grouped.implied;
        !implied.is_empty()
            && sources_of(value).any(|name| implied.iter().any(|other| other == name))
    }

    /// Checks that a tensor came out as it is declared.
    fn check(
        &self,
        running: &Running<'_>,
        name: &str,
        value: &Value,
        declared: &Tensor,
        with_dtype: bool,
    ) -> Result<(), Error> {
        let target = name.to_owned();
        if value.shape != declared.shape {
            let (derived, declared) = (value.shape.clone(), declared.shape.clone());
            let problem = Problem::TargetShape {
                target,
                derived,
                declared,
            };
            return Err(self.at(running, name, problem));
        }
        if with_dtype && value.dtype != declared.dtype {
            let (derived, declared) = (value.dtype, declared.dtype);
            let problem = Problem::TargetDType {
                target,
                derived,
                declared,
            };
            return Err(self.at(running, name, problem));
        }
        Ok(())
    }

    fn check_dropped(
        &self,
        running: &Running<'_>,
        name: &str,
        value: &Value,
        style: Option<&Style>,
    ) -> Result<(), Error> {
        if self.dropped.is_empty() {
            return Ok(());
        }
        let dropped = |dropped: &&&str| {
            let source = style.map_or_else(|| dropped.to_string(), |style| style.of(dropped));
            sources_of(value).any(|name| name == source)
        };
        match self.dropped.iter().find(dropped) {
            None => Ok(()),
            Some(dropped) => {
                let (target, dropped) = (name.to_owned(), dropped.to_string());
                let problem = Problem::Dropped {
                    target,
                    name: dropped,
                };
                Err(self.at(running, name, problem))
            }
        }
    }

    /// A problem with a target, and the statement that made it.
    fn at(&self, running: &Running<'_>, name: &str, problem: Problem) -> Error {
        let Some(made) = running.made.get(name) else {
            return problem.into();
        };
        let expanded = &self.stage.prepared[made.by].expanded;
        let side = if self.stage.reverse {
            &expanded.left
        } else {
            &expanded.right
        };
        let at = side.iter().position(|variable| variable.name == name);
        let part = match at {
            Some(at) if self.stage.reverse => Part::Left(at),
            Some(at) => Part::Right(at),
            None => Part::Whole,
        };
        self.stage.error(made.by, problem, part, None)
    }

    fn warn_of_unused(&mut self, wanted: &BTreeSet<String>) {
        let running = self.running;
        let unused = running.inputs.keys().map(String::as_str).filter(|name| {
            !running.used.contains(name)
                && !running.dropped.contains(name)
                && (!wanted.contains(*name) || running.made.contains_key(name))
        });
        let unused: Vec<&str> = unused.collect();
        let made = running.made.iter();
        let made = made.filter(|(name, made)| !made.used && !wanted.contains(**name));
        let mut made: Vec<&str> = made.map(|(name, _)| *name).collect();
        made.sort_unstable();
        for (names, what) in [
            (unused, "nothing is made of"),
            (made, "made, though no target and used for none:"),
        ] {
            if !names.is_empty() {
                self.compiled
                    .warnings
                    .push(format!("{what} {}", listed(&names)));
            }
        }
    }
}

/// Names for a message, not too many.
fn listed(names: &[&str]) -> String {
    let shown = names
        .iter()
        .take(MAX_LISTED)
        .map(|name| format!("`{name}`"));
    let shown: Vec<String> = shown.collect();
    match names.len().saturating_sub(MAX_LISTED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn sources_of(value: &Value) -> impl Iterator<Item = &str> {
    let sources = value
        .pieces
        .iter()
        .filter_map(|piece| piece.source.as_ref());
    sources.map(|source| source.name.as_str())
}

/// A tensor as the result of a compilation.
fn target(value: &Value) -> Target {
    debug_assert!(is_covered(value), "every element has one piece");
    let mut pieces = value.pieces.clone();
    pieces.sort_by(|a, b| a.region.offset.cmp(&b.region.offset));
    Target {
        dtype: value.dtype,
        shape: value.shape.clone(),
        pieces: Some(pieces),
    }
}

/// Whether the pieces have as many elements as the tensor.
fn is_covered(value: &Value) -> bool {
    let mut counts = value
        .pieces
        .iter()
        .map(|piece| element_count(&piece.region.extent));
    let covered = counts.try_fold(0usize, |sum, count| sum.checked_add(count?));
    let all = element_count(&value.shape);
    all.is_none() || covered == all
}

/// A target that keeps the model's own value.
fn own(declared: &Tensor) -> Target {
    Target {
        dtype: declared.dtype,
        shape: declared.shape.clone(),
        pieces: None,
    }
}
