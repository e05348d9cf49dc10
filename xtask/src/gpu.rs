//! Suites for a machine with a GPU and Python, but without Rust or a network: packed here, run there by one script.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::package::{self, Profile};
use crate::workspace::{Workspace, output};
use crate::{Result, venv};

/// The tests that need a GPU.
const TESTS: &str = "bindings/python/tests/gpu";

/// What the tests need besides the frameworks. All of it is Python, so it runs on every machine.
const TOOLS: [&str; 9] = [
    "_pytest",
    "execnet",
    "iniconfig",
    "packaging",
    "pluggy",
    "pygments",
    "pytest",
    "xdist",
    "py.py",
];

/// pytest finds plugins by what is written of their packages.
const DESCRIBED: [&str; 2] = ["pytest-", "pytest_xdist-"];

/// The suites there are.
const SUITES: [&str; 1] = ["captures"];

/// What goes to the machine has to be smaller than this.
const MAX_BYTES: u64 = 48 << 20;

const USAGE: &str = "usage: cargo xtask gpu SUITE [--dev]

Packs the package, the command and the tests of a suite into target/gpu. On the machine with the GPU, in the folder that holds target:

  bash target/gpu/run.sh SUITE      ends with a summary and a table, which are left in $OUT, too

  captures    every option of Checkpointer with every other, and training of every kind, while saves are under way

--dev packs the build that the tests here use, which is slower and is there sooner.
";

/// Packs a suite, and tries whether its script runs.
pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> Result {
    let (suite, profile) = match arguments {
        [suite] => (*suite, Profile::Release),
        [suite, "--dev"] | ["--dev", suite] => (*suite, Profile::Dev),
        _ => return Err(USAGE.into()),
    };
    if !SUITES.contains(&suite) {
        return Err(format!("there is no suite `{suite}`\n\n{USAGE}").into());
    }
    let python = venv::ensure(workspace)?;
    let folder = workspace.target.join("gpu");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    pack_package(workspace, &python, profile, &folder)?;
    pack_command(workspace, profile, &folder)?;
    pack_tests(workspace, &python, &folder)?;
    fs::write(folder.join("about.json"), about(workspace, profile)?)?;
    let len_bytes = folder_len(&folder)?;
    println!("{}: {:.1} MB", folder.display(), len_bytes as f64 / 1e6);
    if len_bytes > MAX_BYTES {
        return Err(format!("that is larger than {} MB", MAX_BYTES >> 20).into());
    }
    println!("there: bash target/gpu/run.sh {suite}");
    try_out(workspace, &python, &folder, suite)
}

/// The wheel, unpacked: the machine there need not have pip.
fn pack_package(workspace: &Workspace, python: &Path, profile: Profile, folder: &Path) -> Result {
    let wheel = package::build(workspace, python, profile)?;
    let mut unpack = package::module(workspace, python, "zipfile");
    unpack.arg("-e").arg(&wheel).arg(folder.join("package"));
    output(unpack)?;
    let name = wheel.file_name().ok_or("a wheel has a name")?;
    fs::write(
        folder.join("package/wheel.txt"),
        name.to_string_lossy().as_bytes(),
    )?;
    let native = folder.join("package/cairn/_cairn.abi3.so");
    strip(workspace, &native)
}

/// The command, without what only a debugger reads.
fn pack_command(workspace: &Workspace, profile: Profile, folder: &Path) -> Result {
    let mut build = workspace.cargo(&["build", "--package", "cairn-cli"]);
    build.args((profile == Profile::Release).then_some("--release"));
    output(build)?;
    let name = match profile {
        Profile::Release => "release",
        Profile::Dev => "debug",
    };
    let command = folder.join("cairn");
    fs::copy(workspace.target.join(name).join("cairn"), &command)?;
    strip(workspace, &command)?;
    let mut compress = workspace.command("gzip");
    compress.arg("-9").arg(&command);
    output(compress).map(drop)
}

fn strip(workspace: &Workspace, file: &Path) -> Result {
    let mut strip = workspace.command("strip");
    strip.arg("--strip-unneeded").arg(file);
    output(strip).map(drop)
}

fn pack_tests(workspace: &Workspace, python: &Path, folder: &Path) -> Result {
    copy(
        workspace,
        &workspace.root.join(TESTS),
        &folder.join("tests"),
    )?;
    fs::rename(folder.join("tests/run.sh"), folder.join("run.sh"))?;
    fs::copy(
        workspace.root.join(package::FOLDER).join("pyproject.toml"),
        folder.join("pyproject.toml"),
    )?;
    let tools = folder.join("tools");
    fs::create_dir_all(&tools)?;
    let libraries = site_packages(workspace, python)?;
    for entry in fs::read_dir(&libraries)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_description =
            name.ends_with(".dist-info") && DESCRIBED.iter().any(|begin| name.starts_with(begin));
        if is_description || TOOLS.contains(&name.as_str()) {
            copy(workspace, &libraries.join(&name), &tools.join(&name))?;
        }
    }
    Ok(())
}

/// Copies a file or a folder, without what Python compiled.
fn copy(workspace: &Workspace, source: &Path, target: &Path) -> Result {
    let mut copy = workspace.command("cp");
    copy.arg("-rL").arg(source).arg(target);
    output(copy)?;
    let mut clean = workspace.command("find");
    clean.arg(target).args([
        "-name",
        "__pycache__",
        "-prune",
        "-exec",
        "rm",
        "-r",
        "{}",
        "+",
    ]);
    output(clean).map(drop)
}

fn site_packages(workspace: &Workspace, python: &Path) -> Result<PathBuf> {
    let mut ask = workspace.command(&python.to_string_lossy());
    ask.args([
        "-c",
        "import sysconfig; print(sysconfig.get_path('purelib'))",
    ]);
    output(ask).map(PathBuf::from)
}

/// What was packed, for the table.
fn about(workspace: &Workspace, profile: Profile) -> Result<String> {
    let mut ask = workspace.command("git");
    ask.args(["describe", "--always", "--dirty", "--abbrev=10"]);
    let commit = output(ask)?;
    Ok(format!(
        "{{\"commit\": \"{commit}\", \"build\": \"{profile:?}\"}}\n"
    ))
}

fn folder_len(folder: &Path) -> Result<u64> {
    let mut len_bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        len_bytes += match entry.file_type()?.is_dir() {
            true => folder_len(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(len_bytes)
}

/// Without a GPU every test is left out, and the reason is told: that much can be seen here.
fn try_out(workspace: &Workspace, python: &Path, folder: &Path, suite: &str) -> Result {
    let mut script = Command::new("bash");
    script
        .arg(folder.join("run.sh"))
        .arg(suite)
        .current_dir(&workspace.root)
        .env("PYTHON", python)
        .env("CUDA_VISIBLE_DEVICES", "");
    let ended = script.status()?;
    match ended.success() {
        true => Ok(()),
        false => Err(format!(
            "{} does not run here: {ended}",
            folder.join("run.sh").display()
        )
        .into()),
    }
}
