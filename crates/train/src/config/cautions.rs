//! What in a config works, and is probably not meant.

use super::Config;
use crate::parallel::axis_size;
use std::thread::available_parallelism;

/// More ranks than so many for each core get nothing done.
const RANKS_OF_A_CORE: usize = 8;

/// What somebody should know before a run begins, each in a sentence.
pub fn cautions(config: &Config) -> Vec<String> {
    let settings = &config.settings;
    let (parallel, rate) = (&settings.parallel, &settings.learning_rate);
    let cores = available_parallelism().map_or(1, usize::from);
    let ranks = parallel.mesh.size();
    let longest = config.model.config.max_position_embeddings;
    let length = config.data.length;
    let all = [
        (
            ranks > cores.saturating_mul(RANKS_OF_A_CORE),
            format!("{ranks} ranks on {cores} cores take turns: a step will take very long"),
        ),
        (
            rate.warmup >= settings.steps && rate.warmup > 0,
            format!(
                "`learning_rate.warmup` is {}, and there are {} steps: the peak is never reached",
                rate.warmup, settings.steps
            ),
        ),
        (
            length > longest,
            format!(
                "`batch.length` is {length}, and the model is meant for {longest} tokens (`max_position_embeddings`)"
            ),
        ),
        (
            parallel.zero > 0 && axis_size(&parallel.mesh, "dp") == 1,
            format!(
                "`parallel.zero` is {}, and there is no `dp` to share state out over",
                parallel.zero
            ),
        ),
        (
            parallel.sequence_parallel && axis_size(&parallel.mesh, "tp") == 1,
            "`parallel.sequence_parallel` is set, and there is no `tp` to share sequences over"
                .to_string(),
        ),
    ];
    all.into_iter()
        .filter_map(|(applies, text)| applies.then_some(text))
        .collect()
}
