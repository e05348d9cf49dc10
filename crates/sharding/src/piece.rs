//! What a rank holds of a tensor, and where it lies in memory.

use std::{fmt, ops::Range, str::FromStr};

use cairn_tensor::Strided;

use crate::{Error, Region, flat};

/// A box of a tensor, or a flat range of the box's row-major elements.
///
/// It prints as `0:4,0:8` (`offset:extent` for each dim), or `0:4,0:8#5:17` for its elements 5 to 16.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The box in the tensor.
    pub region: Region,
    /// Which of the box's elements, in row-major order; all if `None`.
    pub flat: Option<Range<usize>>,
}

/// A box of a tensor and where its elements lie in a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalBox {
    /// The box in the tensor.
    pub region: Region,
    /// Its elements in the buffer, counted in elements.
    pub local: Strided,
}

impl Piece {
    /// A whole box.
    pub fn whole(region: Region) -> Piece {
        Piece { region, flat: None }
    }

    /// The number of elements.
    pub fn element_count(&self) -> usize {
        self.range().len()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.range().is_empty()
    }

    /// The elements of the box that belong to the piece.
    fn range(&self) -> Range<usize> {
        let count = self.region.element_count();
        match &self.flat {
            None => 0..count,
            Some(flat) => flat.start..flat.end.min(count),
        }
    }

    /// The piece as boxes of the tensor, with their places in a buffer that holds exactly this piece.
    ///
    /// There is one box, or at most `2 * ndim - 1` for a flat range; none if the piece is empty.
    pub fn boxes(&self) -> Vec<LocalBox> {
        let range = self.range();
        let buffer = Strided::contiguous(&self.region.extent);
        if self.flat.is_none() && !range.is_empty() {
            let region = self.region.clone();
            return vec![LocalBox {
                region,
                local: buffer,
            }];
        }
        let origin = vec![0; self.region.ndim()];
        let place = |part: Region| {
            let local = placed(&buffer, &part, range.start)?;
            let region = part.translated(&origin, &self.region.offset);
            Some(LocalBox { region, local })
        };
        let parts = flat::boxes(&self.region.extent, range.clone());
        parts.into_iter().filter_map(place).collect()
    }
}

/// Where a box of a buffer lies if only its elements from `start` on are kept.
pub(crate) fn placed(buffer: &Strided, part: &Region, start: usize) -> Option<Strided> {
    let mut local = buffer.region(&part.offset, &part.extent)?;
    local.offset -= start;
    Some(local)
}

impl LocalBox {
    /// The part of the box that lies in `region`, or `None` if nothing does.
    pub fn clip(&self, region: &Region) -> Option<LocalBox> {
        let region = self.region.intersect(region)?;
        let local = self.place_of(&region)?;
        Some(LocalBox { region, local })
    }

    /// Where the elements of `region` lie, or `None` if not all of them are in the box.
    pub fn place_of(&self, region: &Region) -> Option<Strided> {
        let inner = region.offset.iter().zip(&self.region.offset);
        let inner: Option<Vec<usize>> = inner.map(|(at, start)| at.checked_sub(*start)).collect();
        self.local.region(&inner?, &region.extent)
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.region.fmt(f)?;
        match &self.flat {
            None => Ok(()),
            Some(flat) => write!(f, "#{}:{}", flat.start, flat.end),
        }
    }
}

impl FromStr for Piece {
    type Err = Error;

    fn from_str(text: &str) -> Result<Piece, Error> {
        let syntax = || Error::Syntax {
            what: "piece",
            text: text.to_owned(),
            expected: "a region such as `0:4,0:8`, perhaps with a range of its elements, `#start:end`",
        };
        let Some((region, flat)) = text.split_once('#') else {
            return Ok(Piece::whole(text.parse()?));
        };
        let region: Region = region.parse()?;
        let (start, end) = flat.split_once(':').ok_or_else(syntax)?;
        let start: usize = start.trim().parse().map_err(|_| syntax())?;
        let end: usize = end.trim().parse().map_err(|_| syntax())?;
        if start > end || end > region.element_count() {
            return Err(syntax());
        }
        let flat = Some(start..end);
        Ok(Piece { region, flat })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_range_lies_in_order_in_its_buffer() {
        let piece: Piece = "10:3,20:4#2:9".parse().unwrap();
        assert_eq!(piece.element_count(), 7);
        let boxes: Vec<(String, usize)> = piece
            .boxes()
            .iter()
            .map(|part| (part.region.to_string(), part.local.offset))
            .collect();
        let expected = [("10:1,22:2", 0), ("11:1,20:4", 2), ("12:1,20:1", 6)];
        assert_eq!(boxes, expected.map(|(text, at)| (text.to_owned(), at)));
    }

    #[test]
    fn pieces_of_scalars_and_empty_pieces_work() {
        let scalar: Piece = "".parse().unwrap();
        assert_eq!((scalar.element_count(), scalar.boxes().len()), (1, 1));
        assert_eq!("#0:1".parse::<Piece>().unwrap().boxes(), scalar.boxes());
        for text in ["#0:0", "#1:1", "0:0,0:5", "0:2,0:2#3:3", "0:4#0:0"] {
            let piece: Piece = text.parse().unwrap();
            assert!(piece.is_empty() && piece.boxes().is_empty(), "{text}");
            assert_eq!(piece.to_string(), text);
        }
    }

    #[test]
    fn bad_pieces_are_refused() {
        for text in [
            "0:4#",
            "0:4#1",
            "0:4#3:2",
            "0:4#0:5",
            "0:4#a:b",
            "0:4#0:1#0:1",
            "4#0:1",
        ] {
            assert!(text.parse::<Piece>().is_err(), "{text}");
        }
    }

    #[test]
    fn clipping_keeps_every_element_in_its_place() {
        let part = &"2:4,0:8".parse::<Piece>().unwrap().boxes()[0];
        let clipped = part.clip(&"3:9,5:1".parse().unwrap()).unwrap();
        assert_eq!(clipped.region.to_string(), "3:3,5:1");
        assert_eq!(clipped.local.offset, 13);
        assert_eq!(part.clip(&"6:1,0:1".parse().unwrap()), None);
    }
}
