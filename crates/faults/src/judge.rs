//! The rules, checked when everybody is done: every promise is kept, every failure was told, nothing is left over.

mod keepers;
mod tiers;

use crate::actors::{ABANDONED_AFTER, Process, read_newest};
use crate::content::{Loaded, load_options};
use crate::disk::Loss;
use crate::fault::Kind;
use crate::ledger::Rule;
use crate::scenario::Keeping;
use crate::scheduler::time_of_day;
use crate::world::{DURABLE, Tier, World, label};
use cairn_checkpoint::retention::{self, Keep, PrunePlan};
use cairn_checkpoint::{Checkpoint, Checkpointer, Error, World as Ranks, step_folder, verify};
use cairn_store::Store;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a rank that failed may need to tell the others.
const GRACE: Duration = Duration::from_secs(1);
/// When the last pruning happens: everything is old then.
const LONG_AFTER: Duration = Duration::from_secs(100 * 86_400);
/// How often it is done.
const PRUNINGS: usize = 2;

/// Checks every rule.
pub(crate) fn judge(world: &Arc<World>) {
    let judge = Judge {
        process: Process::immune(world, "judge"),
    };
    judge.captures_came_to_an_end();
    judge.end_all();
    judge.failures_were_told();
    judge.nothing_failed_for_nothing();
    judge.look_at_tiers();
    judge.promises_are_kept();
    // Of a world whose listings lag behind, this one sees everything.
    if let Err(error) = read_newest(&judge.process, None) {
        judge.violate(format!("the newest step cannot be loaded: {error}"));
    }
    judge.newest_is_not_older_than_promised();
    judge.nothing_is_left_over(DURABLE);
    judge.fast_tier_is_tidy();
}

struct Judge {
    process: Process,
}

impl Judge {
    fn world(&self) -> &World {
        &self.process.world
    }

    fn check(&self, rule: Rule) {
        self.world().lock().ledger.check(rule);
    }

    fn violate(&self, text: String) {
        self.process.note(&format!("✗ {text}"));
        self.world().lock().ledger.violate(text);
    }

    /// The power goes once more, when everybody is done.
    fn end_all(&self) {
        let mut state = self.world().lock();
        let loss = state.random.pick(&[Loss::All, Loss::Bytes, Loss::Some]);
        let kind = Kind::PowerLoss { loss };
        state.note(self.process.id, &format!("at the end: {kind}"));
        state.die(self.process.id, kind);
        state.processes[self.process.id].is_alive = true;
    }

    /// Nobody waits to the end for a rank that knew that it would not come.
    fn failures_were_told(&self) {
        if self.world().case.scenario.retries {
            // Who failed at one try at a step may be missed at the next.
            return;
        }
        self.check(Rule::Told);
        let mut broken = Vec::new();
        let state = self.world().lock();
        let failures = &state.ledger.failures;
        for waiting in failures.iter().filter(|told| !told.missing.is_empty()) {
            let silent = failures.iter().find(|told| {
                let same = told.launch == waiting.launch && told.step == waiting.step;
                same && waiting.missing.contains(&told.rank)
                    && !told.is_taken
                    && told.at + GRACE < waiting.at
                    && !state.processes[told.process].is_muted
                    && state.processes[waiting.process].faults == 0
            });
            if let Some(silent) = silent {
                broken.push(format!(
                    "rank {} waited for step {} although rank {} had failed: {}",
                    waiting.rank, waiting.step, silent.rank, silent.reason
                ));
            }
        }
        drop(state);
        broken.into_iter().for_each(|text| self.violate(text));
    }

    /// Where nothing went wrong, every save succeeds, or another launch has the step, or a pruning took it before all ranks knew of it.
    fn nothing_failed_for_nothing(&self) {
        let scenario = &self.world().case.scenario;
        let rivals = scenario.overlapping || scenario.keeping == Keeping::LaggingObjects;
        if rivals && scenario.queued {
            // Saves also fail for those before them, which another launch took.
            return;
        }
        let mut state = self.world().lock();
        if !state.ledger.happened.is_empty() || scenario.throws > 0 {
            return;
        }
        state.ledger.check(Rule::Reason);
        let (failures, ledger) = (state.ledger.failures.iter(), &state.ledger);
        let broken: Vec<String> = failures
            .filter(|told| !(ledger.is_removed(told.step) || rivals && told.is_taken))
            .map(|told| format!("step {} failed for nothing: {}", told.step, told.reason))
            .collect();
        drop(state);
        broken.into_iter().for_each(|text| self.violate(text));
    }

