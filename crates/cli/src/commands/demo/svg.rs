//! Curves as a picture for a browser: one file, light or dark as the reader likes it.

use super::plot::{Curve, Scale, scales};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 104.0;
const BOTTOM: f64 = 52.0;
const LINES: u32 = 5;

const STYLE: &str = "\
.back{fill:#fff}.grid{stroke:#e4e7ec}
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#667080}
.title{font-size:17px;font-weight:600;fill:#1b1f26}.y{text-anchor:end}.x{text-anchor:middle}
path{fill:none;stroke-linejoin:round;stroke-linecap:round}
.c0{stroke:#c9d3e3;stroke-width:9}.c1{stroke:#2f6fd0;stroke-width:2.5}
.c2{stroke:#d98a1f;stroke-width:2.5}.c3{stroke:#d1493f;stroke-width:2.5;stroke-dasharray:1 6}
.mark{stroke:#d1493f;stroke-width:1.5}.told{fill:#d1493f}
@media(prefers-color-scheme:dark){
.back{fill:#14171c}.grid{stroke:#2a303a}
text{fill:#97a1b1}.title{fill:#e6e9ee}
.c0{stroke:#39424f}.c1{stroke:#6ea4f2}.c2{stroke:#eab04f}.c3{stroke:#ef7a70}
.mark{stroke:#ef7a70}.told{fill:#ef7a70}
}
";

/// Draws up to four curves under a title, the first as a broad band below the others, and a line where something happened.
pub(super) fn draw(title: &str, curves: &[Curve], mark: (f64, &str)) -> String {
    let (places, values) = scales(curves);
    let axes = Axes { places, values };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"36\">{title}</text>\n"
    );
    legend(&mut svg, curves);
    axes.grid(&mut svg);
    for (number, curve) in curves.iter().enumerate() {
        let path = axes.path(&curve.points);
        push(
            &mut svg,
            &format!("<path class=\"c{number}\" d=\"{path}\"/>"),
        );
    }
    let x = axes.x(mark.0);
    let (top, bottom) = (TOP - 6.0, HEIGHT - BOTTOM);
    push(
        &mut svg,
        &format!("<path class=\"mark\" d=\"M{x:.1} {top}V{bottom}\"/>"),
    );
    push(
        &mut svg,
        &format!(
            "<text class=\"told\" x=\"{:.1}\" y=\"{}\">{}</text>",
            x + 7.0,
            TOP + 8.0,
            mark.1
        ),
    );
    svg.push_str("</svg>\n");
    svg
}

fn push(svg: &mut String, line: &str) {
    svg.push_str(line);
    svg.push('\n');
}

/// A short line and a name for each curve, side by side.
fn legend(svg: &mut String, curves: &[Curve]) {
    const LETTER: f64 = 6.6;
    let mut x = LEFT;
    for (number, curve) in curves.iter().enumerate() {
        push(
            svg,
            &format!("<path class=\"c{number}\" d=\"M{:.1} 66h20\"/>", x + 2.0),
        );
        push(
            svg,
            &format!(
                "<text x=\"{:.1}\" y=\"70.5\">{}</text>",
                x + 32.0,
                curve.name
            ),
        );
        x += 52.0 + LETTER * curve.name.chars().count() as f64;
    }
}

struct Axes {
    places: Scale,
    values: Scale,
}

impl Axes {
    fn x(&self, place: f64) -> f64 {
        LEFT + self.places.share(place) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - self.values.share(value)) * (HEIGHT - TOP - BOTTOM)
    }

    fn grid(&self, svg: &mut String) {
        for line in 0..=LINES {
            let share = f64::from(line) / f64::from(LINES);
            let (value, place) = (self.values.at(share), self.places.at(share));
            let (x, y) = (self.x(place), self.y(value));
            let right = WIDTH - RIGHT;
            push(
                svg,
                &format!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>"),
            );
            push(
                svg,
                &format!(
                    "<text class=\"y\" x=\"{}\" y=\"{:.1}\">{value:.2}</text>",
                    LEFT - 10.0,
                    y + 4.5
                ),
            );
            push(
                svg,
                &format!(
                    "<text class=\"x\" x=\"{x:.1}\" y=\"{}\">{place:.0}</text>",
                    HEIGHT - BOTTOM + 20.0
                ),
            );
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        push(
            svg,
            &format!(
                "<text class=\"x\" x=\"{middle}\" y=\"{}\">step</text>",
                HEIGHT - 12.0
            ),
        );
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (place, value) in points.iter().filter(|point| point.1.is_finite()) {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            // Writing to a string does not fail.
            let _ = write!(path, "{letter}{:.1} {:.1}", self.x(*place), self.y(*value));
        }
        path
    }
}
