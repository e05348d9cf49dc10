//! Takes values out of a table by name and type, and remembers everything that is wrong with them.

use super::node::{Entry, Node, Tree};
use super::problem::{Place, Problem, suggestion};
use std::cell::RefCell;
use std::ops::RangeBounds;

/// What a table of the config may hold, taken key by key.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    /// The keys that lead here, with dots.
    path: String,
    entries: &'a [Entry],
    asked: RefCell<Vec<&'static str>>,
    problems: &'a RefCell<Vec<Problem>>,
}

/// A type that a value can be read as.
pub(super) trait FromNode: Sized {
    /// What to expect, in words.
    const EXPECTED: &'static str;
    fn from_node(node: &Node) -> Option<Self>;
}

impl<'a> Reader<'a> {
    /// The whole document.
    pub(super) fn new(node: &'a Node, problems: &'a RefCell<Vec<Problem>>) -> Self {
        let entries = match &node.tree {
            Tree::Table(entries) => entries.as_slice(),
            _ => &[],
        };
        Self {
            path: String::new(),
            entries,
            asked: RefCell::default(),
            problems,
        }
    }

    /// The table under `key`; an empty one if there is none.
    pub(super) fn table(&self, key: &'static str) -> Reader<'a> {
        let mut entries: &[Entry] = &[];
        if let Some(node) = self.node(key) {
            match &node.tree {
                Tree::Table(found) => entries = found,
                _ => self.wrong(&node.place, key, "a table", &node.kind()),
            }
        }
        Reader {
            path: self.full(key),
            entries,
            asked: RefCell::default(),
            problems: self.problems,
        }
    }

    /// A table that stands in a list under `key`.
    pub(super) fn inner(&self, node: &'a Node, key: &str) -> Reader<'a> {
        Reader {
            path: self.full(key),
            ..Reader::new(node, self.problems)
        }
    }

    /// Whether there is anything under `key`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// The value under `key` as it is.
    pub(super) fn node(&self, key: &'static str) -> Option<&'a Node> {
        self.asked.borrow_mut().push(key);
        let found = self.entries.iter().find(|entry| entry.key == key);
        found.map(|entry| &entry.node)
    }

    /// The value under `key`, if there is one of this type.
    pub(super) fn optional<T: FromNode>(&self, key: &'static str) -> Option<T> {
        let node = self.node(key)?;
        let value = T::from_node(node);
        if value.is_none() {
            self.wrong(&node.place, key, T::EXPECTED, &node.kind());
        }
        value
    }

    /// The value under `key`; that it is missing is a problem.
    pub(super) fn required<T: FromNode + Default>(&self, key: &'static str) -> T {
        if !self.has(key) {
            self.missing(key);
        }
        self.optional(key).unwrap_or_default()
    }

    /// The value under `key`, if it lies in a range, which is told in words.
    pub(super) fn within<T: FromNode + PartialOrd>(
        &self,
        key: &'static str,
        range: impl RangeBounds<T>,
        words: &str,
    ) -> Option<T> {
        let value = self.optional(key)?;
        if range.contains(&value) {
            return Some(value);
        }
        if let Some(node) = self.node(key) {
            self.wrong(&node.place, key, words, &node.kind());
        }
        None
    }

    /// The value under `key`, which has one of a few names.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &'static str,
        choices: &[(&str, T)],
        default: T,
    ) -> T {
        let Some(text) = self.optional::<String>(key) else {
            return default;
        };
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return *value;
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let what = format!("there is no `{}` named `{text}`", self.full(key));
        self.problem(Problem::at(&self.place(key), what).hint(suggestion(&text, &names)));
        default
    }

    /// Where the value under `key` was written.
    pub(super) fn place(&self, key: &str) -> Place {
        let found = self.entries.iter().find(|entry| entry.key == key);
        found.map_or(Place::Whole, |entry| entry.node.place.clone())
    }

    /// Says that there is nothing under `key`.
    pub(super) fn missing(&self, key: &str) {
        self.problem(Problem::whole(format!("`{}` is missing", self.full(key))));
    }

    /// Remembers a problem.
    pub(super) fn problem(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Says which keys nobody asked for.
    pub(super) fn finish(self) {
        let mut asked: Vec<&str> = Vec::new();
        for key in self.asked.borrow().iter() {
            if !asked.contains(key) {
                asked.push(key);
            }
        }
        for entry in self.entries {
            if !asked.contains(&entry.key.as_str()) {
                let what = format!("there is no key `{}`", self.full(&entry.key));
                let problem = Problem::at(&entry.place, what).hint(suggestion(&entry.key, &asked));
                self.problem(problem);
            }
        }
    }

    fn wrong(&self, place: &Place, key: &str, expected: &str, found: &str) {
        let what = format!("`{}` must be {expected}, not {found}", self.full(key));
        self.problem(Problem::at(place, what));
    }

    fn full(&self, key: &str) -> String {
        match self.path.is_empty() {
            true => key.to_string(),
            false => format!("{}.{key}", self.path),
        }
    }
}

impl FromNode for String {
    const EXPECTED: &'static str = "a text";
    fn from_node(node: &Node) -> Option<Self> {
        match &node.tree {
            Tree::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromNode for bool {
    const EXPECTED: &'static str = "`true` or `false`";
    fn from_node(node: &Node) -> Option<Self> {
        match node.tree {
            Tree::Boolean(value) => Some(value),
            _ => None,
        }
    }
}

impl FromNode for u64 {
    const EXPECTED: &'static str = "a whole number, 0 or more";
    fn from_node(node: &Node) -> Option<Self> {
        /// Up to here each whole number is a different float.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match node.tree {
            Tree::Integer(number) => number.try_into().ok(),
            // `1e9` is a whole number, too.
            Tree::Float(number) if number.fract() == 0.0 && (0.0..=EXACT).contains(&number) => {
                format!("{number:.0}").parse().ok()
            }
            _ => None,
        }
    }
}

impl FromNode for usize {
    const EXPECTED: &'static str = u64::EXPECTED;
    fn from_node(node: &Node) -> Option<Self> {
        u64::from_node(node)?.try_into().ok()
    }
}

impl FromNode for f64 {
    const EXPECTED: &'static str = "a number";
    fn from_node(node: &Node) -> Option<Self> {
        match node.tree {
            Tree::Integer(number) => Some(number as f64),
            Tree::Float(number) if number.is_finite() => Some(number),
            _ => None,
        }
    }
}

impl FromNode for (f64, f64) {
    const EXPECTED: &'static str = "a list of two numbers";
    fn from_node(node: &Node) -> Option<Self> {
        match &node.tree {
            Tree::List(nodes) => match nodes.as_slice() {
                [first, second] => Some((f64::from_node(first)?, f64::from_node(second)?)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl FromNode for Vec<String> {
    const EXPECTED: &'static str = "a list of texts";
    fn from_node(node: &Node) -> Option<Self> {
        match &node.tree {
            Tree::List(nodes) => nodes.iter().map(String::from_node).collect(),
            _ => None,
        }
    }
}

impl FromNode for Vec<usize> {
    const EXPECTED: &'static str = "a list of whole numbers";
    fn from_node(node: &Node) -> Option<Self> {
        match &node.tree {
            Tree::List(nodes) => nodes.iter().map(usize::from_node).collect(),
            _ => None,
        }
    }
}
