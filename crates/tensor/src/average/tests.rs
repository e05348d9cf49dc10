//! Averages against arithmetic in `f64`, and what plain `f32` makes of the same sources.

use super::*;
use crate::{Overflow, cast};
use proptest::prelude::*;

/// A running average of a few elements.
struct Average {
    rounded: Vec<u8>,
    rest: Option<Vec<u8>>,
}

impl Average {
    fn new(elements: usize, exact: bool) -> Self {
        Self {
            rounded: vec![0; 4 * elements],
            rest: exact.then(|| vec![0; 4 * elements]),
        }
    }

    fn absorb(&mut self, weight: f64, dtype: DType, source: &[u8]) -> Result<(), Error> {
        let state = Running {
            rounded: [&mut self.rounded],
            rest: self.rest.as_mut().map(|rest| [rest.as_mut_slice()]),
        };
        absorb(&Blend { weight }, state, dtype, source)
    }

    fn absorb_f32(&mut self, weight: f64, values: &[f32]) {
        let source: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.absorb(weight, DType::F32, &source).unwrap();
    }

    fn values(&self) -> Vec<f32> {
        let elements = self.rounded.as_chunks().0.iter();
        elements.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

/// How many steps of the type of `value` lie between it and `expected`.
fn ulps(value: f32, expected: f64) -> f64 {
    let above = value.abs().next_up();
    (f64::from(value) - expected).abs() / f64::from(above - value.abs())
}

#[test]
fn a_slow_average_arrives_where_plain_f32_stops_on_the_way() {
    let (decay, updates) = (0.9999, 100_000);
    let targets = [1.2345_f32, -0.75, 3.0e-5, 6.1e4];
    let (mut exact, mut plain) = (Average::new(4, true), Average::new(4, false));
    let far = targets.map(|target| -target);
    let mut expected = far.map(f64::from);
    exact.absorb_f32(1.0, &far);
    plain.absorb_f32(1.0, &far);
    let weight = Blend::exponential(decay).weight;
    for _ in 0..updates {
        exact.absorb_f32(weight, &targets);
        plain.absorb_f32(weight, &targets);
        for (value, target) in expected.iter_mut().zip(targets) {
            *value = decay * *value + (1.0 - decay) * f64::from(target);
        }
    }
    let left = decay.powi(updates);
    for index in 0..targets.len() {
        let (exact, plain) = (exact.values()[index], plain.values()[index]);
        assert!(ulps(exact, expected[index]) <= 1.0);
        let target = f64::from(targets[index]);
        let closed = target + left * (f64::from(far[index]) - target);
        assert!(ulps(exact, closed) <= 1.0, "{exact} is not {closed}");
        assert!(
            ulps(plain, closed) > 1000.0,
            "plain f32 has {plain} for {closed}"
        );
    }
}

#[test]
fn weights_that_do_not_change_are_their_own_average_for_ever() {
    let weights = [0.1_f32, -3.3, 1.0e-20, 0.0];
    let mut average = Average::new(4, true);
    average.absorb_f32(1.0, &weights);
    for _ in 0..100_000 {
        average.absorb_f32(1e-4, &weights);
    }
    assert_eq!(average.values(), weights);
}

#[test]
fn a_uniform_mean_weighs_all_sources_alike() {
    let mut average = Average::new(1, true);
    let mut sum = 0.0;
    for count in 1..=10_000_u64 {
        let value = (count as f32).sin();
        sum += f64::from(value);
        average.absorb_f32(Blend::uniform(count).weight, &[value]);
        assert!(ulps(average.values()[0], sum / count as f64) <= 1.0 + 1e-6 / sum.abs());
    }
}

/// The mean, and the mean of the squared distances from it.
struct Moments {
    count: u64,
}

impl Statistic<2> for Moments {
    fn next(&self, [mean, variance]: [f64; 2], element: f64) -> [f64; 2] {
        let Blend { weight } = Blend::uniform(self.count);
        let distance = element - mean;
        let next = mean + weight * distance;
        let spread = distance * (element - next);
        [next, variance + weight * (spread - variance)]
    }
}

#[test]
fn a_statistic_may_have_several_values() {
    let mut arrays = [[0_u8; 8]; 4];
    for count in 1..=1000_u64 {
        let [mean, variance, mean_rest, variance_rest] = &mut arrays;
        let state = Running {
            rounded: [&mut mean[..], &mut variance[..]],
            rest: Some([&mut mean_rest[..], &mut variance_rest[..]]),
        };
        let source = [count as f64, 5.0].map(f64::to_le_bytes).concat();
        absorb(&Moments { count }, state, DType::F64, &source).unwrap();
    }
    let read = |array: [u8; 8]| array.as_chunks().0.to_vec().into_iter().map(wide);
    let (mean, variance): (Vec<f64>, Vec<f64>) =
        (read(arrays[0]).collect(), read(arrays[1]).collect());
    assert_eq!((mean, variance), (vec![500.5, 5.0], vec![83_333.25, 0.0]));
}

#[test]
fn what_is_not_finite_stays_so() {
    for exact in [true, false] {
        let mut average = Average::new(4, exact);
        average.absorb_f32(1.0, &[1.0; 4]);
        average.absorb_f32(0.5, &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0]);
        let values = average.values();
        assert!(values[0].is_nan());
        assert_eq!(values[1..], [f32::INFINITY, f32::NEG_INFINITY, 1.5]);
        average.absorb_f32(0.5, &[1.0; 4]);
        let values = average.values();
        assert!(values[..3].iter().all(|value| value.is_nan()), "{values:?}");
        assert_eq!(values[3], 1.25);
    }
}

#[test]
fn a_value_too_large_for_f32_is_an_infinity() {
    let mut average = Average::new(1, true);
    average
        .absorb(1.0, DType::F64, &1e300_f64.to_le_bytes())
        .unwrap();
    assert_eq!(average.values(), [f32::INFINITY]);
}

#[test]
fn buffers_that_do_not_fit_are_refused() {
    let mut average = Average::new(2, true);
    let mut refused = |dtype, len| {
        let error = average.absorb(0.5, dtype, &vec![0; len]).unwrap_err();
        (error.to_string(), error.hint())
    };
    assert_eq!(
        refused(DType::F32, 7).0,
        "a buffer of 7 bytes does not hold a whole number of `f32` elements"
    );
    assert_eq!(
        refused(DType::Bf16, 6).0,
        "the accumulator buffer of 8 bytes should hold 12 bytes of `f32`"
    );
    let (error, hint) = refused(DType::I32, 8);
    assert_eq!(error, "cannot average `i32`");
    assert_eq!(
        hint.as_deref(),
        Some("the type of what is averaged is one of `f32`, `bf16`, `f16`, `f64`")
    );
    average.rest = Some(vec![0; 4]);
    let error = average.absorb(0.5, DType::F32, &[0; 8]).unwrap_err();
    assert!(error.to_string().contains("4 bytes should hold 8 bytes"));
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::F32, DType::Bf16, DType::F16, DType::F64])
}

