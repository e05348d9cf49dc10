//! The Python package: built by maturin as one wheel for every Python, installed in the environment, checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::steps::Steps;
use crate::venv;
use crate::workspace::{Workspace, files, output};

/// A wheel over this size carries something that does not belong there.
const MAX_WHEEL_BYTES: u64 = 15_000_000;

/// Where the package lies.
pub(crate) const FOLDER: &str = "bindings/python";

/// Python code that users see, so its types are checked.
const TYPED: [&str; 2] = ["py_src", "examples"];

/// How the package is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As users have it.
    Release,
    /// As the Rust tests are, which have built nearly all of it.
    Dev,
}

/// Builds the wheel, prints its path and size, and refuses one that is too large.
pub(crate) fn wheel(workspace: &Workspace) -> Result {
    let python = venv::ensure(workspace)?;
    let wheel = build(workspace, &python, Profile::Release)?;
    let len_bytes = fs::metadata(&wheel)?.len();
    println!("{}: {:.1} MB", wheel.display(), len_bytes as f64 / 1e6);
    if len_bytes > MAX_WHEEL_BYTES {
        let most = MAX_WHEEL_BYTES / 1_000_000;
        return Err(format!("the wheel is larger than {most} MB").into());
    }
    Ok(())
}

/// Builds the package as it is now and installs it in the environment.
pub(crate) fn install(workspace: &Workspace, python: &Path, profile: Profile) -> Result {
    let wheel = build(workspace, python, profile)?;
    let mut install = module(workspace, python, "pip");
    install
        .args(["install", "--quiet", "--no-deps", "--force-reinstall"])
        .arg("--disable-pip-version-check")
        .arg(wheel);
    output(install).map(drop)
}

/// The wheel of the sources as they are now. Cargo knows what is still fresh.
pub(crate) fn build(workspace: &Workspace, python: &Path, profile: Profile) -> Result<PathBuf> {
    let folder = workspace.target.join("wheels");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut build = module(workspace, python, "maturin");
    build
        .args(["build", "--quiet"])
        .args((profile == Profile::Release).then_some("--release"))
        .arg("--manifest-path")
        .arg(workspace.root.join(FOLDER).join("Cargo.toml"))
        .arg("--out")
        .arg(&folder);
    output(build)?;

    match &files(&folder, "whl")?[..] {
        [wheel] if wheel.to_string_lossy().contains("-abi3-") => Ok(wheel.clone()),
        wheels => Err(format!("expected one wheel for every Python, found {wheels:?}").into()),
    }
}

/// Checks the types of the package and its examples, and that the stub says what the installed native module does.
pub(crate) fn check_types(workspace: &Workspace, python: &Path, steps: &mut Steps) {
    let folder = workspace.root.join(FOLDER);
    let mut mypy = module(workspace, python, "mypy");
    mypy.current_dir(&folder)
        .arg("--cache-dir")
        .arg(workspace.target.join("mypy"))
        .args(TYPED.iter().filter(|name| folder.join(name).exists()));
    steps.run("mypy", mypy);

    let mut stubtest = module(workspace, python, "mypy.stubtest");
    stubtest
        .current_dir(&folder)
        .args(["cairn._cairn", "--mypy-config-file", "pyproject.toml"]);
    steps.run("stubtest", stubtest);
}

/// A Python module run as a program.
pub(crate) fn module(workspace: &Workspace, python: &Path, name: &str) -> Command {
    let mut command = workspace.command(&python.to_string_lossy());
    command.args(["-m", name]);
    command
}
