//! Runs the statements of a program on tensors that are boxes of sources.

use crate::error::{Error, Frame, MAX_ALL_PIECES, Problem};
use crate::expand::{Expanded, Part, Variable};
use crate::operation::{Built, Item, Kind, Operation, run};
use crate::statement::Statement;
use crate::tensors::nearest;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A statement ready to run.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) expanded: Expanded,
    /// What it does, in the order in which it runs.
    pub(crate) operations: Vec<Built>,
}

/// The statements of a program, or of one of several that run after another.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) statements: &'a [Statement],
    pub(crate) prepared: Vec<Prepared>,
    pub(crate) reverse: bool,
}

/// Every tensor that there is while a stage runs.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    pub(crate) inputs: &'a BTreeMap<String, Item>,
    /// Inputs that something was made of.
    pub(crate) used: HashSet<&'a str>,
    pub(crate) made: HashMap<&'a str, Made>,
    /// Inputs that nothing is to be made of.
    pub(crate) dropped: BTreeSet<&'a str>,
    /// Targets that keep the model's own value.
    pub(crate) initialised: BTreeSet<&'a str>,
    pub(crate) warnings: Vec<String>,
    /// The pieces of everything that was made.
    pieces: usize,
}

/// A tensor that a statement made.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) item: Item,
    pub(crate) used: bool,
    /// Which of the prepared statements made it.
    pub(crate) by: usize,
}

type Failed = (Problem, Part, Option<Box<Frame>>);

impl<'a> Stage<'a> {
    /// Runs every statement.
    pub(crate) fn run<'b>(
        &'b self,
        inputs: &'b BTreeMap<String, Item>,
        kind: Kind,
    ) -> Result<Running<'b>, Error> {
        let mut running = Running {
            inputs,
            used: HashSet::new(),
            made: HashMap::new(),
            dropped: BTreeSet::new(),
            initialised: BTreeSet::new(),
            warnings: Vec::new(),
            pieces: 0,
        };
        for (index, prepared) in self.prepared.iter().enumerate() {
            running
                .statement(prepared, index, self.reverse, kind)
                .map_err(|(problem, part, last)| self.error(index, problem, part, last))?;
        }
        Ok(running)
    }

    /// A problem of a prepared statement, with the way it came about.
    pub(crate) fn error(
        &self,
        index: usize,
        problem: Problem,
        part: Part,
        last: Option<Box<Frame>>,
    ) -> Error {
        let expanded = &self.prepared[index].expanded;
        let mut frames = expanded.frames(&self.statements[expanded.statement], part);
        frames.extend(last.map(|frame| *frame));
        Error::new(problem, frames)
    }
}

impl Prepared {
    fn sides(&self, reverse: bool) -> (&[Variable], &[Variable]) {
        let Expanded { left, right, .. } = &self.expanded;
        if reverse {
            (right, left)
        } else {
            (left, right)
        }
    }
}

impl<'a> Running<'a> {
    fn statement(
        &mut self,
        prepared: &'a Prepared,
        index: usize,
        reverse: bool,
        kind: Kind,
    ) -> Result<(), Failed> {
        let (read, made) = prepared.sides(reverse);
        if let [Variable { blank: true, .. }] = made {
            read.iter().for_each(|variable| self.drop(variable));
            return Ok(());
        }
        if let [Variable { blank: true, .. }] = read {
            self.initialised
                .extend(made.iter().map(|variable| variable.name.as_str()));
            return Ok(());
        }
        let mut items = Vec::with_capacity(read.len());
        for (at, variable) in read.iter().enumerate() {
            let part = if reverse {
                Part::Right(at)
            } else {
                Part::Left(at)
            };
            let item = self
                .read(variable, kind)
                .map_err(|problem| (problem, part, None))?;
            items.push(item);
        }
        for built in &prepared.operations {
            let failed = |problem| (problem, Part::Attribute(built.attribute), built.frame());
            items = run(&built.operation, &items, kind).map_err(failed)?;
        }
        for (at, (variable, item)) in made.iter().zip(items).enumerate() {
            let part = if reverse {
                Part::Left(at)
            } else {
                Part::Right(at)
            };
            let item = transposed(variable, item, kind).map_err(|problem| (problem, part, None))?;
            self.make(variable, item, index);
            if self.pieces > MAX_ALL_PIECES {
                let what = "the number of pieces of all tensors";
                return Err((Problem::TooLarge { what }, part, None));
            }
        }
        Ok(())
    }

