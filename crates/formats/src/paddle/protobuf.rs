//! Messages of protobuf: numbered fields one after another.

use crate::cursor::Cursor;

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Number(u64),
    /// A string, a message, or numbers side by side.
    Bytes(&'a [u8]),
    /// Something of a fixed width, which nothing here needs.
    Other,
}

/// The fields of a message by number; `None` if it is none.
pub(super) fn fields(message: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut cursor = Cursor(message);
    let mut fields = Vec::new();
    while !cursor.0.is_empty() {
        let key = cursor.varint()?;
        let field = match key & 7 {
            0 => Field::Number(cursor.varint()?),
            1 => cursor.take(8).map(|_| Field::Other)?,
            2 => {
                let len = usize::try_from(cursor.varint()?).ok()?;
                Field::Bytes(cursor.take(len)?)
            }
            5 => cursor.take(4).map(|_| Field::Other)?,
            _ => return None,
        };
        fields.push((key >> 3, field));
    }
    Some(fields)
}

/// The first field of a number that holds bytes.
pub(super) fn bytes<'a>(fields: &[(u64, Field<'a>)], number: u64) -> Option<&'a [u8]> {
    fields.iter().find_map(|(known, field)| match field {
        Field::Bytes(bytes) if *known == number => Some(*bytes),
        _ => None,
    })
}

/// The first field of a number that holds a number.
pub(super) fn number(fields: &[(u64, Field)], number: u64) -> Option<u64> {
    fields.iter().find_map(|(known, field)| match field {
        Field::Number(value) if *known == number => Some(*value),
        _ => None,
    })
}

/// Type and shape in a `TensorDesc`: field 1 is the type, each field 2 a dim (or all dims, side by side).
pub(super) fn tensor(message: &[u8]) -> Option<(u64, Vec<usize>)> {
    let fields = fields(message)?;
    let dim = |number: u64| usize::try_from(i64::try_from(number).ok()?).ok();
    let mut shape = Vec::new();
    for (_, field) in fields.iter().filter(|(number, _)| *number == 2) {
        match field {
            Field::Number(number) => shape.push(dim(*number)?),
            Field::Bytes(packed) => {
                let mut cursor = Cursor(packed);
                while !cursor.0.is_empty() {
                    shape.push(dim(cursor.varint()?)?);
                }
            }
            Field::Other => return None,
        }
    }
    Some((number(&fields, 1)?, shape))
}

/// The `TensorDesc` of a type and shape.
pub(super) fn encode_tensor(code: u64, shape: &[usize]) -> Vec<u8> {
    let mut bytes = vec![0x08];
    push_varint(&mut bytes, code);
    for size in shape {
        bytes.push(0x10);
        push_varint(&mut bytes, *size as u64);
    }
    bytes
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push((number & 0x7f) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_what_it_was() {
        for shape in [vec![], vec![0], vec![3, 127, 128, 70_000], vec![1 << 40]] {
            assert_eq!(tensor(&encode_tensor(22, &shape)), Some((22, shape)));
        }
        assert_eq!(
            tensor(b"\x08\x05\x12\x03\x02\x80\x01"),
            Some((5, vec![2, 128])),
            "side by side"
        );
        assert_eq!(tensor(b"\x10\x02"), None, "no type");
    }

    #[test]
    fn sizes_below_zero_are_none() {
        let mut message = vec![0x08, 5, 0x10];
        push_varint(&mut message, u64::MAX);
        assert_eq!(tensor(&message), None);
    }
}
