//! A TOML document as a tree that knows where each of its parts was written.

use super::problem::{Place, Problem};
use serde_json::Value;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) tree: Tree,
}

/// A value of TOML.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// What no config has: a date, or a number that does not fit.
    Other(String),
}

/// A key and its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Node {
    /// The tree of a document, and what is wrong with its syntax.
    pub(super) fn parse(text: &str) -> (Node, Vec<Problem>) {
        let place = |span: Range<usize>| Place::Line(line_of(text, span.start));
        parse(text, &place)
    }

    /// Puts what `key.path=value` says in the place of what the document says.
    pub(super) fn set(&mut self, setting: &str) -> Result<(), Problem> {
        let at = Place::Setting(setting.to_string());
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            Problem::at(&at, "this is no `key=value`")
                .hint("write `--set optimizer.weight_decay=0.1`")
        })?;
        let place = |_| at.clone();
        let (mut tree, problems) = parse(setting, &place);
        if !problems.is_empty() {
            // A text needs no quotes on a command line.
            let quoted = format!("{key}={}", Value::String(value.trim().to_string()));
            let (text, problems) = parse(&quoted, &place);
            if let Some(problem) = problems.into_iter().next() {
                return Err(problem);
            }
            tree = text;
        }
        self.merge(tree);
        Ok(())
    }

    /// Takes over what `other` says; tables are merged, all else is replaced.
    fn merge(&mut self, other: Node) {
        let (Tree::Table(entries), Tree::Table(others)) = (&mut self.tree, &other.tree) else {
            *self = other;
            return;
        };
        for other in others {
            match entries.iter_mut().find(|entry| entry.key == other.key) {
                Some(entry) => entry.node.merge(other.node.clone()),
                None => entries.push(other.clone()),
            }
        }
    }

    /// What kind of value it is, in words.
    pub(super) fn kind(&self) -> String {
        match &self.tree {
            Tree::Text(text) => format!("`\"{text}\"`"),
            Tree::Integer(number) => format!("`{number}`"),
            Tree::Float(number) => format!("`{number}`"),
            Tree::Boolean(value) => format!("`{value}`"),
            Tree::List(_) => "a list".to_string(),
            Tree::Table(_) => "a table".to_string(),
            Tree::Other(text) => format!("`{text}`"),
        }
    }

    /// The same as JSON.
    pub(super) fn to_json(&self) -> Value {
        match &self.tree {
            Tree::Text(text) | Tree::Other(text) => Value::from(text.as_str()),
            Tree::Integer(number) => Value::from(*number),
            Tree::Float(number) => Value::from(*number),
            Tree::Boolean(value) => Value::from(*value),
            Tree::List(nodes) => nodes.iter().map(Node::to_json).collect(),
            Tree::Table(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.node.to_json()))
                .collect(),
        }
    }
}

fn parse(text: &str, place: &dyn Fn(Range<usize>) -> Place) -> (Node, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let problem = |error: toml::de::Error| {
        let at = error.span().map_or(Place::Whole, place);
        let message = error.message().trim_end_matches('\n').replace('\n', ", ");
        Problem::at(&at, format!("this is no TOML: {message}"))
    };
    let span = table.span();
    let node = Node {
        tree: tree_of(&DeValue::Table(table.into_inner()), place),
        place: place(span),
    };
    (node, errors.into_iter().map(problem).collect())
}

fn tree_of(value: &DeValue<'_>, place: &dyn Fn(Range<usize>) -> Place) -> Tree {
    let node = |value: &toml::Spanned<DeValue<'_>>| Node {
        place: place(value.span()),
        tree: tree_of(value.get_ref(), place),
    };
    match value {
        DeValue::String(text) => Tree::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Tree::Other(number.to_string()), Tree::Integer),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or_else(|_| Tree::Other(number.to_string()), Tree::Float),
        DeValue::Boolean(value) => Tree::Boolean(*value),
        DeValue::Datetime(date) => Tree::Other(date.to_string()),
        DeValue::Array(values) => Tree::List(values.iter().map(node).collect()),
        DeValue::Table(table) => Tree::Table(
            table
                .iter()
                .map(|(key, value)| Entry {
                    key: key.get_ref().to_string(),
                    place: place(key.span()),
                    node: node(value),
                })
                .collect(),
        ),
    }
}

/// The line of a byte, counted from 1.
fn line_of(text: &str, byte: usize) -> usize {
    let before = &text.as_bytes()[..byte.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
