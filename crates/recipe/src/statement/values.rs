//! The values of attributes, as what operations want them to be.

use super::{Attribute, Setting, Statement};
use crate::dtype;
use crate::error::{MAX_NAMES, Problem};
use cairn_tensor::DType;

impl Attribute {
    pub(crate) fn bad(&self, expected: &'static str) -> Problem {
        Problem::BadValue {
            attribute: self.key.clone(),
            value: self.value.to_string(),
            expected,
        }
    }

    pub(crate) fn number(&self) -> Result<f64, Problem> {
        match self.value {
            Setting::Number(number) => Ok(number),
            _ => Err(self.bad("a number")),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is a whole number below 2^53"
    )]
    pub(crate) fn integer(&self) -> Result<i64, Problem> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self.value {
            Setting::Number(number) if number.fract() == 0.0 && number.abs() < EXACT => {
                Ok(number as i64)
            }
            _ => Err(self.bad("a whole number")),
        }
    }

    pub(crate) fn positive(&self) -> Result<usize, Problem> {
        let number = usize::try_from(self.integer()?).ok();
        number
            .filter(|number| *number > 0)
            .ok_or_else(|| self.bad("a whole number above zero"))
    }

    /// How many parts; there is a limit to them.
    pub(crate) fn parts(&self) -> Result<usize, Problem> {
        match self.positive()? {
            parts if parts > MAX_NAMES => Err(Problem::TooLarge {
                what: "the number of parts",
            }),
            parts => Ok(parts),
        }
    }

    pub(crate) fn list(&self) -> Result<Vec<i64>, Problem> {
        match &self.value {
            Setting::List(list) => Ok(list.clone()),
            _ => Err(self.bad("a list such as `[1, 0]`")),
        }
    }

    pub(crate) fn sizes(&self) -> Result<Vec<usize>, Problem> {
        let sizes = self.list()?.into_iter().map(usize::try_from);
        sizes
            .collect::<Result<_, _>>()
            .map_err(|_| self.bad("a list of sizes such as `[3, 5]`"))
    }

    pub(crate) fn dtype(&self) -> Result<DType, Problem> {
        let parsed = match &self.value {
            Setting::Text(text) => dtype::parse(text),
            _ => None,
        };
        parsed.ok_or_else(|| self.bad("an element type such as `bfloat16`"))
    }

    pub(crate) fn truth(&self) -> Result<bool, Problem> {
        match &self.value {
            Setting::Flag => Ok(true),
            Setting::Text(text) if text == "true" => Ok(true),
            Setting::Text(text) if text == "false" => Ok(false),
            Setting::Number(number) if *number == 1.0 || *number == 0.0 => Ok(*number == 1.0),
            _ => Err(self.bad("`true` or `false`")),
        }
    }
}

impl Statement {
    /// Whether it may match nothing.
    pub(crate) fn is_optional(&self) -> bool {
        let found = self
            .attributes
            .iter()
            .find(|attribute| attribute.key == "optional");
        found.is_some_and(|attribute| attribute.truth().unwrap_or(false))
    }
}
