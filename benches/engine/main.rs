//! Measures saving, loading and planning, each beside what the machine can do at that moment.
//!
//! `cargo bench --bench engine -- DIRECTORY GIGABYTES RANKS` prints one JSON line for each measurement. Disks of shared
//! machines change speed from second to second, so every round measures the raw disk and Cairn in turn.

mod delta;
mod files;
mod keeper;
mod limits;
mod load;
mod measure;
mod packed;
mod plan;
mod prune;
mod rank;
mod save;
mod work;

use std::path::PathBuf;

/// Where to work, how large the state is, and how many processes hold it.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) directory: PathBuf,
    pub(crate) gigabytes: f64,
    pub(crate) ranks: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["rank", directory, gigabytes, ranks, rank] => {
            let job = job(directory, gigabytes, ranks);
            rank::serve(&job, rank.parse().expect("a rank"));
        }
        ["only", part, directory, gigabytes, ranks] => {
            let job = job(directory, gigabytes, ranks);
            match part {
                "deltas" => delta::measure(&job),
                "compression" => packed::measure(&job),
                "keeper" => keeper::measure(&job),
                "pruning" => prune::measure(&job),
                _ => panic!("deltas, compression, keeper or pruning, not {part}"),
            }
        }
        ["load", directory, gigabytes, ranks, case] => {
            load::serve(&job(directory, gigabytes, ranks), case);
        }
        [directory, gigabytes, ranks] => {
            let job = job(directory, gigabytes, ranks);
            plan::measure();
            save::measure(&job);
            load::measure(&job);
            files::remove(&job.directory.join("run"));
            delta::measure(&job);
            packed::measure(&job);
            keeper::measure(&job);
            prune::measure(&job);
        }
        // `cargo bench` without arguments: what does not need a disk.
        _ => plan::measure(),
    }
}

fn job(directory: &str, gigabytes: &str, ranks: &str) -> Job {
    Job {
        directory: directory.into(),
        gigabytes: gigabytes.parse().expect("a size in gigabytes"),
        ranks: ranks.parse().expect("a number of ranks"),
    }
}
