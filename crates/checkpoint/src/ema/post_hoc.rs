//! An average that was never kept, made from power averages that were.
//!
//! Stored power averages are weighted sums of the weights of all steps, and their densities are known. Factors are sought with which
//! the sum of these densities comes closest, in the sense of least squares, to the density that is wanted; the same factors then
//! turn the stored averages into the wanted one (Karras et al., 2024).

use super::definition::Profile;
use super::formula::{AverageStep, StoredAverage, Sum};
use super::is_stored_average;
use super::power::gamma_of_sigma;
use super::record::{Record, records};
use super::rounded::Rounded;
use crate::Error;
use crate::computed::Computed;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An average made after the fact.
pub struct PostHoc {
    /// The last step with the average in place of the weights.
    pub source: Computed,
    /// The stored averages it is made of: step, label, and factor.
    pub terms: Vec<(String, String, f64)>,
    /// How far the density is from the wanted one, as a share of it: 0 is perfect.
    pub error: f64,
}

/// The power average of width `sigma` at the last of `steps`, made from all power averages that these store.
///
/// Each step comes with its plain values.
///
/// # Errors
/// If there is no such width, fewer than two power averages, or they are not of the same tensors at the same steps.
pub fn post_hoc(
    sigma: f64,
    steps: Vec<(AverageStep, BTreeMap<String, Value>)>,
) -> Result<PostHoc, Error> {
    let wrong = |reason: String| Error::Average {
        label: format!("power-{sigma}"),
        reason,
    };
    let gamma = gamma_of_sigma(sigma).ok_or_else(|| wrong(format!("has no width {sigma}")))?;
    let mut stored = Vec::new();
    for (step, values) in steps {
        for record in records(&values)? {
            if let Some(density) = density_of(&record) {
                stored.push((step.name.clone(), step.source.clone(), record, density));
            }
        }
    }
    let (Some((_, base, _, last)), true) = (stored.last(), stored.len() > 1) else {
        let count = stored.len();
        return Err(wrong(format!(
            "needs two or more stored power averages, and there are {count}"
        )));
    };
    let (base, time) = (base.clone(), last.time);
    if stored
        .iter()
        .any(|(_, _, record, _)| !is_alike(record, &stored[0].2))
    {
        return Err(wrong(
            "needs averages of the same tensors, updated every so many steps alike".into(),
        ));
    }
    let densities: Vec<Density> = stored.iter().map(|(_, _, _, density)| *density).collect();
    let fit = fit(&densities, Density { gamma, time });
    let (factors, error) =
        fit.ok_or_else(|| wrong("cannot be told from these averages, which are too alike".into()))?;
    let mut terms = Vec::new();
    let mut sum = Vec::new();
    for ((step, source, record, _), factor) in stored.into_iter().zip(factors) {
        terms.push((step, record.definition.label.clone(), factor));
        sum.push(StoredAverage::new(source, record, factor)?);
    }
    let tensors = sum[0].tensors(base.as_ref());
    if sum
        .iter()
        .any(|term| !term.tensors(base.as_ref()).keys().eq(tensors.keys()))
    {
        return Err(wrong("needs averages of the same tensors".into()));
    }
    let source = Computed::new(
        base,
        Arc::new(Rounded(Sum(sum))),
        tensors,
        is_stored_average,
    );
    Ok(PostHoc {
        source,
        terms,
        error,
    })
}

/// The density of a stored power average.
fn density_of(record: &Record) -> Option<Density> {
    let gamma = match record.definition.profile {
        Profile::Power(sigma) => gamma_of_sigma(sigma)?,
        Profile::Uniform => 0.0,
        Profile::Decay(_) => return None,
    };
    let time = record.updates as f64;
    (record.updates > 0).then_some(Density { gamma, time })
}

/// Whether two averages saw the same.
fn is_alike(one: &Record, other: &Record) -> bool {
    let (one, other) = (&one.definition, &other.definition);
    one.every == other.every && one.include == other.include
}

/// The density of the weights over time: a power that ends at `time`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Density {
    pub(super) gamma: f64,
    pub(super) time: f64,
}

impl Density {
    /// The integral of the product of two densities.
    pub(super) fn product(self, other: Self) -> f64 {
        let (first, last) = match self.time <= other.time {
            true => (self, other),
            false => (other, self),
        };
        let overlap = (first.time / last.time).powf(last.gamma) / last.time;
        overlap * (self.gamma + 1.0) * (other.gamma + 1.0) / (self.gamma + other.gamma + 1.0)
    }
}

