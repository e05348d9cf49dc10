//! Averages of one rank: definitions, updates from several threads, and mistakes. The reference is arithmetic in `f64`.

use super::*;
use crate::Error;
use crate::pattern::Pattern;
use cairn_sharding::{Mesh, Piece, Region, TensorSpec};
use cairn_tensor::{DType, Overflow, cast, read_f64};
use std::thread;

/// Whole tensors on a single rank.
fn tensors(texts: &[(&str, &str)]) -> Vec<Averaged> {
    let tensor = |(name, text): &(&str, &str)| {
        let spec = TensorSpec::parse(&Mesh::single(), text).unwrap();
        Averaged {
            name: name.to_string(),
            pieces: vec![Piece::whole(Region::whole(spec.shape()))],
            spec,
        }
    };
    texts.iter().map(tensor).collect()
}

/// The weights of a step, made up, as elements of `dtype`.
fn weights(dtype: DType, step: u64, count: usize) -> Vec<u8> {
    let value = |index: usize| (step as f64 * 0.37 + index as f64).sin() * 3.0;
    let wide: Vec<u8> = (0..count)
        .flat_map(|index| value(index).to_le_bytes())
        .collect();
    let mut bytes = vec![0; dtype.len_bytes(count).unwrap()];
    cast(DType::F64, dtype, &wide, &mut bytes, Overflow::Native).unwrap();
    bytes
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    let elements = bytes.as_chunks().0.iter();
    elements.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The stored average called `name`.
fn average(averages: &Averages, name: &str) -> Vec<f32> {
    let view = averages.view().unwrap();
    let found = view
        .tensors()
        .into_iter()
        .find(|(stored, _, _)| stored == name);
    f32s(found.unwrap().2)
}

#[track_caller]
fn assert_close(values: &[f32], expected: &[f64]) {
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        let step = f64::from(value.abs().next_up() - value.abs());
        let error = (f64::from(*value) - expected).abs();
        assert!(error <= step.max(1e-12), "{value} is not {expected}");
    }
}

/// Shows the averages a whole source, in chunks of `chunk` bytes dealt to three threads.
fn update(averages: &Averages, step: u64, source: &[u8], chunk: usize) {
    assert!(averages.begin_update(step).unwrap());
    thread::scope(|scope| {
        for worker in 0..3 {
            scope.spawn(move || {
                for (index, bytes) in source.chunks(chunk).enumerate().skip(worker).step_by(3) {
                    averages.absorb(index as u64 * chunk as u64, bytes).unwrap();
                }
            });
        }
    });
    averages.finish_update().unwrap();
}

#[test]
fn a_definition_that_makes_no_sense_is_refused() {
    let decay = Ema::exponential(0.9);
    let mistakes = [
        Ema {
            label: String::new(),
            ..decay.clone()
        },
        Ema {
            label: "a/b".into(),
            ..decay.clone()
        },
        Ema::exponential(1.0),
        Ema::exponential(-0.1),
        Ema::exponential(f64::NAN),
        Ema::power(0.3),
        Ema {
            every: 0,
            ..decay.clone()
        },
        Ema {
            start: Start::Zero,
            ..Ema::uniform()
        },
        Ema {
            bias_correction: true,
            ..decay.clone()
        },
    ];
    for mistake in mistakes {
        let error = mistake.check().unwrap_err();
        assert!(matches!(error, Error::Average { .. }), "{mistake}: {error}");
        assert!(serde_json::from_value::<Ema>(serde_json::json!(mistake)).is_err());
    }
    let twice = Averages::new(0, vec![decay.clone(), decay], Vec::new());
    assert_eq!(
        twice.unwrap_err().to_string(),
        "the average `0.9` is defined twice"
    );
}

#[test]
fn a_definition_is_its_json_and_prints_itself() {
    let corrected = Ema {
        label: "slow".into(),
        start: Start::Zero,
        bias_correction: true,
        exact: false,
        include: vec![Pattern::new("model.*")],
        ..Ema::exponential(0.999)
    };
    for ema in [corrected.clone(), Ema::power(0.1), Ema::uniform()] {
        let json = serde_json::to_value(&ema).unwrap();
        assert_eq!(serde_json::from_value::<Ema>(json).unwrap(), ema);
    }
    let json = serde_json::json!({"label": "slow", "decay": 0.999, "every": 1, "start": "zero",
        "bias_correction": true, "exact": false, "include": ["model.*"]});
    assert_eq!(serde_json::to_value(&corrected).unwrap(), json);
    assert_eq!(
        corrected.to_string(),
        "`slow`: decay 0.999, every step, from zeros and corrected, in plain f32, of `model.*`"
    );
}

