//! YAML text as a tree in which every value knows its line.
//!
//! JSON is YAML too, so the same tree serves both.

use super::problem::Problem;
use saphyr_parser::{Event, Parser, ScalarStyle};
use std::collections::HashMap;

/// The most values a config may expand to, so that aliases of aliases cannot fill the memory.
const MAX_NODES: usize = 100_000;

/// The deepest that values may be nested.
const MAX_DEPTH: usize = 64;

/// A value and the line it stands on, counted from 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One `key: value` of a map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) node: Node,
}

impl Node {
    /// The one document in `text`.
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let mut builder = Builder::default();
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| {
                Problem::new(
                    error.marker().line(),
                    format!("this is not YAML: {}", error.info()),
                )
            })?;
            builder.take(event, span.start.line())?;
        }
        builder
            .root
            .ok_or_else(|| Problem::new(1, "the config is empty"))
    }

    /// What kind of value it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a truth value",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The entries of a map.
    pub(crate) fn entries(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value under `key` of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        let entries = self.entries()?;
        let found = entries.iter().find(|entry| entry.key == key)?;
        Some(&found.node)
    }

    fn count(&self) -> usize {
        1 + match &self.value {
            Value::List(items) => items.iter().map(Node::count).sum(),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.count()).sum(),
            _ => 0,
        }
    }
}

/// A list or map that is not closed yet.
struct Open {
    line: usize,
    anchor: usize,
    is_map: bool,
    items: Vec<Node>,
    entries: Vec<Entry>,
    key: Option<(String, usize)>,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
    nodes: usize,
}

impl Builder {
    fn take(&mut self, event: Event, line: usize) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let value = match style {
                    ScalarStyle::Plain => plain(&text),
                    _ => Value::Text(text.into_owned()),
                };
                self.place(Node { line, value }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.begin(line, anchor, false),
            Event::MappingStart(anchor, _) => self.begin(line, anchor, true),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor);
                let known =
                    known.ok_or_else(|| Problem::new(line, "an alias stands inside its anchor"))?;
                let (count, mut node) = (known.count(), known.clone());
                node.line = line;
                self.count(count, line)?;
                self.place(node, 0)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(Problem::new(line, "a config is one document, not several"))
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, line: usize, anchor: usize, is_map: bool) -> Result<(), Problem> {
        if self.open.len() == MAX_DEPTH {
            let reason = format!("values are nested deeper than {MAX_DEPTH}");
            return Err(Problem::new(line, reason));
        }
        self.open.push(Open {
            line,
            anchor,
            is_map,
            items: Vec::new(),
            entries: Vec::new(),
            key: None,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Problem> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.is_map {
            true => Value::Map(open.entries),
            false => Value::List(open.items),
        };
        let line = open.line;
        self.place(Node { line, value }, open.anchor)
    }

    fn count(&mut self, nodes: usize, line: usize) -> Result<(), Problem> {
        self.nodes += nodes;
        match self.nodes > MAX_NODES {
            true => Err(Problem::new(
                line,
                format!("the config has more than {MAX_NODES} values"),
            )),
            false => Ok(()),
        }
    }

    /// Puts a finished value where it belongs: into the innermost open list or map.
    fn place(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        self.count(1, node.line)?;
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        if !open.is_map {
            open.items.push(node);
            return Ok(());
        }
        let Some((key, line)) = open.key.take() else {
            open.key = Some((key_text(&node)?, node.line));
            return Ok(());
        };
        insert(&mut open.entries, key, line, node)
    }
}

/// Adds an entry to a map; `<<` adds those of another map that it lacks.
fn insert(entries: &mut Vec<Entry>, key: String, line: usize, node: Node) -> Result<(), Problem> {
    if key == "<<" {
        let Value::Map(others) = node.value else {
            return Err(Problem::new(line, "`<<` takes a map"));
        };
        for other in others {
            if !entries.iter().any(|entry| entry.key == other.key) {
                entries.push(other);
            }
        }
        return Ok(());
    }
    if let Some(first) = entries.iter().find(|entry| entry.key == key) {
        let reason = format!("`{key}` is set twice, first on line {}", first.line);
        return Err(Problem::new(line, reason));
    }
    entries.push(Entry { key, line, node });
    Ok(())
}

fn key_text(node: &Node) -> Result<String, Problem> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::Bool(truth) => Ok(truth.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(Problem::new(node.line, "a key is a word")),
    }
}

