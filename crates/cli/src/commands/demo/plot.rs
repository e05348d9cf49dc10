//! Curves in a terminal: dots of braille, four by two in each character.

use crate::table::{Paint, Style};

/// A curve with a name.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) style: Style,
    /// Places and values, in the order of the places.
    pub(super) points: Vec<(f64, f64)>,
}

/// The stretch of numbers that an axis shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Scale {
    /// From the least to the greatest of some numbers.
    pub(super) fn around(numbers: impl Iterator<Item = f64>) -> Self {
        let finite = numbers.filter(|number| number.is_finite());
        let (from, to) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), number| {
            (from.min(number), to.max(number))
        });
        match from < to {
            true => Self { from, to },
            false if from.is_finite() => Self {
                from,
                to: from + 1.0,
            },
            false => Self { from: 0.0, to: 1.0 },
        }
    }

    /// Where a number lies, from 0 to 1.
    pub(super) fn share(self, number: f64) -> f64 {
        (number - self.from) / (self.to - self.from)
    }

    /// The number at a share of the way.
    pub(super) fn at(self, share: f64) -> f64 {
        self.from + share * (self.to - self.from)
    }
}

/// The scales of places and of values that hold all curves.
pub(super) fn scales(curves: &[Curve]) -> (Scale, Scale) {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    (
        Scale::around(points().map(|point| point.0)),
        Scale::around(points().map(|point| point.1)),
    )
}

/// Draws curves with axes and a legend, in so many characters. Later curves lie over earlier ones.
pub(super) fn draw(curves: &[Curve], columns: usize, rows: usize, paint: Paint) -> String {
    let (places, values) = scales(curves);
    let mut canvas = Canvas::new(columns.max(2), rows.max(2));
    for curve in curves {
        canvas.curve(curve, places, values);
    }
    let mut text = String::new();
    for row in 0..canvas.rows {
        let share = 1.0 - row as f64 / (canvas.rows - 1) as f64;
        let label = match row % 3 == 0 || row == canvas.rows - 1 {
            true => format!("{:7.2} ┤", values.at(share)),
            false => format!("{:7} │", ""),
        };
        text.push_str(&paint.text(Style::Dim, &label));
        text.push_str(&canvas.line(row, paint));
        text.push('\n');
    }
    let (from, to) = (format!("{:.0}", places.from), format!("{:.0}", places.to));
    let gap = canvas.columns.saturating_sub(from.len() + to.len());
    let axis = format!("{:9}{from}{}{to}", "", " ".repeat(gap));
    text.push_str(&paint.text(Style::Dim, &axis));
    text.push('\n');
    for curve in curves {
        let mark = paint.text(curve.style, "━━");
        text.push_str(&format!("{:9}{mark} {}\n", "", curve.name));
    }
    text
}

/// Dots, and the style of each character.
struct Canvas {
    columns: usize,
    rows: usize,
    cells: Vec<(u8, Style)>,
}

impl Canvas {
    fn new(columns: usize, rows: usize) -> Self {
        Self {
            columns,
            rows,
            cells: vec![(0, Style::Plain); columns * rows],
        }
    }

    /// Draws straight lines from point to point.
    fn curve(&mut self, curve: &Curve, places: Scale, values: Scale) {
        let (width, height) = (self.columns * 2 - 1, self.rows * 4 - 1);
        let dot = |(place, value): (f64, f64)| {
            let x = places.share(place) * width as f64;
            let y = (1.0 - values.share(value)) * height as f64;
            (x.is_finite() && y.is_finite()).then_some((x, y))
        };
        let dots: Vec<_> = curve
            .points
            .iter()
            .filter_map(|point| dot(*point))
            .collect();
        let single = dots.first().map(|first| (*first, *first));
        let pairs = dots.windows(2).map(|pair| (pair[0], pair[1]));
        for (from, to) in single.into_iter().chain(pairs) {
            let steps = (to.0 - from.0)
                .abs()
                .max((to.1 - from.1).abs())
                .ceil()
                .max(1.0);
            let mut step = 0.0;
            while step <= steps {
                let share = step / steps;
                self.dot(
                    from.0 + share * (to.0 - from.0),
                    from.1 + share * (to.1 - from.1),
                    curve.style,
                );
                step += 1.0;
            }
        }
    }

    fn dot(&mut self, x: f64, y: f64, style: Style) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both were made from sizes of the canvas"
        )]
        let (x, y) = (x.round().max(0.0) as usize, y.round().max(0.0) as usize);
        let (column, row) = (x / 2, y / 4);
        if column >= self.columns || row >= self.rows {
            return;
        }
        // The bits of the dots of a braille character, row by row.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let cell = &mut self.cells[row * self.columns + column];
        cell.0 |= BITS[y % 4][x % 2];
        cell.1 = style;
    }

    fn line(&self, row: usize, paint: Paint) -> String {
        let cells = &self.cells[row * self.columns..][..self.columns];
        let mut line = String::new();
        for (bits, style) in cells {
            let dots = char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(' ');
            match bits {
                0 => line.push(' '),
                _ => line.push_str(&paint.text(*style, &dots.to_string())),
            }
        }
        line.trim_end().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        Curve {
            name: "a".into(),
            style: Style::Cyan,
            points: points.to_vec(),
        }
    }

    #[test]
    fn a_falling_line_goes_from_the_upper_left_to_the_lower_right() {
        let text = draw(&[curve(&[(0.0, 2.0), (10.0, 1.0)])], 4, 2, Paint(false));
        let expected = "\
   2.00 ┤⠑⠢⢄
   1.00 ┤   ⠑⠢
         0 10
         ━━ a
";
        assert_eq!(text.lines().count(), expected.lines().count());
        assert!(text.starts_with("   2.00 ┤⠑"), "{text}");
        assert!(text.contains("   1.00 ┤  "), "{text}");
    }

    #[test]
    fn nothing_one_point_and_no_numbers_are_drawn_without_harm() {
        for points in [
            &[][..],
            &[(1.0, 1.0)],
            &[(1.0, f64::NAN), (2.0, f64::INFINITY)],
        ] {
            let text = draw(&[curve(points)], 10, 3, Paint(false));
            assert_eq!(text.lines().count(), 5, "{text}");
        }
    }
}
