//! A source whose tensors are made of another's, as a compiled recipe says.
//!
//! Most recipes only move elements: they rename, slice, join, transpose and reshape. Such a target is the stored bytes
//! themselves, at other places and with other strides, so a load reads what it needs of them, checks it, and scatters it straight
//! to where it belongs. Only what changes values (casts, constants, scales) is worked out, in files that are imagined:
//!
//! ```text
//!   target piece  =  views ( computing ( box of a source ) )
//!                    │       └ an imagined file with the elements in the order of the source; none if nothing is computed
//!                    └ strides; where strides cannot say it, the imagined file has the elements in the order of the target
//! ```

mod blocks;
mod evaluate;
mod expression;
mod flow;
mod known;
mod recast;
mod view;

use crate::Error;
use crate::computed::SharedSource;
use crate::imagined::{FileNumber, imagined_file};
use crate::source::{Kept, Source, SourceFile, StoredPiece, StoredTensor};
use cairn_recipe::{Compiled, Target};
use cairn_sharding::{Piece, Region};
use cairn_store::Location;
use evaluate::Evaluation;
use flow::Flow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

pub use evaluate::MAX_TRANSFORM_BUFFER_BYTES;
pub use known::{recipe_settings, recipe_tensors};
pub use recast::recast;

/// A source made of another one by a recipe.
pub struct Transformed {
    base: SharedSource,
    /// For each target its type and shape, and which of the flows make it.
    targets: BTreeMap<String, (StoredTensor, Range<usize>)>,
    flows: Vec<Arc<Flow>>,
    /// The names that nothing is stored of, on purpose.
    kept: BTreeSet<String>,
    aliases: BTreeMap<String, String>,
}

impl Transformed {
    /// The targets of `compiled`, made of the tensors of `base`.
    ///
    /// # Errors
    /// If it was compiled for other tensors than those of `base`.
    pub fn new(base: SharedSource, compiled: &Compiled) -> Result<Self, Error> {
        let base: SharedSource = Arc::new(Kept::new(base));
        let mut made = Self {
            aliases: same_targets(base.as_ref(), compiled),
            base,
            targets: BTreeMap::new(),
            flows: Vec::new(),
            kept: BTreeSet::new(),
        };
        for (name, target) in &compiled.targets {
            made.add(name, target)?;
        }
        Ok(made)
    }

    fn add(&mut self, name: &str, target: &Target) -> Result<(), Error> {
        let Some(pieces) = &target.pieces else {
            self.kept.insert(name.to_string());
            return Ok(());
        };
        let tensor = StoredTensor {
            dtype: target.dtype,
            shape: target.shape.clone(),
        };
        let first = self.flows.len();
        for piece in pieces.iter().filter(|piece| !piece.region.is_empty()) {
            let flow = Flow::new(name, &tensor, piece, self.base.as_ref())?;
            self.flows.push(Arc::new(flow));
        }
        let flows = first..self.flows.len();
        self.targets.insert(name.to_string(), (tensor, flows));
        Ok(())
    }

    /// The pieces of a flow that meet `region` of its target.
    fn lowered(&self, index: usize, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        let flow = &self.flows[index];
        let found = match flow.made.computing > 0 {
            true => flow.lower_imagined(FileNumber::Imagined(2 * index).encode()),
            false => self.lower_stored(flow, region)?,
        };
        Ok(found.unwrap_or_else(|| {
            vec![StoredPiece {
                file: FileNumber::Imagined(2 * index + 1).encode(),
                offset: 0,
                piece: Piece::whole(flow.region.clone()),
                strides: None,
            }]
        }))
    }

