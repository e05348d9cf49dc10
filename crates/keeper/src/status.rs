//! What a keeper holds, for whoever asks.

use crate::Error;
use crate::client::{PATIENCE, greet};
use crate::message::{Reply, Request};
use crate::wire::{receive, send};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a keeper holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The keeper's process.
    pub process: u32,
    /// The memory it has handed out, used or not.
    pub used_bytes: u64,
    /// The most it hands out.
    pub max_bytes: u64,
    /// The most it hands out to one run.
    pub max_run_bytes: u64,
    /// Those that are connected, this one left out.
    pub clients: usize,
    /// The snapshots, the oldest first.
    pub snapshots: Vec<HeldStatus>,
}

/// One snapshot in a keeper's memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldStatus {
    /// The address of its run.
    pub run: String,
    /// The step.
    pub step: u64,
    /// The attempt at it.
    pub attempt: String,
    /// Which writer.
    pub writer: usize,
    /// Of how many.
    pub world: usize,
    /// The length of its data file.
    pub len_bytes: u64,
    /// How far it is: `filling`, `captured`, `sealing`, `persisting`, `written`, `committed` or `stuck`.
    pub stage: String,
    /// Why it is stuck.
    pub reason: Option<String>,
    /// Whether its writer is gone.
    pub orphan: bool,
    /// How many read it.
    pub readers: usize,
    /// How often the keeper tried to commit it and could not. It tries again.
    #[serde(default)]
    pub tries: u32,
    /// Seconds since it came to this stage.
    pub seconds: f64,
}

/// Asks the keeper at `socket` what it holds.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn status(socket: &Path) -> Result<Status, Error> {
    let stream = greet(socket, PATIENCE)?;
    send(&stream, &Request::Status, &[], None)?;
    match receive::<Reply>(&stream)?.map(|received| received.head) {
        Some(Reply::Status { status }) => Ok(status),
        other => Err(Error::message(format!("it answered {other:?}"))),
    }
}
