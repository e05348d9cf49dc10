//! One mistake in a config, and where it stands.

use std::fmt;

/// A mistake in a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(line: usize, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { line, message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

/// The known word nearest to `word`, as the end of a message.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min();
    near.map_or_else(String::new, |(_, known)| {
        format!("; did you mean `{known}`?")
    })
}