    /// What is committed loads, and what was promised is committed.
    fn promises_are_kept(&self) {
        let ranks = Ranks::new(0, 1, "judge").expect("rank 0 of 1").unique();
        let run = Checkpointer::new(self.process.tier(DURABLE), ranks);
        let steps = match run.steps() {
            Ok(steps) => steps,
            Err(error) => return self.violate(format!("the run cannot be listed: {error}")),
        };
        for step in &steps {
            let checked = self.check_step(self.process.tier(DURABLE), *step);
            if let Err(text) = checked
                && !self.world().lock().ledger.is_rotted(*step)
            {
                self.violate(format!("step {step} is committed, but {text}"));
            }
        }
        self.tagged_steps_stay(&steps);
        let promises = self.world().lock().ledger.promises.clone();
        for promise in promises {
            let (who, step) = (&promise.who, promise.step);
            if self.world().lock().ledger.is_void(&promise) {
                continue;
            }
            self.check(Rule::Promise);
            if !steps.contains(&step) {
                self.violate(format!("{who} was promised step {step}, which is gone"));
            }
            let attempt = self.attempt(step).filter(|found| *found != promise.attempt);
            let scenario = &self.world().case.scenario;
            // Of what several launches left on the fast tiers, the youngest counts.
            let may_differ = scenario.replace
                // A launch that went back has saved it again.
                || scenario.back
                || (scenario.overlapping && scenario.tiers.is_some())
                || self.world().lock().ledger.rewritten.contains(&step);
            if let Some(other) = attempt.filter(|_| !may_differ) {
                self.violate(format!(
                    "{who} was promised attempt {} of step {step}, but {other} is there",
                    promise.attempt
                ));
            }
        }
    }

    /// A step that somebody tagged is there, unless a pruning could not see the tag yet.
    fn tagged_steps_stay(&self, steps: &[u64]) {
        if self.world().case.scenario.keeping == Keeping::LaggingObjects {
            return;
        }
        let tagged = self.world().lock().ledger.tagged.clone();
        for step in tagged {
            self.check(Rule::Promise);
            if !steps.contains(&step) && !self.world().lock().ledger.is_rotted_anywhere(step) {
                self.violate(format!("step {step} was tagged, and is gone"));
            }
        }
    }

    fn attempt(&self, step: u64) -> Option<String> {
        let checkpoint = Checkpoint::open(self.process.tier(DURABLE), step).ok()?;
        Some(checkpoint.manifest().attempt.clone())
    }

    /// The files of other steps that a step refers to, and the marks that these are deleted. If its manifest rotted, only its pins tell,
    /// as the plan of a pruning has them.
    fn referred(&self, tier: Tier, step: u64, plan: &PrunePlan) -> Vec<String> {
        let files = match Checkpoint::open(self.process.tier(tier), step) {
            Ok(checkpoint) => checkpoint.manifest().base_files(),
            Err(_) => plan.held.keys().cloned().collect(),
        };
        let folders = files.iter().filter_map(|file| file.split_once('/'));
        let marks: Vec<String> = folders
            .flat_map(|(folder, _)| ["DELETED", "kept.tag"].map(|name| format!("{folder}/{name}")))
            .collect();
        files.into_iter().chain(marks).collect()
    }

    fn check_step(&self, store: Arc<dyn Store>, step: u64) -> Result<(), String> {
        self.check(Rule::Whole);
        let text = |error: Error| error.to_string();
        let checkpoint = Checkpoint::open(store, step).map_err(text)?;
        let report = verify(&checkpoint, 1.0, &|_| {}).map_err(text)?;
        if let Some(damage) = report.damage.first() {
            return Err(damage.to_string());
        }
        let mut loaded = Loaded::new();
        checkpoint
            .load(loaded.targets(), &load_options())
            .map_err(text)?;
        match loaded.difference(&checkpoint).map_err(text)? {
            Some(difference) => Err(difference),
            None => Ok(()),
        }
    }

