//! Templates: statements with conditions, repetitions and values to be filled in.
//!
//! ```text
//! line      = statement | "include" NAME [ "where" NAME "=" VALUE ] | prefix ":" line
//! prefix    = "if" NAME | "unless" NAME          the setting is there, and neither false nor zero
//!           | "each" NAME "in" A ".." B          once for each number from A, and before B
//!           | "forward" | "reverse"              only in one direction; in reverse after everything else, as it is written
//! {a|b|8}   the first of the settings that is there, or a number or a 'text'
//! [[i in A..B: text]]   the text once for each number, with commas between
//! ```

use super::shipped::FILES;
use super::{LibraryError, Settings};
use std::ops::Range;

/// The deepest that templates may include each other.
const MAX_DEPTH: usize = 8;
/// The most statements that one line may come to.
const MAX_EACH: usize = 1 << 16;
/// The most statements that a whole template may come to, those that are left out counted.
const MAX_LINES: usize = 1 << 18;
/// The longest text that a template may come to: 16 MiB.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// What a template comes to in one direction.
#[derive(Debug, Default)]
pub(super) struct Rendered {
    /// The statements, as they are read from left to right.
    pub(super) statements: String,
    /// What is run after they were run from right to left.
    pub(super) after_reverse: String,
    lines: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Reverse,
}

/// Fills a template with settings, for one direction.
pub(super) fn render(
    text: &str,
    reverse: bool,
    settings: &Settings,
) -> Result<Rendered, LibraryError> {
    let mut rendered = Rendered::default();
    for line in included(text)?.lines() {
        rendered.line(line, reverse, settings, None)?;
    }
    Ok(rendered)
}

impl Rendered {
    /// Adds what a line comes to that is only for one direction, if it says which.
    fn line(
        &mut self,
        line: &str,
        reverse: bool,
        settings: &Settings,
        only: Option<Direction>,
    ) -> Result<(), LibraryError> {
        self.lines += 1;
        let len = self.statements.len() + self.after_reverse.len();
        if self.lines > MAX_LINES || len > MAX_TEXT_BYTES {
            return Err(LibraryError::Line {
                line: line.to_owned(),
                reason: "the recipe comes to more statements than there may be",
            });
        }
        let line = line.trim();
        let skipped = Some(if reverse {
            Direction::Forward
        } else {
            Direction::Reverse
        });
        if line.is_empty() || line.starts_with('#') || only == skipped {
            return Ok(());
        }
        let Some((prefix, rest)) = Prefix::split(line)? else {
            let place = match only {
                Some(Direction::Reverse) => &mut self.after_reverse,
                _ => &mut self.statements,
            };
            place.push_str(&filled(&listed(line, settings)?, settings)?);
            place.push('\n');
            return Ok(());
        };
        match prefix {
            Prefix::If(name) if !settings.is_true(name) => Ok(()),
            Prefix::Unless(name) if settings.is_true(name) => Ok(()),
            Prefix::If(_) | Prefix::Unless(_) => self.line(rest, reverse, settings, only),
            Prefix::Only(direction) => self.line(rest, reverse, settings, Some(direction)),
            Prefix::Each(name, bounds) => {
                let mut settings = settings.clone();
                for number in range(&filled(bounds, &settings)?)? {
                    settings.set(name, &number.to_string());
                    self.line(rest, reverse, &settings, only)?;
                }
                Ok(())
            }
        }
    }
}

