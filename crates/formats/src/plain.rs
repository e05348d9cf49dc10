//! Plain Python values as JSON, with tags for what JSON has no word for.
//!
//! `None`, truth values, integers of 64 bits, finite floats, strings, lists and dicts with string keys are themselves.
//! Everything else is an object with one key that starts with `$`:
//!
//! | Python | JSON |
//! |---|---|
//! | an integer beyond 64 bits | `{"$int": "123…"}` |
//! | a float that is no number | `{"$float": "nan"}`, `"inf"`, `"-inf"` |
//! | bytes | `{"$bytes": "<base64>"}` |
//! | a tuple, a set | `{"$tuple": […]}`, `{"$set": […]}` |
//! | a complex number | `{"$complex": [re, im]}` |
//! | a dict with other keys, or keys that start with `$` | `{"$dict": [[key, value], …]}` |
//! | a NumPy array or scalar | `{"$ndarray": {"dtype": "<f4", "shape": […], "data": "<base64>"}}` |
//! | what plain data cannot say | `{"$opaque": "module.Class"}` |
//!
//! Ordered and default dicts, counters and namespaces become dicts, deques lists, and paths strings.

mod integer;
mod objects;
mod write;

use crate::Error;
use crate::pickle::{Node, Policy, Value as Pickled};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cairn_store::ObjectReader;
use serde_json::{Map, Number, Value, json};
use std::ops::Range;

pub(crate) use write::numpy_dtype;
pub use write::to_pickle;

/// The deepest nesting of a plain value. A level takes two of JSON, whose readers stop at 128, and two of a pickle.
const MAX_LEVELS: usize = 50;

/// The most values one value may contain, written out.
pub const MAX_PLAIN_VALUES: usize = 1 << 22;
/// The most bytes of byte strings and arrays in one value.
pub const MAX_PLAIN_BYTES: usize = 64 << 20;

/// The names that plain values of Python, NumPy and torch are pickled with.
pub fn policy() -> Policy {
    Policy::new()
        .call(objects::CALLED)
        .build(objects::BUILT)
        .mention(objects::MENTIONED)
}

/// The JSON of a value read from `reader`, called `file` in errors.
///
/// # Errors
/// If the value is too deep or too large, or part of it cannot be read.
pub fn from_pickle(file: &str, reader: &dyn ObjectReader, node: Node) -> Result<Value, Error> {
    let mut writer = Writer {
        file,
        reader,
        values: 0,
        bytes: 0,
    };
    writer.value(node, 0)
}

/// A note that a value of this class was there and plain data cannot say it.
pub fn opaque(class: &str) -> Value {
    json!({"$opaque": class})
}

struct Writer<'a> {
    file: &'a str,
    reader: &'a dyn ObjectReader,
    values: usize,
    bytes: usize,
}

