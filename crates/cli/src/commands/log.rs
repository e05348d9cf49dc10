//! `cairn log`: what was saved after what.

mod graph;

use crate::args::Log;
use crate::error::{Error, Exit};
use crate::open::open_run;
use crate::printer::Printer;
use crate::table::{Cell, Paint, Style, Table, cell};
use crate::units::{age, plural};
use cairn::checkpoint::{
    Checkpoint, Error as CheckpointError, History, Line, Manifest, Parent, all_steps, each_step,
    history, lines,
};
use cairn::store::Store;
use graph::Graph;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// How much of a launch's identifier tells it from others.
const LAUNCH_DIGITS: usize = 8;

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    steps: Vec<Step>,
    lines: Vec<Begun>,
    /// Steps whose manifest cannot be used, and why.
    unreadable: Vec<Unreadable>,
}

/// A committed step; the newest comes first.
#[derive(Debug, Serialize)]
struct Step {
    step: u64,
    line: u64,
    /// Whether the run went back to before it.
    abandoned: bool,
    attempt: String,
    launch: Option<String>,
    parent: Option<Parent>,
    age_seconds: Option<u64>,
    writers: usize,
    tags: Vec<String>,
}

/// Where a line began.
#[derive(Debug, Serialize)]
struct Begun {
    line: u64,
    launch: String,
    parent: Option<Parent>,
    created: String,
}

#[derive(Debug, Serialize)]
struct Unreadable {
    step: u64,
    reason: String,
}

pub(crate) fn run(args: &Log, printer: &Printer) -> Result<Exit, Error> {
    let (run, only) = open_run(&args.run)?;
    if only.is_some() {
        return Err(Error::NotARun {
            path: args.run.clone(),
        });
    }
    let report = Report::read(&run)?;
    for bad in &report.unreadable {
        printer.warn(&format!(
            "step {} is not shown: {} (`cairn ls` tells more)",
            bad.step, bad.reason
        ));
    }
    printer.report(&report, || report.text(printer.paint()))?;
    Ok(Exit::Done)
}

impl Report {
    fn read(run: &Arc<dyn Store>) -> Result<Self, Error> {
        let numbers = all_steps(run.as_ref())?;
        let opened = each_step(run.as_ref(), &numbers, |step| -> Result<_, Error> {
            match Checkpoint::open(run.clone(), step) {
                Ok(checkpoint) => {
                    let tags = checkpoint.tags()?;
                    Ok(Some(Ok((checkpoint.manifest().clone(), tags))))
                }
                Err(CheckpointError::Incomplete { .. } | CheckpointError::Deleted { .. }) => {
                    Ok(None)
                }
                Err(error) if error.is_damage() => Ok(Some(Err((step, error)))),
                Err(error @ (CheckpointError::Version { .. } | CheckpointError::Needs { .. })) => {
                    Ok(Some(Err((step, error))))
                }
                Err(error) => Err(error.into()),
            }
        })?;
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for step in opened.into_iter().flatten() {
            match step {
                Ok(step) => found.push(step),
                Err((step, error)) => unreadable.push(Unreadable {
                    step,
                    reason: error.to_string(),
                }),
            }
        }
        found.sort_by_key(|(manifest, _)| std::cmp::Reverse((manifest.line, manifest.step)));
        let history = history(run.as_ref(), found.iter().map(|(manifest, _)| manifest))?;
        let steps = found
            .into_iter()
            .map(|(manifest, tags)| Step::new(manifest, tags, &history));
        Ok(Self {
            run: run.url(),
            steps: steps.collect(),
            lines: lines(run.as_ref())?.into_iter().map(Begun::from).collect(),
            unreadable,
        })
    }

    fn text(&self, paint: Paint) -> String {
        let mut table = Table::new(&["", " STEP", " LINE", " AGE", " WRITERS", "LAUNCH", "NOTE"]);
        let mut graph = Graph::default();
        for (index, step) in self.steps.iter().enumerate() {
            let row = graph.row((step.line, step.step), self.before(step), step.abandoned);
            for joint in row.joints {
                table.row(vec![cell(Style::Dim, joint)]);
            }
            table.row(step.row(row.text, index == 0));
        }
        let abandoned = self.steps.iter().filter(|step| step.abandoned).count();
        let counts = match abandoned {
            0 => plural(self.steps.len(), "step"),
            _ => format!(
                "{}, {abandoned} abandoned",
                plural(self.steps.len(), "step")
            ),
        };
        format!(
            "{}{}\n",
            table.render(paint),
            paint.text(Style::Dim, &counts)
        )
    }

    /// The step of the run that a step came after: the one before it on its line, or the one that the line began from. If a pruning took
    /// that one, the last one before it that is left.
    fn before(&self, step: &Step) -> Option<(u64, u64)> {
        let last = |line: u64, most: u64| {
            // The newest come first.
            let mut steps = self.steps.iter();
            steps
                .find(|other| other.line == line && other.step <= most)
                .map(|other| (line, other.step))
        };
        let mut place = (step.line, step.step.checked_sub(1));
        loop {
            if let Some(found) = place.1.and_then(|most| last(place.0, most)) {
                return Some(found);
            }
            let begun = self.lines.iter().find(|begun| begun.line == place.0);
            let parent = match begun {
                Some(begun) => begun.parent.as_ref(),
                None if place.0 == step.line => step.parent.as_ref(),
                None => None,
            }?;
            if parent.line >= place.0 {
                return None;
            }
            place = (parent.line, Some(parent.step));
        }
    }
}

impl Step {
    fn new(manifest: Manifest, tags: Vec<String>, history: &History) -> Self {
        Self {
            step: manifest.step,
            line: manifest.line,
            abandoned: !history.contains(manifest.line, manifest.step),
            age_seconds: manifest.age().map(|age| age.as_secs()),
            writers: manifest.writers(),
            attempt: manifest.attempt,
            launch: manifest.launch,
            parent: manifest.parent,
            tags,
        }
    }

    fn row(&self, graph: String, latest: bool) -> Vec<Cell> {
        let words = [(latest, "latest"), (self.abandoned, "abandoned")];
        let words = words
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, word)| word.to_string());
        let notes: Vec<String> = words.chain(self.tags.iter().cloned()).collect();
        let launch = self.launch.as_deref().unwrap_or("");
        let launch: String = launch.chars().take(LAUNCH_DIGITS).collect();
        let age = self
            .age_seconds
            .map(|seconds| age(Duration::from_secs(seconds)));
        let style = match self.abandoned {
            true => Style::Dim,
            false => Style::Bold,
        };
        vec![
            graph.into(),
            cell(style, self.step.to_string()),
            self.line.to_string().into(),
            age.unwrap_or_default().into(),
            self.writers.to_string().into(),
            launch.into(),
            cell(Style::Cyan, notes.join(", ")),
        ]
    }
}

impl From<Line> for Begun {
    fn from(line: Line) -> Self {
        Self {
            line: line.number,
            launch: line.launch,
            parent: line.parent,
            created: line.created,
        }
    }
}
