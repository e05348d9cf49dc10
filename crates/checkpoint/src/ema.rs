//! Averages of weights over the steps of a training run.
//!
//! | to | use |
//! |---|---|
//! | say which average | [`Ema`], with a [`Profile`] of weights |
//! | keep averages while training | [`Averages`] of one rank, fed with the bytes a save captured |
//! | save and resume them on any layout | [`Averages::view`], [`Averages::resume`], [`Averages::targets`] |
//! | read averaged weights in place of the weights | [`averaged`] |
//! | average stored checkpoints | [`average_of`] |
//! | make an average that was never kept | [`post_hoc`] |
//!
//! There is one definition. An average kept while training and one worked out later from the same steps go through the same
//! arithmetic ([`cairn_tensor::absorb`]) and have the same bytes.
//!
//! In a checkpoint the average `LABEL` of tensor `NAME` is the `f32` tensor `ema/LABEL/NAME`; `ema-rest/LABEL/NAME` is what rounding
//! to `f32` left out, and the plain value `ema/LABEL` holds the definition, the number of updates and the last step.

mod averages;
mod definition;
mod formula;
mod post_hoc;
mod power;
mod record;
mod rounded;
mod saved;
mod segments;
mod source;
#[cfg(test)]
mod tests;

pub use averages::Averages;
pub use definition::{Ema, MAX_LABEL_BYTES, Profile, Start};
pub use formula::{AverageStep, average_of, averaged};
pub use post_hoc::{PostHoc, post_hoc};
pub use power::{MAX_SIGMA, gamma_of_sigma};
pub use record::{OnChange, Record, records};
pub use rounded::MAX_COMPUTED_BUFFER_BYTES;
pub use saved::View;
pub use source::Averaged;

/// The name under which the average `label` of tensor `name` is stored.
pub fn stored_name(label: &str, name: &str) -> String {
    format!("{AVERAGE}/{label}/{name}")
}

/// The name under which `stored_name` is stored to more bits.
fn rest_name(label: &str, name: &str) -> String {
    format!("{REST}/{label}/{name}")
}

/// Whether a tensor or value of a checkpoint belongs to an average.
pub fn is_stored_average(name: &str) -> bool {
    let first = name.split_once('/').map(|(first, _)| first);
    first.is_some_and(|first| [AVERAGE, REST].contains(&first))
}

const AVERAGE: &str = "ema";
const REST: &str = "ema-rest";