proptest! {
    #[test]
    fn the_average_is_the_one_of_f64_rounded_once(
        dtype in dtypes(),
        offset in 0..3_usize,
        weights in prop::collection::vec(1e-6..1.0_f64, 1..40),
        seed in prop::collection::vec(-1000.0..1000.0_f64, 0..70),
    ) {
        let mut average = Average::new(seed.len(), true);
        let mut expected = vec![0.0; seed.len()];
        for (update, weight) in weights.iter().enumerate() {
            let wide: Vec<u8> = seed.iter().flat_map(|value| (value + update as f64).to_le_bytes()).collect();
            let mut source = vec![0; offset + dtype.bits() / 8 * seed.len()];
            cast(DType::F64, dtype, &wide, &mut source[offset..], Overflow::Native).unwrap();
            average.absorb(*weight, dtype, &source[offset..]).unwrap();
            for (index, value) in expected.iter_mut().enumerate() {
                let element = crate::read_f64(dtype, &source[offset..], index).unwrap();
                *value += weight * (element - *value);
            }
        }
        for (value, expected) in average.values().into_iter().zip(expected) {
            // Where terms of a thousand cancel, what is left has the precision of the terms.
            let error = (f64::from(value) - expected).abs();
            prop_assert!(ulps(value, expected) <= 1.0 || error < 1e-9, "{value} is not {expected}");
        }
    }
}
