//! Aligned columns without borders, and colour that does not disturb them.

use crate::visible;

/// How a text looks on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

/// Whether styles are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint(pub(crate) bool);

impl Paint {
    /// The text in this style.
    pub(crate) fn text(self, style: Style, text: &str) -> String {
        match self.0 && !text.is_empty() {
            true => visible::marked(style, text),
            false => text.to_string(),
        }
    }
}

/// One entry of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

/// A text in a style.
pub(crate) fn cell(style: Style, text: impl Into<String>) -> Cell {
    let text = text.into();
    let text = visible::line(&text).into_owned();
    Cell { text, style }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        cell(Style::Plain, text)
    }
}

/// Rows under a header. A column whose header begins with a space is aligned to the right.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self {
            header: header.to_vec(),
            rows: Vec::new(),
        }
    }

    /// A table of names and facts, without a header.
    pub(crate) fn facts() -> Self {
        Self::new(&["", ""])
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Adds a named fact.
    pub(crate) fn fact(&mut self, name: &str, fact: impl Into<Cell>) {
        self.row(vec![cell(Style::Dim, name), fact.into()]);
    }

    /// The table as lines, each ended.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let header: Vec<Cell> = self
            .header
            .iter()
            .map(|h| cell(Style::Dim, h.trim()))
            .collect();
        let titled = header.iter().any(|title| !title.text.is_empty());
        let lines: Vec<&Vec<Cell>> = titled
            .then_some(&header)
            .into_iter()
            .chain(&self.rows)
            .collect();
        let widths: Vec<usize> = (0..self.header.len())
            .map(|column| {
                lines
                    .iter()
                    .map(|row| width(row, column))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        lines
            .iter()
            .map(|row| self.line(row, &widths, paint))
            .collect()
    }

    fn line(&self, row: &[Cell], widths: &[usize], paint: Paint) -> String {
        let mut line = String::new();
        // Spaces are added only once more text follows, so that no line ends in them.
        let mut pending = 0;
        for (column, cell) in row.iter().enumerate() {
            let padding = widths[column] - width(row, column);
            let right = self.header[column].starts_with(' ');
            pending += if right { padding } else { 0 };
            if !cell.text.is_empty() {
                line.push_str(&" ".repeat(pending));
                line.push_str(&paint.text(cell.style, &cell.text));
                pending = 0;
            }
            pending += if right { 0 } else { padding };
            pending += 2;
        }
        line.push('\n');
        line
    }
}

fn width(row: &[Cell], column: usize) -> usize {
    row.get(column).map_or(0, |cell| cell.text.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_line_ends_in_spaces() {
        let mut table = Table::new(&["NAME", " SIZE", "NOTE"]);
        table.row(vec!["a".into(), "1 B".into(), "".into()]);
        table.row(vec!["ü-long".into(), "".into(), "x".into()]);
        assert_eq!(
            table.render(Paint(false)),
            "NAME    SIZE  NOTE\na        1 B\nü-long        x\n"
        );
    }

    #[test]
    fn colour_adds_no_width() {
        let mut table = Table::facts();
        table.fact("a", "1");
        table.fact("long", cell(Style::Red, "2"));
        let painted = table.render(Paint(true));
        let painted = visible::shown(&painted);
        let plain = painted
            .replace("\x1b[2m", "")
            .replace("\x1b[31m", "")
            .replace("\x1b[0m", "");
        assert_eq!(plain, table.render(Paint(false)));
        assert_eq!(plain, "a     1\nlong  2\n");
    }
}
