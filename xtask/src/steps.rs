//! A list of commands that all run, whatever happens to the earlier ones.

use std::process::Command;

use crate::Result;

/// Runs commands one by one and remembers which of them failed.
#[derive(Default)]
pub(crate) struct Steps {
    failed: Vec<String>,
}

impl Steps {
    /// Runs a command, with its output on the terminal; says whether it passed.
    pub(crate) fn run(&mut self, name: &str, command: Command) -> bool {
        self.run_accepting(name, command, &[0])
    }

    /// Runs a command that may end with any of the exit codes `accepted`.
    pub(crate) fn run_accepting(
        &mut self,
        name: &str,
        mut command: Command,
        accepted: &[i32],
    ) -> bool {
        eprintln!("── {name}");
        let outcome = match command.status() {
            Ok(status) if status.code().is_some_and(|code| accepted.contains(&code)) => {
                return true;
            }
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        self.failed.push(format!("{name} ({outcome})"));
        false
    }

    /// Does some work of our own as a step; says whether it passed.
    pub(crate) fn attempt(&mut self, name: &str, work: impl FnOnce() -> Result) -> bool {
        eprintln!("── {name}");
        let outcome = work();
        if let Err(error) = &outcome {
            self.failed.push(format!("{name} ({error})"));
        }
        outcome.is_ok()
    }

    /// Ok if every step passed, else an error that names the failed ones.
    pub(crate) fn finish(self) -> Result {
        if self.failed.is_empty() {
            return Ok(());
        }
        Err(format!("failed: {}", self.failed.join(", ")).into())
    }
}
