//! Ranks as processes: Open MPI, installed with the system's packages if it is missing, and the tests that need it.

use crate::Result;
use crate::steps::Steps;
use crate::workspace::{Workspace, output};

/// What `mpirun` and `mpicc` are in, and what reads the headers of MPI.
const PACKAGES: [&str; 3] = ["openmpi-bin", "libopenmpi-dev", "libclang-dev"];

/// Tests the crate that is empty without its feature, and the command built with it.
pub(crate) fn test(workspace: &Workspace, name: Option<&str>, steps: &mut Steps) {
    if let Err(error) = ensure(workspace) {
        eprintln!("── mpi SKIPPED: {error}");
        return;
    }
    let mut suite = workspace.cargo(&["test", "--package", "cairn-mpi", "--features", "mpi"]);
    suite.args(name);
    steps.run("mpi: cairn-mpi", suite);
    // Of the command only what it does under MPI: the rest is tested without. Most of it is built already with these features.
    let mut command = workspace.cargo(&["test", "--workspace", "--features", "testing,mpi"]);
    command.args(["--test", "it", name.unwrap_or("processes")]);
    steps.run("mpi: cairn-cli", command);
}

/// Makes sure that there is an MPI to build for.
fn ensure(workspace: &Workspace) -> Result {
    if ["mpirun", "mpicc"]
        .iter()
        .all(|program| workspace.has_program(program))
        && has_clang(workspace)
    {
        return Ok(());
    }
    if !workspace.has_program("apt-get") {
        return Err("install Open MPI and libclang".into());
    }
    eprintln!("── mpi: installing {}; once", PACKAGES.join(", "));
    let install = || {
        let mut install = workspace.command("apt-get");
        install
            .args(["install", "--yes", "--no-install-recommends"])
            .args(PACKAGES);
        output(install)
    };
    if install().is_ok() {
        return Ok(());
    }
    // The lists of packages may be old, or not be there.
    let mut update = workspace.command("apt-get");
    update.arg("update");
    let installed = output(update).and_then(|_| install());
    let hint = || format!("`apt-get install {}` as root", PACKAGES.join(" "));
    installed
        .map(drop)
        .map_err(|error| format!("{error}; try {}", hint()).into())
}

/// Whether the headers of MPI can be read; only Debian's packages can be asked.
fn has_clang(workspace: &Workspace) -> bool {
    let mut query = workspace.command("dpkg-query");
    query.args(["--show", "libclang-dev"]);
    !workspace.has_program("dpkg-query") || output(query).is_ok()
}
