//! Everything that does not fit between a checkpoint and its target, reported at once and before any data is read.

use crate::error::list;
use std::fmt;

/// What to do about a kind of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnProblem {
    /// Refuse to load.
    #[default]
    Refuse,
    /// Go on and report it.
    Report,
}

/// Which differences between checkpoint and target stop a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strictness {
    /// The target wants a tensor that the checkpoint does not have. `Report` leaves its memory as it is.
    pub missing: OnProblem,
    /// The checkpoint has a tensor that the target does not want.
    pub unexpected: OnProblem,
    /// Shape or element type differ. `Report` leaves the target's memory as it is.
    pub mismatched: OnProblem,
}

impl Strictness {
    /// Every name on both sides, with the same shape and type.
    pub const EXACT: Self = Self {
        missing: OnProblem::Refuse,
        unexpected: OnProblem::Refuse,
        mismatched: OnProblem::Refuse,
    };
    /// Load a part of the checkpoint: what the target does not name is left out.
    pub const PARTIAL: Self = Self {
        unexpected: OnProblem::Report,
        ..Self::EXACT
    };
    /// Load whatever fits, and report the rest.
    pub const LENIENT: Self = Self {
        missing: OnProblem::Report,
        unexpected: OnProblem::Report,
        mismatched: OnProblem::Report,
    };
}

/// A name the checkpoint does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The name the target asked for.
    pub name: String,
    /// A name of the checkpoint that looks like it.
    pub near: Option<String>,
}

/// A tensor that is there with another shape or type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The name.
    pub name: String,
    /// What the target expects, as text.
    pub wanted: String,
    /// What the checkpoint has.
    pub stored: String,
}

/// All differences between the names of a checkpoint and those of a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyProblems {
    /// Wanted, not stored.
    pub missing: Vec<Missing>,
    /// Stored, not wanted.
    pub unexpected: Vec<String>,
    /// On both sides, but different.
    pub mismatched: Vec<Mismatch>,
    /// Wanted, and left as they are: nothing is stored of them on purpose. This is no problem to anybody.
    pub kept: Vec<String>,
}

/// How many missing names get a suggestion: beyond that it is not a typing error.
const MAX_SUGGESTIONS: usize = 24;
/// How alike two names must be, from 0 to 1.
const MIN_LIKENESS: f64 = 0.75;
/// How many lines of each kind are printed.
const MAX_LINES: usize = 20;

impl KeyProblems {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.mismatched.is_empty()
    }

    /// Whether `strictness` lets a load go on.
    pub fn allowed_by(&self, strictness: &Strictness) -> bool {
        let fine = |none: bool, on: OnProblem| none || on == OnProblem::Report;
        fine(self.missing.is_empty(), strictness.missing)
            && fine(self.unexpected.is_empty(), strictness.unexpected)
            && fine(self.mismatched.is_empty(), strictness.mismatched)
    }

    /// Finds the stored name nearest to each missing one.
    pub(crate) fn suggest(&mut self, stored: &[&str]) {
        for missing in self.missing.iter_mut().take(MAX_SUGGESTIONS) {
            missing.near = nearest(&missing.name, stored);
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        let near = self
            .missing
            .iter()
            .find_map(|m| m.near.as_ref().map(|near| (m, near)));
        if let Some((missing, near)) = near {
            return Some(format!(
                "did you mean `{near}` for `{}`? `cairn inspect --tree` lists every stored name",
                missing.name
            ));
        }
        if self.missing.is_empty() && self.mismatched.is_empty() {
            return Some("to load a part of the checkpoint, allow unexpected names".into());
        }
        Some("`cairn inspect --tree` lists every stored name".into())
    }
}

fn nearest(name: &str, stored: &[&str]) -> Option<String> {
    stored
        .iter()
        .map(|other| (strsim::normalized_levenshtein(name, other), other))
        .filter(|(likeness, _)| *likeness >= MIN_LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, other)| (*other).to_string())
}

impl fmt::Display for KeyProblems {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let counts = [
            (self.missing.len(), "missing"),
            (self.unexpected.len(), "unexpected"),
            (self.mismatched.len(), "mismatched"),
        ];
        let parts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        write!(
            f,
            "checkpoint and target do not fit: {} names",
            if parts.is_empty() {
                "0".into()
            } else {
                parts.join(", ")
            }
        )?;
        for missing in self.missing.iter().take(MAX_LINES) {
            write!(f, "\n  missing     `{}`", missing.name)?;
            if let Some(near) = &missing.near {
                write!(f, "  (stored: `{near}`)")?;
            }
        }
        for mismatch in self.mismatched.iter().take(MAX_LINES) {
            write!(
                f,
                "\n  mismatched  `{}`: target {}, stored {}",
                mismatch.name, mismatch.wanted, mismatch.stored
            )?;
        }
        if !self.unexpected.is_empty() {
            let quoted: Vec<String> = self.unexpected.iter().map(|n| format!("`{n}`")).collect();
            write!(f, "\n  unexpected  {}", list(&quoted))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Problems read well and near names are found.

    use super::*;

    #[test]
    fn a_misspelt_name_is_suggested() {
        let mut problems = KeyProblems {
            missing: vec![Missing {
                name: "model.layers.0.q_porj".into(),
                near: None,
            }],
            ..KeyProblems::default()
        };
        problems.suggest(&["model.layers.0.q_proj", "model.norm", "lr"]);
        assert_eq!(
            problems.to_string(),
            "checkpoint and target do not fit: 1 missing names\n  missing     `model.layers.0.q_porj`  (stored: `model.layers.0.q_proj`)"
        );
        assert!(problems.hint().unwrap().contains("did you mean"));
    }

    #[test]
    fn each_kind_of_problem_is_stopped_by_its_own_switch() {
        let unexpected = KeyProblems {
            unexpected: vec!["x".into()],
            ..KeyProblems::default()
        };
        assert!(!unexpected.allowed_by(&Strictness::EXACT));
        assert!(unexpected.allowed_by(&Strictness::PARTIAL));
        let missing = KeyProblems {
            missing: vec![Missing {
                name: "x".into(),
                near: None,
            }],
            ..KeyProblems::default()
        };
        assert!(!missing.allowed_by(&Strictness::PARTIAL));
        assert!(missing.allowed_by(&Strictness::LENIENT));
    }
}
