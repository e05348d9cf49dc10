//! The formulas: averages over stored steps, and stored averages in place of the weights.

use super::definition::Ema;
use super::record::Record;
use super::rounded::{Rounded, Values};
use super::source::is_averaged;
use super::{is_stored_average, rest_name, stored_name};
use crate::Error;
use crate::computed::{Computed, SharedSource, read_elements};
use crate::source::Kept;
use crate::source::{Source, StoredTensor};
use cairn_store::Location;
use cairn_tensor::{Blend, Running, absorb};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The average defined as `ema` of what `steps` hold, in their order, in place of the weights of the last of them.
///
/// `every` is not looked at: each step given is an update.
///
/// # Errors
/// If there are no steps, the definition makes no sense or is of no tensor, or a step lacks a tensor or has it in another shape or type.
pub fn average_of(ema: &Ema, steps: Vec<AverageStep>) -> Result<Computed, Error> {
    ema.check()?;
    let wrong = |reason: &str| Error::Average {
        label: ema.label.clone(),
        reason: reason.into(),
    };
    let last = steps.last().ok_or_else(|| wrong("is over no steps"))?;
    let base = last.source.clone();
    let tensors = averaged_tensors(ema, base.as_ref());
    if tensors.is_empty() {
        return Err(wrong(
            "is of no tensor: no `f32`, `bf16`, `f16` or `f64` tensor has such a name",
        ));
    }
    for step in &steps {
        step.check(&tensors)?;
    }
    let formula = Rounded(OverSteps {
        updates: steps.len() as u64,
        sources: steps
            .into_iter()
            .map(|step| Kept::new(step.source))
            .collect(),
        ema: ema.clone(),
    });
    Ok(Computed::new(
        base,
        Arc::new(formula),
        tensors,
        is_stored_average,
    ))
}

/// One of the steps that are averaged.
pub struct AverageStep {
    /// What messages call it.
    pub name: String,
    /// Its tensors.
    pub source: SharedSource,
}

impl AverageStep {
    /// Checks that it has every tensor, with the right shape and a type that is averaged.
    fn check(&self, tensors: &BTreeMap<String, StoredTensor>) -> Result<(), Error> {
        for (name, tensor) in tensors {
            let reason = match self.source.find(name) {
                None => format!("is not in `{}`", self.name),
                Some(found) if found.shape != tensor.shape || !is_averaged(found.dtype) => format!(
                    "is {}{:?} in `{}`, and {}{:?} in the last step",
                    found.dtype, found.shape, self.name, tensor.dtype, tensor.shape
                ),
                Some(_) => continue,
            };
            let name = name.clone();
            return Err(Error::State { name, reason });
        }
        Ok(())
    }
}

/// The tensors of `source` that the definition is for, other names of them left out.
fn averaged_tensors(ema: &Ema, source: &dyn Source) -> BTreeMap<String, StoredTensor> {
    let aliases = source.aliases();
    let names = source.names().into_iter();
    let names = names.filter(|name| !is_stored_average(name) && !aliases.contains_key(*name));
    let found = names.filter_map(|name| Some((name.to_string(), source.find(name)?)));
    found
        .filter(|(name, tensor)| ema.includes(name) && is_averaged(tensor.dtype))
        .collect()
}

/// `source` with the stored average `label` in place of the weights: each in the type of the weights, or in `f32` where there are none.
///
/// `values` are the plain values of the source. Tensors of which there is no average are as they are.
///
/// # Errors
/// [`Error::NoSuchAverage`], and if it was never updated.
pub fn averaged(
    source: SharedSource,
    values: &BTreeMap<String, Value>,
    label: &str,
) -> Result<Computed, Error> {
    let term = StoredAverage::new(source.clone(), Record::find(label, values)?, 1.0)?;
    let tensors = term.tensors(source.as_ref());
    Ok(Computed::new(
        source,
        Arc::new(Rounded(Sum(vec![term]))),
        tensors,
        is_stored_average,
    ))
}

/// An average over stored steps.
struct OverSteps {
    ema: Ema,
    updates: u64,
    sources: Vec<Kept>,
}

