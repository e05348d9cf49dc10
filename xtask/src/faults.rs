//! The simulation of faults, for more seeds than the tests have time for.

use crate::Result;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Runs `cairn-faults` with these options, in a build of its own: it puts every thread under its scheduler.
pub(crate) fn run(workspace: &Workspace, options: &[&str]) -> Result {
    let mut command = workspace.cargo(&["run", "--release", "--package", "cairn-faults"]);
    command
        .args(["--features", "simulate", "--example", "campaign", "--"])
        .args(options);
    let mut steps = Steps::default();
    steps.run("faults", command);
    steps.finish()
}
