//! The few things a benchmark does to files itself.

use std::path::{Path, PathBuf};

/// Removes a folder and all in it.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark cleans up after itself"
)]
pub(crate) fn remove(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
}

/// Removes a file.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark cleans up after itself"
)]
pub(crate) fn remove_file(file: &Path) {
    let _ = std::fs::remove_file(file);
}

/// The data files of a step.
pub(crate) fn data(run: &Path, step: u64) -> Vec<PathBuf> {
    let folder = run.join(cairn::checkpoint::step_folder(step));
    let mut found = Vec::new();
    for attempt in std::fs::read_dir(folder).expect("a step").flatten() {
        for file in std::fs::read_dir(attempt.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            if file
                .path()
                .extension()
                .is_some_and(|end| end == "safetensors")
            {
                found.push(file.path());
            }
        }
    }
    found.sort();
    found
}
