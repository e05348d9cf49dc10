//! Which token comes next.

use cairn::kernels::random::Stream;

/// How a token is chosen by its logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampling {
    /// What logits are divided by; at 0 the greatest is taken.
    pub(super) temperature: f64,
    /// How much probability the tokens have together that are chosen among.
    pub(super) top_p: f64,
    /// Decides what is random.
    pub(super) seed: u64,
}

impl Sampling {
    /// The token for place `place` of the text; none if no logit is a number.
    pub(super) fn choose(&self, logits: &[f32], place: u64) -> Option<usize> {
        let mut order: Vec<usize> = (0..logits.len())
            .filter(|token| !logits[*token].is_nan())
            .collect();
        // The likeliest first, of equal ones the first.
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let greatest = f64::from(logits[*order.first()?]);
        if self.temperature <= 0.0 || !greatest.is_finite() {
            return order.first().copied();
        }
        let weight = |token: &usize| {
            let below = f64::from(logits[*token]) - greatest;
            (below / self.temperature).exp()
        };
        let weights: Vec<f64> = order.iter().map(weight).collect();
        let kept = nucleus(&weights, self.top_p);
        let mark = uniform(self.seed, place) * weights[..kept].iter().sum::<f64>();
        let mut sum = 0.0;
        let chosen = weights[..kept].iter().position(|weight| {
            sum += weight;
            mark < sum
        });
        Some(order[chosen.unwrap_or(kept - 1)])
    }
}

/// How many of the first weights have this share of all together; at least one.
fn nucleus(weights: &[f64], share: f64) -> usize {
    let enough = share * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    let last = weights.iter().position(|weight| {
        sum += weight;
        sum >= enough
    });
    last.map_or(weights.len(), |last| last + 1)
}

/// A number in [0, 1) that depends on the seed and the place alone.
fn uniform(seed: u64, place: u64) -> f64 {
    let [word, ..] = Stream::new(seed).block(place);
    f64::from(word) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    //! The ends of all scales, and shares that come out as they should.

    use super::*;

    fn sampling(temperature: f64, top_p: f64) -> Sampling {
        Sampling {
            temperature,
            top_p,
            seed: 3,
        }
    }

    #[test]
    fn without_temperature_the_first_of_the_greatest_is_taken() {
        let greedy = sampling(0.0, 1.0);
        assert_eq!(greedy.choose(&[1.0, 3.0, 3.0, 2.0], 0), Some(1));
        assert_eq!(greedy.choose(&[f32::NAN, f32::NEG_INFINITY], 0), Some(1));
        assert_eq!(greedy.choose(&[f32::NAN], 0), None);
        assert_eq!(greedy.choose(&[], 0), None);
    }

    #[test]
    fn tokens_come_as_often_as_they_are_likely() {
        let logits = [0.5_f32.ln(), 0.2_f32.ln(), 0.3_f32.ln()];
        let mut counts = [0_u32; 3];
        for place in 0..10_000 {
            counts[sampling(1.0, 1.0).choose(&logits, place).unwrap()] += 1;
        }
        for (count, expected) in counts.iter().zip([5000, 2000, 3000]) {
            assert!(count.abs_diff(expected) < 200, "{counts:?}");
        }
    }

    #[test]
    fn unlikely_tokens_are_left_out() {
        let logits = [0.5_f32.ln(), 0.2_f32.ln(), 0.3_f32.ln()];
        let all = |top_p: f64| -> Vec<usize> {
            let mut chosen: Vec<usize> = (0..500)
                .map(|place| sampling(1.0, top_p).choose(&logits, place).unwrap())
                .collect();
            chosen.sort_unstable();
            chosen.dedup();
            chosen
        };
        assert_eq!(all(0.0), [0]);
        assert_eq!(all(0.6), [0, 2]);
        assert_eq!(all(1.0), [0, 1, 2]);
    }

    #[test]
    fn a_little_temperature_is_nearly_none_and_infinite_logits_do_no_harm() {
        assert_eq!(sampling(1e-300, 1.0).choose(&[1.0, 2.0], 5), Some(1));
        assert_eq!(sampling(1.0, 1.0).choose(&[f32::INFINITY, 2.0], 5), Some(0));
    }
}
