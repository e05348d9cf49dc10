//! Arrays in `.npy` files.

use crate::error::Error;
use cairn::checkpoint::split_path;
use cairn::store;
use cairn::tensor::{DType, element_count};

/// An array in row-major order.
pub(super) struct Array {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// What NumPy calls the types that are read.
const TYPES: [(&str, DType); 12] = [
    ("|b1", DType::Bool),
    ("|u1", DType::U8),
    ("|i1", DType::I8),
    ("<u2", DType::U16),
    ("<i2", DType::I16),
    ("<u4", DType::U32),
    ("<i4", DType::I32),
    ("<u8", DType::U64),
    ("<i8", DType::I64),
    ("<f2", DType::F16),
    ("<f4", DType::F32),
    ("<f8", DType::F64),
];

/// Reads the array at `path`.
pub(super) fn read(path: &str) -> Result<Array, Error> {
    let (folder, name) = split_path(path);
    let bytes = store::open(&folder)?.get(&name)?;
    parse(&bytes).map_err(|reason| Error::Npy {
        path: path.to_string(),
        reason,
    })
}

pub(super) fn parse(file: &[u8]) -> Result<Array, String> {
    let garbled = || "it is no .npy file".to_string();
    let rest = file.strip_prefix(b"\x93NUMPY").ok_or_else(garbled)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(garbled)?;
    let (len, rest) = match version[0] {
        1 => {
            let (len, rest) = rest.split_first_chunk().ok_or_else(garbled)?;
            (usize::from(u16::from_le_bytes(*len)), rest)
        }
        _ => {
            let (len, rest) = rest.split_first_chunk().ok_or_else(garbled)?;
            let len = usize::try_from(u32::from_le_bytes(*len));
            (len.map_err(|_| garbled())?, rest)
        }
    };
    let (header, data) = rest.split_at_checked(len).ok_or_else(garbled)?;
    let header = std::str::from_utf8(header).map_err(|_| garbled())?;
    let descr = field(header, "descr").ok_or_else(garbled)?;
    let descr = descr.trim_matches(['\'', '"']);
    let known = TYPES.iter().find(|(name, _)| *name == descr);
    let (_, dtype) = known.ok_or_else(|| format!("its type `{descr}` is not known here"))?;
    if field(header, "fortran_order").ok_or_else(garbled)? != "False" {
        return Err("it is in Fortran's order; `numpy.ascontiguousarray` changes that".into());
    }
    let shape = shape(header).ok_or_else(garbled)?;
    let count = element_count(&shape).and_then(|count| dtype.len_bytes(count));
    match count {
        Some(len) if len == data.len() => Ok(Array {
            dtype: *dtype,
            shape,
            bytes: data.to_vec(),
        }),
        _ => Err("it does not hold as many elements as its header says".into()),
    }
}

/// The text of an entry of the header that has no commas.
fn field<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.split([',', '}']).next()?.trim())
}

fn shape(header: &str) -> Option<Vec<usize>> {
    let (_, rest) = header.split_once("'shape':")?;
    let (dims, _) = rest.trim_start().strip_prefix('(')?.split_once(')')?;
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    dims.map(|dim| dim.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let len = u16::try_from(header.len()).unwrap().to_le_bytes();
        [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn arrays_are_read_and_garbage_is_refused() {
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 1), }  \n";
        let array = parse(&file(header, &[1, 0, 2, 0])).unwrap();
        assert_eq!((array.dtype, array.shape), (DType::I16, vec![2, 1]));
        assert_eq!(array.bytes, [1, 0, 2, 0]);
        let scalar = "{'descr': '|b1', 'fortran_order': False, 'shape': (), }";
        assert!(parse(&file(scalar, &[1])).unwrap().shape.is_empty());
        for (header, data) in [
            (header, &[1, 0, 2][..]),
            (&header.replace("False", "True"), &[1, 0, 2, 0]),
            (&header.replace("<i2", "<M8[s]"), &[1, 0, 2, 0]),
            ("", &[]),
        ] {
            assert!(parse(&file(header, data)).is_err(), "{header}");
        }
        for cut in 0..10 {
            assert!(parse(&file(header, &[])[..cut]).is_err());
        }
    }
}
