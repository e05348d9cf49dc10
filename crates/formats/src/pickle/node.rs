//! What a pickle said: a table of values that refer to each other.

use std::ops::Range;

/// The number of a value in its table.
pub(super) type Id = u32;

/// A pickle, read.
#[derive(Debug)]
pub struct Pickle {
    pub(super) values: Vec<Value>,
    pub(super) root: Id,
}

/// One value. Containers list what they contain by number: walk them with [`Node`].
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are Python's")]
pub enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits: two's complement, lowest byte first.
    BigInt(Box<[u8]>),
    Float(f64),
    Str(Box<str>),
    Bytes(Box<[u8]>),
    /// A long byte string, left where it lies in the file.
    FileBytes(Range<u64>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Set(Vec<Id>),
    /// A name in a module, `torch.float32`.
    Global(Box<str>),
    /// An object, or the call of a function.
    Object(Box<Object>),
    /// Something kept beside the pickle, by its key.
    Persistent(Id),
}

/// An object as it was described, never made.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The class or function.
    pub(super) class: Id,
    /// The arguments, a tuple.
    pub(super) args: Id,
    /// What `BUILD` handed to it.
    pub(super) state: Option<Id>,
    /// What was appended, for list-like classes.
    pub(super) items: Vec<Id>,
    /// What was set, for dict-like classes.
    pub(super) pairs: Vec<(Id, Id)>,
}

impl Pickle {
    /// The value that was pickled.
    pub fn root(&self) -> Node<'_> {
        Node {
            pickle: self,
            id: self.root,
        }
    }
}

/// A value inside a pickle. Values may contain themselves: bound every walk by [`MAX_DEPTH`](super::MAX_DEPTH).
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pickle: &'a Pickle,
    id: Id,
}

impl<'a> Node<'a> {
    fn at(self, id: Id) -> Node<'a> {
        Node { id, ..self }
    }

    /// The value itself.
    pub fn value(self) -> &'a Value {
        &self.pickle.values[self.id as usize]
    }

    /// A number that two nodes of one pickle share only if they are the same object.
    pub fn id(self) -> u32 {
        self.id
    }

    /// Whether it is `None`.
    pub fn is_none(self) -> bool {
        matches!(self.value(), Value::None)
    }

    /// The truth value, if it is one.
    pub fn as_bool(self) -> Option<bool> {
        match self.value() {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer, if it is one of 64 bits.
    pub fn as_int(self) -> Option<i64> {
        match self.value() {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer, if it is one that can be a length.
    pub fn as_usize(self) -> Option<usize> {
        usize::try_from(self.as_int()?).ok()
    }

    /// The string, if it is one.
    pub fn as_str(self) -> Option<&'a str> {
        match self.value() {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The name, if it is a plain mention of one.
    pub fn as_global(self) -> Option<&'a str> {
        match self.value() {
            Value::Global(name) => Some(name),
            _ => None,
        }
    }

    /// The elements of a tuple, list, set, or list-like object.
    pub fn items(self) -> Option<Vec<Node<'a>>> {
        let ids = match self.value() {
            Value::Tuple(ids) | Value::List(ids) | Value::Set(ids) => ids,
            Value::Object(object) if !object.items.is_empty() => &object.items,
            _ => return None,
        };
        Some(ids.iter().map(|id| self.at(*id)).collect())
    }

    /// The entries of a dict, or of a dict-like object, in order.
    pub fn pairs(self) -> Option<impl DoubleEndedIterator<Item = (Node<'a>, Node<'a>)>> {
        let pairs = match self.value() {
            Value::Dict(pairs) => pairs,
            Value::Object(object) => &object.pairs,
            _ => return None,
        };
        Some(
            pairs
                .iter()
                .map(move |(key, value)| (self.at(*key), self.at(*value))),
        )
    }

    /// What a dict holds under a string.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        let mut pairs = self.pairs()?.rev();
        pairs
            .find(|(name, _)| name.as_str() == Some(key))
            .map(|(_, value)| value)
    }

    fn object(self) -> Option<&'a Object> {
        match self.value() {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The name of the class or function of an object.
    pub fn class(self) -> Option<&'a str> {
        self.at(self.object()?.class).as_global()
    }

    /// The arguments an object was described with; none if it is not an object.
    pub fn args(self) -> Vec<Node<'a>> {
        let args = self
            .object()
            .and_then(|object| self.at(object.args).items());
        args.unwrap_or_default()
    }

    /// The state an object was given.
    pub fn state(self) -> Option<Node<'a>> {
        self.object()?.state.map(|id| self.at(id))
    }

    /// The key of something kept beside the pickle.
    pub fn persistent(self) -> Option<Node<'a>> {
        match self.value() {
            Value::Persistent(key) => Some(self.at(*key)),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        self.value().fmt(f)
    }
}
