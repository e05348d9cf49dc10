//! Durable saves by processes, beside raw writes of the same bytes by the same processes.

use crate::measure::{ROUNDS, against_disk, median, timed, value};
use crate::rank::Ranks;
use crate::work::{Layout, len_bytes};
use crate::{Job, files};

/// Saves and loads the same layout with one process for each rank. Leaves the last step for the loads that follow.
pub(crate) fn measure(job: &Job) {
    let specs = Layout::Rows(job.ranks).specs(job.gigabytes);
    let bytes = len_bytes(&specs);
    let run = job.directory.join("run");
    files::remove(&run);
    let mut ranks = Ranks::start(job);
    // The first save allocates its staging memory; a run saves many times.
    ranks.all("save 0");
    let (mut raw, mut saves) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        files::remove(&run.join(cairn::checkpoint::step_folder(round as u64 - 1)));
        raw.push(ranks.all("write"));
        ranks.all("clean");
        saves.push(ranks.all(&format!("save {round}")));
    }
    let what = format!("durable save, {} processes", job.ranks);
    against_disk(&what, "write", bytes, &saves, &raw, 0.9);
    let share = checksum_seconds(bytes) / cores() / median(saves);
    value("checksums, share of the save's time", "ratio", share, 0.02);

    let (mut raw, mut loads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        raw.push(ranks.all(&format!("read {ROUNDS}")));
        loads.push(ranks.all(&format!("load {ROUNDS}")));
    }
    let what = format!("load, same layout, {} processes", job.ranks);
    against_disk(&what, "read", bytes, &loads, &raw, 0.9);
}

/// Cores that compute at the same time.
fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

/// How long one core takes to compute the checksums of `bytes` that a copy has just left in its cache.
fn checksum_seconds(bytes: u64) -> f64 {
    let sample = vec![7_u8; 256 << 10];
    let rounds = 1000;
    let (seconds, ()) = timed(|| {
        for _ in 0..rounds {
            std::hint::black_box(cairn::checkpoint::testing::checksum(&sample));
        }
    });
    seconds * bytes as f64 / (sample.len() * rounds) as f64
}
