//! Programs: read from text, turned round, put one after another, compiled.

use crate::compiled::Compiled;
use crate::engine::Stage;
use crate::error::{Error, Frame};
use crate::finish::{Finish, finish};
use crate::operation::{Item, Kind, check};
use crate::prepare::{Surroundings, prepare};
use crate::state::Grouped;
use crate::statement::{Statement, parse};
use crate::tensors::Tensors;
use crate::value::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How tensors become others: statements in the transform language.
///
/// ```
/// use cairn_recipe::{Program, Tensor, Tensors};
/// use cairn_tensor::DType;
///
/// let program = Program::parse("gate^T, up^T -> gate_up, axis=-1, dtype=bfloat16")?;
/// let weight = Tensor::new(DType::F32, [8, 4]);
/// let sources = Tensors::from([("gate".into(), weight.clone()), ("up".into(), weight)]);
/// let compiled = program.compile(&sources, None)?;
/// assert_eq!(compiled.targets["gate_up"].shape, [4, 16]);
/// # Ok::<(), cairn_recipe::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    parts: Vec<Written>,
}

/// Statements that run together, in one direction.
#[derive(Debug, Clone, PartialEq, Default)]
struct Written {
    statements: Vec<Statement>,
    reverse: bool,
}

impl Program {
    /// Reads a program: one statement on a line, `#` before comments.
    ///
    /// # Errors
    /// If a statement is not one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::from_statements([text])
    }

    /// Reads a program from a list of texts, each of one or more statements.
    ///
    /// # Errors
    /// If a statement is not one.
    pub fn from_statements<S: AsRef<str>>(
        texts: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        let mut statements = Vec::new();
        for text in texts {
            let text = text.as_ref();
            let found = parse(text).map_err(|(problem, span)| {
                Error::new(problem, vec![frame_of(text, span, statements.len())])
            })?;
            statements.extend(found);
        }
        for (index, statement) in statements.iter().enumerate() {
            check(statement).map_err(|(problem, part)| {
                Error::new(problem, vec![statement.frame(index, part)])
            })?;
        }
        let reverse = false;
        let parts = vec![Written {
            statements,
            reverse,
        }];
        Ok(Self { parts })
    }

    /// The program that undoes this one: the last statement first, each from right to left.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        self.parts.reverse();
        for part in &mut self.parts {
            part.reverse = !part.reverse;
        }
        self
    }

    /// This program, and then another on what it gives.
    #[must_use]
    pub fn then(mut self, next: Self) -> Self {
        self.parts.extend(next.parts);
        self
    }

    /// Whether it has no statements.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.statements.is_empty())
    }

    /// Finds where each element of each target comes from.
    ///
    /// Targets are the tensors asked for: their names, shapes and element types must come out. Without them, whatever is
    /// left over is a target. Optimizer state is moved like the parameter it is named after.
    ///
    /// # Errors
    /// If a statement does not fit the tensors there are, or a target does not come out as it is declared.
    pub fn compile(&self, sources: &Tensors, targets: Option<&Tensors>) -> Result<Compiled, Error> {
        let sources_grouped = Grouped::new(sources, |_| false);
        let known = |name: &str| sources_grouped.parameters.contains_key(name);
        let targets_grouped = targets.map(|targets| Grouped::new(targets, known));
        let mut inputs = vec![items(&sources_grouped.parameters)];
        let mut stages: Vec<Stage<'_>> = Vec::new();
        let nothing = [Written::default()];
        let parts = if self.parts.is_empty() {
            &nothing[..]
        } else {
            &self.parts
        };
        for (index, part) in parts.iter().enumerate() {
            let last = index + 1 == parts.len();
            let around = Surroundings {
                inputs: &inputs[index],
                sources: &sources_grouped,
                targets: targets_grouped.as_ref().filter(|_| last),
                reverse: part.reverse,
            };
            stages.push(prepare(&part.statements, &around)?);
            if !last {
                let next = stages[index]
                    .run(&inputs[index], Kind::Parameters)?
                    .leftover();
                inputs.push(next);
            }
        }
        finish(&Finish {
            stages: &stages,
            inputs: &inputs,
            grouped: &sources_grouped,
            targets,
        })
    }
}

/// Every tensor as itself.
pub(crate) fn items(tensors: &Tensors) -> BTreeMap<String, Item> {
    let item = |(name, tensor): (&String, &crate::tensors::Tensor)| {
        let value = Value::source(name, tensor.dtype, &tensor.shape);
        (name.clone(), Item::Value(Rc::new(value)))
    };
    tensors.iter().map(item).collect()
}

/// The line of a text that a span is in.
fn frame_of(text: &str, span: std::ops::Range<usize>, before: usize) -> Frame {
    let start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let lines = text[..start].lines();
    let statements = lines.filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
    Frame {
        by: format!("statement {}", before + statements.count() + 1),
        span: Some(span.start - start..(span.end - start).min(line.len()).max(span.start - start)),
        text: line.to_owned(),
    }
}
