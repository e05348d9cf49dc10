//! What a checkpoint says of an average beside its tensors.

use super::AVERAGE;
use super::definition::Ema;
use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The plain value `ema/LABEL` of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What the average is.
    #[serde(flatten)]
    pub definition: Ema,
    /// How often it was updated.
    pub updates: u64,
    /// The step of the last update.
    pub last_step: Option<u64>,
}

/// What to do if a checkpoint does not have an average as it is defined now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnChange {
    /// Refuse to go on.
    #[default]
    Refuse,
    /// Forget the stored one, and begin with the next update.
    StartAnew,
}

impl Record {
    /// What `values` say of the average defined as `ema`.
    ///
    /// # Errors
    /// [`Error::NoSuchAverage`], or [`Error::AverageChanged`] if the stored one is another.
    pub(super) fn of(ema: &Ema, values: &BTreeMap<String, Value>) -> Result<Self, Error> {
        let record = Self::find(&ema.label, values)?;
        if record.definition != *ema {
            return Err(Error::AverageChanged {
                label: ema.label.clone(),
                stored: record.definition.to_string(),
                wanted: ema.to_string(),
            });
        }
        Ok(record)
    }

    /// What `values` say of the average called `label`.
    ///
    /// # Errors
    /// [`Error::NoSuchAverage`] with those there are.
    pub fn find(label: &str, values: &BTreeMap<String, Value>) -> Result<Self, Error> {
        let mut records = records(values)?;
        match records
            .iter()
            .position(|record| record.definition.label == label)
        {
            Some(index) => Ok(records.swap_remove(index)),
            None => Err(Error::NoSuchAverage {
                label: label.to_string(),
                available: records
                    .into_iter()
                    .map(|record| record.definition.label)
                    .collect(),
            }),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a record is JSON")
    }
}

/// Every average that a checkpoint with these plain values has.
///
/// # Errors
/// If the value of one is not what it should be.
pub fn records(values: &BTreeMap<String, Value>) -> Result<Vec<Record>, Error> {
    let labelled = values.iter().filter_map(|(name, value)| {
        let label = name.strip_prefix(AVERAGE)?.strip_prefix('/')?;
        Some((name, label, value))
    });
    let read = |(name, label, value): (&String, &str, &Value)| {
        let record = serde_json::from_value::<Record>(value.clone());
        match record {
            Ok(record) if record.definition.label == label => Ok(record),
            Ok(_) => Err(Error::damaged(name, "it is the value of another average")),
            Err(reason) => Err(Error::damaged(name, format!("it is no average: {reason}"))),
        }
    };
    labelled.map(read).collect()
}
