//! Ceph with its gateway for S3: one monitor, one manager, one store in memory, on this machine alone.

use super::apt;
use super::server::{BUCKET, Running, folder, free_port, spawn, wait_for};
use crate::Result;
use crate::workspace::{Workspace, output};
use std::path::Path;
use std::process::{Child, Command};

const PACKAGES: [&str; 5] = ["ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "ceph-common"];
const KEYS: [&str; 2] = ["conformance", "conformance-secret"];
const FSID: &str = "5e0c0f6e-31a5-4b0c-9a51-5b8c3a7e0c01";
const OSD: &str = "5e0c0f6e-31a5-4b0c-9a51-5b8c3a7e0c02";
/// Who takes part, and what each may do.
const ENTITIES: [(&str, &[&str]); 5] = [
    ("mon.", &["mon"]),
    ("client.admin", &["mon", "osd", "mgr"]),
    ("mgr.x", &["mon", "osd"]),
    ("osd.0", &["mon", "osd", "mgr"]),
    ("client.rgw", &["mon", "osd"]),
];

/// A cluster that is being started.
struct Cluster<'a> {
    workspace: &'a Workspace,
    folder: &'a Path,
    processes: Vec<Child>,
}

pub(super) fn start(workspace: &Workspace) -> Result<Running> {
    apt(workspace, "radosgw", &PACKAGES)?;
    let folder = folder(workspace, "ceph")?;
    // The monitor makes its own.
    for daemon in ["mgr", "osd", "rgw"] {
        std::fs::create_dir(folder.join(daemon))?;
    }
    let ports = [free_port()?, free_port()?, free_port()?];
    let monitor = format!("[v2:127.0.0.1:{},v1:127.0.0.1:{}]", ports[0], ports[1]);
    std::fs::write(
        folder.join("ceph.conf"),
        configuration(&folder, &monitor, ports[2]),
    )?;
    let mut cluster = Cluster {
        workspace,
        folder: &folder,
        processes: Vec::new(),
    };
    let outcome = cluster.start(&monitor).and_then(|()| wait_for(ports[2]));
    let processes = std::mem::take(&mut cluster.processes);
    let running = Running::s3(folder, processes, ports[2], KEYS);
    outcome?;
    create_bucket(workspace, ports[2])?;
    Ok(running)
}

impl Cluster<'_> {
    fn start(&mut self, monitor: &str) -> Result {
        for (name, capabilities) in ENTITIES {
            self.add_key(name, capabilities)?;
        }
        let map = ["--create", "--fsid", FSID, "--addv", "a", monitor];
        let map_file = self.folder.join("monmap");
        let mut tool = self.command("monmaptool", &map);
        tool.arg(&map_file);
        output(tool)?;
        let mut make = self.command("ceph-mon", &["--mkfs", "-i", "a", "--monmap"]);
        make.arg(&map_file);
        output(make)?;
        self.run("ceph-mon", &["-f", "-i", "a"])?;
        self.run("ceph-mgr", &["-f", "-i", "x"])?;

        let key = self.tool("ceph-authtool", &["--print-key", "-n", "osd.0"])?;
        let secret = self.folder.join("osd.json");
        std::fs::write(&secret, format!(r#"{{"cephx_secret": "{key}"}}"#))?;
        self.ceph(&["auth", "del", "osd.0"])?;
        self.ceph(&["osd", "new", OSD, "0", "-i", &secret.to_string_lossy()])?;
        let make = ["--mkfs", "-i", "0", "--osd-uuid", OSD];
        output(self.command("ceph-osd", &make))?;
        self.run("ceph-osd", &["-f", "-i", "0"])?;
        self.run("radosgw", &["-f", "-n", "client.rgw"])?;

        let [key, secret] = KEYS;
        let user = ["user", "create", "--uid=cairn", "--display-name=cairn"];
        let mut admin = self.command("radosgw-admin", &user);
        admin.args(["--access-key", key, "--secret-key", secret]);
        output(admin).map(drop)
    }

    /// Any program of Ceph, told where the cluster is.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.workspace.command(program);
        command.args(arguments);
        // The two that only edit files know no cluster.
        if !matches!(program, "monmaptool" | "ceph-authtool") {
            command.arg("--conf").arg(self.folder.join("ceph.conf"));
        }
        command
    }

    fn run(&mut self, program: &str, arguments: &[&str]) -> Result {
        let process = spawn(self.command(program, arguments), self.folder)?;
        self.processes.push(process);
        Ok(())
    }

    fn ceph(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command("ceph", &["--connect-timeout", "60"]);
        command.args(arguments);
        output(command)
    }

    fn tool(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(program, arguments);
        command.arg(self.folder.join("keyring"));
        output(command)
    }

    fn add_key(&self, name: &str, capabilities: &[&str]) -> Result {
        let keyring = self.folder.join("keyring");
        let mut arguments = vec!["--gen-key", "-n", name];
        if !keyring.exists() {
            arguments.insert(0, "--create-keyring");
        }
        for capability in capabilities {
            arguments.extend(["--cap", *capability, "allow *"]);
        }
        self.tool("ceph-authtool", &arguments).map(drop)
    }
}

fn configuration(folder: &Path, monitor: &str, port: u16) -> String {
    let folder = folder.display();
    format!(
        "\
[global]
fsid = {FSID}
mon host = {monitor}
mon initial members = a
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {folder}/keyring
public addr = 127.0.0.1
cluster addr = 127.0.0.1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
run dir = {folder}
log file = {folder}/$name.log
pid file = {folder}/$name.pid
admin socket = {folder}/$name.asok
[mon.a]
mon data = {folder}/mon
[mgr.x]
mgr data = {folder}/mgr
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
[client.rgw]
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port}
"
    )
}

fn create_bucket(workspace: &Workspace, port: u16) -> Result {
    let [key, secret] = KEYS;
    let mut curl = workspace.command("curl");
    curl.args(["--silent", "--show-error", "--fail", "--request", "PUT"])
        .args(["--aws-sigv4", "aws:amz:us-east-1:s3"])
        // Without it the gateway takes the signature for a wrong one.
        .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(["--user", &format!("{key}:{secret}")])
        .arg(format!("http://127.0.0.1:{port}/{BUCKET}"));
    output(curl).map(drop)
}
