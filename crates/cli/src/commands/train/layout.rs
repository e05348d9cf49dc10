//! Who would hold what, and in how much memory: what `cairn train --dry-run` shows.

use crate::error::Error;
use crate::printer::Printer;
use crate::table::{Paint, Table};
use crate::units::{count, plural, size};
use cairn::checkpoint::all_steps;
use cairn::device::system::{Memory, address_space_left, available_bytes};
use cairn::plan::{Costs, Schedule, simulate};
use cairn::store;
use cairn::train::axis_size;
use cairn::train::config::{Config, Holding, cautions, holdings, step_flops};
use serde::Serialize;
use std::ops::Range;

/// A run before it starts.
#[derive(Debug, Serialize)]
pub(super) struct Layout {
    model: &'static str,
    parameters: u64,
    layers: usize,
    mesh: String,
    batch: usize,
    length: usize,
    /// The most tokens of a step, if that decides how many sequences it has.
    tokens: Option<usize>,
    micro_batches: usize,
    steps: u64,
    step_flops: f64,
    /// The share of its time that a pipeline waits, if all layers took the same time.
    bubble_share: f64,
    folder: String,
    /// The newest step of the run, which it would go on from if it is whole.
    newest_step: Option<u64>,
    /// Where state goes that is kept in files.
    offload: Option<String>,
    machine_bytes: Option<u64>,
    ranks: Vec<Rank>,
    /// What is probably not meant.
    #[serde(skip)]
    cautions: Vec<String>,
}

/// What one rank would hold.
#[derive(Debug, Serialize)]
struct Rank {
    rank: usize,
    dp: usize,
    pp: usize,
    tp: usize,
    blocks: String,
    parameters: u64,
    state_bytes: u64,
    /// What it would keep in files.
    file_bytes: u64,
    activation_bytes: u64,
}

impl Layout {
    /// The layout of a run.
    pub(super) fn of(config: &Config) -> Result<Self, Error> {
        let settings = &config.settings;
        let (parallel, model) = (&settings.parallel, &config.model.config);
        let stages = axis_size(&parallel.mesh, "pp");
        let schedule = Schedule::interleaved(stages, parallel.chunks, parallel.micro_batches)?;
        // A backward takes twice the time of a forward.
        let costs = Costs::equal(schedule.parts(), 1.0, 2.0, 0.0);
        let run = store::open(&config.address())?;
        let layers = model.num_hidden_layers;
        let ranks = holdings(config)?.into_iter();
        Ok(Self {
            model: model.architecture.class(),
            parameters: model.parameter_count(),
            layers,
            mesh: parallel.mesh.to_string(),
            batch: settings.batch,
            length: config.data.length,
            tokens: settings.tokens,
            micro_batches: parallel.micro_batches,
            steps: settings.steps,
            step_flops: step_flops(config),
            bubble_share: simulate(&schedule, &costs)?.bubble_share(),
            folder: config.folder.clone(),
            newest_step: all_steps(run.as_ref())?.last().copied(),
            offload: settings.offload.clone(),
            machine_bytes: Memory::now().map(|memory| memory.machine_bytes),
            ranks: ranks.map(|holding| Rank::new(holding, layers)).collect(),
            cautions: cautions(config),
        })
    }

    /// What all ranks keep together, as threads of one machine.
    fn total_bytes(&self) -> u64 {
        let bytes = |rank: &Rank| rank.state_bytes + rank.activation_bytes;
        self.ranks.iter().map(bytes).sum()
    }

    /// Refuses ranks whose state alone, which is known to the byte, does not fit the memory that is left.
    pub(super) fn refuse(&self) -> Result<(), Error> {
        let needed: u64 = self.ranks.iter().map(|rank| rank.state_bytes).sum();
        let available = available_bytes()
            .into_iter()
            .chain(address_space_left())
            .min();
        match available {
            Some(available) if needed > available => {
                Err(Error::TooLittleMemory { needed, available })
            }
            _ => Ok(()),
        }
    }

    /// Warns of more memory than there is, and of what is probably not meant.
    pub(super) fn warn(&self, printer: &Printer) {
        for caution in &self.cautions {
            printer.warn(caution);
        }
        let Some(machine) = self.machine_bytes else {
            return;
        };
        if self.total_bytes() > machine {
            printer.warn(&format!(
                "all ranks together need about {}, and the machine has {}: try `parallel.zero`, `parallel.recompute`, `optimizer.offload` or smaller micro-batches",
                size(self.total_bytes()),
                size(machine)
            ));
        }
    }

