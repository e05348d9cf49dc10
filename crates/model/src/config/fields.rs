//! Fields of a JSON object that are read one by one; what is wrong with them is collected.

use crate::error::Problem;
use serde_json::{Map, Value};

/// The most that a size may be, so that no product of sizes overflows.
pub(super) const MAX_SIZE: u64 = 1 << 20;

/// The fields that are not yet read, and what was wrong with the others.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) fields: Map<String, Value>,
    pub(super) problems: Vec<Problem>,
}

impl Fields {
    pub(super) fn new(fields: Map<String, Value>) -> Self {
        Self {
            fields,
            problems: Vec::new(),
        }
    }

    pub(super) fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Takes a field; `null` is as good as nothing.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.fields
            .shift_remove(name)
            .filter(|value| !value.is_null())
    }

    /// A whole number between two others.
    pub(super) fn count(
        &mut self,
        name: &str,
        default: Option<usize>,
        min: u64,
        max: u64,
    ) -> usize {
        let value = self.take(name);
        let count = value
            .as_ref()
            .and_then(Value::as_u64)
            .filter(|count| (min..=max).contains(count));
        match (value, count, default) {
            (_, Some(count), _) => usize::try_from(count).expect("the limits fit a usize"),
            (None, None, Some(default)) => default,
            (None, None, None) => {
                self.problem(Problem::new(format!("`{name}` is missing")));
                1
            }
            (Some(value), None, _) => {
                self.problem(Problem::new(format!(
                    "`{name}` is {value}, not a whole number from {min} to {max}"
                )));
                1
            }
        }
    }

    /// A size of a dim.
    pub(super) fn size(&mut self, name: &str, default: Option<usize>) -> usize {
        self.count(name, default, 1, MAX_SIZE)
    }

    /// A number between two others.
    pub(super) fn number(&mut self, name: &str, default: f64, min: f64, max: f64) -> f64 {
        let Some(value) = self.take(name) else {
            return default;
        };
        let number = value.as_f64();
        number
            .filter(|number| (min..=max).contains(number))
            .unwrap_or_else(|| {
                let most = match max {
                    f64::MAX => String::new(),
                    _ => format!(" and at most {max}"),
                };
                self.problem(Problem::new(format!(
                    "`{name}` is {value}, not a number of at least {min}{most}"
                )));
                default
            })
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.take(name) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(value) => {
                self.problem(Problem::new(format!(
                    "`{name}` is {value}, not true or false"
                )));
                false
            }
        }
    }

    /// A number that must be there and be greater than zero.
    pub(super) fn positive(&mut self, name: &str) -> f64 {
        let value = self.take(name);
        let number = value.as_ref().and_then(Value::as_f64);
        number.filter(|number| *number > 0.0).unwrap_or_else(|| {
            self.problem(Problem::new(match value {
                None => format!("`{name}` is missing"),
                Some(value) => format!("`{name}` is {value}, not a number greater than 0"),
            }));
            1.0
        })
    }
}
