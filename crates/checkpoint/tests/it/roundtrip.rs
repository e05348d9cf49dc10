//! Any layout saved, any other layout loaded: every byte where it belongs.

use crate::common::{Model, Specs, memory, spec};
use cairn_checkpoint::{Checkpoint, LoadPlan, Strictness, Wanted};
use cairn_sharding::TensorSpec;
use cairn_sharding::testing::distributions;
use cairn_tensor::DType;
use proptest::prelude::*;

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::U8, DType::Bf16, DType::F32, DType::F64])
}

/// The same tensors in two layouts.
pub(crate) fn pairs() -> impl Strategy<Value = (Specs, Specs)> {
    let tensor = (dtypes(), cairn_sharding::testing::shapes()).prop_flat_map(|(dtype, shape)| {
        let make = move |shape: Vec<usize>| {
            distributions(shape.clone()).prop_map(move |distribution| {
                TensorSpec::new(dtype, shape.clone(), distribution).unwrap()
            })
        };
        (make(shape.clone()), make(shape))
    });
    prop::collection::vec(tensor, 0..4).prop_map(|tensors| {
        let (mut source, mut target) = (Specs::new(), Specs::new());
        for (index, (from, to)) in tensors.into_iter().enumerate() {
            // Of an empty tensor no list has a piece, so nobody would ask for it.
            let listed = from.sharding().is_none() || to.sharding().is_none();
            if from.shape().contains(&0) && listed {
                continue;
            }
            source.insert(format!("t{index}"), from);
            target.insert(format!("t{index}"), to);
        }
        (source, target)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_checkpoint_loads_on_any_other_layout((source, target) in pairs()) {
        let store = memory();
        let model = Model::new(source, 3);
        model.save_ok(&store, 3);
        let checkpoint = Checkpoint::open(store, 3).unwrap();
        model.assert_loads(&checkpoint);
        model.assert_loads_as(&checkpoint, &target);
    }
}

#[test]
fn a_model_moves_between_meshes() {
    let store = memory();
    let model = Model::on("dp=2,pp=2,tp=2", 1);
    model.save_ok(&store, 1);
    let checkpoint = Checkpoint::open(store, 1).unwrap();
    for mesh in ["single", "dp=3", "tp=4", "dp=2,tp=3", "tp=2,dp=2"] {
        let target = Model::on(mesh, 1);
        let report = model.assert_loads_as(&checkpoint, &target.specs);
        assert!(report.problems.is_empty());
    }
}

#[test]
fn large_replicated_tensors_are_shared_out_by_bytes_and_load_back() {
    let store = memory();
    let mesh = "dp=4,tp=2";
    let specs: Specs = [
        ("big", "f32[3000, 1000@tp]"),
        ("wide", "u8[1, 9000000]"),
        ("small", "f32[100]"),
        ("fused", "bf16[1200@tp/3, 700]"),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_string(), spec(mesh, text)))
    .collect();
    let model = Model::new(specs, 5);
    let reports = model.save(&store, 5, &Default::default());
    let written: Vec<u64> = reports.into_iter().map(|r| r.unwrap().len_bytes).collect();
    let (most, least) = (written.iter().max().unwrap(), written.iter().min().unwrap());
    assert!(most - least < 600 << 10, "{written:?}");
    let checkpoint = Checkpoint::open(store, 5).unwrap();
    model.assert_loads(&checkpoint);
    let target = Model::new(
        [
            ("big", "f32[3000@tp, 1000]"),
            ("wide", "u8[1, 9000000@tp]"),
            ("small", "f32[100]"),
            ("fused", "bf16[1200, 700@tp]"),
        ]
        .into_iter()
        .map(|(name, text)| (name.to_string(), spec("tp=3", text)))
        .collect(),
        5,
    );
    let report = model.assert_loads_as(&checkpoint, &target.specs);
    assert!(report.cost.over_read() < 1.05, "{:?}", report.cost);
}

#[test]
fn a_small_slice_of_a_big_tensor_reads_little() {
    let store = memory();
    let model = Model::new(
        [("w".to_string(), spec("dp=2", "u8[2000, 10000]"))].into(),
        1,
    );
    model.save_ok(&store, 1);
    let checkpoint = Checkpoint::open(store, 1).unwrap();
    let wanted = Wanted::new("w", &spec("tp=200", "u8[2000@tp, 10000]"), 7);
    let plan = LoadPlan::new(&checkpoint, &[wanted], &Strictness::EXACT).unwrap();
    assert_eq!(plan.cost().wanted_bytes, 100_000);
    assert!(plan.cost().read_bytes <= 100_000 + (128 << 10));
    assert_eq!(plan.cost().files, 1);
}