    /// The layout for people.
    pub(super) fn text(&self, paint: Paint) -> String {
        let mut facts = Table::facts();
        let (parameters, layers) = (count(self.parameters), plural(self.layers, "layer"));
        facts.fact(
            "model",
            format!("{}, {parameters} parameters in {layers}", self.model),
        );
        let ranks = plural(self.ranks.len(), "rank");
        facts.fact("mesh", format!("{}: {ranks}", self.mesh));
        facts.fact("batch", self.batch_text());
        #[expect(clippy::cast_possible_truncation, reason = "shown to three digits")]
        let flops = count(self.step_flops as u64);
        facts.fact("steps", format!("{}, {flops}FLOP each", self.steps));
        if self.bubble_share > 0.0 {
            let share = 100.0 * self.bubble_share;
            facts.fact(
                "pipeline",
                format!("waits {share:.0} % of the time if all layers take the same"),
            );
        }
        let from = match self.newest_step {
            Some(step) => format!("{}, goes on after step {step}", self.folder),
            None => format!("{}, a new run", self.folder),
        };
        facts.fact("run", from);
        let machine = self.machine_bytes.map_or("unknown".to_string(), size);
        let total = size(self.total_bytes());
        facts.fact(
            "memory",
            format!("about {total} in all, the machine has {machine}"),
        );
        if let Some(folder) = &self.offload {
            let files = self.ranks.iter().map(|rank| rank.file_bytes).sum();
            facts.fact("files", format!("{} in `{folder}`", size(files)));
        }
        format!(
            "{}\n{}",
            facts.render(paint),
            self.rank_table().render(paint)
        )
    }

    fn batch_text(&self) -> String {
        let Self {
            batch,
            length,
            micro_batches,
            ..
        } = self;
        let parts = plural(*micro_batches, "micro-batch").replace("batchs", "batches");
        if let Some(tokens) = self.tokens {
            return format!("sequences of {tokens} tokens at most, {parts} on each rank");
        }
        let tokens = batch * length;
        format!("{batch} sequences of {length}: {tokens} tokens, {parts} on each rank")
    }

    fn rank_table(&self) -> Table {
        let mut table = Table::new(&[
            " RANK",
            " dp",
            " pp",
            " tp",
            "BLOCKS",
            " PARAMETERS",
            " STATE",
            " ACTIVATIONS",
        ]);
        for rank in &self.ranks {
            let numbers =
                [rank.rank, rank.dp, rank.pp, rank.tp].map(|number| number.to_string().into());
            let [number, dp, pp, tp] = numbers;
            table.row(vec![
                number,
                dp,
                pp,
                tp,
                rank.blocks.as_str().into(),
                count(rank.parameters).into(),
                size(rank.state_bytes).into(),
                size(rank.activation_bytes).into(),
            ]);
        }
        table
    }
}

impl Rank {
    fn new(holding: Holding, layers: usize) -> Self {
        let [dp, pp, tp] = holding.coords;
        let blocks = holding.blocks.into_iter();
        let blocks: Vec<String> = blocks.flat_map(|run| names(run, layers)).collect();
        Self {
            rank: holding.rank,
            dp,
            pp,
            tp,
            blocks: blocks.join(", "),
            parameters: holding.parameters,
            state_bytes: holding.state_bytes,
            file_bytes: holding.file_bytes,
            activation_bytes: holding.activation_bytes,
        }
    }
}

/// `embedding`, `layers 0-3`, `head`: the names of a run of blocks of a model with so many layers.
fn names(run: Range<usize>, layers: usize) -> Vec<String> {
    let (first, last) = (run.start.max(1), run.end.min(layers + 1));
    let inner = match last.saturating_sub(first) {
        0 => None,
        1 => Some(format!("layer {}", first - 1)),
        _ => Some(format!("layers {}-{}", first - 1, last - 2)),
    };
    let embedding = (run.start == 0 && run.end > 0).then(|| "embedding".to_string());
    let head = (run.end == layers + 2).then(|| "head".to_string());
    [embedding, inner, head].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_names_of_what_they_are() {
        assert_eq!(names(0..5, 3), ["embedding", "layers 0-2", "head"]);
        assert_eq!(names(0..1, 3), ["embedding"]);
        assert_eq!(names(1..2, 3), ["layer 0"]);
        assert_eq!(names(3..5, 3), ["layer 2", "head"]);
        assert_eq!(names(4..5, 3), ["head"]);
        assert!(names(2..2, 3).is_empty());
    }
}
