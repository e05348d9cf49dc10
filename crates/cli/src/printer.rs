//! What is printed, where and in which colour: every decision in one place.
//!
//! Data goes to stdout, all else to stderr. Bars appear only where somebody watches.

use crate::args::{Color, Global};
use crate::error::{Error, Exit, causes};
use crate::table::{Paint, Style};
use crate::visible;
use cairn::store::redact;
use clap::error::ErrorKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The columns of what is no terminal.
const DEFAULT_COLUMNS: usize = 100;

/// Whether the last line of the terminal is one that the next takes the place of.
static LIVE: AtomicBool = AtomicBool::new(false);

/// Decides what is printed.
#[derive(Debug)]
pub(crate) struct Printer {
    json: bool,
    quiet: bool,
    progress: bool,
    stdout: Paint,
    stderr: Paint,
}

impl Printer {
    /// Says nothing, for those whose output is not for people.
    pub(crate) const SILENT: Printer = Printer {
        json: false,
        quiet: true,
        progress: false,
        stdout: Paint(false),
        stderr: Paint(false),
    };

    pub(crate) fn new(global: &Global) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let paint = |terminal: bool| match global.color {
            Color::Always => Paint(true),
            Color::Never => Paint(false),
            Color::Auto => Paint(terminal && !plain),
        };
        let watched = io::stderr().is_terminal();
        Self {
            json: global.json,
            quiet: global.quiet,
            progress: watched
                && !(global.json || global.quiet || global.verbose || global.no_progress),
            stdout: paint(io::stdout().is_terminal()),
            stderr: paint(watched),
        }
    }

    /// Whether data is printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether lines take the place of each other before somebody's eyes.
    pub(crate) fn is_watched(&self) -> bool {
        self.progress
    }

    /// The colours of stdout.
    pub(crate) fn paint(&self) -> Paint {
        self.stdout
    }

    /// How many columns there are to draw in.
    pub(crate) fn columns(&self) -> usize {
        let terminal = console::Term::stdout().size_checked();
        terminal.map_or(DEFAULT_COLUMNS, |(_, columns)| usize::from(columns))
    }

    /// Prints what a command found: `data` as one JSON object, or `text`.
    pub(crate) fn report(
        &self,
        data: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        if self.json {
            let text = serde_json::to_string_pretty(data).map_err(|e| Error::Output(e.into()))?;
            return to_stdout(&format!("{}\n", visible::json(&text)));
        }
        self.text(&text())
    }

    /// Writes to stdout, with everything spelled out that a terminal would obey.
    pub(crate) fn text(&self, text: &str) -> Result<(), Error> {
        to_stdout(&visible::shown(text))
    }

    /// Writes what is data, such as the words of a model: to a terminal as [`text`](Self::text) does, and else as it is.
    pub(crate) fn data(&self, text: &str) -> Result<(), Error> {
        match io::stdout().is_terminal() {
            true => self.text(text),
            false => to_stdout(text),
        }
    }

    /// Tells what is useful to know and no part of the data.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            to_stderr(&format!("{}\n", self.stderr.text(Style::Dim, text)));
        }
    }

    /// Shows how far something is: on a terminal each line takes the place of the one before, until the `last`.
    pub(crate) fn live(&self, line: &str, last: bool) {
        if !self.progress {
            return self.note(line);
        }
        let shown: String = line
            .chars()
            .take(self.columns().saturating_sub(1))
            .collect();
        to_stderr(&shown);
        match last {
            true => to_stderr("\n"),
            false => LIVE.store(true, Ordering::Relaxed),
        }
    }

    /// Tells what is probably not as the user thinks.
    pub(crate) fn warn(&self, text: &str) {
        if self.json && !self.quiet {
            let object = json!({"warning": text}).to_string();
            to_stderr(&format!("{}\n", visible::json(&object)));
        } else if !self.quiet {
            let label = self.stderr.text(Style::Yellow, "warning:");
            to_stderr(&format!("{label} {}\n", visible::indented(text)));
        }
    }

    /// Tells why a command failed: the error, its causes, and what to do next.
    pub(crate) fn error(&self, error: &Error) {
        let (causes, hint) = (causes(error), error.hint());
        if self.json {
            let object = json!({"error": error.to_string(), "causes": causes, "hint": hint});
            return to_stderr(&format!("{}\n", visible::json(&format!("{object:#}"))));
        }
        let label = self.stderr.text(Style::Red, "error:");
        let mut text = format!("{label} {}\n", visible::indented(&error.to_string()));
        for cause in causes {
            text.push_str(&format!("  {}\n", visible::indented(&cause)));
        }
        if let Some(hint) = hint {
            let label = self.stderr.text(Style::Cyan, "hint:");
            text.push_str(&format!("\n{label} {}\n", visible::indented(&hint)));
        }
        to_stderr(&text);
    }

    /// Asks a question; the answer is no unless somebody types yes. `None` if there is nobody to ask.
    pub(crate) fn confirm(&self, question: &str) -> Result<Option<bool>, Error> {
        if self.json || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Ok(None);
        }
        to_stderr(&format!("{question} [y/N] "));
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map_err(Error::Input)?;
        Ok(Some(matches!(answer.trim(), "y" | "Y" | "yes")))
    }

    /// Shows how far `done` is on its way to `total` bytes, until the result is dropped.
    pub(crate) fn progress(&self, what: &str, total: u64, done: Arc<AtomicU64>) -> Progress {
        if !self.progress {
            return Progress(None);
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "{msg} {bar:30} {binary_bytes} of {binary_total_bytes} {binary_bytes_per_sec} {eta}",
        );
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_string());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                bar.set_position(done.load(Ordering::Relaxed));
                thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        Progress(Some((stop, thread)))
    }
}

/// A progress bar, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Progress(Option<(Arc<AtomicBool>, JoinHandle<()>)>);

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            stop.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            // A bar that fails has nothing to say.
            let _ = thread.join();
        }
    }
}

/// Prints help, the version, or what is wrong with the arguments.
pub(crate) fn usage(usage: &clap::Error) -> ExitCode {
    let wants_json = std::env::args().any(|argument| argument == "--json");
    let asked = matches!(
        usage.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if asked || !wants_json {
        let plain = usage.render().to_string();
        match visible::shown(&plain) {
            // Nothing can be said about a closed terminal.
            Cow::Borrowed(_) => drop(usage.print()),
            Cow::Owned(shown) => to_stderr(&visible::indented(&shown)),
        }
    } else {
        let text = usage.render().to_string();
        let message = text.lines().next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let hint = "`cairn help` lists every verb and option";
        let object = json!({"error": message, "causes": [], "hint": hint});
        to_stderr(&format!("{}\n", visible::json(&format!("{object:#}"))));
    }
    let exit = if asked { Exit::Done } else { Exit::Failed };
    ExitCode::from(exit as u8)
}

fn to_stdout(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    let written = written.and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Error::ClosedPipe,
        _ => Error::Output(error),
    })
}

fn to_stderr(text: &str) {
    const CLEAR: &str = "\r\x1b[2K";
    let clear = match LIVE.swap(false, Ordering::Relaxed) {
        true => CLEAR,
        false => "",
    };
    // Addresses may have secrets in them. With stderr gone there is nobody to tell.
    let text = redact(text);
    let text = visible::shown(&text);
    let _ = io::stderr()
        .lock()
        .write_all(format!("{clear}{text}").as_bytes());
}
