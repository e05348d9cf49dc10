//! `cairn plan save`: which file each rank would write.

use super::MAX_RANK_ROWS;
use crate::args::PlanSave;
use crate::commands::layout::{RankFile, plan_save, planned_files};
use crate::error::{Error, Exit};
use crate::open::open;
use crate::printer::Printer;
use crate::table::{Paint, Style, Table};
use crate::units::{plural, size};
use cairn::checkpoint::SavePlan;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Report {
    source: String,
    mesh: String,
    tensors: usize,
    files: usize,
    len_bytes: u64,
    balance: f64,
    /// Ranks find their shares alone.
    exchanged_bytes: u64,
    ranks: Vec<RankFile>,
}

pub(crate) fn run(args: &PlanSave, printer: &Printer) -> Result<Exit, Error> {
    let opened = open(&args.source, printer)?;
    let (specs, plan) = plan_save(opened.source(), &args.layout, printer)?;
    let report = Report {
        source: args.source.clone(),
        mesh: args.layout.mesh.to_string(),
        tensors: specs.len(),
        files: plan.files(),
        len_bytes: plan.len_bytes(),
        balance: plan.balance(),
        exchanged_bytes: 0,
        ranks: planned_files(&plan),
    };
    printer.report(&report, || report.text(&plan, printer.paint()))?;
    Ok(Exit::Done)
}

impl Report {
    fn text(&self, plan: &SavePlan, paint: Paint) -> String {
        let mut facts = Table::facts();
        facts.fact("mesh", self.mesh.as_str());
        facts.fact("tensors", self.tensors.to_string());
        facts.fact(
            "files",
            format!("{}, {}", plural(self.files, "file"), size(self.len_bytes)),
        );
        facts.fact(
            "balance",
            format!("{:.3} (largest share ÷ mean share)", self.balance),
        );
        facts.fact("exchanged", "0 B between ranks");
        format!("{}\n{}", facts.render(paint), file_table(plan, paint))
    }
}

/// The file of each rank, of the first ranks if there are many.
pub(crate) fn file_table(plan: &SavePlan, paint: Paint) -> String {
    let mut table = Table::new(&[" RANK", "FILE", " PIECES", " SIZE"]);
    for (rank, writer) in plan.writers.iter().enumerate().take(MAX_RANK_ROWS) {
        let file = match writer.len_bytes {
            0 => "-".to_string(),
            _ => format!("{rank:05}.safetensors"),
        };
        table.row(vec![
            rank.to_string().into(),
            file.into(),
            writer.items.to_string().into(),
            size(writer.len_bytes).into(),
        ]);
    }
    let mut text = table.render(paint);
    if plan.writers.len() > MAX_RANK_ROWS {
        let more = format!("… and {} more ranks\n", plan.writers.len() - MAX_RANK_ROWS);
        text.push_str(&paint.text(Style::Dim, &more));
    }
    text
}
