//! A statement as it is written: names, an arrow, names, attributes.

mod parse;
mod values;

use crate::pattern::Pattern;
use std::fmt;
use std::ops::Range;

pub(crate) use parse::parse;

/// `a, b -> c, axis=0`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    /// As written, without comments and blanks around it.
    pub(crate) text: String,
    pub(crate) left: Vec<Name>,
    pub(crate) right: Vec<Name>,
    pub(crate) attributes: Vec<Attribute>,
}

/// A name on a side of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    pub(crate) pattern: Pattern,
    /// Whether it is `_`: nothing.
    pub(crate) blank: bool,
    /// Whether `^T` follows it.
    pub(crate) transposed: bool,
    /// The range of `name[0:4]`.
    pub(crate) range: Option<Range<usize>>,
    /// Where it stands in the text.
    pub(crate) span: Range<usize>,
}

/// `key=value`, or a word alone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attribute {
    pub(crate) key: String,
    pub(crate) value: Setting,
    pub(crate) span: Range<usize>,
}

/// What an attribute is set to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Setting {
    /// The word alone.
    Flag,
    Number(f64),
    Text(String),
    List(Vec<i64>),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Flag => f.write_str("true"),
            Setting::Number(number) => number.fmt(f),
            Setting::Text(text) => f.write_str(text),
            Setting::List(list) => write!(f, "{list:?}"),
        }
    }
}
