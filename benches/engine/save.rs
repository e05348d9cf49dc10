//! Durable saves by processes, beside raw writes of the same bytes by the same processes.

use crate::measure::{ROUNDS, against_disk, median, value};
use crate::rank::Ranks;
use crate::work::{Layout, len_bytes};
use crate::{Job, files};
use cairn::checkpoint::step_folder;

/// The step of the saves without checksums.
const BARE_STEP: u64 = 1000;

/// Saves and loads the same layout with one process for each rank. Leaves the last step for the loads that follow.
pub(crate) fn measure(job: &Job) {
    let specs = Layout::Rows(job.ranks).specs(job.gigabytes);
    let bytes = len_bytes(&specs);
    let run = job.directory.join("run");
    files::remove(&run);
    let mut ranks = Ranks::start(job);
    // The first save allocates its staging memory; a run saves many times.
    ranks.all("save 0");
    let (mut raw, mut saves, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let step = round as u64;
        files::remove(&run.join(step_folder(step - 1)));
        raw.push(ranks.all("write"));
        ranks.all("clean");
        let bare = ranks.all(&format!("bare {BARE_STEP}"));
        files::remove(&run.join(step_folder(BARE_STEP)));
        let save = ranks.all(&format!("save {step}"));
        costs.push(save / bare - 1.0);
        saves.push(save);
    }
    let what = format!("durable save, {} processes", job.ranks);
    against_disk(&what, "write", bytes, &saves, &raw, 0.9);
    value("checksums, cost on save", "ratio", median(costs), 0.02);

    let (mut raw, mut loads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        raw.push(ranks.all(&format!("read {ROUNDS}")));
        loads.push(ranks.all(&format!("load {ROUNDS}")));
    }
    let what = format!("load, same layout, {} processes", job.ranks);
    against_disk(&what, "read", bytes, &loads, &raw, 0.9);
}
