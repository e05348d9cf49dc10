//! Every layout gives the parameters of one rank, bit for bit, because the gradients here sum exactly.

use crate::common::{Layout, assert_parts_of, on};
use cairn_arena::Stage;
use cairn_tensor::DType;

pub(crate) const STAGES: [Stage; 4] = [
    Stage::Nothing,
    Stage::Optimizer,
    Stage::Gradients,
    Stage::Parameters,
];

pub(crate) const DTYPES: [DType; 2] = [DType::F32, DType::Bf16];

/// Steps, then the parameters of every rank and the norm of the last step.
fn trained(layout: Layout, steps: usize) -> Vec<(crate::common::Values, f64)> {
    on(layout, |rank| {
        let norm = match steps {
            0 => 0.0,
            _ => rank.train(0..steps)?.gradient_norm,
        };
        Ok((rank.values()?, norm))
    })
}

fn assert_like_one_rank(layouts: impl Iterator<Item = Layout>, steps: usize) {
    let expected = DTYPES.map(|dtype| trained(Layout::single(dtype), steps).remove(0));
    for layout in layouts {
        let (whole, norm) = &expected[usize::from(layout.dtype == DType::Bf16)];
        let (ranks, norms): (Vec<_>, Vec<_>) = trained(layout, steps).into_iter().unzip();
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
    let [wide, narrow] = DTYPES.map(|dtype| trained(Layout::single(dtype), 4).remove(0).0);
    for (name, values) in wide {
        for ((_, wide), (_, narrow)) in values.iter().zip(&narrow[&name]) {
            assert!((wide - narrow).abs() <= wide.abs() / 256.0, "{name}");
            assert_eq!(narrow.to_bits() & 0xFFFF, 0);
        }
    }
}
