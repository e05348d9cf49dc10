//! Tensors that are the same but for their layer, counted together.

use super::Tensor;
use crate::table::{Cell, Paint, Table};
use crate::units::size;
use cairn::checkpoint::name_family;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub(super) struct Pattern {
    /// A name with the numbers of layers replaced by `#`.
    pattern: String,
    count: usize,
    dtype: String,
    shape: Vec<usize>,
    /// With `at(pp=#)` for any coordinate.
    sharding: Option<String>,
    mesh: Option<String>,
    /// Of all of them.
    len_bytes: u64,
}

pub(super) fn patterns(tensors: &[Tensor]) -> Vec<Pattern> {
    let mut found: BTreeMap<_, Pattern> = BTreeMap::new();
    for tensor in tensors {
        let sharding = tensor.sharding.as_deref().map(any_coordinate);
        let family = name_family(&tensor.name);
        let key = (family, &tensor.shape, &tensor.dtype, sharding, &tensor.mesh);
        let entry = found.entry(key).or_insert_with_key(|key| Pattern {
            pattern: key.0.clone(),
            count: 0,
            dtype: tensor.dtype.clone(),
            shape: tensor.shape.clone(),
            sharding: key.3.clone(),
            mesh: tensor.mesh.clone(),
            len_bytes: 0,
        });
        entry.count += 1;
        entry.len_bytes += tensor.len_bytes;
    }
    found.into_values().collect()
}

/// A sharding with the coordinates in `at(pp=1)` replaced by `#`: equal for the layers of all pipeline stages.
fn any_coordinate(sharding: &str) -> String {
    let suffixes = sharding.split(" | ");
    let folded = suffixes.map(|suffix| match suffix.split_once('=') {
        Some((axis, _)) if axis.starts_with("at(") => format!("{axis}=#)"),
        _ => suffix.to_string(),
    });
    folded.collect::<Vec<_>>().join(" | ")
}

/// The patterns as a table; meshes are named if there are several.
pub(super) fn table(patterns: &[Pattern], several_meshes: bool, paint: Paint) -> String {
    let sharded = patterns.iter().any(|pattern| pattern.sharding.is_some());
    let mut header = vec!["PATTERN", " COUNT", "SHAPE", "DTYPE"];
    header.extend(sharded.then_some("SHARDING"));
    header.extend(several_meshes.then_some("MESH"));
    header.push(" SIZE");
    let mut table = Table::new(&header);
    for pattern in patterns {
        let mut row: Vec<Cell> = vec![
            pattern.pattern.as_str().into(),
            pattern.count.to_string().into(),
            format!("{:?}", pattern.shape).into(),
            pattern.dtype.as_str().into(),
        ];
        if sharded {
            row.push(pattern.sharding.clone().unwrap_or_default().into());
        }
        if several_meshes {
            row.push(pattern.mesh.clone().unwrap_or_default().into());
        }
        row.push(size(pattern.len_bytes).into());
        table.row(row);
    }
    table.render(paint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipeline_stages_are_folded_like_layers() {
        let tensor = |layer: usize, sharding: &str| Tensor {
            name: format!("layers.{layer}.w"),
            dtype: "f32".into(),
            shape: vec![2],
            sharding: Some(sharding.into()),
            mesh: None,
            len_bytes: 8,
        };
        let stages = [
            tensor(0, "tp | flat(dp) | at(pp=0)"),
            tensor(1, "tp | flat(dp) | at(pp=1)"),
            tensor(2, "-"),
        ];
        let found = patterns(&stages);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[1].sharding.as_deref(),
            Some("tp | flat(dp) | at(pp=#)")
        );
        assert_eq!((found[1].count, found[1].len_bytes), (2, 16));
    }
}
