//! Where things lie: the repository, the build folder, the tools.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// The repository and its build folder, as absolute paths.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Finds the repository this program was built from. Honours `CARGO_TARGET_DIR`.
    pub(crate) fn locate() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .ok_or("xtask lies outside a workspace")?
            .to_path_buf();
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => std::path::absolute(folder)?,
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// The cargo that started us, running at the root with the same build folder.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env::var("CARGO").as_deref().unwrap_or("cargo"));
        command.args(arguments);
        command
    }

    /// Any program, running at the root with the same build folder.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// Whether a cargo subcommand such as `nextest` is installed.
    pub(crate) fn has_subcommand(&self, name: &str) -> bool {
        succeeds(self.cargo(&[name, "--version"]))
    }

    /// Whether a program on the path answers to `--version`.
    pub(crate) fn has_program(&self, name: &str) -> bool {
        let mut command = self.command(name);
        command.arg("--version");
        succeeds(command)
    }
}

/// The files of a folder whose names end in `.extension`, sorted.
pub(crate) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Runs a command silently.
pub(crate) fn succeeds(mut command: Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The trimmed standard output of a command.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
