//! From JSON with tags back to the values it stands for.

use crate::pickle::Writer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Puts a value into a pickle; `None`, with the pickle spoilt, if it holds what plain data cannot say.
pub fn to_pickle(value: &Value, pickle: &mut Writer) -> Option<()> {
    match value {
        Value::Null => pickle.none(),
        Value::Bool(value) => pickle.bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => pickle.int(value.into()),
            (None, Some(value)) => pickle.int(value.into()),
            _ => pickle.float(number.as_f64()?),
        },
        Value::String(text) => pickle.str(text),
        Value::Array(items) => {
            pickle.open_list();
            each(items, pickle)?;
            pickle.list();
        }
        Value::Object(object) => match tag(object) {
            Some((tag, inner)) => tagged(tag, inner, pickle)?,
            None => {
                pickle.open_dict();
                for (key, value) in object {
                    pickle.str(key);
                    to_pickle(value, pickle)?;
                }
                pickle.dict();
            }
        },
    }
    Some(())
}

fn tag(object: &Map<String, Value>) -> Option<(&str, &Value)> {
    let (key, value) = object.iter().next()?;
    (object.len() == 1 && key.starts_with('$')).then_some((key, value))
}

/// Puts every item.
fn each(items: &[Value], pickle: &mut Writer) -> Option<()> {
    items.iter().try_for_each(|item| to_pickle(item, pickle))
}

fn tagged(tag: &str, inner: &Value, pickle: &mut Writer) -> Option<()> {
    match tag {
        "$int" => pickle.long(&super::integer::bytes(inner.as_str()?)?),
        "$float" => pickle.float(inner.as_str()?.parse().ok()?),
        "$bytes" => bytes(&STANDARD.decode(inner.as_str()?).ok()?, pickle),
        "$tuple" => {
            pickle.mark();
            each(inner.as_array()?, pickle)?;
            pickle.tuple();
        }
        "$set" => {
            pickle.global("__builtin__.set");
            pickle.mark();
            pickle.open_list();
            each(inner.as_array()?, pickle)?;
            pickle.list();
            pickle.tuple();
            pickle.call();
        }
        "$complex" => {
            pickle.global("__builtin__.complex");
            pickle.mark();
            each(inner.as_array()?, pickle)?;
            pickle.tuple();
            pickle.call();
        }
        "$dict" => {
            pickle.open_dict();
            for pair in inner.as_array()? {
                let [key, value] = pair.as_array()?.as_slice() else {
                    return None;
                };
                to_pickle(key, pickle)?;
                to_pickle(value, pickle)?;
            }
            pickle.dict();
        }
        "$ndarray" => array(inner, pickle)?,
        _ => return None,
    }
    Some(())
}

/// Bytes as protocol 2 spells them.
fn bytes(bytes: &[u8], pickle: &mut Writer) {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    pickle.global("_codecs.encode");
    pickle.mark();
    pickle.str(&text);
    pickle.str("latin1");
    pickle.tuple();
    pickle.call();
}

fn array(inner: &Value, pickle: &mut Writer) -> Option<()> {
    let dtype = inner.get("dtype")?.as_str()?;
    let (order, kind) = dtype.split_at_checked(1)?;
    let shape = inner.get("shape")?.as_array()?;
    pickle.global("numpy.core.multiarray._reconstruct");
    pickle.mark();
    pickle.global("numpy.ndarray");
    pickle.sizes(&[0]);
    bytes(b"b", pickle);
    pickle.tuple();
    pickle.call();
    pickle.mark();
    pickle.int(1);
    pickle.mark();
    each(shape, pickle)?;
    pickle.tuple();
    numpy_dtype(order, kind, pickle);
    pickle.bool(false);
    bytes(&STANDARD.decode(inner.get("data")?.as_str()?).ok()?, pickle);
    pickle.tuple();
    pickle.build();
    Some(())
}

/// Puts a type of numpy: its byte order and its name.
pub(crate) fn numpy_dtype(order: &str, kind: &str, pickle: &mut Writer) {
    pickle.global("numpy.dtype");
    pickle.mark();
    pickle.str(kind);
    pickle.bool(false);
    pickle.bool(true);
    pickle.tuple();
    pickle.call();
    pickle.mark();
    pickle.int(3);
    pickle.str(order);
    for _ in 0..3 {
        pickle.none();
    }
    for field in [-1, -1, 0] {
        pickle.int(field);
    }
    pickle.tuple();
    pickle.build();
}

#[cfg(test)]
mod tests {
    //! What is written is read back the same.

    use super::*;
    use crate::pickle::{Bytes, parse};
    use crate::plain::{from_pickle, policy};
    use proptest::prelude::*;
    use serde_json::json;

    fn round_trip(value: &Value) -> Value {
        let mut pickle = Writer::new();
        to_pickle(value, &mut pickle).unwrap();
        let bytes = pickle.finish();
        let read = parse("v", &bytes, &policy()).unwrap();
        from_pickle("v", &Bytes(&bytes), read.root()).unwrap()
    }

    #[test]
    fn every_tag_comes_back() {
        let big = "-1180591620717411303424";
        for value in [
            json!({"a": [null, true, 1, -5, u64::MAX, i64::MIN, 1.5, "é"], "b": {}}),
            json!({"$int": big}),
            json!({"$float": "nan"}),
            json!({"$float": "-inf"}),
            json!({"$bytes": "AP8="}),
            json!({"$tuple": [1, {"$tuple": []}]}),
            json!({"$set": [1]}),
            json!({"$complex": [1.0, -2.0]}),
            json!({"$dict": [[1, 2], ["$a", {"b": 1}]]}),
            json!({"$ndarray": {"dtype": "<u4", "shape": [1, 2], "data": "AAAAAAEAAAA="}}),
        ] {
            assert_eq!(round_trip(&value), value);
        }
    }

    #[test]
    fn what_plain_data_cannot_say_is_refused() {
        for value in [
            json!([{"$opaque": "a.B"}]),
            json!({"$new": 1}),
            json!({"$int": "x"}),
        ] {
            assert_eq!(to_pickle(&value, &mut Writer::new()), None);
        }
    }

    proptest! {
        #[test]
        fn long_integers_come_back(digits in "-?[1-9][0-9]{20,120}") {
            let value = json!({"$int": digits});
            prop_assert_eq!(round_trip(&value), value);
        }
    }
}
