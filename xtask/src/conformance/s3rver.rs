//! `s3rver`, an S3 server of npm that takes conditional requests and ignores the conditions.

use super::npm;
use super::server::{BUCKET, Running, folder, free_port, spawn, wait_for};
use crate::Result;
use crate::workspace::Workspace;

const PACKAGE: &str = "s3rver@3.7.1";
/// What it knows, always.
const KEYS: [&str; 2] = ["S3RVER", "S3RVER"];

pub(super) fn start(workspace: &Workspace) -> Result<Running> {
    let program = npm(workspace, PACKAGE, "s3rver")?;
    let (folder, port) = (folder(workspace, "s3rver")?, free_port()?);
    let mut command = workspace.command(&program.to_string_lossy());
    command
        .args(["--silent", "--address", "127.0.0.1"])
        .args(["--port", &port.to_string()])
        .args(["--configure-bucket", BUCKET, "--directory"])
        .arg(&folder);
    let process = spawn(command, &folder)?;
    let running = Running::s3(folder, vec![process], port, KEYS);
    wait_for(port).map(|()| running)
}
