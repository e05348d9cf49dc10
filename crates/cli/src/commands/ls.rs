//! `cairn ls`: the steps of a run and the state of each.

use crate::args::Ls;
use crate::error::{Error, Exit, causes};
use crate::open::open_run;
use crate::printer::Printer;
use crate::table::{Cell, Paint, Style, Table, cell};
use crate::units::{age, plural, size};
use cairn::checkpoint::{
    COMMIT, DeltaSummary, Manifest, StepState, Unfinished, all_steps, each_step, history,
    is_timeline, step_folder, survey,
};
use cairn::store::{Store, Tiered};
use serde::Serialize;
use std::sync::Arc;
use std::time::SystemTime;

/// The columns behind that of tiers, in runs that have them.
const LAST: usize = 2;

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    latest: Option<u64>,
    steps: Vec<Step>,
}

#[derive(Debug, Serialize)]
struct Step {
    step: u64,
    age_seconds: Option<u64>,
    state: &'static str,
    len_bytes: u64,
    /// What the step has of its own and what it refers to, if it refers to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta>,
    /// What its data files are compressed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    packed: Option<Packed>,
    writers: Option<usize>,
    tags: Vec<String>,
    /// How often the run went back before it was saved.
    line: Option<u64>,
    /// Whether the run went back to before it since.
    abandoned: bool,
    /// Which tiers have it, of a run that has tiers.
    #[serde(skip_serializing_if = "Option::is_none")]
    tiers: Option<Vec<&'static str>>,
    note: Option<String>,
}

/// What the data files of a step are compressed to.
#[derive(Debug, Clone, Copy, Serialize)]
struct Packed {
    /// Their bytes before.
    own_bytes: u64,
    stored_bytes: u64,
}

impl Packed {
    fn of(manifest: &Manifest) -> Option<Self> {
        let own = manifest.delta.as_ref().map(|delta| delta.stored_bytes);
        manifest.packed.map(|packed| Self {
            own_bytes: own.unwrap_or(manifest.len_bytes),
            stored_bytes: packed.stored_bytes,
        })
    }

    /// `67 %`
    fn text(self) -> String {
        let hundred = u128::from(self.stored_bytes) * 100;
        let percent = hundred.div_ceil(u128::from(self.own_bytes.max(1)));
        format!("{percent} %")
    }
}

/// What of a step lies in its own files.
#[derive(Debug, Serialize)]
struct Delta {
    /// The bytes of all it stands for.
    full_bytes: u64,
    #[serde(flatten)]
    summary: DeltaSummary,
}

impl Delta {
    /// `1.0 MiB of 2.0 GiB`
    fn text(&self) -> String {
        let own = size(self.summary.stored_bytes);
        format!("{own} of {}", size(self.full_bytes))
    }
}

pub(crate) fn run(args: &Ls, printer: &Printer) -> Result<Exit, Error> {
    let (run, only) = open_run(&args.run)?;
    let mut steps = all_steps(run.as_ref())?;
    steps.retain(|step| only.is_none_or(|only| only == *step));
    steps.reverse();
    let found = each_step(run.as_ref(), &steps, |step| look_at(&run, step))?;
    let steps = with_history(run.as_ref(), found)?;
    let report = Report {
        run: run.url(),
        latest: steps
            .iter()
            .filter(|step| step.state == "complete")
            .max_by_key(|step| (step.line, step.step))
            .map(|step| step.step),
        steps,
    };
    printer.report(&report, || report.text(printer.paint()))?;
    Ok(Exit::Done)
}

/// Says of each step whether it led to the newest one.
fn with_history(run: &dyn Store, found: Vec<(Step, Option<Manifest>)>) -> Result<Vec<Step>, Error> {
    let manifests = found.iter().filter_map(|(_, manifest)| manifest.as_ref());
    let history = history(run, manifests)?;
    let told = found.into_iter().map(|(step, manifest)| Step {
        line: manifest.as_ref().map(|it| it.line),
        abandoned: manifest.is_some_and(|it| !history.contains(it.line, it.step)),
        ..step
    });
    Ok(told.collect())
}

fn look_at(run: &Arc<dyn Store>, step: u64) -> Result<(Step, Option<Manifest>), Error> {
    let listing = run.list(&step_folder(step))?;
    let commit = format!("{}/{COMMIT}", step_folder(step));
    // What was not saved as a whole is as old as its commit, or its last sign of life.
    let time = listing.iter().find(|meta| meta.key == commit);
    let time = time.or_else(|| listing.iter().max_by_key(|meta| meta.modified));
    let age = time.and_then(|meta| SystemTime::now().duration_since(meta.modified).ok());
    let data = listing.iter().filter(|meta| !is_timeline(&meta.key));
    let mut found = Step {
        step,
        age_seconds: age.map(|age| age.as_secs()),
        state: "complete",
        len_bytes: data.map(|meta| meta.len).sum(),
        delta: None,
        packed: None,
        writers: None,
        tags: Vec::new(),
        line: None,
        abandoned: false,
        tiers: run.tiers().map(|tiers| holders(tiers, step)).transpose()?,
        note: None,
    };
    let mut manifest = None;
    match survey(run, step, 0.0, &|_| ())? {
        StepState::Whole(checkpoint, _) => {
            let age = checkpoint.manifest().age();
            found.age_seconds = age.map(|age| age.as_secs());
            found.writers = Some(checkpoint.manifest().writers());
            found.delta = delta(checkpoint.manifest());
            found.packed = Packed::of(checkpoint.manifest());
            found.tags = checkpoint.tags()?;
            manifest = Some(checkpoint.manifest().clone());
        }
        StepState::Damaged(checkpoint, report) => {
            found.state = "damaged";
            manifest = checkpoint.map(|checkpoint| checkpoint.manifest().clone());
            found.writers = manifest.as_ref().map(Manifest::writers);
            found.note = Some(first_damage(&report.damage));
        }
        StepState::Incomplete(attempts) => {
            found.state = "incomplete";
            found.writers = attempts
                .iter()
                .map(|attempt| attempt.world)
                .max()
                .filter(|n| *n > 0);
            found.note = Some(what_is_missing(&attempts));
        }
        StepState::Deleted => {
            found.state = "deleted";
            found.note = Some("its files go with the next `cairn prune`".into());
        }
        StepState::Untrusted(error) => {
            found.state = "untrusted";
            found.note = Some(error.to_string());
        }
        StepState::TooNew(error) => {
            found.state = "too new";
            found.note = Some(error.to_string());
        }
    }
    Ok((found, manifest))
}