/// The factors of `terms` whose sum comes closest to `wanted`, and how far away it stays, as a share of `wanted`.
fn fit(terms: &[Density], wanted: Density) -> Option<(Vec<f64>, f64)> {
    let row = |one: &Density| {
        let products = terms.iter().map(|other| one.product(*other));
        products.chain([one.product(wanted)]).collect()
    };
    let equations: Vec<Vec<f64>> = terms.iter().map(row).collect();
    let factors = solve(equations.clone())?;
    let whole = wanted.product(wanted);
    let mut square = whole;
    for (equation, factor) in equations.iter().zip(&factors) {
        let (wanted, products) = equation.split_last()?;
        let sum: f64 = products.iter().zip(&factors).map(|(a, b)| a * b).sum();
        square += factor * (sum - 2.0 * wanted);
    }
    Some((factors, (square / whole).max(0.0).sqrt()))
}

/// Solves linear equations by elimination: rows of coefficients, the right side last. `None` if they do not determine the answer.
fn solve(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = rows.len();
    for column in 0..count {
        let largest = (column..count)
            .max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        rows.swap(column, largest);
        let pivot = rows[column].clone();
        if pivot[column] == 0.0 {
            return None;
        }
        for row in &mut rows[column + 1..] {
            let ratio = row[column] / pivot[column];
            for (value, above) in row.iter_mut().zip(&pivot).skip(column) {
                *value -= ratio * above;
            }
        }
    }
    let mut answer = vec![0.0; count];
    for row in (0..count).rev() {
        let known: f64 = (row + 1..count)
            .map(|column| rows[row][column] * answer[column])
            .sum();
        answer[row] = (rows[row][count] - known) / rows[row][row];
    }
    answer
        .iter()
        .all(|value| value.is_finite())
        .then_some(answer)
}

#[cfg(test)]
mod tests {
    //! Densities against sums, fits against profiles that are among the terms.

    use super::*;

    fn density(sigma: f64, time: f64) -> Density {
        let gamma = gamma_of_sigma(sigma).unwrap();
        Density { gamma, time }
    }

    #[test]
    fn the_product_of_densities_is_their_integral() {
        let pair = [
            Density {
                gamma: 2.5,
                time: 3.0,
            },
            Density {
                gamma: 7.0,
                time: 5.0,
            },
        ];
        let at = |density: Density, time: f64| match time <= density.time {
            true => {
                (density.gamma + 1.0) * time.powf(density.gamma)
                    / density.time.powf(density.gamma + 1.0)
            }
            false => 0.0,
        };
        let steps = 1_000_000_u32;
        let width = 5.0 / f64::from(steps);
        let integral: f64 = (0..steps)
            .map(|step| (f64::from(step) + 0.5) * width)
            .map(|time| at(pair[0], time) * at(pair[1], time) * width)
            .sum();
        assert!((pair[0].product(pair[1]) - integral).abs() < 1e-6 * integral);
        assert_eq!(pair[0].product(pair[1]), pair[1].product(pair[0]));
    }

    #[test]
    fn a_profile_among_the_terms_is_found_exactly() {
        let terms = [
            density(0.05, 100.0),
            density(0.1, 100.0),
            density(0.05, 60.0),
        ];
        let (factors, error) = fit(&terms, terms[1]).unwrap();
        for (factor, expected) in factors.iter().zip([0.0, 1.0, 0.0]) {
            assert!((factor - expected).abs() < 1e-9, "{factors:?}");
        }
        assert!(error < 1e-6);
    }

    #[test]
    fn two_widths_at_several_times_make_any_between() {
        let times = [200.0, 400.0, 600.0, 800.0, 1000.0];
        let terms: Vec<Density> = times
            .iter()
            .flat_map(|time| [density(0.05, *time), density(0.1, *time)])
            .collect();
        for sigma in [0.06, 0.075, 0.09, 0.12] {
            let (factors, error) = fit(&terms, density(sigma, 1000.0)).unwrap();
            assert!(error < 0.03, "{sigma}: {error}");
            assert!((factors.iter().sum::<f64>() - 1.0).abs() < 0.01);
        }
        let (_, far) = fit(&terms[8..], density(0.02, 1000.0)).unwrap();
        assert!(
            far > 0.2,
            "two terms cannot give what is much narrower: {far}"
        );
    }

    #[test]
    fn equations_without_an_answer_have_none() {
        assert_eq!(
            solve(vec![vec![2.0, 1.0, 5.0], vec![1.0, 1.0, 3.0]]),
            Some(vec![2.0, 1.0])
        );
        assert_eq!(
            solve(vec![vec![0.0, 1.0, 3.0], vec![1.0, 0.0, 2.0]]),
            Some(vec![2.0, 3.0])
        );
        assert_eq!(solve(vec![vec![1.0, 1.0, 1.0], vec![1.0, 1.0, 2.0]]), None);
        assert_eq!(solve(Vec::new()), Some(Vec::new()));
    }
}
