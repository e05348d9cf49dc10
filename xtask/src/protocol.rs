//! The model of commit and retention, at a larger bound than the tests have time for.

use crate::Result;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// Runs the search of `cairn-protocol` with these options.
pub(crate) fn run(workspace: &Workspace, options: &[&str]) -> Result {
    let mut command = workspace.cargo(&["run", "--release", "--package", "cairn-protocol"]);
    command.args(["--example", "search", "--"]).args(options);
    let mut steps = Steps::default();
    steps.run("protocol", command);
    steps.finish()
}
