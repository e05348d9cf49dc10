//! Measures this machine, Cairn and its peers on the same work, and keeps the result.

mod machine;
mod measurement;
mod report;
mod table;

use std::path::{Path, PathBuf};

use crate::tools::S3S_FS;
use crate::workspace::{Workspace, files, output};
use crate::{Result, package, venv};
use machine::Machine;
use measurement::Measurement;
use report::Report;
use table::{Row, Table};

const USAGE: &str = "\
usage: cargo xtask bench [OPTIONS]

  --gigabytes N     size of the state (default 3.2; 0.25 in a bucket)
  --ranks N         processes that hold it (default 4)
  --directory DIR   where checkpoints are written (default target/bench); name the disk to measure
  --machine NAME    name of the result folder (default: the processor)
  --convert         measure converting instead, against `cp` and a script of safetensors and torch
  --merge           measure merging instead, against mergekit: GIGABYTES is the size of all models together
  --train           measure training instead, against PyTorch eager, and layouts beside one rank
  --python          measure the Python package instead: every script of bindings/python/bench
  --stores          measure it on a bucket instead, against obstore and s3fs under torch DCP, on an S3 server of this machine
";

/// Where the scripts that do the work with other tools lie.
const PEERS_FOLDER: &str = "python/bench";

/// The scripts that do the work with other tools; each prints one JSON line per phase.
const PEERS: [&str; 2] = ["torch_dcp.py", "safetensors_files.py"];

/// The script that converts with Cairn, copies, and casts with torch.
const CONVERT: &str = "convert.py";

/// Compiles a recipe of very many tensors.
const RECIPES: [&str; 6] = [
    "bench",
    "--quiet",
    "--package",
    "cairn-recipe",
    "--bench",
    "compile",
];

/// What there is to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// Saving and loading, in Rust.
    Engine,
    /// The command, by a script that runs it and its peers.
    Command(&'static str),
    /// The Python package.
    Package,
    /// The Python package on a bucket.
    Stores,
}

/// Where the scripts that measure the Python package lie, and the module they share.
const PACKAGE_FOLDER: &str = "bindings/python/bench";
const PACKAGE_HARNESS: &str = "harness.py";

/// The script that measures the package on a bucket, which needs a server.
const STORES: &str = "stores.py";

/// Phases that do the same work: ours, and a peer's.
const RIVALS: [(&str, &str, &str); 13] = [
    ("durable save, 4 processes", "torch DCP", "save"),
    ("load, same layout, 4 processes", "torch DCP", "load"),
    ("load, dim 0 to dim 1", "torch DCP", "load, resharded"),
    ("durable save, 4 processes", "safetensors", "save, fsync"),
    ("load, same layout", "safetensors", "load"),
    ("convert", "cp", "copy"),
    ("convert", "cp", "copy, sync"),
    ("convert, cast", "cp", "copy, sync"),
    ("convert, cast", "safetensors", "cast, sync"),
    (
        "inspect, 46,848 tensors",
        "safetensors",
        "headers, 46,848 tensors",
    ),
    ("merge, linear", "mergekit", "merge, linear"),
    ("merge, ties", "mergekit", "merge, ties"),
    ("merge, dare_linear", "mergekit", "merge, dare_linear"),
];

/// What to measure, and where.
struct Options {
    gigabytes: Option<f64>,
    ranks: usize,
    directory: PathBuf,
    machine: Option<String>,
    subject: Subject,
}

impl Options {
    fn parse(workspace: &Workspace, arguments: &[&str]) -> Result<Self> {
        let mut options = Self {
            gigabytes: None,
            ranks: 4,
            directory: workspace.target.join("bench"),
            machine: None,
            subject: Subject::Engine,
        };
        let mut arguments = arguments.iter();
        while let Some(&name) = arguments.next() {
            let mut value = || {
                let value = arguments.next().copied();
                value.ok_or_else(|| format!("`{name}` needs a value\n\n{USAGE}"))
            };
            match name {
                "--gigabytes" => options.gigabytes = Some(value()?.parse()?),
                "--ranks" => options.ranks = value()?.parse()?,
                "--directory" => options.directory = std::path::absolute(value()?)?,
                "--machine" => options.machine = Some(value()?.to_owned()),
                "--convert" => options.subject = Subject::Command(CONVERT),
                "--merge" => options.subject = Subject::Command("merge.py"),
                "--train" => options.subject = Subject::Command("train.py"),
                "--python" => options.subject = Subject::Package,
                "--stores" => options.subject = Subject::Stores,
                _ => return Err(format!("cannot read `{name}`\n\n{USAGE}").into()),
            }
        }
        Ok(options)
    }

