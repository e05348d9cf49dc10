//! The lines of a run as a picture: a column for each branch, the newest step on top.

/// A step, by its line and number.
type Place = (u64, u64);

/// What is drawn so far: for each column, the step that it leads down to.
#[derive(Debug, Default)]
pub(super) struct Graph {
    columns: Vec<Option<Place>>,
}

/// What is drawn for one step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Where other branches end in the step's: drawn above it.
    pub(super) joints: Vec<String>,
    pub(super) text: String,
}

impl Graph {
    /// Draws a step that came after `before`. Steps come in the order in which they were committed, the newest first.
    pub(super) fn row(&mut self, step: Place, before: Option<Place>, is_abandoned: bool) -> Row {
        let column = match self.columns.iter().position(|next| *next == Some(step)) {
            Some(column) => column,
            None => self.free_column(),
        };
        let mut joints = Vec::new();
        while let Some(other) = self.other_column(column, step) {
            joints.push(self.joint(column, other));
            self.columns[other] = None;
        }
        self.columns[column] = Some(step);
        let marks = self.columns.iter().enumerate().map(|(index, next)| {
            match (index == column, is_abandoned) {
                (true, false) => '●',
                (true, true) => '○',
                _ if next.is_some() => '│',
                _ => ' ',
            }
        });
        let text = spaced(marks);
        self.columns[column] = before;
        while self.columns.last() == Some(&None) {
            self.columns.pop();
        }
        Row { joints, text }
    }

    fn free_column(&mut self) -> usize {
        let free = self.columns.iter().position(Option::is_none);
        free.unwrap_or_else(|| {
            self.columns.push(None);
            self.columns.len() - 1
        })
    }

    /// Another column that leads to the same step.
    fn other_column(&self, column: usize, step: Place) -> Option<usize> {
        let mut columns = self.columns.iter().enumerate();
        columns
            .rfind(|(index, next)| *index != column && **next == Some(step))
            .map(|(index, _)| index)
    }

    /// A branch that ends in another: `├─╯`.
    fn joint(&self, to: usize, from: usize) -> String {
        let mut text = String::new();
        for (index, next) in self.columns.iter().enumerate() {
            let (mark, after) = match index {
                _ if index == to => ('├', '─'),
                _ if index == from => ('╯', ' '),
                _ if (to..from).contains(&index) => (next.map_or('─', |_| '┼'), '─'),
                _ => (next.map_or(' ', |_| '│'), ' '),
            };
            text.extend([mark, after]);
        }
        text.trim_end().to_string()
    }
}

fn spaced(marks: impl Iterator<Item = char>) -> String {
    let text: String = marks.flat_map(|mark| [mark, ' ']).collect();
    text.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_end_where_they_began() {
        // Line 0: 10 20 30 40. Line 1 went back to 20 and saved 21; line 2 went back to 10.
        let steps = [
            ((2, 12), Some((2, 11)), false),
            ((2, 11), Some((0, 10)), false),
            ((1, 21), Some((0, 20)), true),
            ((0, 40), Some((0, 30)), true),
            ((0, 30), Some((0, 20)), true),
            ((0, 20), Some((0, 10)), true),
            ((0, 10), None, false),
        ];
        let mut graph = Graph::default();
        let mut drawn = Vec::new();
        for (step, before, is_abandoned) in steps {
            let row = graph.row(step, before, is_abandoned);
            drawn.extend(row.joints);
            drawn.push(row.text);
        }
        let expected = [
            "●",
            "●",
            "│ ○",
            "│ │ ○",
            "│ │ ○",
            "│ ├─╯",
            "│ ○",
            "├─╯",
            "●",
        ];
        assert_eq!(drawn, expected);
    }
}
