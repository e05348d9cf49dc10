//! Where two sets of strided boxes meet.

use cairn_sharding::{LocalBox, Region};
use cairn_tensor::Strided;

/// A box of elements that lies in a source and in a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) region: Region,
    pub(crate) source: Strided,
    pub(crate) target: Strided,
}

/// Every meeting of a source box with a target box.
pub(crate) fn overlaps(sources: &[LocalBox], targets: &[LocalBox]) -> Vec<Overlap> {
    let mut found = Vec::new();
    for source in sources {
        for target in targets {
            let Some(region) = source.region.intersect(&target.region) else {
                continue;
            };
            let places = (source.place_of(&region), target.place_of(&region));
            if let (Some(source), Some(target)) = places {
                found.push(Overlap {
                    region,
                    source,
                    target,
                });
            }
        }
    }
    found
}
