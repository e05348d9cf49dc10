//! `cairn keeper`: keeps the memory of captures for trainers that may die.

use super::train::interrupts;
use crate::args::{Keeper, KeeperCommand, KeeperServe};
use crate::error::{Error, Exit};
use crate::printer::Printer;
use crate::table::{Cell, Style, Table, cell};
use crate::units::{age, plural, size};
use cairn::keeper::{
    HeldStatus, Limits, Server, ServerOptions, Status, default_socket, notify, status,
};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// How a keeper ended.
#[derive(Debug, Serialize)]
struct Served {
    socket: String,
    max_bytes: u64,
    max_run_bytes: u64,
    /// What could not be committed and was in memory alone.
    lost: Vec<HeldStatus>,
}

pub(crate) fn run(args: &Keeper, printer: &Printer) -> Result<Exit, Error> {
    match &args.command {
        None => serve(&args.serve, printer),
        Some(KeeperCommand::Status(args)) => {
            let status = status(&socket(&args.socket))?;
            printer.report(&status, || text(&status, printer))?;
            Ok(Exit::Done)
        }
    }
}

fn serve(args: &KeeperServe, printer: &Printer) -> Result<Exit, Error> {
    let path = socket(&args.socket);
    let total = args.max_bytes.map(Limits::total).unwrap_or_default();
    let limits = Limits {
        max_run_bytes: args.max_run_bytes.unwrap_or(total.max_run_bytes),
        ..total
    };
    let options = ServerOptions {
        limits,
        forget_after: args.forget_after,
        commit_timeout: args.commit_timeout,
    };
    let server = Server::bind(&path, options, interrupts()?)?;
    let most = size(limits.max_bytes);
    printer.note(&format!(
        "listening at {}, up to {most} of memory",
        path.display()
    ));
    tell("READY=1", printer);
    let lost = server.run(|text| printer.warn(text));
    tell("STOPPING=1", printer);
    let lost = lost?;
    for held in &lost {
        printer.warn(&format!(
            "step {} of `{}`, captured by writer {}, is lost with this keeper's memory: {}",
            held.step,
            held.run,
            held.writer,
            held.reason
                .as_deref()
                .unwrap_or("it could not be committed")
        ));
    }
    let exit = match lost.is_empty() {
        true => Exit::Done,
        false => Exit::Differs,
    };
    let served = Served {
        socket: path.display().to_string(),
        max_bytes: limits.max_bytes,
        max_run_bytes: limits.max_run_bytes,
        lost,
    };
    printer.report(&served, || match served.lost.len() {
        0 => "stopped, with everything written\n".to_string(),
        lost => format!(
            "stopped; {} could not be written\n",
            plural(lost, "snapshot")
        ),
    })?;
    Ok(exit)
}

fn socket(given: &Option<PathBuf>) -> PathBuf {
    given.clone().unwrap_or_else(default_socket)
}

/// Tells the service manager, if there is one.
fn tell(message: &str, printer: &Printer) {
    if let Err(error) = notify(message) {
        printer.warn(&format!(
            "the service manager was not told `{message}`: {error}"
        ));
    }
}

fn text(status: &Status, printer: &Printer) -> String {
    let mut table = Table::new(&[
        "RUN", " STEP", " WRITER", " SIZE", "STAGE", " SINCE", "NOTE",
    ]);
    for held in &status.snapshots {
        table.row(row(held));
    }
    let counts = format!(
        "{}, {} of {} in use, {}",
        plural(status.snapshots.len(), "snapshot"),
        size(status.used_bytes),
        size(status.max_bytes),
        plural(status.clients, "client")
    );
    let paint = printer.paint();
    format!(
        "{}{}\n",
        table.render(paint),
        paint.text(Style::Dim, &counts)
    )
}

fn row(held: &HeldStatus) -> Vec<Cell> {
    let style = match held.stage.as_str() {
        "committed" => Style::Green,
        "stuck" => Style::Red,
        _ => Style::Yellow,
    };
    let orphan = held.orphan.then(|| "its trainer is gone".to_string());
    let read = (held.readers > 0).then(|| format!("read by {}", held.readers));
    let tries = (held.tries > 0).then(|| format!("tried {}", plural(held.tries as usize, "time")));
    let notes = [held.reason.clone(), tries, orphan, read]
        .into_iter()
        .flatten();
    let since = Duration::try_from_secs_f64(held.seconds).unwrap_or_default();
    vec![
        held.run.clone().into(),
        cell(Style::Bold, held.step.to_string()),
        format!("{} of {}", held.writer, held.world).into(),
        size(held.len_bytes).into(),
        cell(style, held.stage.clone()),
        age(since).into(),
        notes.collect::<Vec<_>>().join("; ").into(),
    ]
}