/// What arithmetic in `f64` gives for an average of weights of this type over the steps.
fn reference(ema: &Ema, dtype: DType, count: usize, steps: u64) -> Vec<f64> {
    let mut values = vec![0.0; count];
    let absorbed = (1..=steps).filter(|step| step.is_multiple_of(ema.every));
    for (update, step) in (1..).zip(absorbed) {
        let bytes = weights(dtype, step, count);
        for (index, value) in values.iter_mut().enumerate() {
            let element = read_f64(dtype, &bytes, index).unwrap();
            *value += ema.weight(update) * (element - *value);
        }
    }
    values
}

#[test]
fn all_labels_are_updated_in_one_pass_over_any_type() {
    let texts = [
        ("half", "f16[3, 7]"),
        ("brain", "bf16[3000]"),
        ("nothing", "f32[0, 4]"),
        ("scalar", "f32[]"),
        ("counter", "i64[5]"),
        ("wide", "f64[11]"),
    ];
    let averaged = [
        ("half", DType::F16, 21),
        ("brain", DType::Bf16, 3000),
        ("scalar", DType::F32, 1),
        ("wide", DType::F64, 11),
    ];
    let definitions = vec![
        Ema::exponential(0.5),
        Ema {
            every: 2,
            ..Ema::exponential(0.9)
        },
        Ema {
            include: vec![Pattern::new("wi*")],
            ..Ema::uniform()
        },
        Ema::power(0.2),
    ];
    let averages = Averages::new(0, definitions.clone(), tensors(&texts)).unwrap();
    for step in 1..=6 {
        let parts = averaged.map(|(_, dtype, count)| weights(dtype, step, count));
        // Every tensor begins where it is said to, with nothing in between that counts.
        let mut source = Vec::new();
        let sources = averages.sources();
        let filled = sources.filter(|(_, piece, _)| piece.element_count() > 0);
        for ((_, _, begin), part) in filled.zip(&parts) {
            source.resize(usize::try_from(begin).unwrap(), 0xff);
            source.extend_from_slice(part);
        }
        update(&averages, step, &source, usize::MAX);
    }
    for ema in &definitions {
        for (name, dtype, count) in averaged
            .into_iter()
            .filter(|(name, _, _)| ema.includes(name))
        {
            let found = average(&averages, &stored_name(&ema.label, name));
            assert_close(&found, &reference(ema, dtype, count, 6));
        }
    }
    let view = averages.view().unwrap();
    let names: Vec<String> = view
        .tensors()
        .into_iter()
        .map(|(name, _, _)| name)
        .collect();
    assert!(names.contains(&"ema/0.5/nothing".to_string()));
    let left_out = |name: &&String| name.ends_with("counter") || *name == "ema/uniform/half";
    assert_eq!(names.iter().find(left_out), None);
    assert_eq!(view.values()["ema/0.9"]["updates"], 3);
    assert_eq!(view.values()["ema/0.9"]["last_step"], 6);
}

#[test]
fn threads_that_share_a_tensor_do_not_get_in_each_others_way() {
    let count = 3 * segments::SEGMENT_ELEMENTS + 17;
    let text = format!("bf16[{count}]");
    let averages =
        Averages::new(0, vec![Ema::exponential(0.75)], tensors(&[("w", &text)])).unwrap();
    let before = averages.view().unwrap().tensors()[0].2.as_ptr().addr();
    for step in 1..=3 {
        update(&averages, step, &weights(DType::Bf16, step, count), 1000);
    }
    let expected = reference(&averages.definitions()[0], DType::Bf16, count, 3);
    assert_close(&average(&averages, "ema/0.75/w"), &expected);
    let after = averages.view().unwrap().tensors()[0].2.as_ptr().addr();
    assert_eq!(before, after, "cutting and joining must not copy");
}

