//! Irregular layouts: each rank's pieces, written down.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use cairn_tensor::Strided;

use crate::{Error, LocalBox, MAX_RANKS, Piece, Region, Replica, mesh::limit};

/// The most pieces one rank may list.
pub const MAX_LISTED_PIECES: usize = 4096;

/// Each rank's pieces of a tensor, where no mesh describes them.
///
/// A rank's buffer holds its pieces one after another. Pieces of different ranks may overlap; pieces of
/// one rank may not. Ranks that list nothing, or only empty pieces, do not hold the tensor. Clones are
/// cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed(Arc<Lists>);

#[derive(Debug, PartialEq, Eq)]
struct Lists {
    pieces: BTreeMap<usize, Vec<Piece>>,
    /// For each rank the index of its group.
    group_of: BTreeMap<usize, usize>,
    /// Ranks with equal pieces, ascending.
    groups: Vec<Vec<usize>>,
}

impl Listed {
    /// The layout in which each rank holds the given pieces.
    pub fn new(pieces: BTreeMap<usize, Vec<Piece>>) -> Listed {
        let mut lists = Lists {
            pieces,
            group_of: BTreeMap::new(),
            groups: Vec::new(),
        };
        lists.pieces.retain(|_, pieces| {
            pieces.retain(|piece| !piece.is_empty());
            !pieces.is_empty()
        });
        let mut groups: HashMap<&[Piece], usize> = HashMap::new();
        for (&rank, pieces) in &lists.pieces {
            let group = *groups.entry(pieces).or_insert(lists.groups.len());
            if group == lists.groups.len() {
                lists.groups.push(Vec::new());
            }
            lists.groups[group].push(rank);
            lists.group_of.insert(rank, group);
        }
        Listed(Arc::new(lists))
    }

    /// The pieces by rank.
    pub fn by_rank(&self) -> &BTreeMap<usize, Vec<Piece>> {
        &self.0.pieces
    }

    /// The pieces of a rank, in the order in which its buffer holds them.
    pub fn pieces(&self, rank: usize) -> &[Piece] {
        self.0.pieces.get(&rank).map_or(&[], Vec::as_slice)
    }

    /// Which replica the rank is, or `None` if it does not hold the tensor.
    pub fn replica(&self, rank: usize) -> Option<Replica> {
        let ranks = self.group(rank)?;
        let index = ranks.binary_search(&rank).ok()?;
        Some(Replica {
            index,
            count: ranks.len(),
            leader: ranks[0],
        })
    }

    /// The ranks with exactly the pieces of `rank`, itself included; none if it has no pieces.
    pub fn replica_ranks(&self, rank: usize) -> &[usize] {
        self.group(rank).unwrap_or_default()
    }

    fn group(&self, rank: usize) -> Option<&[usize]> {
        let group = *self.0.group_of.get(&rank)?;
        Some(&self.0.groups[group])
    }

    /// The first rank of each group of equal holders.
    pub(crate) fn leaders(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.groups.iter().map(|ranks| ranks[0])
    }

    pub(crate) fn local_shape(&self, rank: usize) -> Option<Vec<usize>> {
        match self.pieces(rank) {
            [] => None,
            [Piece { region, flat: None }] => Some(region.extent.clone()),
            pieces => Some(vec![pieces.iter().map(Piece::element_count).sum()]),
        }
    }

    pub(crate) fn boxes(&self, rank: usize) -> Vec<LocalBox> {
        let mut boxes = Vec::new();
        let mut start = 0;
        for piece in self.pieces(rank) {
            boxes.extend(piece.boxes().into_iter().map(|part| LocalBox {
                local: Strided {
                    offset: part.local.offset + start,
                    ..part.local
                },
                ..part
            }));
            start += piece.element_count();
        }
        boxes
    }

    /// Checks the pieces against the shape of the tensor.
    pub(crate) fn check(&self, shape: &[usize]) -> Result<(), Error> {
        for (&rank, pieces) in self.by_rank() {
            limit("ranks", rank.saturating_add(1), MAX_RANKS)?;
            limit("pieces of one rank", pieces.len(), MAX_LISTED_PIECES)?;
            for piece in pieces {
                check_inside(rank, piece, shape)?;
            }
            check_disjoint(rank, pieces)?;
        }
        Ok(())
    }
}

fn check_inside(rank: usize, piece: &Piece, shape: &[usize]) -> Result<(), Error> {
    let region = &piece.region;
    let count = region.element_count();
    let range_fits = |range: &std::ops::Range<usize>| range.end <= count;
    let same_ndim = region.offset.len() == region.extent.len();
    if same_ndim
        && Region::whole(shape).contains(region)
        && piece.flat.as_ref().is_none_or(range_fits)
    {
        return Ok(());
    }
    Err(Error::PieceOutside {
        rank,
        piece: piece.to_string(),
        shape: shape.to_vec(),
    })
}

/// Sorts all boxes by where they start and compares each with those that start before it ends.
fn check_disjoint(rank: usize, pieces: &[Piece]) -> Result<(), Error> {
    let parts = pieces.iter().enumerate();
    let mut boxes: Vec<(Region, usize)> = parts
        .flat_map(|(index, piece)| {
            piece
                .boxes()
                .into_iter()
                .map(move |part| (part.region, index))
        })
        .collect();
    boxes.sort_unstable();
    for (at, (region, first)) in boxes.iter().enumerate() {
        let starts_inside =
            |other: &&(Region, usize)| region.ndim() == 0 || other.0.offset[0] < region.end(0);
        let mut later = boxes[at + 1..].iter().take_while(starts_inside);
        if let Some((_, second)) = later.find(|(other, _)| other.meets(region)) {
            return Err(Error::PiecesOverlap {
                rank,
                first: pieces[*first].to_string(),
                second: pieces[*second].to_string(),
            });
        }
    }
    Ok(())
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("listed(")?;
        for (index, (rank, pieces)) in self.by_rank().iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let pieces: Vec<String> = pieces.iter().map(Piece::to_string).collect();
            write!(f, "{separator}{rank}={{{}}}", pieces.join("; "))?;
        }
        f.write_str(")")
    }
}

impl std::str::FromStr for Listed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Listed, Error> {
        let syntax = || Error::Syntax {
            what: "list of pieces",
            text: text.to_owned(),
            expected: "`listed(rank={piece; piece}, …)`",
        };
        let list = text.trim().strip_prefix("listed(");
        let list = list.and_then(|list| list.strip_suffix(')'));
        let mut rest = list.ok_or_else(syntax)?.trim();
        let mut by_rank = BTreeMap::new();
        while !rest.is_empty() {
            let (rank, after) = rest.split_once("={").ok_or_else(syntax)?;
            let (pieces, after) = after.split_once('}').ok_or_else(syntax)?;
            let rank: usize = rank.trim().parse().map_err(|_| syntax())?;
            let pieces: Result<Vec<Piece>, Error> = pieces.split(';').map(str::parse).collect();
            if by_rank.insert(rank, pieces?).is_some() {
                return Err(Error::DuplicateRank { rank });
            }
            rest = match after.trim_start().strip_prefix(',') {
                Some(after) if !after.trim().is_empty() => after.trim(),
                None if after.trim().is_empty() => "",
                _ => return Err(syntax()),
            };
        }
        Ok(Listed::new(by_rank))
    }
}