impl Values for OverSteps {
    fn places(&self) -> Vec<Location> {
        self.sources.iter().flat_map(Source::places).collect()
    }

    fn values(&self, name: &str, elements: Range<usize>, values: &mut [u8]) -> Result<(), Error> {
        let mut rounded = vec![0; 4 * elements.len()];
        let mut rest = vec![0; 4 * elements.len()];
        for (update, source) in (1..).zip(&self.sources) {
            let (dtype, bytes) = read_elements(source, name, elements.clone())?;
            let state = Running {
                rounded: [&mut rounded],
                rest: self.ema.exact.then_some([&mut rest]),
            };
            let blend = Blend {
                weight: self.ema.weight(update),
            };
            absorb(&blend, state, dtype, &bytes).map_err(|source| Error::Copy {
                name: name.to_string(),
                source,
            })?;
        }
        values.fill(0);
        add(
            values,
            &rounded,
            Some(&rest),
            self.ema.correction(self.updates),
        );
        Ok(())
    }
}

/// A stored average as a term of a sum.
pub(super) struct StoredAverage {
    source: Kept,
    record: Record,
    factor: f64,
}

/// A sum of stored averages.
pub(super) struct Sum(pub(super) Vec<StoredAverage>);

impl StoredAverage {
    /// The average of `record`, corrected as its definition says, times `factor`.
    pub(super) fn new(source: SharedSource, record: Record, factor: f64) -> Result<Self, Error> {
        if record.updates == 0 {
            return Err(Error::Average {
                label: record.definition.label,
                reason: "was never updated".into(),
            });
        }
        Ok(Self {
            factor: factor * record.definition.correction(record.updates),
            source: Kept::new(source),
            record,
        })
    }

    /// The tensors it has an average of, as they are in `base`.
    pub(super) fn tensors(&self, base: &dyn Source) -> BTreeMap<String, StoredTensor> {
        let prefix = stored_name(&self.record.definition.label, "");
        let names = self.source.names().into_iter();
        let names =
            names.filter_map(|stored| stored.strip_prefix(&prefix).map(|name| (stored, name)));
        let tensor = |(stored, name): (&str, &str)| {
            let mut tensor = self.source.find(stored)?;
            if let Some(weights) = base.find(name).filter(|weights| is_averaged(weights.dtype)) {
                tensor.dtype = weights.dtype;
            }
            Some((name.to_string(), tensor))
        };
        names.filter_map(tensor).collect()
    }

    fn add_to(&self, values: &mut [u8], name: &str, elements: Range<usize>) -> Result<(), Error> {
        let Ema { label, exact, .. } = &self.record.definition;
        let load = |name: String| {
            read_elements(&self.source, &name, elements.clone()).map(|(_, bytes)| bytes)
        };
        let rounded = load(stored_name(label, name))?;
        let rest = exact.then(|| load(rest_name(label, name))).transpose()?;
        add(values, &rounded, rest.as_deref(), self.factor);
        Ok(())
    }
}

impl Values for Sum {
    fn places(&self) -> Vec<Location> {
        self.0
            .iter()
            .flat_map(|term| term.source.places())
            .collect()
    }

    fn values(&self, name: &str, elements: Range<usize>, values: &mut [u8]) -> Result<(), Error> {
        values.fill(0);
        let mut terms = self.0.iter();
        terms.try_for_each(|term| term.add_to(values, name, elements.clone()))
    }
}

/// Adds `factor · (rounded + rest)` to `values`.
fn add(values: &mut [u8], rounded: &[u8], rest: Option<&[u8]>, factor: f64) {
    let wide = |bytes: &[u8; 4]| f64::from(f32::from_le_bytes(*bytes));
    let rounded = rounded.as_chunks().0;
    let rest = rest.map(|rest| rest.as_chunks().0);
    for (index, value) in values.as_chunks_mut().0.iter_mut().enumerate() {
        let average = wide(&rounded[index]) + rest.map_or(0.0, |rest| wide(&rest[index]));
        *value = (f64::from_le_bytes(*value) + factor * average).to_le_bytes();
    }
}
