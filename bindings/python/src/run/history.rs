//! Where a step is in the history of its run, as Python gets it.

use cairn::checkpoint::Committed;

/// Step, line, the step before it, the launch that saved it, and whether it was abandoned.
pub(super) type Saved = (u64, u64, Option<u64>, Option<String>, bool);

pub(super) fn saved(step: Committed) -> Saved {
    let Committed {
        manifest,
        is_abandoned,
    } = step;
    let parent = manifest.parent.map(|parent| parent.step);
    (
        manifest.step,
        manifest.line,
        parent,
        manifest.launch,
        is_abandoned,
    )
}
