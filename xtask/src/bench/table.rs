//! The table of a run: what was measured, against what this machine can do and what we promise.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a row must reach: its ratio to the ceiling, or the measured value itself where there is no ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
        }
    }
}

/// One line of the table; the verdict follows from these values.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: String,
    pub(crate) measured: f64,
    pub(crate) ceiling: Option<f64>,
    /// How much of the ceiling was reached.
    pub(crate) ratio: Option<f64>,
    pub(crate) target: Option<Target>,
}

impl Row {
    /// Whether the target was met; nothing to say without one.
    pub(crate) fn ok(&self) -> Option<bool> {
        let value = self.ratio.unwrap_or(self.measured);
        self.target.map(|target| match target {
            Target::AtLeast(bound) => value >= bound,
            Target::AtMost(bound) => value <= bound,
        })
    }

    fn cells(&self) -> [String; 6] {
        // Small numbers would all look like zero.
        let digits = if self.measured.abs() < 0.1 { 4 } else { 2 };
        let with_unit = |value| format!("{value:.digits$} {}", self.unit);
        [
            self.what.clone(),
            with_unit(self.measured),
            self.ceiling.map(with_unit).unwrap_or_default(),
            self.ratio
                .map(|ratio| format!("{ratio:.2}"))
                .unwrap_or_default(),
            self.target
                .map(|target| target.to_string())
                .unwrap_or_default(),
            self.ok()
                .map_or("", |ok| if ok { "yes" } else { "no" })
                .to_owned(),
        ]
    }
}

/// Rows under the headings what, measured, ceiling, ratio, target, ok; prints as markdown.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = ["what", "measured", "ceiling", "ratio", "target", "ok"].map(str::to_owned);
        let rows: Vec<_> = self.rows.iter().map(Row::cells).collect();
        let mut widths = headings.each_ref().map(|cell| cell.chars().count());
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }

        write_line(f, &headings, widths)?;
        write_line(f, &widths.map(|width| "-".repeat(width)), widths)?;
        rows.iter().try_for_each(|row| write_line(f, row, widths))
    }
}

fn write_line(f: &mut fmt::Formatter<'_>, cells: &[String; 6], widths: [usize; 6]) -> fmt::Result {
    for (cell, width) in cells.iter().zip(widths) {
        write!(f, "| {cell:width$} ")?;
    }
    writeln!(f, "|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ceiling: Option<f64>, target: Option<Target>) -> Row {
        Row {
            what: "save".to_owned(),
            unit: "GB/s".to_owned(),
            measured: 1.8,
            ceiling,
            ratio: ceiling.map(|ceiling| 1.8 / ceiling),
            target,
        }
    }

    #[test]
    fn the_target_binds_the_ratio_when_there_is_a_ceiling() {
        assert_eq!(row(Some(2.0), Some(Target::AtLeast(0.9))).ok(), Some(true));
        assert_eq!(
            row(Some(2.0), Some(Target::AtLeast(0.91))).ok(),
            Some(false)
        );
    }

    #[test]
    fn the_target_binds_the_value_when_there_is_no_ceiling() {
        assert_eq!(row(None, Some(Target::AtMost(1.8))).ok(), Some(true));
        assert_eq!(row(None, Some(Target::AtMost(1.0))).ok(), Some(false));
        assert_eq!(row(None, None).ok(), None);
    }

    #[test]
    fn the_table_is_aligned_markdown() {
        let rows = vec![row(Some(2.0), Some(Target::AtLeast(0.9))), row(None, None)];
        let expected = "\
| what | measured  | ceiling   | ratio | target | ok  |
| ---- | --------- | --------- | ----- | ------ | --- |
| save | 1.80 GB/s | 2.00 GB/s | 0.90  | ≥ 0.9  | yes |
| save | 1.80 GB/s |           |       |        |     |
";
        assert_eq!(Table { rows }.to_string(), expected);
    }
}
