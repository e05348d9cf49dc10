//! Every layout gives the parameters of one rank, bit for bit, because the gradients here sum exactly.

use crate::common::{
    Block, HYPER, Layout, Values, assert_parts_of, blocks, on, on_model, parameter,
};
use cairn_arena::{Parameter, Stage};
use cairn_tensor::DType;
use proptest::prelude::*;

pub(crate) const STAGES: [Stage; 4] = [
    Stage::Nothing,
    Stage::Optimizer,
    Stage::Gradients,
    Stage::Parameters,
];

pub(crate) const DTYPES: [DType; 2] = [DType::F32, DType::Bf16];

/// Steps, then the parameters of every rank and the norm of the last step.
fn trained(layout: Layout, blocks: &[Block], steps: usize) -> Vec<(Values, f64)> {
    on_model(
        layout,
        blocks,
        |group| group,
        |rank| {
            let norm = match steps {
                0 => 0.0,
                _ => rank.train(0..steps)?.gradient_norm,
            };
            Ok((rank.values()?, norm))
        },
    )
}

fn assert_like_one_rank(layouts: impl Iterator<Item = Layout>, steps: usize) {
    assert_model_like_one_rank(&blocks(), layouts, steps);
}

fn assert_model_like_one_rank(
    blocks: &[Block],
    layouts: impl Iterator<Item = Layout>,
    steps: usize,
) {
    let expected = DTYPES.map(|dtype| trained(Layout::single(dtype), blocks, steps).remove(0));
    for layout in layouts {
        let (whole, norm) = &expected[usize::from(layout.dtype == DType::Bf16)];
        let (ranks, norms): (Vec<_>, Vec<_>) = trained(layout, blocks, steps).into_iter().unzip();
        assert_parts_of(whole, &ranks, &layout);
        assert!(
            norms.iter().all(|other| other == norm),
            "{layout}: {norms:?}, not {norm}"
        );
    }
}

fn crossed(meshes: &[&'static str], accumulations: &[usize]) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for mesh in meshes {
        for stage in STAGES {
            for dtype in DTYPES {
                layouts.extend(accumulations.iter().map(|accumulation| Layout {
                    accumulation: *accumulation,
                    ..Layout::new(mesh, stage, dtype)
                }));
            }
        }
    }
    layouts
}

#[test]
fn every_stage_trains_as_one_rank_does() {
    let meshes = [
        "dp=1,pp=1,tp=1",
        "dp=2,pp=1,tp=1",
        "dp=3,pp=1,tp=1",
        "dp=4,pp=1,tp=1",
    ];
    assert_like_one_rank(crossed(&meshes, &[1, 3]).into_iter(), 3);
}

#[test]
fn every_mesh_trains_as_one_rank_does() {
    let meshes = [
        "tp=2,pp=1,dp=2",
        "dp=1,pp=1,tp=3",
        "dp=2,pp=2,tp=1",
        "pp=3,dp=1,tp=2",
        "dp=2,pp=3,tp=2",
    ];
    assert_like_one_rank(crossed(&meshes, &[2]).into_iter(), 3);
}

#[test]
fn every_mesh_begins_with_the_same_model() {
    let meshes = ["dp=4,pp=1,tp=1", "dp=1,pp=1,tp=3", "dp=2,pp=3,tp=2"];
    assert_like_one_rank(crossed(&meshes, &[1]).into_iter(), 0);
}

#[test]
fn parameters_in_16_bits_are_those_in_32_bits_rounded() {
    let [wide, narrow] =
        DTYPES.map(|dtype| trained(Layout::single(dtype), &blocks(), 4).remove(0).0);
    for (name, values) in wide {
        for ((_, wide), (_, narrow)) in values.iter().zip(&narrow[&name]) {
            assert!((wide - narrow).abs() <= wide.abs() / 256.0, "{name}");
            assert_eq!(narrow.to_bits() & 0xFFFF, 0);
        }
    }
}

#[test]
fn what_was_fetched_before_a_step_is_not_used_after_it() {
    for dtype in DTYPES {
        let layout = Layout::new("dp=2,pp=1,tp=1", Stage::Parameters, dtype);
        let ranks = on(layout, |rank| {
            rank.backward(0)?;
            rank.arena.prefetch(0);
            rank.arena.weights(1)?;
            rank.arena.step(&HYPER)?;
            rank.values()
        });
        let (whole, _) = trained(Layout::single(dtype), &blocks(), 1).remove(0);
        assert_parts_of(&whole, &ranks, &layout);
    }
}

prop_compose! {
    fn any_parameter()(
        shape in prop::collection::vec(0usize..6, 0..4),
        split in 0usize..6,
        decay: bool,
        partial_gradient: bool,
    ) -> Parameter {
        let split = (split < shape.len()).then_some(split);
        let partial_gradient = partial_gradient && split.is_none();
        Parameter { decay, partial_gradient, ..parameter("", &shape, split) }
    }
}

/// Blocks of any parameters, each with a name of its own.
fn any_model() -> impl Strategy<Value = Vec<Block>> {
    let block = prop::collection::vec(any_parameter(), 0..4);
    prop::collection::vec(block, 1..5).prop_map(|mut blocks| {
        for (index, parameter) in blocks.iter_mut().flatten().enumerate() {
            parameter.name = format!("parameter.{index}");
        }
        blocks
    })
}

prop_compose! {
    fn any_layout()(
        [dp, pp, tp] in [1usize..5, 1usize..3, 1usize..4],
        stage in prop::sample::select(&STAGES[..]),
        dtype in prop::sample::select(&DTYPES[..]),
        accumulation in 1usize..4,
    ) -> Layout {
        let mesh = format!("dp={dp},pp={pp},tp={tp}").leak();
        Layout { accumulation, ..Layout::new(mesh, stage, dtype) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_model_trains_on_any_layout_as_on_one_rank(blocks in any_model(), layout in any_layout()) {
        assert_model_like_one_rank(&blocks, [layout].into_iter(), 2);
    }
}
