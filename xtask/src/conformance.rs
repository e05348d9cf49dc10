//! Stores on real servers: each is installed, started, put to the suite of all stores and to a race of committers, and stopped.
//!
//! A nightly command: it needs the network, minutes, and for Ceph a system whose packages it may install.

mod azurite;
mod ceph;
mod s3rver;
mod s3s;
mod server;

use std::process::{Command, Stdio};

use crate::Result;
use crate::workspace::{Workspace, output, succeeds};
use server::Running;

/// A server to try.
struct Server {
    name: &'static str,
    /// What is known of it.
    kind: &'static str,
    /// Whether, of racing creators, one wins there; what ignores conditions without saying so is found out, what races is not.
    creations: Creations,
    /// What it does otherwise than the service it stands for, so that the suite must fail.
    fault: Option<&'static str>,
    /// Installs and starts it, with what it keeps in a folder of its own.
    start: fn(&Workspace) -> Result<Running>,
}

/// What a server is known to do with several who create one object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Creations {
    /// One wins.
    Atomic,
    /// All win, one after another as well, so that the probe finds it out.
    Ignored,
    /// One wins, but of those who come at the same moment several may: good for speed, not for commits.
    Racy,
}

const SERVERS: [Server; 4] = [
    Server {
        name: "Ceph RGW 16.2",
        kind: "S3, in production",
        creations: Creations::Atomic,
        fault: None,
        start: ceph::start,
    },
    Server {
        name: "Azurite 3.35",
        kind: "Azure, Microsoft's emulator",
        creations: Creations::Atomic,
        fault: None,
        start: azurite::start,
    },
    Server {
        name: "s3rver 3.7",
        kind: "S3, knows no conditions",
        creations: Creations::Ignored,
        fault: Some("gives all bytes of an object for the first alone"),
        start: s3rver::start,
    },
    Server {
        name: "s3s-fs 0.14",
        kind: "S3, looks first and creates then",
        creations: Creations::Racy,
        fault: Some("breaks down when a folder is read as an object"),
        start: s3s::start,
    },
];

/// The tests that a server is put to: the suite of all stores, and 16 committers of one step.
const SUITE: &str = "a_bucket_of_a_real_server_conforms";
const COMMITTERS: &str = "of_sixteen_racing_committers_one_wins";

/// Tries every server whose name contains `name`, and prints a table.
pub(crate) fn run(workspace: &Workspace, name: Option<&str>) -> Result {
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for server in SERVERS {
        if name.is_some_and(|name| !server.name.to_lowercase().contains(&name.to_lowercase())) {
            continue;
        }
        eprintln!("── {}", server.name);
        let cells = match (server.start)(workspace) {
            Ok(running) => {
                let found = examine(workspace, &running);
                if !server.is_as_expected(&found) {
                    failed.push(server.name);
                }
                found.cells(&server)
            }
            Err(error) => ["", "", ""].map(|_| format!("not run: {error}")),
        };
        let [suite, committers, creation] = cells;
        let (name, kind) = (server.name, server.kind);
        rows.push(format!(
            "| {name} | {kind} | {suite} | {committers} | {creation} |"
        ));
    }
    println!("| server | | suite of all stores | 16 committers of a step | conditional create |");
    println!("|---|---|---|---|---|");
    println!("{}", rows.join("\n"));
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not as expected: {}", failed.join(", ")).into()),
    }
}

/// What was found of a server.
struct Found {
    suite: bool,
    committers: bool,
    /// Whether the probe says that conditions are kept; nothing if the doctor could not tell.
    creation: Option<bool>,
}

fn examine(workspace: &Workspace, server: &Running) -> Found {
    let passes = |name| {
        let tested = test(workspace, server, name);
        tested.inspect_err(|error| eprintln!("{error}")).is_ok()
    };
    Found {
        suite: passes(SUITE),
        committers: passes(COMMITTERS),
        creation: doctor(workspace, server).ok(),
    }
}

/// Runs the one test that has this name. Both are built alike, and with them the command.
fn test(workspace: &Workspace, server: &Running, name: &str) -> Result {
    let built = ["--package", "cairn-store", "--package", "cairn-cli"];
    let mut command = workspace.cargo(&["test"]);
    command.args(built).args(["--test", "it", "--", name]);
    command.envs(server.environment());
    let ended = command.stderr(Stdio::inherit()).output()?;
    let told = String::from_utf8_lossy(&ended.stdout);
    match (ended.status.success(), told.contains("1 passed")) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("no test is called {name}").into()),
        (false, _) => Err(told.into()),
    }
}

/// Whether `cairn doctor`, which the tests have built, finds that conditions are kept.
fn doctor(workspace: &Workspace, server: &Running) -> Result<bool> {
    let mut command = Command::new(workspace.target.join("debug/cairn"));
    command
        .args(["doctor", "--json", &server.url])
        .envs(server.environment());
    let told: serde_json::Value = serde_json::from_slice(&command.output()?.stdout)?;
    let findings = told["findings"].as_array().ok_or("no findings")?;
    let finding = findings
        .iter()
        .find(|finding| finding["name"] == "conditional create");
    Ok(finding.is_some_and(|finding| finding["works"] == true))
}

impl Server {
    fn is_as_expected(&self, found: &Found) -> bool {
        let works = found.committers && found.suite == self.fault.is_none();
        match self.creations {
            Creations::Atomic => works && found.creation == Some(true),
            Creations::Ignored => works && found.creation == Some(false),
            // Whether anybody else wins is chance.
            Creations::Racy => true,
        }
    }
}

impl Found {
    fn cells(&self, server: &Server) -> [String; 3] {
        let passes = |passes| if passes { "passes" } else { "FAILS" }.to_owned();
        let suite = match server.fault {
            Some(fault) if !self.suite => format!("not passed: it {fault}"),
            _ => passes(self.suite),
        };
        let committers = match server.creations {
            Creations::Racy if !self.committers => "several win".to_owned(),
            _ => passes(self.committers),
        };
        let creation = match self.creation {
            Some(true) => "kept",
            Some(false) => "ignored, and found out",
            None => "the doctor fails",
        };
        [suite, committers, creation.to_owned()]
    }
}

/// Installs packages of npm in `target/tools/npm`, unless they are there.
fn npm(workspace: &Workspace, package: &str, program: &str) -> Result<std::path::PathBuf> {
    let folder = workspace.target.join("tools/npm");
    let program = folder.join("node_modules/.bin").join(program);
    if !program.exists() {
        std::fs::create_dir_all(&folder)?;
        let mut install = workspace.command("npm");
        install
            .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
            .arg("--prefix")
            .arg(&folder)
            .arg(package);
        output(install)?;
    }
    Ok(program)
}

/// Installs packages of Debian, unless a program of them is there.
fn apt(workspace: &Workspace, program: &str, packages: &[&str]) -> Result {
    if workspace.has_program(program) {
        return Ok(());
    }
    let install = || {
        let mut install = workspace.command("apt-get");
        install
            .args(["install", "--yes", "--no-install-recommends"])
            .args(packages);
        install
    };
    if succeeds(install()) {
        return Ok(());
    }
    let mut update = workspace.command("apt-get");
    update.arg("update");
    output(update).and_then(|_| output(install())).map(drop)
}
