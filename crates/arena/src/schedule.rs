//! How fast to learn at each step.

/// The learning rate of each step: it rises in a line, stays for a while, and falls.
///
/// ```
/// use cairn_arena::{Decay, Schedule};
/// let schedule = Schedule { warmup_steps: 10, decay: Decay::Cosine, floor: 0.1, ..Schedule::constant(1.0, 110) };
/// assert_eq!(schedule.at(0), 0.1);       // the first step learns already
/// assert_eq!(schedule.at(9), 1.0);
/// assert!((schedule.at(60) - 0.55).abs() < 1e-12);
/// assert!((schedule.at(110) - 0.1).abs() < 1e-12);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// The greatest rate.
    pub peak: f64,
    /// The rate at the end, and after it.
    pub floor: f64,
    /// How many steps it takes to rise; step `warmup_steps - 1` is the first at the peak.
    pub warmup_steps: u64,
    /// How many steps it stays at the peak before it falls.
    pub stable_steps: u64,
    /// How many steps there are in all.
    pub steps: u64,
    /// How it falls.
    pub decay: Decay,
}

/// How a learning rate falls from its peak to its floor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Decay {
    /// Not at all.
    #[default]
    Constant,
    /// In a line.
    Linear,
    /// As half a cosine.
    Cosine,
    /// As a power of what is left.
    Polynomial {
        /// The power: 1 is a line, more falls faster at first.
        power: f64,
    },
    /// As one minus the square root of what has passed, as is usual after a long stable phase.
    SquareRoot,
}

impl Schedule {
    /// Always the same rate.
    pub fn constant(rate: f64, steps: u64) -> Self {
        Self {
            peak: rate,
            floor: 0.0,
            warmup_steps: 0,
            stable_steps: 0,
            steps,
            decay: Decay::Constant,
        }
    }

    /// The rate of `step`, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let start = self.warmup_steps.saturating_add(self.stable_steps);
        let falling = self.steps.saturating_sub(start).max(1);
        let passed = step.saturating_sub(start).min(falling) as f64 / falling as f64;
        let left = match self.decay {
            Decay::Constant => 1.0,
            Decay::Linear => 1.0 - passed,
            Decay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * passed).cos()),
            Decay::Polynomial { power } => (1.0 - passed).powf(power),
            Decay::SquareRoot => 1.0 - passed.sqrt(),
        };
        self.floor + (self.peak - self.floor) * left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule(decay: Decay) -> Schedule {
        Schedule {
            peak: 2.0,
            floor: 0.5,
            warmup_steps: 4,
            stable_steps: 6,
            steps: 30,
            decay,
        }
    }

    const DECAYS: [Decay; 4] = [
        Decay::Linear,
        Decay::Cosine,
        Decay::Polynomial { power: 2.0 },
        Decay::SquareRoot,
    ];

    #[test]
    fn it_rises_in_a_line_stays_and_falls_to_the_floor() {
        for decay in DECAYS {
            let rates: Vec<f64> = (0..40).map(|step| schedule(decay).at(step)).collect();
            assert_eq!(rates[..4], [0.5, 1.0, 1.5, 2.0]);
            assert!(rates[4..=10].iter().all(|rate| *rate == 2.0));
            assert!(rates[10..=30].is_sorted_by(|before, after| before > after));
            assert!(rates[30..].iter().all(|rate| (rate - 0.5).abs() < 1e-12));
        }
    }

    #[test]
    fn each_decay_is_where_its_formula_is_halfway() {
        let halfway = DECAYS.map(|decay| schedule(decay).at(20));
        let expected = [0.5, 0.5, 0.25, 1.0 - 0.5_f64.sqrt()].map(|left| 0.5 + 1.5 * left);
        for (rate, expected) in halfway.iter().zip(expected) {
            assert!((rate - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn a_constant_rate_has_no_end() {
        let constant = Schedule::constant(3.0, 5);
        assert!(
            [0, 4, 5, u64::MAX]
                .iter()
                .all(|step| constant.at(*step) == 3.0)
        );
    }

    proptest! {
        #[test]
        fn a_rate_is_always_between_floor_and_peak(warmup in 0u64..9, stable in 0u64..9, steps in 0u64..20, step: u64) {
            for decay in DECAYS {
                let schedule = Schedule { warmup_steps: warmup, stable_steps: stable, steps, ..schedule(decay) };
                for step in [step, step % 30] {
                    let rate = schedule.at(step);
                    prop_assert!((0.0..=2.0).contains(&rate) && (step < warmup || rate >= 0.5 - 1e-12), "{rate}");
                }
            }
        }
    }
}
