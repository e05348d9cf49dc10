//! Power averages: profiles whose width is a share of the whole run.
//!
//! Update `t` keeps `(1 − 1/t)^(γ+1)` of the average. What is left of the weights of update `k` is then
//! `(k^(γ+1) − (k−1)^(γ+1)) / t^(γ+1)`: the area over `k−1..k` of the density `(γ+1)·τ^γ / t^(γ+1)`. Its standard deviation is
//! the share `σ = √(γ+1) / ((γ+2)·√(γ+3))` of `t`, whatever `t` is (Karras et al., 2024).

/// The largest width: that of a uniform mean, γ = 0.
pub const MAX_SIGMA: f64 = 0.288_675_134_594_812_9;

/// The largest exponent; beyond it an average forgets all but its last few updates.
const MAX_GAMMA: f64 = 1e6;

/// The exponent of the profile with this width, or `None` if there is none.
pub fn gamma_of_sigma(sigma: f64) -> Option<f64> {
    if !(sigma > 0.0 && sigma <= MAX_SIGMA && sigma >= sigma_of_gamma(MAX_GAMMA)) {
        return None;
    }
    // The width falls as the exponent grows.
    let (mut low, mut high) = (0.0, MAX_GAMMA);
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            return Some(low);
        }
        match sigma_of_gamma(middle) >= sigma {
            true => low = middle,
            false => high = middle,
        }
    }
}

fn sigma_of_gamma(gamma: f64) -> f64 {
    ((gamma + 1.0) / (gamma + 3.0)).sqrt() / (gamma + 2.0)
}

/// The share that update `update` takes of the weights; NaN if there is no profile of this width.
pub(super) fn weight(sigma: f64, update: u64) -> f64 {
    let gamma = gamma_of_sigma(sigma).unwrap_or(f64::NAN);
    // 1 − (1 − 1/t)^(γ+1), without the cancellation.
    -((gamma + 1.0) * (-1.0 / update as f64).ln_1p()).exp_m1()
}

#[cfg(test)]
mod tests {
    //! Against the definitions, by sums over updates.

    use super::*;

    #[test]
    fn width_and_exponent_belong_together() {
        for (sigma, gamma) in [(0.05, 16.97), (0.10, 6.94), (0.25, 0.72), (MAX_SIGMA, 0.0)] {
            let found = gamma_of_sigma(sigma).unwrap();
            assert!((found - gamma).abs() < 0.01, "{sigma} gives {found}");
            assert!((sigma_of_gamma(found) - sigma).abs() < 1e-12);
        }
        for sigma in [0.0, -0.1, 0.3, f64::NAN, f64::INFINITY, 1e-7] {
            assert_eq!(gamma_of_sigma(sigma), None, "{sigma}");
        }
    }

    /// The weight of each of `updates` updates in the end.
    fn shares(sigma: f64, updates: u64) -> Vec<f64> {
        let mut shares = Vec::new();
        for update in 1..=updates {
            let weight = weight(sigma, update);
            shares.iter_mut().for_each(|share| *share *= 1.0 - weight);
            shares.push(weight);
        }
        shares
    }

    #[test]
    fn updates_add_up_to_the_area_under_the_density() {
        let (sigma, updates) = (0.1, 1000_u64);
        let gamma = gamma_of_sigma(sigma).unwrap();
        let until = |update: u64| (update as f64 / updates as f64).powf(gamma + 1.0);
        for (index, share) in (1..).zip(shares(sigma, updates)) {
            assert!((share - (until(index) - until(index - 1))).abs() < 1e-12);
        }
    }

    #[test]
    fn the_width_is_the_deviation_of_the_times_as_a_share_of_the_run() {
        for sigma in [0.05, 0.15, MAX_SIGMA] {
            let updates = 2_000;
            let times = || (1..).map(|update| f64::from(update) - 0.5);
            let shares = shares(sigma, updates);
            let mean: f64 = times().zip(&shares).map(|(time, share)| time * share).sum();
            let spread = times()
                .zip(&shares)
                .map(|(time, share)| (time - mean).powi(2) * share);
            let deviation = spread.sum::<f64>().sqrt() / updates as f64;
            assert!((deviation - sigma).abs() < 1e-5, "{deviation} for {sigma}");
        }
    }
}
