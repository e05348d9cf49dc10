//! What is signed, and how it is stored beside `COMMIT`.

use super::keys::{PublicKey, SecretKey};
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::checksum::{from_hex, to_hex};
use crate::error::StoreContext;
use crate::names::step_folder;
use cairn_store::{PutMode, Store};
use serde::{Deserialize, Serialize};

/// The object beside `COMMIT` that holds a step's signatures.
pub const SIGNATURE: &str = "SIGNATURE";

/// The version of statements. It is signed with the rest, so a change of the format of steps leaves it as it is.
const STATEMENT_VERSION: u64 = 1;

/// What a signature vouches for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Statement {
    cairn: u64,
    kind: String,
    step: u64,
    attempt: String,
    /// The seal of `COMMIT`.
    manifest: String,
    /// What each writer wrote.
    pub(super) writers: Vec<Written>,
}

/// What one writer wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    /// The seal of its part.
    pub(super) part: String,
    /// The SHA-256 of the list of the SHA-256 of its blocks; `None` if it has no data file.
    pub(super) hashes: Option<String>,
}

/// One line under a statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    key: String,
    signature: String,
}

fn untrusted(step: u64, reason: impl Into<String>) -> Error {
    Error::Untrusted {
        step,
        reason: reason.into(),
    }
}

fn key_of(step: u64) -> String {
    format!("{}/{SIGNATURE}", step_folder(step))
}

impl Statement {
    pub(super) fn new(checkpoint: &Checkpoint, writers: Vec<Written>) -> Self {
        let manifest = checkpoint.manifest();
        Self {
            cairn: STATEMENT_VERSION,
            kind: "signature".into(),
            step: manifest.step,
            attempt: manifest.attempt.clone(),
            manifest: checkpoint.seal().to_string(),
            writers,
        }
    }

    fn text(&self) -> String {
        serde_json::to_string(self).expect("a statement is JSON")
    }

    /// Signs it and puts it beside `COMMIT`. Signatures of the same statement by others stay.
    pub(super) fn put(&self, store: &dyn Store, key: &SecretKey) -> Result<(), Error> {
        let own = Line {
            key: key.public().digits(),
            signature: to_hex(&key.sign(self.text().as_bytes())),
        };
        let mut lines = match read(store, self.step) {
            Ok((text, lines)) if text == self.text() => lines,
            _ => Vec::new(),
        };
        lines.retain(|line| line.key != own.key);
        lines.push(own);
        let mut text = self.text() + "\n";
        for line in &lines {
            text += &serde_json::to_string(line).expect("a line is JSON");
            text.push('\n');
        }
        let object = key_of(self.step);
        let put = store.put(&object, text.as_bytes(), PutMode::Replace);
        put.doing(|| format!("write `{object}`"))
    }

    /// The statement about a checkpoint that `key` has signed.
    ///
    /// # Errors
    /// [`Error::Untrusted`] if there is none, or it is of something else.
    pub(crate) fn signed_by(key: &PublicKey, checkpoint: &Checkpoint) -> Result<Self, Error> {
        let step = checkpoint.step();
        let (text, lines) = read(checkpoint.store().as_ref(), step)?;
        let Some(line) = lines.iter().find(|line| line.key == key.digits()) else {
            return Err(untrusted(step, format!("it is not signed by `{key}`")));
        };
        let signature = from_hex::<64>(&line.signature);
        if !signature.is_some_and(|signature| key.confirms(text.as_bytes(), &signature)) {
            return Err(untrusted(step, "its signature is wrong"));
        }
        let statement: Self = serde_json::from_str(&text)
            .map_err(|error| untrusted(step, format!("its statement cannot be read: {error}")))?;
        let expected = Self::new(checkpoint, statement.writers.clone());
        let all = statement.writers.len() == checkpoint.manifest().writers();
        match statement == expected && all {
            true => Ok(statement),
            false => Err(untrusted(step, "its signature is of other contents")),
        }
    }

    /// Whether a writer's part has this seal.
    pub(crate) fn names_part(&self, writer: usize, seal: &str) -> bool {
        let written = self.writers.get(writer);
        written.is_some_and(|written| written.part == seal)
    }

    /// The digest of the list of a writer's blocks.
    pub(crate) fn hashes(&self, writer: usize) -> Option<&str> {
        self.writers.get(writer)?.hashes.as_deref()
    }
}

/// A step's statement as it was signed, and its signatures.
fn read(store: &dyn Store, step: u64) -> Result<(String, Vec<Line>), Error> {
    let key = key_of(step);
    let bytes = match store.get(&key) {
        Err(cairn_store::Error::NotFound { .. }) => {
            return Err(untrusted(step, "it is not signed"));
        }
        result => result.doing(|| format!("read `{key}`"))?,
    };
    let text = String::from_utf8(bytes).map_err(|_| untrusted(step, "its signature is garbled"))?;
    let mut lines = text.lines();
    let statement = lines.next().unwrap_or_default().to_string();
    let signatures = lines.map(serde_json::from_str).collect::<Result<_, _>>();
    let signatures = signatures.map_err(|_| untrusted(step, "its signature is garbled"))?;
    Ok((statement, signatures))
}
