//! Measures this machine, Cairn and its peers on the same work, and keeps the result.

mod machine;
mod measurement;
mod report;
mod table;

use std::path::PathBuf;

use crate::workspace::Workspace;
use crate::{Result, venv};
use machine::Machine;
use measurement::Measurement;
use report::Report;
use table::{Row, Table};

const USAGE: &str = "\
usage: cargo xtask bench [OPTIONS]

  --gigabytes N     size of the state (default 1)
  --ranks N         processes that hold it (default 4)
  --directory DIR   where checkpoints are written (default target/bench); name the disk to measure
  --machine NAME    name of the result folder (default: the processor)
";

/// The scripts that do the work with other tools; each prints one JSON line per phase.
const PEERS: [&str; 2] = ["torch_dcp.py", "safetensors_files.py"];

/// What to measure, and where.
struct Options {
    gigabytes: f64,
    ranks: usize,
    directory: PathBuf,
    machine: Option<String>,
}

impl Options {
    fn parse(workspace: &Workspace, arguments: &[&str]) -> Result<Self> {
        let mut options = Self {
            gigabytes: 1.0,
            ranks: 4,
            directory: workspace.target.join("bench"),
            machine: None,
        };
        for pair in arguments.chunks(2) {
            match *pair {
                ["--gigabytes", value] => options.gigabytes = value.parse()?,
                ["--ranks", value] => options.ranks = value.parse()?,
                ["--directory", value] => options.directory = std::path::absolute(value)?,
                ["--machine", value] => options.machine = Some(value.to_owned()),
                _ => return Err(format!("cannot read `{}`\n\n{USAGE}", pair.join(" ")).into()),
            }
        }
        Ok(options)
    }
}

/// Runs every measurement, prints the table and stores it under `benches/runs/`.
pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> Result {
    if matches!(arguments, ["--help" | "-h"]) {
        print!("{USAGE}");
        return Ok(());
    }
    let options = Options::parse(workspace, arguments)?;
    std::fs::create_dir_all(&options.directory)?;
    let limits = script(workspace, &options, "limits.py")?;
    let mut peers = Vec::new();
    for peer in PEERS {
        peers.extend(script(workspace, &options, peer)?);
    }

    let report = Report {
        command: format!("cargo xtask bench {}", arguments.join(" ")),
        machine: Machine::describe(workspace, &options.directory)?,
        table: compare(&limits, &peers),
        measurements: [limits, peers].concat(),
    };
    print!("{}", report.table);
    let folder = report.store(workspace, options.machine.as_deref())?;
    eprintln!("stored in {}", folder.display());
    Ok(())
}

/// Runs one script of `python/bench/` and reads the JSON lines it prints.
fn script(workspace: &Workspace, options: &Options, name: &str) -> Result<Vec<Measurement>> {
    eprintln!("── {name}");
    let python = venv::ensure(workspace)?;
    let mut command = workspace.command(&python.to_string_lossy());
    command
        .arg(workspace.root.join("python/bench").join(name))
        .arg(&options.directory)
        .arg(options.gigabytes.to_string())
        .arg(options.ranks.to_string());
    Measurement::collect(command)
}

/// Sets each measurement beside the best the disk did in the same direction; what moves no file is given in seconds.
fn compare(limits: &[Measurement], measurements: &[Measurement]) -> Table {
    let ceiling = |direction| {
        let limits = limits
            .iter()
            .filter(|limit| limit.direction == Some(direction));
        limits
            .map(Measurement::best_gigabytes_per_second)
            .reduce(f64::max)
    };
    let row = |measurement: &Measurement| {
        let (unit, measured) = match measurement.direction {
            Some(_) => ("GB/s", measurement.gigabytes_per_second()),
            None => ("s", measurement.median_seconds()),
        };
        Row {
            what: format!("{} {}", measurement.system, measurement.phase),
            unit: unit.to_owned(),
            measured,
            ceiling: measurement.direction.and_then(ceiling),
            target: None,
        }
    };
    Table {
        rows: measurements.iter().map(row).collect(),
    }
}