fn delta(manifest: &Manifest) -> Option<Delta> {
    Some(Delta {
        full_bytes: manifest.len_bytes,
        summary: manifest.delta.clone()?,
    })
}

/// The tiers that have a step. Where each node has a fast tier of its own, this node's may have a part of it.
fn holders(tiers: &Tiered, step: u64) -> Result<Vec<&'static str>, Error> {
    let mut holders = Vec::new();
    let folder = step_folder(step);
    let commit = format!("{folder}/{COMMIT}");
    if tiers.fast().head(&commit)?.is_some() {
        holders.push("fast");
    } else if tiers.is_per_node() && !tiers.fast().list(&folder)?.is_empty() {
        holders.push("fast (this node's files)");
    }
    match tiers.durable().head(&commit) {
        Ok(found) => holders.extend(found.map(|_| "durable")),
        Err(_) => holders.push("durable?"),
    }
    Ok(holders)
}

fn first_damage(damage: &[cairn::checkpoint::Error]) -> String {
    let Some(first) = damage.first() else {
        return String::new();
    };
    let mut text = [vec![first.to_string()], causes(first)].concat().join(": ");
    if damage.len() > 1 {
        text.push_str(&format!(" (and {} more)", damage.len() - 1));
    }
    text
}

fn what_is_missing(attempts: &[Unfinished]) -> String {
    match attempts {
        [] => "it has no attempts".into(),
        attempts => attempts
            .iter()
            .map(Unfinished::reason)
            .collect::<Vec<_>>()
            .join("; "),
    }
}

impl Report {
    fn text(&self, paint: Paint) -> String {
        let mut columns = vec![
            " STEP", " AGE", "STATE", " SIZE", " WRITERS", "TAGS", "NOTE",
        ];
        let deltas = self.steps.iter().any(|step| step.delta.is_some());
        if deltas {
            columns.insert(4, "DELTA");
        }
        let packed = self.steps.iter().any(|step| step.packed.is_some());
        if packed {
            columns.insert(4, "PACKED");
        }
        if self.has_tiers() {
            columns.insert(columns.len() - LAST, "TIERS");
        }
        let mut table = Table::new(&columns);
        for step in &self.steps {
            let mut row = self.row(step);
            if deltas {
                let text = step.delta.as_ref().map(Delta::text);
                row.insert(4, text.unwrap_or_default().into());
            }
            if packed {
                let text = step.packed.map(Packed::text);
                row.insert(4, text.unwrap_or_default().into());
            }
            table.row(row);
        }
        let whole = self
            .steps
            .iter()
            .filter(|step| step.state == "complete")
            .count();
        let total: u64 = self.steps.iter().map(|step| step.len_bytes).sum();
        let counts = format!(
            "{}, {whole} complete, {}",
            plural(self.steps.len(), "step"),
            size(total)
        );
        format!(
            "{}{}\n",
            table.render(paint),
            paint.text(Style::Dim, &counts)
        )
    }

    fn has_tiers(&self) -> bool {
        self.steps.iter().any(|step| step.tiers.is_some())
    }

    fn row(&self, step: &Step) -> Vec<Cell> {
        let state = match step.state {
            "complete" => Style::Green,
            "damaged" => Style::Red,
            _ => Style::Yellow,
        };
        let latest = (self.latest == Some(step.step)).then(|| "latest".to_string());
        let abandoned = step.abandoned.then(|| "abandoned".to_string());
        let tags: Vec<String> = latest
            .into_iter()
            .chain(abandoned)
            .chain(step.tags.iter().cloned())
            .collect();
        let seconds = step.age_seconds.map(std::time::Duration::from_secs);
        let mut row = vec![
            cell(Style::Bold, step.step.to_string()),
            seconds.map_or(String::new(), age).into(),
            cell(state, step.state),
            size(step.len_bytes).into(),
            step.writers
                .map_or(String::new(), |writers| writers.to_string())
                .into(),
            cell(Style::Cyan, tags.join(", ")),
            step.note.clone().unwrap_or_default().into(),
        ];
        if let Some(tiers) = &step.tiers {
            row.insert(row.len() - LAST, tiers.join(", ").into());
        }
        row
    }
}
