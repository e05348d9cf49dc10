//! Statements with every name written out: one for each id that placeholders match, ranges and stars as lists.

mod show;

use crate::error::{Error, MAX_ALL_NAMES, MAX_NAMES, Problem};
use crate::pattern::{Ids, Number, OFFSET, Pattern, Tail};
use crate::statement::{Name, Statement};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

pub(crate) use show::Part;

/// A statement about tensors that exist.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expanded {
    /// Which statement of the program it was.
    pub(crate) statement: usize,
    /// What its placeholders stood for.
    pub(crate) ids: Ids,
    pub(crate) left: Vec<Variable>,
    pub(crate) right: Vec<Variable>,
}

/// A tensor in a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) blank: bool,
    pub(crate) transposed: bool,
}

/// The names a program is written out with.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    pub(crate) inputs: &'a BTreeSet<&'a str>,
    pub(crate) targets: Option<&'a BTreeSet<&'a str>>,
    pub(crate) reverse: bool,
}

/// A side of a statement, as it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Read,
    Made,
}

/// Writes statements out, in the order in which they run.
pub(crate) fn expand(statements: &[Statement], names: &Names<'_>) -> Result<Vec<Expanded>, Error> {
    let mut expander = Expander {
        names,
        made: HashSet::new(),
    };
    let mut order: Vec<usize> = (0..statements.len()).collect();
    if names.reverse {
        order.reverse();
    }
    let mut expanded: Vec<Expanded> = Vec::new();
    let mut all_names = 0;
    for index in order {
        let statement = &statements[index];
        let found = expander.statement(statement, index);
        let found = found
            .map_err(|(problem, part)| Error::new(problem, vec![statement.frame(index, part)]))?;
        all_names += found
            .iter()
            .map(|one| one.left.len() + one.right.len())
            .sum::<usize>();
        if all_names > MAX_ALL_NAMES {
            let what = "the number of names in all statements";
            let part = Part::Left(0);
            return Err(Error::new(
                Problem::TooLarge { what },
                vec![statement.frame(index, part)],
            ));
        }
        for statement in &found {
            let made = if names.reverse {
                &statement.left
            } else {
                &statement.right
            };
            expander
                .made
                .extend(made.iter().map(|variable| variable.name.clone()));
        }
        expanded.extend(found);
    }
    Ok(expanded)
}

struct Expander<'a> {
    names: &'a Names<'a>,
    /// What statements before made.
    made: HashSet<String>,
}

type Failed = (Problem, Part);

