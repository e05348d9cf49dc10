//! Where the library's tracing events go: to stderr with `--verbose`, to a file with `--trace`.

use crate::args::Global;
use crate::error::Error;
use crate::visible;
use cairn::store::{self, PutMode};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, fmt};

/// The events for `--trace`, kept until the command ends.
#[derive(Debug)]
pub(crate) struct Trace {
    path: Option<String>,
    lines: Lines,
}

/// A writer that keeps everything in memory.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stderr, with everything spelled out that a terminal would obey.
#[derive(Debug)]
struct Shown;

impl io::Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        io::stderr().write_all(visible::shown(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Starts to listen for events, if they were asked for.
pub(crate) fn start(global: &Global) -> Trace {
    let lines = Lines::default();
    let trace = global.trace.as_ref().map(|_| {
        let lines = lines.clone();
        fmt::layer().json().with_writer(move || lines.clone())
    });
    let verbose = global.verbose.then(|| {
        let layer = fmt::layer().without_time().with_target(false);
        layer.with_writer(|| Shown).with_filter(LevelFilter::DEBUG)
    });
    if trace.is_some() || verbose.is_some() {
        let subscriber = tracing_subscriber::registry().with(verbose).with(trace);
        tracing::subscriber::set_global_default(subscriber).expect("set once, by main");
    }
    Trace {
        path: global.trace.clone(),
        lines,
    }
}

impl Trace {
    /// Writes the file of `--trace`.
    pub(crate) fn write(&self) -> Result<(), Error> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let (folder, name) = cairn::checkpoint::split_path(path);
        let lines = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        let put = store::open(&folder).and_then(|store| store.put(&name, &lines, PutMode::Replace));
        put.map_err(|source| Error::Trace {
            path: path.clone(),
            source,
        })
    }
}