#[test]
fn a_zero_start_corrected_is_the_weighted_mean_of_what_was_seen() {
    let (decay, updates) = (0.999_f64, 50);
    let ema = Ema {
        start: Start::Zero,
        bias_correction: true,
        ..Ema::exponential(decay)
    };
    let averages = Averages::new(0, vec![ema.clone()], tensors(&[("w", "f32[4]")])).unwrap();
    let (mut sum, mut total) = ([0.0; 4], 0.0);
    for step in 1..=updates {
        let source = weights(DType::F32, step, 4);
        update(&averages, step, &source, 4);
        let share = decay.powf((updates - step) as f64);
        total += share;
        for (sum, value) in sum.iter_mut().zip(f32s(&source)) {
            *sum += share * f64::from(value);
        }
    }
    let raw = average(&averages, "ema/0.999/w");
    let corrected: Vec<f64> = raw
        .iter()
        .map(|value| f64::from(*value) * ema.correction(updates))
        .collect();
    for (corrected, sum) in corrected.iter().zip(sum) {
        assert!((corrected - sum / total).abs() <= 1e-7 * (sum / total).abs());
    }
    // The uncorrected average is what it is corrected for: too small by 95 %.
    assert!((1.0 / ema.correction(updates) - 0.0488).abs() < 1e-4);
}

#[test]
fn a_step_counts_once_and_only_if_it_is_for_the_average() {
    let ema = Ema {
        every: 5,
        ..Ema::exponential(0.5)
    };
    let averages = Averages::new(0, vec![ema], tensors(&[("w", "f32[1]")])).unwrap();
    assert!(!averages.begin_update(4).unwrap());
    update(&averages, 5, &1.0_f32.to_le_bytes(), 4);
    assert!(!averages.begin_update(5).unwrap());
    assert!(!averages.begin_update(0).unwrap());
    update(&averages, 10, &2.0_f32.to_le_bytes(), 4);
    assert_eq!(average(&averages, "ema/0.5/w"), [1.5]);
    assert_eq!(averages.view().unwrap().values()["ema/0.5"]["updates"], 2);
}

#[test]
fn an_update_that_did_not_see_everything_is_not_forgotten() {
    let averages =
        Averages::new(0, vec![Ema::exponential(0.5)], tensors(&[("w", "f32[2]")])).unwrap();
    let refused = |offset, len: usize| {
        averages
            .absorb(offset, &vec![0; len])
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(0, 8),
        "`the averages` are shown bytes without an update"
    );
    assert!(averages.begin_update(1).unwrap());
    assert_eq!(
        refused(4, 8),
        "`the averages` are shown bytes 4..12 of a source of 8"
    );
    assert_eq!(
        refused(u64::MAX, 4),
        format!(
            "`the averages` are shown bytes {0}..{0} of a source of 8",
            u64::MAX
        )
    );
    assert_eq!(
        refused(2, 4),
        "`the averages` are shown an element of `w` cut in two"
    );
    averages.absorb(0, &[0; 4]).unwrap();
    let torn = "`the averages` are in the middle of the update of step 1, which has seen 4 bytes of its source";
    assert_eq!(averages.finish_update().unwrap_err().to_string(), torn);
    assert_eq!(averages.begin_update(2).unwrap_err().to_string(), torn);
    assert_eq!(averages.view().unwrap_err().to_string(), torn);
}

#[test]
fn what_changed_is_refused_unless_it_may_start_anew() {
    let of = |decay| {
        let ema = Ema {
            label: "slow".into(),
            ..Ema::exponential(decay)
        };
        Averages::new(0, vec![ema], tensors(&[("w", "f32[1]")])).unwrap()
    };
    let values = of(0.9).view().unwrap().values();
    let error = of(0.99).resume(&values, OnChange::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the average is defined as `slow`: decay 0.99, every step, from a copy, but stored as `slow`: decay 0.9, every step, from a copy"
    );
    assert!(error.hint().unwrap().contains("start it anew"));
    assert_eq!(
        of(0.99).resume(&values, OnChange::StartAnew).unwrap(),
        ["slow"]
    );
    let other = Averages::new(0, vec![Ema::uniform()], Vec::new()).unwrap();
    let error = of(0.9)
        .resume(&other.view().unwrap().values(), OnChange::Refuse)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no average `slow` in the checkpoint"
    );
    assert!(
        error.hint().unwrap().contains("`uniform`"),
        "{:?}",
        error.hint()
    );
    assert_eq!(
        of(0.9).resume(&values, OnChange::Refuse).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
fn a_record_that_is_not_one_is_damage() {
    for value in [serde_json::json!(3), serde_json::json!({"label": "x"})] {
        let values = [("ema/x".to_string(), value)].into();
        assert!(records(&values).unwrap_err().is_damage());
    }
    let moved = Averages::new(0, vec![Ema::uniform()], Vec::new()).unwrap();
    let value = moved.view().unwrap().values()["ema/uniform"].clone();
    assert!(
        records(&[("ema/other".to_string(), value)].into())
            .unwrap_err()
            .is_damage()
    );
}
