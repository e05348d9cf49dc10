//! Files that do not exist: their bytes are worked out as they are read.

use crate::Error;
use crate::source::{SourceFile, StoredTensor};
use cairn_store::ObjectReader;
use cairn_tensor::element_count;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A file of a source that stands before another one.
///
/// As numbers, the files of the source behind are even and the imagined ones odd, so that sources can stand in any row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileNumber {
    /// A file of the source behind.
    Base(usize),
    /// A file that the source in front imagines.
    Imagined(usize),
}

impl FileNumber {
    pub(crate) fn encode(self) -> usize {
        match self {
            FileNumber::Base(file) => file.saturating_mul(2),
            FileNumber::Imagined(index) => index.saturating_mul(2).saturating_add(1),
        }
    }

    pub(crate) fn decode(file: usize) -> Self {
        match file.is_multiple_of(2) {
            true => FileNumber::Base(file / 2),
            false => FileNumber::Imagined(file / 2),
        }
    }
}

/// The file that has exactly the elements of `tensor`, in row-major order; `fill` works out some of them.
///
/// # Errors
/// If there are too many elements to address.
pub(crate) fn imagined_file<F>(
    key: &str,
    tensor: &StoredTensor,
    fill: F,
) -> Result<Arc<SourceFile>, Error>
where
    F: Fn(Range<usize>, &mut [u8]) -> Result<(), Error> + Send + Sync + 'static,
{
    let count = element_count(&tensor.shape);
    let len = count.and_then(|count| tensor.dtype.len_bytes(count));
    let len = len.ok_or_else(|| Error::State {
        name: key.to_string(),
        reason: "is larger than the address space, or does not fill whole bytes".into(),
    })?;
    let reader = Reader {
        key: key.to_string(),
        bits: tensor.dtype.bits(),
        len,
        fill,
    };
    Ok(Arc::new(SourceFile {
        key: key.to_string(),
        reader: Box::new(reader),
        data_start: 0,
        // What it is made of is checked as it is read.
        crcs: None,
        origins: None,
    }))
}

struct Reader<F> {
    key: String,
    bits: usize,
    len: usize,
    fill: F,
}

impl<F: Fn(Range<usize>, &mut [u8]) -> Result<(), Error>> Reader<F> {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(buffer.len());
        if end > self.len {
            let reason = format!("it ends at byte {}, before {end}", self.len);
            return Err(Error::damaged(&self.key, reason));
        }
        // The fewest bytes that hold whole elements.
        let unit = match self.bits {
            6 => 3,
            bits => bits.div_ceil(8),
        };
        let first = begin / unit * unit;
        let last = end.next_multiple_of(unit).min(self.len);
        if (first, last) == (begin, end) {
            return (self.fill)(self.elements(first..last), buffer);
        }
        let mut room = vec![0; last - first];
        (self.fill)(self.elements(first..last), &mut room)?;
        buffer.copy_from_slice(&room[begin - first..end - first]);
        Ok(())
    }

    fn elements(&self, bytes: Range<usize>) -> Range<usize> {
        let at = |byte: usize| match self.bits {
            bits if bits < 8 => byte * 8 / bits,
            bits => byte / (bits / 8),
        };
        at(bytes.start)..at(bytes.end)
    }
}

impl<F: Fn(Range<usize>, &mut [u8]) -> Result<(), Error> + Send + Sync> ObjectReader for Reader<F> {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), cairn_store::Error> {
        self.read(offset, buffer)
            .map_err(|error| cairn_store::Error::Io {
                key: self.key.clone(),
                operation: "work out",
                // Whoever gives the failure a context finds the error itself in here.
                source: io::Error::other(error),
            })
    }
}

#[cfg(test)]
mod tests {
    //! Numbers tell files apart, and reads may begin and end inside an element.

    use super::*;
    use cairn_tensor::DType;

    #[test]
    fn files_in_front_and_behind_have_numbers_of_their_own() {
        for file in [0, 1, 2, 77] {
            for number in [FileNumber::Base(file), FileNumber::Imagined(file)] {
                assert_eq!(FileNumber::decode(number.encode()), number);
            }
        }
    }

    #[test]
    fn any_range_of_bytes_can_be_read() {
        for (dtype, unit, elements) in
            [(DType::F6E2M3, 3, 4), (DType::F32, 4, 1), (DType::U8, 1, 1)]
        {
            let tensor = StoredTensor {
                dtype,
                shape: vec![20],
            };
            let len = dtype.len_bytes(20).unwrap();
            let file = imagined_file("x", &tensor, move |range, bytes| {
                assert_eq!(range.len() * unit, bytes.len() * elements);
                let first = range.start / elements * unit;
                for (index, byte) in bytes.iter_mut().enumerate() {
                    *byte = u8::try_from(first + index).unwrap();
                }
                Ok(())
            })
            .unwrap();
            for begin in 0..len {
                for end in begin..=len {
                    let mut bytes = vec![0; end - begin];
                    file.reader.read_at(begin as u64, &mut bytes).unwrap();
                    let expected = (begin..end).map(|byte| u8::try_from(byte).unwrap());
                    assert_eq!(bytes, expected.collect::<Vec<_>>());
                }
            }
            assert!(file.reader.read_at(len as u64, &mut [0]).is_err());
        }
    }
}
