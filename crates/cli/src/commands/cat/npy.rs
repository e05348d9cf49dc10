//! What was picked as a `.npy` file.

use super::read::Elements;
use crate::error::Error;
use crate::printer::Printer;
use cairn::checkpoint::split_path;
use cairn::store::{self, PutMode};
use cairn::tensor::{DType, element_count, read_f64};

/// A header is padded so that data begins at a multiple of this.
const ALIGN_BYTES: usize = 64;

/// Writes the elements to `path`.
pub(super) fn write(
    path: &str,
    elements: &Elements,
    shape: &[usize],
    printer: &Printer,
) -> Result<(), Error> {
    let known = descr(elements.dtype);
    let mut file = header(known.unwrap_or("<f4"), shape);
    let count = element_count(shape).unwrap_or(0);
    let width = known.map_or(4, |_| elements.dtype.bits() / 8);
    file.reserve_exact(count.saturating_mul(width));
    let (mut place, mut index) = (vec![0; shape.len()], Vec::new());
    for _ in 0..count {
        let (bytes, element) = elements.at(&place, &mut index);
        match known {
            Some(_) => file.extend_from_slice(&bytes[element * width..][..width]),
            None => file.extend(widened(elements.dtype, bytes, element).to_le_bytes()),
        }
        advance(&mut place, shape);
    }
    let (folder, name) = split_path(path);
    let put = store::open(&folder).and_then(|store| store.put(&name, &file, PutMode::Replace));
    put.map_err(|source| Error::Write {
        path: path.into(),
        source,
    })?;
    let note = match known {
        Some(_) => String::new(),
        None => format!(", as f32: numpy has no {}", elements.dtype),
    };
    printer.note(&format!("wrote {path}{note}"));
    Ok(())
}

/// What numpy calls a type; `None` if it has none.
fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U16 => "<u2",
        DType::I16 => "<i2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        _ => return None,
    })
}

/// The value as `f32`, which holds every value of the types that numpy lacks.
fn widened(dtype: DType, bytes: &[u8], element: usize) -> f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the types that numpy lacks are narrower than f32"
    )]
    let value = read_f64(dtype, bytes, element).unwrap_or(f64::NAN) as f32;
    value
}

/// The magic, version 1.0, the length of the header, and the header: a Python dict, padded.
fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let lens: String = shape.iter().map(|len| format!("{len}, ")).collect();
    let lens = match shape.len() {
        0 | 1 => lens.trim_end(),
        _ => lens.trim_end_matches(", "),
    };
    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lens}), }}");
    let begin = b"\x93NUMPY\x01\x00";
    let len = (begin.len() + 2 + dict.len() + 1).next_multiple_of(ALIGN_BYTES) - begin.len() - 2;
    dict.push_str(&" ".repeat(len - dict.len() - 1));
    dict.push('\n');
    let len = u16::try_from(len).expect("shapes have few dims");
    [begin.as_slice(), &len.to_le_bytes(), dict.as_bytes()].concat()
}

/// The next place in row-major order.
fn advance(place: &mut [usize], shape: &[usize]) {
    for (place, len) in place.iter_mut().zip(shape).rev() {
        *place += 1;
        if *place < *len {
            return;
        }
        *place = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_what_numpy_writes() {
        let text = |shape: &[usize]| {
            let header = header("<f4", shape);
            assert_eq!(header.len() % ALIGN_BYTES, 0);
            assert_eq!(usize::from(header[8]), header.len() - 10);
            String::from_utf8(header[10..].to_vec()).unwrap()
        };
        for (shape, tuple) in [(&[][..], "()"), (&[3], "(3,)"), (&[2, 3], "(2, 3)")] {
            let expected = format!("'shape': {tuple}, }}");
            assert!(
                text(shape).trim_end().ends_with(&expected),
                "{}",
                text(shape)
            );
        }
    }
}
