//! Numbers about stored tensors are those of the whole tensors, whatever the layout and the number of threads.

use crate::common::{Model, Specs, memory, spec};
use cairn_checkpoint::statistics::{STRETCH_ELEMENTS, ScanOptions, Statistics, compare, summarize};
use cairn_checkpoint::{Checkpoint, Error, Source};
use cairn_tensor::{Difference, Summary, Tolerance};
use std::sync::atomic::Ordering;

fn saved(model: &Model) -> Checkpoint {
    let store = memory();
    model.save_ok(&store, 1);
    Checkpoint::open(store, 1).unwrap()
}

fn summarized(
    source: &dyn Source,
    names: &[&str],
    options: &ScanOptions,
) -> Result<Vec<(String, Statistics)>, Error> {
    let mut found = Vec::new();
    summarize(source, names, options, |name, statistics| {
        found.push((name.to_string(), statistics));
    })?;
    Ok(found)
}

fn with_threads(threads: usize) -> ScanOptions {
    ScanOptions {
        threads,
        histogram: true,
        ..ScanOptions::default()
    }
}

#[test]
fn a_look_at_shards_is_a_look_at_the_whole() {
    for mesh in ["dp=1", "tp=3", "dp=2,tp=2"] {
        let model = Model::on(mesh, 1);
        let checkpoint = saved(&model);
        let names = checkpoint.names();
        let found = summarized(&checkpoint, &names, &with_threads(3)).unwrap();
        assert_eq!(found.len(), names.len());
        for (name, (found, statistics)) in names.iter().zip(found) {
            let dtype = model.specs[*name].dtype();
            assert_eq!(*name, found);
            let expected = Summary::of(dtype, &model.whole[*name]).unwrap();
            // Bytes at random are often NaN; counts are equal, and so is every moment, to the bit.
            assert_eq!(statistics.summary, expected, "{name} on {mesh}");
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let rows = STRETCH_ELEMENTS / 1000 * 3;
    let specs: Specs = [("w".into(), spec("tp=2", &format!("f32[{rows}, 1001@tp]")))].into();
    let checkpoint = saved(&Model::new(specs, 1));
    let one = summarized(&checkpoint, &["w"], &with_threads(1)).unwrap();
    let options = with_threads(7);
    assert_eq!(summarized(&checkpoint, &["w"], &options).unwrap(), one);
    assert_eq!(one[0].1.summary.elements, rows as u64 * 1001);
    let looked_at = options.progress.load(Ordering::Relaxed);
    assert_eq!(looked_at, rows as u64 * 1001 * 4);
}

#[test]
fn two_layouts_of_one_state_are_the_same() {
    let (left, right) = (Model::on("tp=3", 1), Model::on("dp=2,tp=2", 1));
    let (left, right) = (saved(&left), saved(&right));
    let names = left.names();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (*name, *name)).collect();
    let none = Tolerance::default();
    for trust_checksums in [false, true] {
        let options = ScanOptions {
            trust_checksums,
            ..with_threads(2)
        };
        let found = compare((&left, &right), &pairs, none, &options).unwrap();
        for (name, difference) in names.iter().zip(found) {
            assert_eq!(difference.differing, 0, "{name}");
        }
    }
}

#[test]
fn differences_of_shards_are_those_of_the_whole() {
    let (before, after) = (Model::on("tp=3", 1), Model::on("dp=2,tp=2", 2));
    let (left, right) = (saved(&before), saved(&after));
    let tolerance = Tolerance {
        absolute: 1e-3,
        relative: 0.1,
    };
    for name in left.names() {
        let found = compare(
            (&left, &right),
            &[(name, name)],
            tolerance,
            &with_threads(2),
        )
        .unwrap();
        let dtype = before.specs[name].dtype();
        let (one, two) = (&before.whole[name], &after.whole[name]);
        let expected = Difference::between((dtype, one), (dtype, two), tolerance).unwrap();
        assert_eq!(found, [expected], "{name}");
    }
}

#[test]
fn equal_checksums_are_trusted_when_asked_and_only_for_equal_bytes() {
    let model = Model::on("tp=2", 1);
    let mut other = model.clone();
    other.whole.get_mut("embed").unwrap()[5] ^= 1;
    let (left, right) = (saved(&model), saved(&other));
    let options = ScanOptions {
        trust_checksums: true,
        ..with_threads(1)
    };
    let pairs = [("embed", "embed"), ("layers.0.up", "layers.0.up")];
    let found = compare((&left, &right), &pairs, Tolerance::default(), &options).unwrap();
    assert_eq!((found[0].differing, found[1].differing), (1, 0));
    let alone = compare((&left, &left), &pairs, Tolerance::default(), &options).unwrap();
    // Nothing was read: there is no angle between what nobody looked at.
    assert!(
        alone
            .iter()
            .all(|same| same.cosine().is_none() && same.differing == 0)
    );
}

#[test]
fn a_missing_tensor_and_another_shape_are_errors() {
    let checkpoint = saved(&Model::on("tp=2", 1));
    let options = with_threads(2);
    assert!(summarized(&checkpoint, &["nothing"], &options).is_err());
    let pair = [("embed", "layers.0.up")];
    let error = compare(
        (&checkpoint, &checkpoint),
        &pair,
        Tolerance::default(),
        &options,
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("has shape [37, 16], not [24, 10]"),
        "{error}"
    );
}
