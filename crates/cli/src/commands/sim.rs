//! `cairn sim`: when would each stage of a pipeline work, and when would it wait?

use super::file;
use crate::args::{Order, Sim};
use crate::error::{Error, Exit};
use crate::numbers::{percent, short};
use crate::printer::Printer;
use crate::table::{Paint, Style, Table};
use crate::units::plural;
use cairn::plan::chart::{Stretch, rows, svg};
use cairn::plan::{
    self, Costs, LayerCosts, Schedule, Span, Timeline, Work, explicit_split, simulate, split_layers,
};
use serde::Serialize;
use std::ops::Range;

#[derive(Debug, Serialize)]
struct Report {
    schedule: &'static str,
    chunks: usize,
    micro_batches: usize,
    /// Until the last stage is done.
    total: f64,
    /// How long the busiest stage works.
    busiest: f64,
    /// The share of all time in which stages wait.
    bubble_share: f64,
    stages: Vec<Stage>,
}

#[derive(Debug, Serialize)]
struct Stage {
    /// First layer and end of each chunk, if layers were given.
    layers: Option<Vec<[usize; 2]>>,
    busy: f64,
    idle_share: f64,
    /// Micro-batches, of each chunk, whose activations are kept, at most.
    peak_activations: usize,
    actions: Vec<Act>,
}

#[derive(Debug, Serialize)]
struct Act {
    work: &'static str,
    micro_batch: usize,
    chunk: usize,
    start: f64,
    end: f64,
}

/// The layers of each part of the model.
type Split = Vec<Range<usize>>;

pub(crate) fn run(args: &Sim, printer: &Printer) -> Result<Exit, Error> {
    let (order, schedule) = schedule(args)?;
    let (layers, costs) = costs(args, schedule.parts())?;
    let timeline = simulate(&schedule, &costs)?;
    let report = report(order, &schedule, &timeline, layers.as_deref());
    if let Some(path) = &args.svg {
        let picture = svg(&timeline, &title(&report))?;
        file::write(path, picture.as_bytes(), printer)?;
    }
    printer.report(&report, || text(&report, &timeline, printer))?;
    Ok(Exit::Done)
}

fn schedule(args: &Sim) -> Result<(Order, Schedule), Error> {
    let several = args.chunks.is_some_and(|chunks| chunks != 1);
    let order = args.schedule.unwrap_or(match several {
        true => Order::Interleaved,
        false => Order::OneForwardOneBackward,
    });
    let (stages, micro_batches) = (args.stages, args.micro_batches);
    let schedule = match order {
        Order::Interleaved => {
            Schedule::interleaved(stages, args.chunks.unwrap_or(2), micro_batches)?
        }
        _ if several => {
            return Err(Error::Chunks {
                order: order.name(),
            });
        }
        Order::OneForwardOneBackward => Schedule::one_forward_one_backward(stages, micro_batches)?,
        Order::Gpipe => Schedule::gpipe(stages, micro_batches)?,
    };
    Ok((order, schedule))
}

/// The layers of each part, if there are any, and what the parts cost.
fn costs(args: &Sim, parts: usize) -> Result<(Option<Split>, Costs), Error> {
    let Some(layers) = args.layers else {
        let chunks = (parts / args.stages) as f64;
        let (forward, backward) = (args.forward / chunks, args.backward / chunks);
        return Ok((None, Costs::equal(parts, forward, backward, args.send)));
    };
    let one = LayerCosts {
        embedding: args.embedding,
        head: args.head,
        ..LayerCosts::equal(layers)?
    };
    let split = match args.split.is_empty() {
        true => split_layers(&one, parts)?,
        false if args.split.len() != parts => {
            let reason = format!("`--split` names {}", args.split.len());
            return Err(plan::Error::Split {
                layers,
                parts,
                reason,
            }
            .into());
        }
        false => explicit_split(layers, &args.split)?,
    };
    let shares = split.iter().enumerate();
    let shares: Vec<f64> = shares
        .map(|(part, range)| one.of_part(part, split.len(), range.clone()))
        .collect();
    let times = |time: f64| shares.iter().map(|share| share * time).collect();
    let costs = Costs {
        forward: times(args.forward),
        backward: times(args.backward),
        send: args.send,
    };
    Ok((Some(split), costs))
}