    /// Also where the listings of others lag behind.
    fn newest_is_not_older_than_promised(&self) {
        let Some(promised) = self.world().lock().ledger.newest_promise() else {
            return;
        };
        self.check(Rule::Newest);
        let ranks = Ranks::new(0, 1, "judge").expect("rank 0 of 1").unique();
        let run = Checkpointer::new(self.process.tier(DURABLE), ranks);
        let newest = run.latest().map(|latest| {
            let manifest = latest.checkpoint.manifest();
            (manifest.line, manifest.step)
        });
        match newest {
            Ok(place) if place >= promised => {}
            Ok(place) => self.violate(format!(
                "step {promised:?} was promised, the newest is {place:?}"
            )),
            Err(error) => self.violate(format!("step {promised:?} was promised, but {error}")),
        }
    }

    /// After a last pruning there is nothing that no step needs.
    fn nothing_is_left_over(&self, tier: Tier) {
        self.check(Rule::Tidy);
        let plan = match self.prune(tier) {
            Ok(plan) => plan,
            Err(error) => return self.violate(format!("the run cannot be pruned: {error}")),
        };
        let rotted = |step: &u64| {
            self.world()
                .lock()
                .ledger
                .is_rotted_on(*step, |on| on == tier)
        };
        let allowed = self.allowed(tier, &plan, rotted);
        let found = self.world().lock().disks[tier].list("", |_| false);
        for file in found {
            if !allowed.iter().any(|prefix| file.path.starts_with(prefix)) {
                let holders = plan.held.get(&file.path);
                let why = holders.map(|who| format!(" for {who}"));
                let (label, why) = (label(tier), why.unwrap_or_default());
                self.violate(format!("`{label}{}` is left over{why}", file.path));
            }
        }
        for step in plan.keep.keys() {
            if let Err(text) = self.check_step(self.process.tier(tier), *step)
                && !rotted(step)
            {
                self.violate(format!("pruning harmed step {step}: {text}"));
            }
        }
    }

    /// What a plan leaves, by how it begins.
    fn allowed(
        &self,
        tier: Tier,
        plan: &PrunePlan,
        rotted: impl Fn(&u64) -> bool,
    ) -> BTreeSet<String> {
        let mut allowed = BTreeSet::from(["lines/".to_string()]);
        for step in plan.unusable.keys().copied().filter(rotted) {
            allowed.insert(format!("{}/", step_folder(step)));
            allowed.extend(self.referred(tier, step, plan));
        }
        for step in plan.keep.keys() {
            let folder = step_folder(*step);
            let checkpoint = Checkpoint::open(self.process.tier(tier), *step).ok();
            let attempt = checkpoint.map(|found| found.manifest().attempt.clone());
            allowed.extend(self.referred(tier, *step, plan));
            allowed.insert(format!("{folder}/{}/", attempt.unwrap_or_default()));
            allowed.insert(format!("{folder}/COMMIT"));
            allowed.insert(format!("{folder}/kept.tag"));
            // Half the rename of a pruner that died, in an object store: it goes with the step.
            if self.world().case.scenario.keeping != Keeping::Files {
                allowed.insert(format!("{folder}/DELETED"));
            }
        }
        if tier != DURABLE {
            allowed.insert("DURABLE".into());
        }
        allowed
    }

    fn prune(&self, tier: Tier) -> Result<PrunePlan, Error> {
        let store = self.process.tier(tier);
        let now = time_of_day(self.world().lock().now + LONG_AFTER);
        let keep = Keep {
            last: 1,
            ..Keep::default()
        };
        let mut plan = PrunePlan::default();
        // What lay beside a step that was deleted is rubbish only when it is gone.
        for _ in 0..PRUNINGS {
            plan = retention::plan(&store, &keep, Some(ABANDONED_AFTER), now)?;
            retention::prune(store.as_ref(), &plan)?;
        }
        Ok(plan)
    }
}
