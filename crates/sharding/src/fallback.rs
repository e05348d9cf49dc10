//! For code that knows one mesh axis per dim: keep the largest, and say what was given up.

use std::fmt;

use crate::{DimSharding, Sharding};

/// What [`fallback_to_largest_axis`] gave up, dim by dim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenUp {
    /// The dims that changed; empty if none had several axes.
    pub dims: Vec<GivenUpDim>,
}

/// One dim that was split along several axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUpDim {
    /// The dim.
    pub dim: usize,
    /// The axis that still splits it.
    pub kept: String,
    /// The axes that now hold replicas.
    pub dropped: Vec<String>,
}

/// Keeps for each dim only the largest of its mesh axes, the first of equal ones; the others replicate.
pub fn fallback_to_largest_axis(sharding: &Sharding) -> (Sharding, GivenUp) {
    let mesh = sharding.mesh();
    let name = |axis: usize| mesh.axes()[axis].name.clone();
    let mut given_up = GivenUp::default();
    let mut keep = |(dim, split): (usize, &DimSharding)| {
        // `max_by_key` takes the last of equal ones.
        let largest = split.axes.iter().rev().copied();
        let kept = largest.max_by_key(|&axis| mesh.axis_size(axis));
        let dropped = split.axes.iter().filter(|&&axis| Some(axis) != kept);
        if let (Some(axis), true) = (kept, split.axes.len() > 1) {
            given_up.dims.push(GivenUpDim {
                dim,
                kept: name(axis),
                dropped: dropped.map(|&axis| name(axis)).collect(),
            });
        }
        DimSharding {
            axes: kept.into_iter().collect(),
            groups: split.groups,
        }
    };
    let dims = sharding.dims().iter().enumerate().map(&mut keep).collect();
    (sharding.with_fewer_axes(dims), given_up)
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dims.is_empty() {
            return f.write_str("nothing was given up");
        }
        for (index, dim) in self.dims.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            let dropped = dim.dropped.join("`, `");
            write!(
                f,
                "{separator}dim {} keeps `{}` and gives up `{dropped}`",
                dim.dim, dim.kept
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mesh;

    #[test]
    fn the_largest_axis_stays_and_the_first_of_equal_ones() {
        let mesh = Mesh::new([("a", 2), ("b", 4), ("c", 4), ("d", 8)]).unwrap();
        let sharding = Sharding::parse(&mesh, "a+b+c/3, d/2").unwrap();
        let (kept, given_up) = fallback_to_largest_axis(&sharding);
        assert_eq!(kept.to_string(), "b/3, d/2");
        assert_eq!(kept.free_axes(), [0, 2]);
        assert_eq!(
            given_up.to_string(),
            "dim 0 keeps `b` and gives up `a`, `c`"
        );
    }

    #[test]
    fn a_sharding_with_one_axis_per_dim_stays_as_it_is() {
        let mesh = Mesh::new([("dp", 2), ("tp", 4)]).unwrap();
        let sharding = Sharding::parse(&mesh, "tp, - | flat(dp)").unwrap();
        let (kept, given_up) = fallback_to_largest_axis(&sharding);
        assert_eq!(kept, sharding);
        assert_eq!(given_up.to_string(), "nothing was given up");
    }
}