/// What stands before a statement.
enum Prefix<'a> {
    If(&'a str),
    Unless(&'a str),
    Each(&'a str, &'a str),
    Only(Direction),
}

impl<'a> Prefix<'a> {
    /// The first prefix of a line, and what follows it.
    fn split(line: &'a str) -> Result<Option<(Self, &'a str)>, LibraryError> {
        let word = line.split([' ', ':']).next().unwrap_or_default();
        if !["if", "unless", "each", "forward", "reverse"].contains(&word) {
            return Ok(None);
        }
        let wrong = |reason| LibraryError::Line {
            line: line.to_owned(),
            reason,
        };
        let (head, rest) = line
            .split_once(':')
            .ok_or_else(|| wrong("there is no `:`"))?;
        let words: Vec<&str> = head.split_whitespace().collect();
        let prefix = match words.as_slice() {
            ["if", name] => Prefix::If(name),
            ["unless", name] => Prefix::Unless(name),
            ["each", name, "in", bounds] => Prefix::Each(name, bounds),
            ["forward"] => Prefix::Only(Direction::Forward),
            ["reverse"] => Prefix::Only(Direction::Reverse),
            _ => {
                return Err(wrong(
                    "expected `if NAME:`, `each NAME in A..B:` or `forward:`",
                ));
            }
        };
        Ok(Some((prefix, rest)))
    }
}

fn range(bounds: &str) -> Result<Range<usize>, LibraryError> {
    let parsed = bounds.split_once("..").and_then(|(first, end)| {
        let range = first.parse().ok()?..end.parse().ok()?;
        (range.len() <= MAX_EACH).then_some(range)
    });
    parsed.ok_or_else(|| LibraryError::BadSetting {
        name: "each".into(),
        value: bounds.to_owned(),
        expected: "two whole numbers such as `0..32`",
    })
}

/// A text with lists in the place of `[[i in A..B: text]]`.
fn listed(text: &str, settings: &Settings) -> Result<String, LibraryError> {
    let wrong = |reason| LibraryError::Line {
        line: text.to_owned(),
        reason,
    };
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[[") {
        let (list, after) = after
            .split_once("]]")
            .ok_or_else(|| wrong("a `[[` is not closed"))?;
        let (head, item) = list.split_once(':').unwrap_or((list, ""));
        let words: Vec<&str> = head.split_whitespace().collect();
        let [name, "in", bounds] = words.as_slice() else {
            return Err(wrong("expected `[[NAME in A..B: text]]`"));
        };
        let mut settings = settings.clone();
        let mut items = Vec::new();
        for number in range(&filled(bounds, &settings)?)? {
            settings.set(name, &number.to_string());
            items.push(filled(item.trim(), &settings)?);
        }
        result.push_str(before);
        result.push_str(&items.join(", "));
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

/// A text with values in the place of `{names}`.
fn filled(text: &str, settings: &Settings) -> Result<String, LibraryError> {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (names, after) = after.split_once('}').ok_or_else(|| LibraryError::Line {
            line: text.to_owned(),
            reason: "a `{` is not closed",
        })?;
        let known = |name| settings.get(name).or_else(|| literal(name));
        let value = names.split('|').find_map(known);
        result.push_str(before);
        result.push_str(value.ok_or_else(|| LibraryError::MissingSetting {
            name: names.split('|').next().unwrap_or_default().to_owned(),
        })?);
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

/// The value that a number or a quoted text is.
fn literal(text: &str) -> Option<&str> {
    let quoted = text
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''));
    let number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    quoted.or(number.then_some(text))
}

/// A template with the text of every template that it includes.
pub(super) fn included(text: &str) -> Result<String, LibraryError> {
    include(text, MAX_DEPTH)
}

fn include(text: &str, depth: usize) -> Result<String, LibraryError> {
    let mut result = String::with_capacity(text.len());
    for line in text.lines() {
        let Some(rest) = line.trim().strip_prefix("include ") else {
            result.push_str(line);
            result.push('\n');
            continue;
        };
        let wrong = |reason| LibraryError::Line {
            line: line.to_owned(),
            reason,
        };
        let (name, value) = match rest.split_once(" where ") {
            Some((name, setting)) => (name, setting.split_once('=')),
            None => (rest, None),
        };
        let found = FILES.iter().find(|(known, _)| *known == name.trim());
        let (_, part) = found.ok_or_else(|| wrong("there is no such part"))?;
        let depth = depth.checked_sub(1);
        let depth = depth.ok_or_else(|| wrong("templates include each other"))?;
        let mut part = include(part, depth)?;
        if let Some((name, value)) = value {
            part = part.replace(&format!("{{{}}}", name.trim()), value.trim());
        }
        result.push_str(&part);
    }
    Ok(result)
}

/// The settings that a template asks for, each once, without the counters of `each`.
pub(super) fn asked(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut counters = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split([' ', ':']).collect();
        for pair in words.windows(2) {
            match pair {
                ["if" | "unless", name] => names.push((*name).to_owned()),
                ["each", name] => counters.push(*name),
                _ => {}
            }
        }
        let braced = line
            .split('{')
            .skip(1)
            .filter_map(|rest| rest.split_once('}'));
        for (alternatives, _) in braced {
            let known = alternatives
                .split('|')
                .filter(|name| literal(name).is_none());
            names.extend(known.map(str::to_owned));
        }
    }
    names.retain(|name| !counters.contains(&name.as_str()));
    names.sort_unstable();
    names.dedup();
    names
}