/// What an unquoted word means. `yes`, `no`, `on` and `off` are truth values, as in the YAML that most tools speak.
fn plain(text: &str) -> Value {
    match text.to_ascii_lowercase().as_str() {
        "" | "~" | "null" => return Value::Null,
        "true" | "yes" | "on" => return Value::Bool(true),
        "false" | "no" | "off" => return Value::Bool(false),
        ".inf" | "+.inf" => return Value::Number(f64::INFINITY),
        "-.inf" => return Value::Number(f64::NEG_INFINITY),
        ".nan" => return Value::Number(f64::NAN),
        _ => {}
    }
    let is_numeric = |c: char| c.is_ascii_digit() || "+-._eE".contains(c);
    let has_digit = text.contains(|c: char| c.is_ascii_digit());
    if has_digit
        && text.chars().all(is_numeric)
        && let Ok(number) = text.replace('_', "").parse()
    {
        return Value::Number(number);
    }
    Value::Text(text.to_string())
}

#[cfg(test)]
mod tests {
    //! Text → tree, with lines, and the documents that must not be believed.

    use super::*;

    fn value(text: &str) -> Value {
        Node::parse(text).unwrap().value
    }

    #[test]
    fn every_value_knows_its_line() {
        let node = Node::parse("a: 1\nb:\n  - x\n  - {c: 0.5}\n").unwrap();
        assert_eq!(node.get("a").unwrap().line, 1);
        let Value::List(items) = &node.get("b").unwrap().value else {
            panic!("a list");
        };
        assert_eq!(items[0].line, 3);
        assert_eq!(items[1].get("c").unwrap().line, 4);
    }

    #[test]
    fn words_mean_what_most_tools_take_them_for() {
        assert_eq!(value("1e-5"), Value::Number(1e-5));
        assert_eq!(value("-3"), Value::Number(-3.0));
        assert_eq!(value("yes"), Value::Bool(true));
        assert_eq!(value("'yes'"), Value::Text("yes".into()));
        assert_eq!(value("~"), Value::Null);
        assert_eq!(value("7b-model"), Value::Text("7b-model".into()));
        assert_eq!(value("1.2.3"), Value::Text("1.2.3".into()));
    }

    #[test]
    fn anchors_and_merged_maps_are_followed() {
        let text = "a: &p {weight: 1, density: 2}\nb:\n  <<: *p\nc:\n  density: 3\n  <<: *p\n";
        let node = Node::parse(text).unwrap();
        let get = |map: &str, key: &str| node.get(map).unwrap().get(key).unwrap().value.clone();
        assert_eq!(get("b", "weight"), Value::Number(1.0));
        assert_eq!(get("c", "density"), Value::Number(3.0));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let problem = |text: &str| Node::parse(text).unwrap_err().to_string();
        assert_eq!(
            problem("a: 1\na: 2"),
            "line 2: `a` is set twice, first on line 1"
        );
        assert!(problem("a: [1, 2\nb: 3").starts_with("line 2: "));
        assert_eq!(problem(""), "line 1: the config is empty");
        assert!(problem("a: 1\n---\nb: 2").contains("one document"));
    }

    #[test]
    fn aliases_of_aliases_do_not_fill_the_memory() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let below = format!("*a{}, ", level - 1).repeat(10);
            text += &format!("a{level}: &a{level} [{below}]\n");
        }
        assert!(Node::parse(&text).is_err());
        let deep = "[".repeat(10_000);
        assert!(Node::parse(&deep).is_err());
    }
}