    /// The stored pieces that are what a flow makes; `None` if strides cannot say where they go.
    fn lower_stored(
        &self,
        flow: &Flow,
        region: &Region,
    ) -> Result<Option<Vec<StoredPiece>>, Error> {
        let Some(source) = &flow.made.source else {
            return Ok(None);
        };
        let stored = self.base.pieces(&source.name, &flow.needed(region))?;
        let mut found = Vec::new();
        for piece in stored {
            let boxes = piece.boxes();
            let parts = boxes.iter().filter_map(|held| held.clip(&source.region));
            for part in parts {
                let Some(lowered) = flow.lower(part, &piece) else {
                    return Ok(None);
                };
                found.extend(lowered);
            }
        }
        Ok(Some(found))
    }
}

impl Source for Transformed {
    fn names(&self) -> Vec<&str> {
        self.targets.keys().map(String::as_str).collect()
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        self.aliases.clone()
    }

    fn find(&self, name: &str) -> Option<StoredTensor> {
        Some(self.targets.get(name)?.0.clone())
    }

    fn keeps(&self, name: &str) -> bool {
        self.kept.contains(name)
    }

    fn pieces(&self, name: &str, region: &Region) -> Result<Vec<StoredPiece>, Error> {
        let Some((_, flows)) = self.targets.get(name) else {
            return Ok(Vec::new());
        };
        let mut pieces = Vec::new();
        for index in flows.clone() {
            if self.flows[index].region.meets(region) {
                pieces.extend(self.lowered(index, region)?);
            }
        }
        Ok(pieces)
    }

    fn open_file(&self, file: usize) -> Result<Arc<SourceFile>, Error> {
        let number = match FileNumber::decode(file) {
            FileNumber::Base(file) => return self.base.open_file(file),
            FileNumber::Imagined(number) => number,
        };
        let flow = self.flows[number / 2].clone();
        let steps = match number.is_multiple_of(2) {
            true => flow.made.computing,
            false => flow.made.steps.len(),
        };
        let (base, name) = (self.base.clone(), flow.target.clone());
        let stage = flow.made.stages[steps].clone();
        imagined_file(&name, &stage, move |elements, bytes| {
            let evaluation = Evaluation {
                of: &flow.made,
                base: base.as_ref(),
                name: &flow.target,
            };
            evaluation.fill(steps, elements, bytes)
        })
    }

    fn assets(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.base.assets()
    }

    fn places(&self) -> Vec<Location> {
        self.base.places()
    }

    fn mend(&self) -> Vec<String> {
        self.base.mend()
    }
}

/// Targets that are made of the same elements as another one before them, and which one that is.
fn same_targets(base: &dyn Source, compiled: &Compiled) -> BTreeMap<String, String> {
    let aliases = base.aliases();
    let mut first: HashMap<String, &str> = HashMap::new();
    let mut same = BTreeMap::new();
    for (name, target) in &compiled.targets {
        let Some(key) = identity(target, &aliases) else {
            continue;
        };
        match first.get(&key) {
            Some(known) => {
                same.insert(name.clone(), (*known).to_string());
            }
            None => {
                first.insert(key, name);
            }
        }
    }
    same
}

/// What a target is made of, as text; `None` if that is no stored element.
fn identity(target: &Target, aliases: &BTreeMap<String, String>) -> Option<String> {
    let mut pieces = target.pieces.clone()?;
    for source in pieces.iter_mut().filter_map(|piece| piece.source.as_mut()) {
        if let Some(of) = aliases.get(&source.name) {
            source.name.clone_from(of);
        }
    }
    let has_source = pieces.iter().any(|piece| piece.source.is_some());
    has_source.then(|| format!("{}{:?}{pieces:?}", target.dtype, target.shape))
}

/// The region, counted from `origin`.
fn relative(region: &Region, origin: &[usize]) -> Region {
    let offset = region.offset.iter().zip(origin);
    Region {
        offset: offset.map(|(offset, origin)| offset - origin).collect(),
        extent: region.extent.clone(),
    }
}

/// The region, which counts from `origin`, in its surroundings.
fn absolute(region: &Region, origin: &[usize]) -> Region {
    let offset = region.offset.iter().zip(origin);
    Region {
        offset: offset.map(|(offset, origin)| offset + origin).collect(),
        extent: region.extent.clone(),
    }
}
