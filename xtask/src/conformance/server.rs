//! A server that runs: its processes, its address, and what opens it.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::workspace::Workspace;

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(120);
/// How often it is asked.
const PAUSE: Duration = Duration::from_millis(100);

/// The bucket, or container, that is used everywhere.
pub(super) const BUCKET: &str = "conformance";

/// A server that runs until it is dropped.
pub(super) struct Running {
    /// The bucket.
    pub(super) url: String,
    /// The settings that reach it, as variables of the environment.
    settings: Vec<(String, String)>,
    processes: Vec<Child>,
    folder: PathBuf,
}

impl Running {
    /// Processes that keep everything in `folder`, reached at `url` with `settings`.
    pub(super) fn new(
        folder: PathBuf,
        processes: Vec<Child>,
        url: &str,
        settings: &[(&str, &str)],
    ) -> Self {
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            url: url.to_owned(),
            settings: settings.iter().map(text).collect(),
            processes,
            folder,
        }
    }

    /// A server of S3 at `port` with one key.
    pub(super) fn s3(
        folder: PathBuf,
        processes: Vec<Child>,
        port: u16,
        [key, secret]: [&str; 2],
    ) -> Self {
        let settings = [
            ("AWS_ENDPOINT_URL", &*format!("http://127.0.0.1:{port}")),
            ("AWS_ACCESS_KEY_ID", key),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", "us-east-1"),
        ];
        Self::new(folder, processes, &format!("s3://{BUCKET}"), &settings)
    }

    /// What the tests are told: the bucket, and what opens it.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let bucket = ("CAIRN_TEST_BUCKET".to_owned(), self.url.clone());
        let settings = self.settings.iter().cloned();
        settings.chain([bucket]).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A new folder for what a server keeps.
pub(super) fn folder(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let folder = workspace.target.join("conformance").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A port that nobody has.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Starts a process whose words go to a file of the folder.
pub(super) fn spawn(mut command: Command, folder: &Path) -> Result<Child> {
    let log = fs::File::options()
        .append(true)
        .create(true)
        .open(folder.join("log"))?;
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command.spawn()?)
}

/// Waits until somebody listens at `port`.
pub(super) fn wait_for(port: u16) -> Result {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let deadline = Instant::now() + START;
    while TcpStream::connect_timeout(&address, PAUSE).is_err() {
        if Instant::now() > deadline {
            return Err(format!("nobody listens at {address}").into());
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
