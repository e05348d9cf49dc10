//! Which average: its weights, how often it is updated, and of what.

use super::power;
use crate::Error;
use crate::pattern::Pattern;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest label of an average, in bytes.
pub const MAX_LABEL_BYTES: usize = 64;

/// How much each update of an average weighs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Exponential with this decay `d`: each update keeps `d` of the average and takes `1 − d` of the weights.
    Decay(f64),
    /// A power of time, wide in proportion to the length of the run: update `t` keeps `(1 − 1/t)^(γ+1)`. The number is the width
    /// as a share of the run, `σ_rel`, from which γ follows. Two or more of these give any other afterwards ([`super::post_hoc`]).
    Power(f64),
    /// The mean of all steps, as in stochastic weight averaging.
    Uniform,
}

/// What an exponential average begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The weights of the first update.
    #[default]
    Copy,
    /// Zeros. Without `bias_correction` the average is too small until about `1/(1 − d)` updates are done.
    Zero,
}

/// The definition of an average.
///
/// ```
/// use cairn_checkpoint::ema::Ema;
/// let slow = Ema { every: 10, ..Ema::exponential(0.9999) };
/// assert_eq!(slow.to_string(), "`0.9999`: decay 0.9999, every 10 steps, from a copy");
/// assert!(Ema::exponential(1.0).check().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Ema {
    /// The name of the average.
    pub label: String,
    /// The weights of its updates.
    pub profile: Profile,
    /// Which steps are absorbed: those that are multiples of it. The profile counts updates, not steps.
    pub every: u64,
    /// What an exponential average begins with. The others have no beginning to choose: their first update copies.
    pub start: Start,
    /// Whether an average that began with zeros is divided by `1 − d^updates` where it is read.
    pub bias_correction: bool,
    /// Whether what rounding to `f32` leaves out is kept, which doubles the memory.
    pub exact: bool,
    /// Which tensors, by name; all if empty. Only `f32`, `bf16`, `f16` and `f64` tensors are averaged.
    pub include: Vec<Pattern>,
}

impl Ema {
    /// An exponential average with this decay.
    pub fn exponential(decay: f64) -> Self {
        Self::new(format!("{decay}"), Profile::Decay(decay))
    }

    /// A power average of this width.
    pub fn power(sigma: f64) -> Self {
        Self::new(format!("power-{sigma}"), Profile::Power(sigma))
    }

    /// The mean of all steps.
    pub fn uniform() -> Self {
        Self::new("uniform".into(), Profile::Uniform)
    }

    fn new(label: String, profile: Profile) -> Self {
        Self {
            label,
            profile,
            every: 1,
            start: Start::Copy,
            bias_correction: false,
            exact: true,
            include: Vec::new(),
        }
    }

    /// Checks that the definition makes sense.
    ///
    /// # Errors
    /// [`Error::Average`] with what does not.
    pub fn check(&self) -> Result<(), Error> {
        let label = self.label.as_str();
        let is_exponential = matches!(self.profile, Profile::Decay(_));
        let reason = if label.is_empty() || label.contains('/') || label.len() > MAX_LABEL_BYTES {
            format!("needs a label of 1 to {MAX_LABEL_BYTES} bytes without `/`")
        } else if let Profile::Decay(decay) = self.profile
            && !(0.0..1.0).contains(&decay)
        {
            format!("has decay {decay}, which is not in 0..1")
        } else if let Profile::Power(sigma) = self.profile
            && power::gamma_of_sigma(sigma).is_none()
        {
            format!(
                "has width {sigma}, which is not between 0 and {:.4}",
                power::MAX_SIGMA
            )
        } else if self.every == 0 {
            "is updated every 0 steps, which is never".into()
        } else if self.start == Start::Zero && !is_exponential {
            "cannot start with zeros: only an exponential average has a start".into()
        } else if self.start == Start::Copy && self.bias_correction {
            "has no bias to correct, because it starts with a copy".into()
        } else {
            return Ok(());
        };
        let label = label.to_string();
        Err(Error::Average { label, reason })
    }

    /// Whether the tensor called `name` is averaged.
    pub fn includes(&self, name: &str) -> bool {
        self.include.is_empty() || self.include.iter().any(|pattern| pattern.matches(name))
    }

    /// The share that update number `update`, from 1 on, takes of the weights.
    pub fn weight(&self, update: u64) -> f64 {
        match self.profile {
            Profile::Decay(_) if update == 1 && self.start == Start::Copy => 1.0,
            Profile::Decay(decay) => 1.0 - decay,
            Profile::Power(sigma) => power::weight(sigma, update),
            Profile::Uniform => 1.0 / update as f64,
        }
    }

    /// What the state is multiplied by where it is read, after so many updates.
    pub fn correction(&self, updates: u64) -> f64 {
        match self.profile {
            Profile::Decay(decay) if self.bias_correction => {
                -1.0 / (decay.ln() * updates as f64).exp_m1()
            }
            _ => 1.0,
        }
    }
}

impl fmt::Display for Ema {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "`{}`: ", self.label)?;
        match self.profile {
            Profile::Decay(decay) => write!(f, "decay {decay}")?,
            Profile::Power(sigma) => write!(f, "power {sigma}")?,
            Profile::Uniform => f.write_str("uniform mean")?,
        }
        match self.every {
            1 => f.write_str(", every step")?,
            every => write!(f, ", every {every} steps")?,
        }
        f.write_str(match (self.profile, self.start, self.bias_correction) {
            (Profile::Power(_) | Profile::Uniform, _, _) => "",
            (_, Start::Copy, _) => ", from a copy",
            (_, Start::Zero, false) => ", from zeros",
            (_, Start::Zero, true) => ", from zeros and corrected",
        })?;
        if !self.exact {
            f.write_str(", in plain f32")?;
        }
        if !self.include.is_empty() {
            let patterns: Vec<String> = self.include.iter().map(|p| format!("`{p}`")).collect();
            write!(f, ", of {}", patterns.join(", "))?;
        }
        Ok(())
    }
}

/// An average as JSON: `{"label": "slow", "decay": 0.9999, "every": 1, …}`.
#[derive(Debug, Serialize, Deserialize)]
struct Form {
    label: String,
    #[serde(flatten)]
    profile: Profile,
    every: u64,
    start: Start,
    bias_correction: bool,
    exact: bool,
    include: Vec<String>,
}

impl From<Ema> for Form {
    fn from(ema: Ema) -> Self {
        Self {
            label: ema.label,
            profile: ema.profile,
            every: ema.every,
            start: ema.start,
            bias_correction: ema.bias_correction,
            exact: ema.exact,
            include: ema.include.iter().map(ToString::to_string).collect(),
        }
    }
}

impl TryFrom<Form> for Ema {
    type Error = Error;

    fn try_from(form: Form) -> Result<Self, Error> {
        let ema = Self {
            label: form.label,
            profile: form.profile,
            every: form.every,
            start: form.start,
            bias_correction: form.bias_correction,
            exact: form.exact,
            include: form.include.iter().map(|text| Pattern::new(text)).collect(),
        };
        ema.check().map(|()| ema)
    }
}
