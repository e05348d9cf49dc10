//! Everything that can be said about the code without running its tests.

use crate::Result;
use crate::steps::Steps;
use crate::workspace::Workspace;

/// A checker that is not part of Rust: what we run, and the package that brings it.
struct Tool {
    program: &'static str,
    arguments: &'static [&'static str],
    package: &'static str,
}

const TOOLS: [Tool; 2] = [
    Tool {
        program: "cargo-deny",
        // Not `advisories`: they change by the day and need the network, so they say nothing about a change.
        arguments: &["check", "bans", "licenses", "sources"],
        package: "cargo-deny",
    },
    Tool {
        program: "typos",
        arguments: &[],
        package: "typos-cli",
    },
];

/// Each is linted alone, so that no crate leans on a feature that another one switches on.
const FEATURE_SETS: [&[&str]; 2] = [&[], &["--features", "testing"]];

/// Runs every check, then names the failed ones.
pub(crate) fn run(workspace: &Workspace) -> Result {
    let mut steps = Steps::default();
    steps.run("format", workspace.cargo(&["fmt", "--all", "--check"]));
    for features in FEATURE_SETS {
        let mut clippy = workspace.cargo(&["clippy", "--workspace", "--all-targets"]);
        clippy.args(features).args(["--", "-D", "warnings"]);
        steps.run(format!("clippy {}", features.join(" ")).trim_end(), clippy);
    }

    // Apart, because it changes what `cairn-checkpoint` is.
    let mut clippy = workspace.cargo(&["clippy", "--package", "cairn-faults", "--all-targets"]);
    clippy.args(["--features", "simulate", "--", "-D", "warnings"]);
    steps.run("clippy --features simulate", clippy);

    let mut docs = workspace.cargo(&["doc", "--workspace", "--no-deps", "--features", "testing"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    steps.run("docs", docs);

    let architecture = ["test", "--package", "cairn", "--test", "architecture"];
    steps.run("architecture", workspace.cargo(&architecture));

    for tool in TOOLS {
        if workspace.has_program(tool.program) {
            let mut command = workspace.command(tool.program);
            command.args(tool.arguments);
            // With what it checks: advisories are for who has the network, `cargo deny check advisories`.
            let name = format!("{} {}", tool.program, tool.arguments.join(" "));
            steps.run(name.trim_end(), command);
        } else {
            eprintln!(
                "── {} skipped: not installed; `cargo xtask check --install` installs it",
                tool.program
            );
        }
    }
    steps.finish()
}

/// Installs the checkers that are missing.
pub(crate) fn install(workspace: &Workspace) -> Result {
    let mut steps = Steps::default();
    for tool in TOOLS {
        if !workspace.has_program(tool.program) {
            let install = ["install", "--locked", tool.package];
            steps.run(
                &format!("install {}", tool.package),
                workspace.cargo(&install),
            );
        }
    }
    steps.finish()
}
