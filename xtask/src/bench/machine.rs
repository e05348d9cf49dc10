//! The facts about a machine that a number means nothing without.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::Result;
use crate::workspace::{Workspace, output};

/// Hardware, system and version of everything a measurement depends on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) filesystem: String,
    pub(crate) rustc: String,
    pub(crate) commit: String,
}

impl Machine {
    /// Asks the system; `directory` is where the measured files lie.
    pub(crate) fn describe(workspace: &Workspace, directory: &Path) -> Result<Self> {
        let ask = |program: &str, arguments: &[&str]| {
            let mut command = workspace.command(program);
            command.args(arguments);
            output(command)
        };
        Ok(Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism()?.get(),
            memory: memory(),
            kernel: ask("uname", &["-srm"])?,
            filesystem: ask(
                "findmnt",
                &["-n", "-o", "FSTYPE", "-T", &directory.to_string_lossy()],
            )?,
            rustc: ask("rustc", &["--version"])?,
            commit: ask("git", &["describe", "--always", "--dirty"])?,
        })
    }

    /// Names and values, in the order they are printed.
    pub(crate) fn facts(&self) -> [(&'static str, String); 7] {
        [
            ("cpu", self.cpu.clone()),
            ("cores", self.cores.to_string()),
            ("memory", self.memory.clone()),
            ("kernel", self.kernel.clone()),
            ("filesystem", self.filesystem.clone()),
            ("rustc", self.rustc.clone()),
            ("commit", self.commit.clone()),
        ]
    }

    /// The processor as a folder name: `amd-epyc-7b13-2-cores`.
    pub(crate) fn slug(&self) -> String {
        let words = format!("{} {} cores", self.cpu, self.cores).to_lowercase();
        let words = words.split(|character: char| !character.is_ascii_alphanumeric());
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        words.join("-")
    }
}

/// The installed memory, in GiB.
fn memory() -> String {
    let total = field("/proc/meminfo", "MemTotal");
    match total
        .strip_suffix(" kB")
        .and_then(|total| total.parse::<f64>().ok())
    {
        Some(kibibytes) => format!("{:.1} GiB", kibibytes / f64::from(1 << 20)),
        None => total,
    }
}

/// The value of the first `name : value` line of a file under `/proc`.
fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    match line.and_then(|rest| rest.split_once(':')) {
        Some((_, value)) => value.trim().to_owned(),
        None => "unknown".to_owned(),
    }
}