    fn drop(&mut self, variable: &'a Variable) {
        let name = variable.name.as_str();
        if self.made.remove(name).is_some() {
            return;
        }
        if self.inputs.contains_key(name) {
            self.dropped.insert(name);
        } else if !variable.blank {
            self.warnings.push(format!(
                "`{name} -> _` drops nothing: there is no such tensor"
            ));
        }
    }

    fn read(&mut self, variable: &'a Variable, kind: Kind) -> Result<Item, Problem> {
        let name = variable.name.as_str();
        if variable.blank {
            let (operation, reason) = ("_", "what is nothing has no elements");
            return Err(Problem::Irreversible { operation, reason });
        }
        let item = if let Some(made) = self.made.get_mut(name) {
            made.used = true;
            made.item.clone()
        } else if let Some((name, item)) = self.inputs.get_key_value(name) {
            self.used.insert(name);
            item.clone()
        } else if kind == Kind::State {
            Item::Absent
        } else {
            return Err(self.no_such_name(name));
        };
        transposed(variable, item, kind)
    }

    fn no_such_name(&self, name: &str) -> Problem {
        let known = |name: &str| self.inputs.contains_key(name) || self.made.contains_key(name);
        if let Some((parameter, _)) = crate::state::split(name, known) {
            let name = name.to_owned();
            return Problem::NamesState { name, parameter };
        }
        let inputs = self.inputs.keys().map(String::as_str);
        let near = nearest(name, inputs.chain(self.made.keys().copied()));
        let name = name.to_owned();
        Problem::NoSuchName { name, near }
    }

    fn make(&mut self, variable: &'a Variable, item: Item, by: usize) {
        if variable.blank {
            return;
        }
        let name = variable.name.as_str();
        self.pieces += item.pieces();
        let before = self.made.insert(
            name,
            Made {
                item,
                used: false,
                by,
            },
        );
        if let Some(before) = &before {
            self.pieces -= before.item.pieces();
        }
        if before.is_some_and(|before| !before.used) {
            self.warnings.push(format!(
                "`{name}` is made twice, and what was made first is not used"
            ));
        }
    }

    /// What is left when no targets are given: inputs and made tensors that nothing was made of.
    pub(crate) fn leftover(&self) -> BTreeMap<String, Item> {
        let unused = self.inputs.iter().filter(|(name, _)| {
            let name = name.as_str();
            !(self.used.contains(name)
                || self.dropped.contains(name)
                || self.made.contains_key(name))
        });
        let unused = unused.map(|(name, item)| (name.clone(), item.clone()));
        let made = self.made.iter().filter(|(_, made)| !made.used);
        let made = made.map(|(name, made)| (name.to_string(), made.item.clone()));
        unused.chain(made).collect()
    }
}

fn transposed(variable: &Variable, item: Item, kind: Kind) -> Result<Item, Problem> {
    if !variable.transposed {
        return Ok(item);
    }
    let mut items = run(&Operation::Permute(Vec::new()), &[item], kind)?;
    Ok(items.pop().unwrap_or(Item::Absent))
}

impl Built {
    /// What a macro came to, for messages.
    fn frame(&self) -> Option<Box<Frame>> {
        let text = self.operation.text();
        let span = Some(0..text.len());
        let by = self.by?.to_owned();
        Some(Box::new(Frame { by, text, span }))
    }
}
