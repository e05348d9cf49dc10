//! What a manifest says of its step as a whole, for those who do not ask for its tensors: there may be thousands.

use super::{DeltaSummary, check_version};
use crate::Error;
use crate::seal;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A manifest without its layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Brief {
    pub(crate) step: u64,
    pub(crate) attempt: String,
    /// Those that the step was saved with.
    pub(crate) tags: Vec<String>,
    /// The keys of the files in other attempts that the step refers to.
    pub(crate) base_files: Vec<String>,
}

/// The members that are looked at; the others are passed over without a copy.
#[derive(Deserialize)]
struct Members {
    cairn: Option<Value>,
    needs: Option<Value>,
    step: Option<Value>,
    attempt: Option<Value>,
    tags: Option<Value>,
    delta: Option<Value>,
}

impl Brief {
    /// Reads it from the bytes of a manifest, whose seal is checked.
    ///
    /// # Errors
    /// As [`Manifest::decode`](super::Manifest::decode), but for damage in members that are passed over, which the seal excludes.
    pub(crate) fn decode(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let damaged = |reason: String| Error::damaged(file, reason);
        seal::check(bytes).map_err(damaged)?;
        let members: Members = serde_json::from_slice(bytes)
            .map_err(|error| damaged(format!("it is not JSON: {error}")))?;
        let version = [("cairn", members.cairn), ("needs", members.needs)];
        let version = version.into_iter();
        let version = version.filter_map(|(name, value)| Some((name.to_string(), value?)));
        check_version(file, &version.collect::<Map<String, Value>>())?;
        let delta: Option<DeltaSummary> = read("delta", members.delta).map_err(damaged)?;
        Ok(Self {
            step: read("step", members.step).map_err(damaged)?,
            attempt: read("attempt", members.attempt).map_err(damaged)?,
            tags: read("tags", members.tags).map_err(damaged)?,
            base_files: delta.iter().flat_map(DeltaSummary::files).collect(),
        })
    }
}

fn read<T: DeserializeOwned>(name: &str, value: Option<Value>) -> Result<T, String> {
    serde_json::from_value(value.unwrap_or_default()).map_err(|error| format!("`{name}`: {error}"))
}
