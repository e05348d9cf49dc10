//! Where a path leads, whether or not anything is there yet.

use crate::Location;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The location of what lies, or would lie, at `path`.
pub(super) fn locate(path: &Path) -> Location {
    let real = real_path(path);
    let node = |path: &Path| {
        let found = path.metadata().ok()?;
        Some((found.dev(), found.ino()))
    };
    // Everything lies in the root, which tells nothing.
    let below_root = real.ancestors().filter(|path| path.parent().is_some());
    Location::with_nodes(
        &crate::url::from_path(&real),
        below_root.map(node).collect(),
    )
}

/// The path without links, as far as it exists, and without `..`.
fn real_path(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        let Ok(mut real) = above.canonicalize() else {
            continue;
        };
        let missing = path.strip_prefix(above).unwrap_or(Path::new(""));
        for part in missing.components() {
            match part {
                Component::ParentDir => drop(real.pop()),
                Component::Normal(name) => real.push(name),
                _ => {}
            }
        }
        return real;
    }
    path.to_path_buf()
}
