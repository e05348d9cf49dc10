//! The Python environment of the tests: `target/venv`, made from `python/requirements.txt`.

use std::fs;
use std::path::PathBuf;

use crate::Result;
use crate::workspace::{Workspace, output};

/// The lowest Python the pinned packages support.
const PYTHONS: [&str; 2] = ["python3.11", "python3"];

/// Makes the environment unless it already matches the requirements, and returns its interpreter.
///
/// One of other requirements gets what it lacks. The copy of the requirements inside is written last, so a broken install is never taken for a finished one.
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf> {
    let venv = workspace.target.join("venv");
    let python = venv.join("bin/python");
    let requirements = workspace.root.join("python/requirements.txt");
    let installed = venv.join("requirements.txt");
    let wanted = fs::read(&requirements)?;
    if python.exists() && fs::read(&installed).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }

    if !python.exists() {
        eprintln!("── venv: about 2.9 GB to download, 5.8 GB on disk, a few minutes; once");
        let system_python = PYTHONS
            .into_iter()
            .find(|python| workspace.has_program(python))
            .ok_or("no Python found: install Python 3.11 or newer")?;
        let mut create = workspace.command(system_python);
        create.args(["-m", "venv", "--clear"]).arg(&venv);
        output(create)?;
    }
    let mut install = workspace.command(&python.to_string_lossy());
    install
        .args(["-m", "pip", "install", "--quiet", "--no-deps"])
        .arg("--disable-pip-version-check")
        .arg("--requirement")
        .arg(&requirements);
    output(install)?;
    fs::write(&installed, wanted)?;
    Ok(python)
}