fn report(
    order: Order,
    schedule: &Schedule,
    timeline: &Timeline,
    layers: Option<&[Range<usize>]>,
) -> Report {
    let stage = |stage: usize| {
        let part = |chunk: usize| schedule.part(stage, chunk);
        let range = |range: &Range<usize>| [range.start, range.end];
        let of_stage = |layers: &[Range<usize>]| {
            let chunks = 0..schedule.chunks;
            chunks.map(|chunk| range(&layers[part(chunk)])).collect()
        };
        Stage {
            layers: layers.map(of_stage),
            busy: timeline.busy(stage),
            idle_share: timeline.idle_share(stage),
            peak_activations: timeline.peaks[stage],
            actions: timeline.stages[stage].iter().map(act).collect(),
        }
    };
    let stages: Vec<Stage> = (0..schedule.stages.len()).map(stage).collect();
    Report {
        schedule: order.name(),
        chunks: schedule.chunks,
        micro_batches: schedule.micro_batches,
        total: timeline.total,
        busiest: stages.iter().map(|stage| stage.busy).fold(0.0, f64::max),
        bubble_share: timeline.bubble_share(),
        stages,
    }
}

fn act(span: &Span) -> Act {
    Act {
        work: match span.action.work {
            Work::Forward => "forward",
            Work::Backward => "backward",
        },
        micro_batch: span.action.micro_batch,
        chunk: span.action.chunk,
        start: span.start,
        end: span.end,
    }
}

/// `1f1b, 4 stages, 8 micro-batches`
fn title(report: &Report) -> String {
    let stages = plural(report.stages.len(), "stage");
    let chunks = match report.chunks {
        1 => String::new(),
        chunks => format!(" of {chunks} chunks"),
    };
    // No plural of `batch` ends in a mere `s`.
    let micro_batches = match report.micro_batches {
        1 => "1 micro-batch".to_string(),
        many => format!("{many} micro-batches"),
    };
    format!("{}, {stages}{chunks}, {micro_batches}", report.schedule)
}

fn text(report: &Report, timeline: &Timeline, printer: &Printer) -> String {
    let paint = printer.paint();
    let mut facts = Table::facts();
    facts.fact("schedule", title(report));
    let busiest = short(report.busiest);
    let time = format!("{}; the busiest stage works {busiest}", short(report.total));
    facts.fact("time", time);
    facts.fact("bubble", percent(report.bubble_share));
    let chart = chart(timeline, printer.columns(), paint);
    [facts.render(paint), stages(report).render(paint), chart].join("\n")
}

fn stages(report: &Report) -> Table {
    let layered = report.stages.iter().any(|stage| stage.layers.is_some());
    let mut table = Table::new(match layered {
        true => &[" STAGE", " WORKS", " WAITS", " KEEPS", "LAYERS"],
        false => &[" STAGE", " WORKS", " WAITS", " KEEPS"],
    });
    for (number, stage) in report.stages.iter().enumerate() {
        let mut cells = vec![
            number.to_string().into(),
            short(stage.busy).into(),
            percent(stage.idle_share).into(),
            stage.peak_activations.to_string().into(),
        ];
        cells.extend(stage.layers.as_ref().map(|layers| {
            let layers = layers.iter().map(|[start, end]| range(*start, *end));
            layers.collect::<Vec<_>>().join(", ").into()
        }));
        table.row(cells);
    }
    table
}

/// `0-7`, `8`, or a line for no layers.
fn range(start: usize, end: usize) -> String {
    match end - start {
        0 => "-".to_string(),
        1 => start.to_string(),
        _ => format!("{start}-{}", end - 1),
    }
}

fn chart(timeline: &Timeline, columns: usize, paint: Paint) -> String {
    let digits = timeline.stages.len().saturating_sub(1).to_string().len();
    let margin = "stage ".len() + digits + 2;
    let style = |work: Option<Work>| match work {
        None => Style::Dim,
        Some(Work::Forward) => Style::Cyan,
        Some(Work::Backward) => Style::Green,
    };
    let line = |(stage, row): (usize, Vec<Stretch>)| {
        let row: String = row
            .iter()
            .map(|stretch| paint.text(style(stretch.work), &stretch.text))
            .collect();
        format!(
            "{}  {row}\n",
            paint.text(Style::Dim, &format!("stage {stage:digits$}"))
        )
    };
    let rows = rows(timeline, columns.saturating_sub(margin));
    rows.into_iter().enumerate().map(line).collect()
}
