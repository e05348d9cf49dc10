//! How a run goes, as a line for people.

use crate::printer::Printer;
use crate::units::size;
use cairn::device::system::Memory;
use cairn::train::StepReport;
use cairn::train::config::{Config, holdings, peak_flops, step_flops, step_tokens};
use std::time::Duration;

/// How much the newest step counts in the time of a step.
const NEWEST: f64 = 0.1;

/// Turns steps into lines.
#[derive(Debug)]
pub(super) struct Progress {
    steps: u64,
    every: u64,
    /// The arithmetic of a token.
    token_flops: f64,
    peak_flops: f64,
    /// The state that all ranks together keep in files.
    file_bytes: u64,
    /// About how long a step takes.
    step_seconds: Option<f64>,
}

impl Progress {
    /// Measures what the machine can do.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            steps: config.settings.steps,
            every: config.log.every,
            token_flops: step_flops(config) / step_tokens(config) as f64,
            peak_flops: peak_flops(),
            file_bytes: file_bytes(config),
            step_seconds: None,
        }
    }

    /// Shows a step, if it is one to show.
    pub(super) fn step(&mut self, report: &StepReport, printer: &Printer) {
        let seconds = report.seconds;
        let before = self.step_seconds.unwrap_or(seconds);
        let smooth = before + NEWEST * (seconds - before);
        // The machine may have been busy when it was measured: what a step did, it can do.
        self.peak_flops = self.peak_flops.max(self.flops(report));
        self.step_seconds = Some(smooth);
        let last = report.step == self.steps || report.stop;
        if report.step.is_multiple_of(self.every) || report.step == 1 || last {
            printer.live(&self.line(report, smooth), last);
        }
    }

    fn line(&self, report: &StepReport, step_seconds: f64) -> String {
        let width = self.steps.to_string().len();
        let left = self.steps.saturating_sub(report.step) as f64 * step_seconds;
        let memory = Memory::now().map_or(String::new(), |memory| {
            format!("  {}", size(memory.used_bytes))
        });
        let files = match self.file_bytes {
            0 => String::new(),
            bytes => format!(" + {} in files", size(bytes)),
        };
        let skipped = match report.skipped {
            true => "  skipped: not finite",
            false => "",
        };
        format!(
            "step {:>width$} of {}  loss {:.4}  norm {:.2}  rate {:.2e}  {:.0} tokens/s  {:.0} % of peak{memory}{files}  {} left{skipped}",
            report.step,
            self.steps,
            report.loss,
            report.gradient_norm,
            report.learning_rate,
            report.tokens as f64 / report.seconds,
            100.0 * self.share_of_peak(report),
            clock(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)),
        )
    }

    /// How much of what the machine can do a step did.
    fn share_of_peak(&self, report: &StepReport) -> f64 {
        self.flops(report) / self.peak_flops
    }

    /// The arithmetic of a step in a second.
    fn flops(&self, report: &StepReport) -> f64 {
        self.token_flops * report.tokens as f64 / report.seconds
    }
}

/// The state that all ranks together keep in files.
fn file_bytes(config: &Config) -> u64 {
    let ranks = holdings(config).unwrap_or_default().into_iter();
    ranks.map(|rank| rank.file_bytes).sum()
}

/// `1:02:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_on_a_clock() {
        assert_eq!(clock(Duration::ZERO), "0:00");
        assert_eq!(clock(Duration::from_secs(62)), "1:02");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