impl Writer<'_> {
    fn value(&mut self, node: Node, depth: usize) -> Result<Value, Error> {
        self.values += 1;
        if depth > MAX_LEVELS || self.values > MAX_PLAIN_VALUES {
            return Err(self.too_large());
        }
        Ok(match node.value() {
            Pickled::None | Pickled::Persistent(_) => Value::Null,
            Pickled::Bool(value) => json!(value),
            Pickled::Int(value) => json!(value),
            Pickled::BigInt(bytes) => integer::json(bytes),
            Pickled::Float(value) => float(*value),
            Pickled::Str(text) => json!(text),
            Pickled::Bytes(_) | Pickled::FileBytes(_) => {
                let bytes = self.bytes_of(node)?.unwrap_or_default();
                json!({"$bytes": STANDARD.encode(bytes)})
            }
            Pickled::Tuple(_) => json!({"$tuple": self.list(node, depth)?}),
            Pickled::List(_) => self.list(node, depth)?,
            Pickled::Set(_) => json!({"$set": self.list(node, depth)?}),
            Pickled::Dict(_) => self.dict(node, depth)?,
            Pickled::Global(name) => opaque(name),
            Pickled::Object(_) => self.object(node, depth)?,
        })
    }

    fn list(&mut self, node: Node, depth: usize) -> Result<Value, Error> {
        let items = node.items().unwrap_or_default();
        let items = items.into_iter().map(|item| self.value(item, depth + 1));
        Ok(Value::Array(items.collect::<Result<_, _>>()?))
    }

    fn dict(&mut self, node: Node, depth: usize) -> Result<Value, Error> {
        let plain_key = |key: Node| key.as_str().is_some_and(|key| !key.starts_with('$'));
        let Some(pairs) = node.pairs() else {
            return Ok(json!({}));
        };
        let pairs: Vec<_> = pairs.collect();
        if pairs.iter().all(|(key, _)| plain_key(*key)) {
            let mut object = Map::with_capacity(pairs.len());
            for (key, value) in pairs {
                let key = key.as_str().unwrap_or_default();
                object.insert(key.to_string(), self.value(value, depth + 1)?);
            }
            return Ok(Value::Object(object));
        }
        let mut list = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            list.push(json!([
                self.value(key, depth + 1)?,
                self.value(value, depth + 1)?
            ]));
        }
        Ok(json!({"$dict": list}))
    }

    /// The bytes of a byte string, also of one that old protocols spell as text; `None` for anything else.
    fn bytes_of(&mut self, node: Node) -> Result<Option<Vec<u8>>, Error> {
        let bytes = match node.value() {
            Pickled::Bytes(bytes) => bytes.to_vec(),
            Pickled::FileBytes(range) => self.read(range)?,
            Pickled::Object(_) => match objects::spelled_bytes(node) {
                Some(bytes) => bytes,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.bytes += bytes.len();
        if self.bytes > MAX_PLAIN_BYTES {
            return Err(self.too_large());
        }
        Ok(Some(bytes))
    }

    fn read(&self, range: &Range<u64>) -> Result<Vec<u8>, Error> {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if len > MAX_PLAIN_BYTES {
            return Err(self.too_large());
        }
        let mut bytes = vec![0; len];
        self.reader.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    fn too_large(&self) -> Error {
        Error::Unsupported {
            file: self.file.to_string(),
            reason: format!(
                "a plain value in it has more than {MAX_PLAIN_VALUES} parts, {MAX_PLAIN_BYTES} bytes or {MAX_LEVELS} levels"
            ),
            hint: "save large arrays as tensors",
        }
    }
}

pub(crate) fn float(value: f64) -> Value {
    match Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => json!({"$float": "nan"}),
        None if value > 0.0 => json!({"$float": "inf"}),
        None => json!({"$float": "-inf"}),
    }
}

#[cfg(test)]
mod tests {
    //! Values as `torch.save` pickles them (protocol 2), and values that would not fit.

    use super::*;
    use crate::pickle::{Bytes, parse};

    fn read(bytes: &[u8]) -> Result<Value, Error> {
        let pickle = parse("v", bytes, &policy())?;
        from_pickle("v", &Bytes(bytes), pickle.root())
    }

    #[test]
    fn what_is_nested_too_deeply_to_be_written_is_refused() {
        for (levels, is_read) in [(MAX_LEVELS, true), (MAX_LEVELS + 1, false), (128, false)] {
            // An empty tuple in a tuple, and so on.
            let pickled = [b"\x80\x02)".as_slice(), &vec![0x85; levels], b"."].concat();
            let value = read(&pickled);
            assert_eq!(value.is_ok(), is_read, "{levels}");
            let Ok(value) = value else { continue };
            let text = value.to_string();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            let mut writer = crate::pickle::Writer::new();
            to_pickle(&value, &mut writer).unwrap();
            assert_eq!(read(&writer.finish()).unwrap(), value);
        }
    }

    #[test]
    fn what_json_has_no_word_for_is_tagged() {
        let cases: [(&[u8], Value); 10] = [
            (b"\x80\x02G\x7f\xf8\0\0\0\0\0\0.", json!({"$float": "nan"})),
            (b"\x80\x02G\xff\xf0\0\0\0\0\0\0.", json!({"$float": "-inf"})),
            (b"\x80\x02K\x01K\x02\x86.", json!({"$tuple": [1, 2]})),
            (b"\x80\x02}K\x01Ns.", json!({"$dict": [[1, null]]})),
            (
                b"\x80\x02}X\x02\0\0\0$aNs.",
                json!({"$dict": [["$a", null]]}),
            ),
            (
                b"\x80\x02c__builtin__\nset\n]K\x01a\x85R.",
                json!({"$set": [1]}),
            ),
            (
                b"\x80\x02c_codecs\nencode\nX\x03\0\0\0a\xc3\xbfX\x06\0\0\0latin1\x86R.",
                json!({"$bytes": "Yf8="}),
            ),
            (
                b"\x80\x02cargparse\nNamespace\n)\x81}X\x01\0\0\0aK\x01sb.",
                json!({"a": 1}),
            ),
            (
                b"\x80\x02ctorch\nfloat32\n.",
                json!({"$opaque": "torch.float32"}),
            ),
            (
                b"\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0.",
                json!(u64::MAX),
            ),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(bytes).unwrap(), expected);
        }
    }

    #[test]
    fn a_value_that_would_grow_without_end_is_refused() {
        let mut laughs = b"\x80\x02]q\0".to_vec();
        for _ in 0..30 {
            laughs.extend(b"(h\0h\0h\0h\0h\0h\0h\0h\0h\0h\0lq\0");
        }
        laughs.push(b'.');
        let itself = b"\x80\x02]q\0h\0a.".to_vec();
        for bytes in [laughs, itself] {
            assert!(matches!(read(&bytes), Err(Error::Unsupported { .. })));
        }
    }
}
