//! What is wrong with a config, all of it, each with its place and what to do.

use std::fmt;

/// Where something was said.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A line of the file, counted from 1.
    Line(usize),
    /// A setting that takes the place of a line.
    Setting(String),
    /// Nowhere: it follows from several values, or something is missing.
    Whole,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it was said.
    pub place: Place,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem at a place.
    pub fn at(place: &Place, what: impl Into<String>) -> Self {
        Self {
            place: place.clone(),
            what: what.into(),
            hint: None,
        }
    }

    /// A problem of the config as a whole.
    pub fn whole(what: impl Into<String>) -> Self {
        Self::at(&Place::Whole, what)
    }

    /// With what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Everything that is wrong with a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    /// The file.
    pub file: String,
    /// What is wrong with it, in the order of its lines; never empty.
    pub list: Vec<Problem>,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = if self.list.len() == 1 { "" } else { "s" };
        write!(
            out,
            "`{}` has {} problem{ending}",
            self.file,
            self.list.len()
        )?;
        for problem in &self.list {
            write!(out, "\n  ")?;
            match &problem.place {
                Place::Line(line) => write!(out, "line {line}: ")?,
                Place::Setting(setting) => write!(out, "`--set {setting}`: ")?,
                Place::Whole => {}
            }
            write!(out, "{}", problem.what)?;
            if let Some(hint) = &problem.hint {
                write!(out, "; {hint}")?;
            }
        }
        Ok(())
    }
}

/// The one of `known` that somebody probably meant.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    const ALIKE: f64 = 0.7;
    let score = |other: &&str| strsim::normalized_damerau_levenshtein(name, other);
    let best = known
        .iter()
        .max_by(|a, b| score(a).total_cmp(&score(b)))
        .copied()?;
    (score(&best) >= ALIKE).then_some(best)
}

/// `did you mean …?`, or all there is.
pub(super) fn suggestion(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            format!("known are {}", names.join(", "))
        }
    }
}
