//! A finished run: its table and raw data, with machine and command, kept under `benches/runs/`.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use super::machine::Machine;
use super::measurement::Measurement;
use super::table::Table;
use crate::Result;
use crate::workspace::{Workspace, output};

/// Everything needed to repeat a run and to check its table.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) table: Table,
    pub(crate) measurements: Vec<Measurement>,
}

impl Report {
    /// Writes `results.json` and `table.md` into `benches/runs/DATE-MACHINE/` and returns that folder.
    pub(crate) fn store(&self, workspace: &Workspace, machine: Option<&str>) -> Result<PathBuf> {
        let mut date = workspace.command("date");
        date.args(["-u", "+%Y-%m-%d"]);
        let machine = machine.map_or_else(|| self.machine.slug(), str::to_owned);
        let name = format!("{}-{machine}", output(date)?);
        let folder = workspace.root.join("benches/runs").join(name);
        fs::create_dir_all(&folder)?;
        let json = serde_json::to_string_pretty(self)?;
        fs::write(folder.join("results.json"), json + "\n")?;
        fs::write(folder.join("table.md"), self.markdown())?;
        Ok(folder)
    }

    fn markdown(&self) -> String {
        let mut text = format!("`{}`\n\n", self.command.trim_end());
        for (name, value) in self.machine.facts() {
            writeln!(text, "- {name}: {value}").expect("a string takes any text");
        }
        write!(text, "\n{}", self.table).expect("a string takes any text");
        text
    }
}
