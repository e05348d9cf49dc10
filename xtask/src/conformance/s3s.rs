//! `s3s-fs`: objects as files.

use super::server::{BUCKET, Running, folder, free_port, spawn, wait_for};
use crate::Result;
use crate::tools::S3S_FS;
use crate::workspace::Workspace;

const KEYS: [&str; 2] = ["AK", "SK"];

pub(super) fn start(workspace: &Workspace) -> Result<Running> {
    let program = S3S_FS.ensure(workspace)?;
    let (folder, port) = (folder(workspace, "s3s-fs")?, free_port()?);
    let [key, secret] = KEYS;
    std::fs::create_dir(folder.join(BUCKET))?;
    let mut command = workspace.command(&program.to_string_lossy());
    command
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--access-key", key, "--secret-key", secret])
        .arg(&folder);
    let process = spawn(command, &folder)?;
    let running = Running::s3(folder, vec![process], port, KEYS);
    wait_for(port).map(|()| running)
}
