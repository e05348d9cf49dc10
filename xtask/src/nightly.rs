//! What takes too long for every change: saves by real processes while real faults strike.

use crate::steps::Steps;
use crate::tools::S3S_FS;
use crate::workspace::Workspace;
use crate::{Result, package, venv};

/// The campaign; it prints what it found, and how to play a failed round again.
const CAMPAIGN: &str = "python/faults/campaign.py";

/// How many rounds are played unless told otherwise.
const ROUNDS: &str = "300";

/// Plays rounds of the campaign with the command and the package as they are now; `arguments` are the campaign's.
pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> Result {
    let python = venv::ensure(workspace)?;
    let server = S3S_FS.ensure(workspace)?;
    let mut steps = Steps::default();
    let build = ["build", "--release", "--package", "cairn-cli"];
    let built = steps.run("cargo build cairn", workspace.cargo(&build));
    let installed = steps.attempt("wheel", || {
        package::install(workspace, &python, package::Profile::Release)
    });
    if built && installed {
        let mut campaign = workspace.command(&python.to_string_lossy());
        campaign
            .arg(workspace.root.join(CAMPAIGN))
            .arg("--command")
            .arg(workspace.target.join("release/cairn"))
            .arg("--server")
            .arg(server)
            .args(["--rounds", ROUNDS])
            // Later ones count.
            .args(arguments);
        steps.run("faults", campaign);
    }
    steps.finish()
}
