//! Names with placeholders: which tensors they match, and what they become for an id.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// Left of the arrow the id, right of it the id before.
pub(crate) const OFFSET: &str = "$LAYER_ID_OFFSET";

/// A name that may have placeholders such as `$LAYER_ID`, or stars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// Digits with a name, which stand for the same wherever the name does.
    Id(Rc<str>),
    /// Any digits.
    Star,
}

/// What placeholders stand for, in the order of their names.
pub(crate) type Ids = Vec<(Rc<str>, String)>;

impl Pattern {
    /// A name that is only itself.
    pub(crate) fn literal(name: &str) -> Self {
        Self(vec![Part::Text(name.to_owned())])
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['$', '*']) {
            let len = match rest.as_bytes()[at] {
                b'*' => 1,
                _ => placeholder(&rest[at..]),
            };
            if len == 0 {
                // A `$` that begins no placeholder.
                add_text(&mut parts, &rest[..=at]);
                rest = &rest[at + 1..];
                continue;
            }
            add_text(&mut parts, &rest[..at]);
            let found = &rest[at..at + len];
            parts.push(match found {
                "*" => Part::Star,
                id => Part::Id(id.into()),
            });
            rest = &rest[at + len..];
        }
        add_text(&mut parts, rest);
        Self(parts)
    }

    /// The placeholders in it, each once, in order of their names.
    pub(crate) fn ids(&self) -> Vec<&str> {
        let ids = self.0.iter().filter_map(|part| match part {
            Part::Id(id) => Some(id.as_ref()),
            _ => None,
        });
        let mut ids: Vec<&str> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    pub(crate) fn has_star(&self) -> bool {
        self.0.contains(&Part::Star)
    }

    /// What its placeholders stand for if it is `name`, which may go on as `tail` says.
    pub(crate) fn ids_of(&self, name: &str, tail: Tail) -> Option<Ids> {
        let mut places = Vec::new();
        matches(&self.0, name, 0, tail, &mut places).then_some(())?;
        let id = |(id, place): (&Rc<str>, Range<usize>)| (id.clone(), name[place].to_owned());
        let mut ids: Ids = places.into_iter().map(id).collect();
        ids.sort_unstable();
        Some(ids)
    }

    /// The numbers its stars stand for if it is `name`.
    pub(crate) fn stars_of(&self, name: &str) -> Option<Vec<Number>> {
        let mut named = self.clone();
        for (index, part) in named.0.iter_mut().enumerate() {
            if *part == Part::Star {
                *part = Part::Id(format!("{index:04}").into());
            }
        }
        let ids = named.ids_of(name, Tail::End)?;
        Some(ids.into_iter().map(|(_, id)| Number(id)).collect())
    }

    /// The same name with ids in the place of placeholders.
    pub(crate) fn with(&self, ids: &Ids) -> Self {
        let mut parts = Vec::with_capacity(self.0.len());
        for part in &self.0 {
            match part {
                Part::Id(name) => add_text(&mut parts, id_of(ids, name)),
                Part::Text(text) => add_text(&mut parts, text),
                Part::Star => parts.push(Part::Star),
            }
        }
        Self(parts)
    }

    /// The name as text, with ids in the place of placeholders.
    pub(crate) fn text_with(&self, ids: &Ids) -> String {
        let mut text = String::with_capacity(64);
        for part in &self.0 {
            text.push_str(match part {
                Part::Text(text) => text,
                Part::Id(name) => id_of(ids, name),
                Part::Star => "*",
            });
        }
        text
    }
}

/// What a placeholder stands for; itself, if that is not known.
fn id_of<'a>(ids: &'a Ids, name: &'a str) -> &'a str {
    let found = ids.iter().find(|(id, _)| id.as_ref() == name);
    found.map_or(name, |(_, id)| id)
}

/// What may follow a pattern in the name it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing.
    End,
    /// `_` and digits: `name[0:4]` is `name_0` and so on.
    Index,
}

/// Digits in the order of their value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) String);

impl Number {
    fn key(&self) -> (usize, &str, &str) {
        let digits = self.0.trim_start_matches('0');
        (digits.len(), digits, &self.0)
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn add_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Text(last)) => last.push_str(text),
        _ => parts.push(Part::Text(text.to_owned())),
    }
}

/// How long the placeholder at the start of a text is: `$` and words in capitals, joined by `_`; zero if there is none.
fn placeholder(text: &str) -> usize {
    for known in [OFFSET, "$LAYER_ID", "$EXPERT_ID"] {
        if text.starts_with(known) {
            return known.len();
        }
    }
    let bytes = text.as_bytes();
    let mut len = 1;
    loop {
        let capitals = bytes[len..].iter().take_while(|b| b.is_ascii_uppercase());
        let word = capitals.count();
        len += word;
        match bytes.get(len) {
            _ if word == 0 => return len.saturating_sub(1),
            Some(b'_') => len += 1,
            _ => return len,
        }
    }
}

/// Whether a name goes on as `parts` say from `at` on. Adds where the ids are.
fn matches<'a>(
    parts: &'a [Part],
    name: &str,
    at: usize,
    tail: Tail,
    places: &mut Vec<(&'a Rc<str>, Range<usize>)>,
) -> bool {
    let rest = &name[at..];
    let Some((part, parts)) = parts.split_first() else {
        let index = rest.strip_prefix('_').unwrap_or_default();
        return match tail {
            Tail::End => rest.is_empty(),
            Tail::Index => !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()),
        };
    };
    let id = match part {
        Part::Text(text) => {
            return rest.starts_with(text.as_str())
                && matches(parts, name, at + text.len(), tail, places);
        }
        Part::Id(id) => Some(id),
        Part::Star => None,
    };
    if let Some((_, bound)) = places.iter().find(|(name, _)| Some(*name) == id) {
        let bound = &name[bound.clone()];
        return rest.starts_with(bound) && matches(parts, name, at + bound.len(), tail, places);
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    // Fewer digits can only do where more digits may follow.
    let greedy = match parts.first() {
        Some(Part::Text(text)) => !text.starts_with(|c: char| c.is_ascii_digit()),
        Some(_) => false,
        None => true,
    };
    let shortest = if greedy { digits.max(1) } else { 1 };
    let known = places.len();
    (shortest..=digits).rev().any(|len| {
        places.truncate(known);
        places.extend(id.map(|id| (id, at..at + len)));
        matches(parts, name, at + len, tail, places)
    })
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Id(id) => f.write_str(id),
            Part::Star => f.write_str("*"),
        })
    }
}