    /// What every script is called with: the folder, the size and the number of ranks.
    fn arguments(&self) -> [String; 3] {
        let usual = if self.subject == Subject::Stores {
            0.25
        } else {
            3.2
        };
        [
            self.directory.to_string_lossy().into_owned(),
            self.gigabytes.unwrap_or(usual).to_string(),
            self.ranks.to_string(),
        ]
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
    let mut measurements = match options.subject {
        Subject::Engine => engine(workspace, &options)?,
        Subject::Command(CONVERT) => Measurement::collect(workspace.cargo(&RECIPES))?,
        _ => Vec::new(),
    };
    let python = venv::ensure(workspace)?;
    for script in scripts(workspace, &python, &options)? {
        measurements.extend(measure(workspace, &python, &options, &script)?);
    }

    let report = Report {
        command: format!("cargo xtask bench {}", arguments.join(" ")),
        machine: Machine::describe(workspace, &options.directory)?,
        table: table(&measurements),
        measurements,
    };
    print!("{}", report.table);
    let folder = report.store(workspace, options.machine.as_deref())?;
    eprintln!("stored in {}", folder.display());
    Ok(())
}

/// Runs our own measurements, `benches/engine`, and reads the JSON lines they print.
fn engine(workspace: &Workspace, options: &Options) -> Result<Vec<Measurement>> {
    eprintln!("── cairn");
    let mut command = workspace.cargo(&["bench", "--quiet", "--bench", "engine", "--"]);
    command.args(options.arguments());
    Measurement::collect(command)
}

/// The scripts to run: the engine's peers, or those of the freshly installed package, which bring their own.
fn scripts(workspace: &Workspace, python: &Path, options: &Options) -> Result<Vec<PathBuf>> {
    let peers = workspace.root.join(PEERS_FOLDER);
    match options.subject {
        Subject::Engine => Ok(PEERS.map(|name| peers.join(name)).to_vec()),
        Subject::Command(script) => {
            output(workspace.cargo(&["build", "--release", "--package", "cairn-cli"]))?;
            Ok(vec![peers.join(script)])
        }
        Subject::Package => {
            package::install(workspace, python, package::Profile::Release)?;
            let package = files(&workspace.root.join(PACKAGE_FOLDER), "py")?.into_iter();
            let apart = [PACKAGE_HARNESS, STORES];
            let measures = |path: &PathBuf| !apart.iter().any(|name| path.ends_with(name));
            Ok(package.filter(measures).collect())
        }
        Subject::Stores => {
            package::install(workspace, python, package::Profile::Release)?;
            Ok(vec![workspace.root.join(PACKAGE_FOLDER).join(STORES)])
        }
    }
}

/// Runs one script and reads the JSON lines it prints.
fn measure(
    workspace: &Workspace,
    python: &Path,
    options: &Options,
    script: &Path,
) -> Result<Vec<Measurement>> {
    eprintln!("── {}", script.display());
    let mut command = workspace.command(&python.to_string_lossy());
    command
        .arg(script)
        .args(options.arguments())
        .env("CAIRN_BIN", workspace.target.join("release/cairn"));
    if options.subject == Subject::Stores {
        command.env("S3S_FS", S3S_FS.ensure(workspace)?);
    }
    Measurement::collect(command)
}

/// Our phases beside the disk of the same rounds, peers beside the disk of the whole run, and both beside each other.
fn table(measurements: &[Measurement]) -> Table {
    let rows = measurements
        .iter()
        .map(|measurement| row(measurement, measurements));
    let rivals = RIVALS.iter().filter_map(|(ours, system, theirs)| {
        let find = |system: &str, phase: &str| {
            let same = |m: &&Measurement| m.system == system && m.phase == phase;
            measurements.iter().find(same).map(Measurement::rate)
        };
        Some(Row {
            what: format!("cairn {ours} over {system} {theirs}"),
            unit: "×".into(),
            measured: find("cairn", ours)? / find(system, theirs)?,
            ceiling: None,
            ratio: None,
            target: None,
        })
    });
    Table {
        rows: rows.chain(rivals).collect(),
    }
}

fn row(measurement: &Measurement, all: &[Measurement]) -> Row {
    let (measured, unit) = measurement.result();
    let same = all.iter().filter(|m| m.direction == measurement.direction);
    let of_the_run = same.filter_map(Measurement::ceiling).reduce(f64::max);
    let ceiling = match measurement.direction {
        Some(_) => measurement.ceiling().or(of_the_run),
        None => None,
    };
    Row {
        what: format!("{} {}", measurement.system, measurement.phase),
        unit,
        measured,
        ceiling,
        ratio: measurement
            .ratio()
            .or(ceiling.map(|ceiling| measured / ceiling)),
        target: measurement.target,
    }
}
