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
    sharding: Option<String>,
    mesh: Option<String>,
    /// Of all of them.
    len_bytes: u64,
}

pub(super) fn patterns(tensors: &[Tensor]) -> Vec<Pattern> {
    let mut found: BTreeMap<_, Pattern> = BTreeMap::new();
    for tensor in tensors {
        let family = name_family(&tensor.name);
        let key = (
            family,
            &tensor.shape,
            &tensor.dtype,
            &tensor.sharding,
            &tensor.mesh,
        );
        let entry = found.entry(key).or_insert_with_key(|(family, ..)| Pattern {
            pattern: family.clone(),
            count: 0,
            dtype: tensor.dtype.clone(),
            shape: tensor.shape.clone(),
            sharding: tensor.sharding.clone(),
            mesh: tensor.mesh.clone(),
            len_bytes: 0,
        });
        entry.count += 1;
        entry.len_bytes += tensor.len_bytes;
    }
    found.into_values().collect()
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