impl Expander<'_> {
    fn statement(&self, statement: &Statement, index: usize) -> Result<Vec<Expanded>, Failed> {
        let all = self.all_ids(statement)?;
        let mut expanded = Vec::with_capacity(all.len());
        for ids in all {
            let left = self.variables(statement, Side::of(true, self.names.reverse), &ids)?;
            let right = self.variables(statement, Side::of(false, self.names.reverse), &ids)?;
            let (Some(left), Some(right)) = (left, right) else {
                continue;
            };
            expanded.push(Expanded {
                statement: index,
                ids,
                left,
                right,
            });
        }
        Ok(expanded)
    }

    /// What the placeholders of a statement stand for, once for each statement it becomes.
    fn all_ids(&self, statement: &Statement) -> Result<Vec<Ids>, Failed> {
        let named = statement.names().filter(|(name, _)| !name.blank);
        let mut placeholders: Vec<&str> = named
            .clone()
            .flat_map(|(name, _)| name.pattern.ids())
            .collect();
        placeholders.sort_unstable();
        placeholders.dedup();
        if placeholders.is_empty() {
            return Ok(vec![Vec::new()]);
        }
        for (name, part) in named {
            let has = name.pattern.ids();
            if let Some(lacks) = placeholders.iter().find(|id| !has.contains(id)) {
                let (name, placeholder) = (name.pattern.to_string(), lacks.to_string());
                return Err((Problem::NoPlaceholder { name, placeholder }, part));
            }
        }
        let (read, made) = match self.names.reverse {
            true => (&statement.right, &statement.left),
            false => (&statement.left, &statement.right),
        };
        let (name, side) = match read.iter().find(|name| !name.blank) {
            Some(name) => (name, Side::Read),
            None => (
                made.iter().find(|name| !name.blank).unwrap_or(&made[0]),
                Side::Made,
            ),
        };
        let found = self.ids_of(name, side);
        // Without targets there is none that could keep the model's own value.
        let nobody = side == Side::Made && self.names.targets.is_none();
        if found.is_empty() && !nobody && !statement.is_optional() {
            return Err((self.no_match(&name.pattern, side), statement.part_of(name)));
        }
        Ok(found)
    }

    fn ids_of(&self, name: &Name, side: Side) -> Vec<Ids> {
        let tail = if name.range.is_some() {
            Tail::Index
        } else {
            Tail::End
        };
        let mut found = self.matches(side, |candidate| name.pattern.ids_of(candidate, tail));
        found.sort_by_cached_key(|ids| -> Vec<Number> {
            ids.iter().map(|(_, id)| Number(id.clone())).collect()
        });
        found.dedup();
        found
    }

    /// What matching gives for the names of a side: those of sources or targets, or else of what statements made.
    fn matches<T>(&self, side: Side, matched: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let given = match side {
            Side::Read => Some(self.names.inputs),
            Side::Made => self.names.targets,
        };
        let given = given.into_iter().flatten();
        let found: Vec<T> = given.filter_map(|name| matched(name)).collect();
        match found.is_empty() && side == Side::Read {
            true => self.made.iter().filter_map(|name| matched(name)).collect(),
            false => found,
        }
    }

    fn no_match(&self, pattern: &Pattern, side: Side) -> Problem {
        let among = match side {
            Side::Read => "sources",
            Side::Made => "targets",
        };
        let pattern = pattern.to_string();
        Problem::NoMatch { pattern, among }
    }

    /// The tensors of a side; `None` if there need be none and there are none.
    fn variables(
        &self,
        statement: &Statement,
        side: Side,
        ids: &Ids,
    ) -> Result<Option<Vec<Variable>>, Failed> {
        let is_left = (side == Side::Read) != self.names.reverse;
        let names = if is_left {
            &statement.left
        } else {
            &statement.right
        };
        let shifted = shifted(ids, side, self.names.reverse);
        let mut variables = Vec::with_capacity(names.len());
        for name in names {
            let part = statement.part_of(name);
            let Some(ids) = shifted.as_ref() else {
                let pattern = name.pattern.to_string();
                return Err((Problem::NoIdBefore { pattern }, part));
            };
            let found = match name.pattern.has_star() {
                true => self.star(&name.pattern.with(ids), side),
                false => vec![name.pattern.text_with(ids)],
            };
            if found.is_empty() {
                return match statement.is_optional() {
                    true => Ok(None),
                    false => Err((self.no_match(&name.pattern.with(ids), side), part)),
                };
            }
            for name_found in found {
                add(&mut variables, name, name_found);
            }
            if variables.len() > MAX_NAMES {
                let what = "the number of names in a statement";
                return Err((Problem::TooLarge { what }, part));
            }
        }
        Ok(Some(variables))
    }

    /// The names that a star stands for, in the order of their numbers.
    fn star(&self, pattern: &Pattern, side: Side) -> Vec<String> {
        let matched = |name: &str| Some((pattern.stars_of(name)?, name.to_owned()));
        let mut found = self.matches(side, matched);
        found.sort();
        found.into_iter().map(|(_, name)| name).collect()
    }
}

impl Side {
    fn of(left: bool, reverse: bool) -> Self {
        if left != reverse {
            Side::Read
        } else {
            Side::Made
        }
    }
}

/// The ids as a side has them: `$LAYER_ID_OFFSET` is n on the left and n - 1 on the right. `None` if there is no n - 1.
fn shifted(ids: &Ids, side: Side, reverse: bool) -> Option<Cow<'_, Ids>> {
    let offset = ids.iter().position(|(name, _)| name.as_ref() == OFFSET);
    let Some(at) = offset.filter(|_| side == Side::Made) else {
        return Some(Cow::Borrowed(ids));
    };
    let id: u64 = ids[at].1.parse().ok()?;
    let moved = match reverse {
        true => id.checked_add(1),
        false => id.checked_sub(1),
    };
    let mut ids = ids.clone();
    ids[at].1 = moved?.to_string();
    Some(Cow::Owned(ids))
}

/// Adds a tensor, or those of `name[0:4]`.
fn add(variables: &mut Vec<Variable>, written: &Name, name: String) {
    let variable = |name| Variable {
        name,
        blank: written.blank,
        transposed: written.transposed,
    };
    match &written.range {
        None => variables.push(variable(name)),
        Some(range) => variables.extend(
            range
                .clone()
                .map(|index| variable(format!("{name}_{index}"))),
        ),
    }
}

impl Statement {
    fn names(&self) -> impl Iterator<Item = (&Name, Part)> + Clone {
        let left = self.left.iter().enumerate();
        let left = left.map(|(index, name)| (name, Part::Left(index)));
        let right = self.right.iter().enumerate();
        left.chain(right.map(|(index, name)| (name, Part::Right(index))))
    }

    fn part_of(&self, name: &Name) -> Part {
        let part = self.names().find(|(other, _)| std::ptr::eq(*other, name));
        part.map_or(Part::Whole, |(_, part)| part)
    }
}
