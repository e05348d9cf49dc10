//! What must hold of a fast tier: what was promised there is there, goes on to the durable one with the next launch, and does not stay for ever.

use super::Judge;
use crate::actors::resume_uploads;
use crate::ledger::Rule;
use crate::scenario::Keeping;
use crate::world::DURABLE;
use cairn_checkpoint::{Checkpoint, Error, Level, chain, step_folder};

impl Judge {
    /// Checks promises of the fast tier, and lets a last launch upload what was left.
    pub(super) fn look_at_tiers(&self) {
        if self.world().case.scenario.tiers.is_none() {
            return;
        }
        self.uploads_had_reasons();
        self.local_promises_are_kept();
        let failed = resume_uploads(&self.process.world, |_| self.process.clone());
        for (node, error) in failed {
            let text = format!("node {node} cannot upload what was left: {}", chain(&error));
            self.process.note(&text);
            if !self.is_excused(&error) {
                self.violate(text);
            }
            // It stays on the fast tier, and what comes behind it may, too.
            self.local_promises_are_kept();
            self.world().lock().ledger.lose_fast();
        }
        self.parts_are_uploaded();
    }

    /// Whether there is a reason for a step to stay on the fast tier: it rotted there, files that it refers to rotted or were replaced or
    /// pruned before it came, or another launch has it.
    fn is_excused(&self, error: &Error) -> bool {
        let scenario = &self.world().case.scenario;
        let Error::NotUploaded { step, source } = error else {
            return false;
        };
        let state = self.world().lock();
        if state.ledger.is_rotted_anywhere(*step) || state.ledger.is_removed(*step) {
            return true;
        }
        match source.as_ref() {
            // The step of its bases may have rotted, too.
            Error::BasesGone { .. } => {
                let ledger = &state.ledger;
                let is_changed = !ledger.rotted.is_empty() || !ledger.removed.is_empty();
                is_changed || scenario.replace || scenario.compactions > 0
            }
            Error::StepTaken { .. } => scenario.overlapping,
            // A launch that was taken for dead may find its files gone: a node has one launch at a time.
            _ => scenario.overlapping && scenario.is_per_node(),
        }
    }

    /// Where nothing went wrong, every upload succeeds, unless another launch has the step or a pruning took what it needs.
    fn uploads_had_reasons(&self) {
        let scenario = &self.world().case.scenario;
        let rivals = scenario.overlapping || scenario.keeping == Keeping::LaggingObjects;
        let state = self.world().lock();
        let ledger = &state.ledger;
        let is_disturbed = !ledger.happened.is_empty()
            || scenario.throws > 0
            || !ledger.removed.is_empty()
            || !ledger.rewritten.is_empty();
        if rivals || is_disturbed {
            return;
        }
        let broken: Vec<String> = state
            .ledger
            .not_uploaded
            .iter()
            .map(|(_, text)| format!("an upload failed for nothing: somebody {text}"))
            .collect();
        drop(state);
        broken.into_iter().for_each(|text| self.violate(text));
    }

    /// What was promised to be on the fast tier loads from there, or from the durable one.
    fn local_promises_are_kept(&self) {
        let promises = self.world().lock().ledger.promises.clone();
        for promise in promises {
            let is_void = self.world().lock().ledger.is_void(&promise);
            if promise.level != Level::Local || is_void {
                continue;
            }
            self.check(Rule::Promise);
            if let Err(text) = self.check_step(self.process.store(), promise.step) {
                let (who, step) = (promise.who, promise.step);
                self.violate(format!(
                    "{who} was promised that step {step} is on the fast tier, but {text}"
                ));
            }
        }
    }

    /// A step of which all nodes have their parts is durable once all of them have uploaded what they had, unless some did, the others came
    /// later than a pruning waits for them, and it took the attempt for abandoned.
    fn parts_are_uploaded(&self) {
        let state = self.world().lock();
        let scenario = &self.world().case.scenario;
        if scenario.overlapping {
            // A node has one launch at a time.
            return;
        }
        let whole: Vec<u64> = state
            .ledger
            .parts
            .iter()
            .filter(|((step, attempt), ranks)| {
                let folder = format!("{}/{attempt}", step_folder(*step));
                let is_excused = state.ledger.is_removed(*step)
                    || state.ledger.is_rotted_anywhere(*step)
                    || state.ledger.abandoned.contains(&folder);
                // More ranks than any launch has are those of the largest.
                let all = scenario.launches.iter().max().copied().unwrap_or(0);
                ranks.len() >= all && !is_excused
            })
            .map(|((step, _), _)| *step)
            .collect();
        drop(state);
        for step in whole {
            self.check(Rule::Promise);
            if Checkpoint::open(self.process.tier(DURABLE), step).is_err() {
                self.violate(format!(
                    "all nodes had their parts of step {step}, but it is not durable"
                ));
            }
        }
    }

    /// A fast tier that all ranks share is an ordinary run, which can be pruned.
    pub(super) fn fast_tier_is_tidy(&self) {
        let scenario = &self.world().case.scenario;
        if scenario.tiers.is_some() && !scenario.is_per_node() {
            self.nothing_is_left_over(1);
        }
    }
}
