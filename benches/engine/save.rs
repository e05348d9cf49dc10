//! Durable saves by processes, beside raw writes of the same bytes by the same processes.

use crate::measure::{against, compared, extra, value};
use crate::rank::Ranks;
use crate::work::{Layout, len_bytes};
use crate::{Job, files};
use cairn::checkpoint::step_folder;

/// The step of the saves without checksums.
const BARE_STEP: u64 = 1000;
/// The step that is loaded.
pub(crate) const LOADED_STEP: u64 = 2000;

/// Saves and loads the same layout with one process for each rank. Leaves [`LOADED_STEP`] for the loads that follow.
pub(crate) fn measure(job: &Job) {
    let specs = Layout::Rows(job.ranks).specs(job.gigabytes);
    let bytes = len_bytes(&specs);
    let run = job.directory.join("run");
    files::remove(&run);
    let mut ranks = Ranks::start(job);
    let mut step = 0;
    let [raw, bare, saves] = compared(|kind| {
        files::remove(&run.join(step_folder(step)));
        match kind {
            0 => {
                let seconds = ranks.all("write");
                ranks.all("clean");
                seconds
            }
            1 => {
                let seconds = ranks.all(&format!("bare {BARE_STEP}"));
                files::remove(&run.join(step_folder(BARE_STEP)));
                seconds
            }
            _ => {
                step += 1;
                ranks.all(&format!("save {step}"))
            }
        }
    });
    let what = format!("durable save, {} processes", job.ranks);
    against(&what, "write", bytes, &saves, &raw, 0.9);
    value(
        "checksums, cost on save",
        "ratio",
        extra(&saves, &bare),
        0.02,
    );

    ranks.all(&format!("save {LOADED_STEP}"));
    let [raw, _, loads] = compared(|kind| match kind {
        0 => ranks.all(&format!("read {LOADED_STEP}")),
        1 => 0.0,
        _ => ranks.all(&format!("load {LOADED_STEP}")),
    });
    let what = format!("load, same layout, {} processes", job.ranks);
    against(&what, "read", bytes, &loads, &raw, 0.9);

    let (mut round, mut read) = (0, 0);
    let [raw, _, loads] = compared(|kind| match kind {
        0 => ranks.all(&format!("read {LOADED_STEP}")),
        1 => 0.0,
        _ => {
            round += 1;
            let (seconds, bytes) = ranks.count(&format!("columns {LOADED_STEP} {round}"));
            read = bytes;
            seconds
        }
    });
    let what = format!("load, dim 0 to dim 1, {} processes", job.ranks);
    against(&what, "read", bytes, &loads, &raw, 0.85);
    let over_read = read as f64 / bytes as f64;
    value(
        &format!("{what}: bytes read for each byte wanted"),
        "ratio",
        over_read,
        1.05,
    );
}
