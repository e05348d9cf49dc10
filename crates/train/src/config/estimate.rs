//! What each rank of a run will hold, before there is a run.

use super::Config;
use crate::Error;
use crate::parallel::axis_size;
use crate::settings::{Optimizer, Precision, Recompute};
use crate::stage::Stage;
use cairn_arena::Bucket;
use cairn_model::{Block, Keep};
use cairn_plan::Schedule;
use std::ops::Range;

/// The length of the sequences that blocks are compared for.
const COMPARED_TOKENS: usize = 2048;

/// What one rank holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Holding {
    /// The rank.
    pub rank: usize,
    /// Its place along `dp`, `pp` and `tp`.
    pub coords: [usize; 3],
    /// The blocks it has, as runs: the embedding is block 0, the head is the last.
    pub blocks: Vec<Range<usize>>,
    /// The elements of the parameters it computes with.
    pub parameters: u64,
    /// The bytes of parameters, gradients and the state of the optimizer that it keeps in memory between steps.
    pub state_bytes: u64,
    /// The bytes of the state of the optimizer that it keeps in files.
    pub file_bytes: u64,
    /// About how many bytes of activations it keeps at most.
    pub activation_bytes: u64,
}

/// What each rank will hold, by rank.
///
/// # Errors
/// If the model cannot be cut for the mesh.
pub fn holdings(config: &Config) -> Result<Vec<Holding>, Error> {
    let parallel = &config.settings.parallel;
    let blocks = config.blocks();
    let costs: Vec<f64> = blocks
        .iter()
        .map(|block| block.forward_flops(COMPARED_TOKENS, COMPARED_TOKENS))
        .collect();
    let stages = axis_size(&parallel.mesh, "pp");
    let stage = |index| Stage::new((index, stages), parallel, &costs);
    let cut: Vec<Stage> = (0..stages).map(stage).collect::<Result<_, _>>()?;
    let schedule = Schedule::interleaved(stages, parallel.chunks, parallel.micro_batches)?;
    let peaks = schedule.peaks();
    let ranks = parallel.mesh.ranks().map(|rank| {
        let coords = coords(config, rank);
        let stage = &cut[coords[1]];
        let own: Vec<&dyn Block<f32>> =
            stage.blocks.iter().map(|at| blocks[*at].as_ref()).collect();
        let parameters = elements(&own, coords[2], axis_size(&parallel.mesh, "tp"));
        let [state_bytes, file_bytes] = state_bytes(config, parameters);
        Holding {
            rank,
            coords,
            blocks: runs(&stage.blocks),
            parameters,
            state_bytes,
            file_bytes,
            activation_bytes: activation_bytes(config, &own, peaks[coords[1]]),
        }
    });
    Ok(ranks.collect())
}

/// Where a rank stands along `dp`, `pp` and `tp`.
fn coords(config: &Config, rank: usize) -> [usize; 3] {
    let mesh = &config.settings.parallel.mesh;
    let place = mesh.coords_of(rank).unwrap_or_default();
    ["dp", "pp", "tp"].map(|axis| {
        let number = mesh.axis(axis).ok();
        number
            .and_then(|number| place.get(number).copied())
            .unwrap_or(0)
    })
}

/// How many elements of these blocks rank `index` of `size` along `tp` has.
fn elements(blocks: &[&dyn Block<f32>], index: usize, size: usize) -> u64 {
    let len = |block: &&dyn Block<f32>| Bucket::new(block.parameters(), index, size).len() as u64;
    blocks.iter().map(len).sum()
}

/// The bytes that a rank keeps for so many parameters, in memory and in files.
fn state_bytes(config: &Config, parameters: u64) -> [u64; 2] {
    let settings = &config.settings;
    let dp = axis_size(&settings.parallel.mesh, "dp") as u64;
    let shared = |zero: u8| match settings.parallel.zero >= zero {
        true => dp,
        false => 1,
    };
    let moments = match settings.optimizer {
        Optimizer::AdamW { .. } => 2,
        Optimizer::Sgd { momentum, .. } => u64::from(momentum > 0.0),
    };
    let (width, master) = match settings.precision {
        Precision::F32 => (4, 0),
        Precision::Bf16 => (2, 1),
    };
    let each = |bytes: u64, zero: u8| (parameters * bytes).div_ceil(shared(zero));
    let remembered = each(4 * (moments + master), 1);
    let rest = each(4, 2) + each(width, 3);
    match settings.offload {
        Some(_) => [rest, remembered],
        None => [rest + remembered, 0],
    }
}

/// About how much a rank keeps while `passes` micro-batches are on their way through its chunks.
fn activation_bytes(config: &Config, blocks: &[&dyn Block<f32>], passes: usize) -> u64 {
    let settings = &config.settings;
    let parallel = &settings.parallel;
    let parts = axis_size(&parallel.mesh, "dp") * parallel.micro_batches;
    let tokens = match settings.tokens {
        None => settings.batch / parts * config.data.length,
        Some(tokens) => tokens.div_ceil(parts).max(config.data.length),
    };
    let keep = match settings.recompute {
        Recompute::Nothing => Keep::Everything,
        Recompute::Selected => Keep::Selected,
        Recompute::Everything => Keep::Input,
    };
    let tp = axis_size(&parallel.mesh, "tp");
    let kept = |block: &&dyn Block<f32>| block.kept_elements(tokens, tp, keep) as u64;
    let all: u64 = blocks.iter().map(kept).sum();
    4 * all * passes as u64 / parallel.chunks as u64
}

/// Numbers in order as runs of them.
fn runs(numbers: &[usize]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == *number => run.end += 1,
            _ => runs.push(*number..number + 1),
        }
    }
    runs
}
