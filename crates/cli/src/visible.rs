//! What a terminal is shown of texts that others wrote: names of tensors, tags, paths, messages.
//!
//! A terminal obeys control characters: it would change its title, move its cursor, or answer for its user. So none of them gets
//! there: they are spelled out, as `\u{1b}`, on the one way that everything printed takes. Colours of our own travel as marks that
//! nobody else knows, and become control characters behind that point.

use crate::table::Style;
use std::borrow::Cow;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// The control sequence of each mark.
const CODES: [&str; 7] = ["0", "1", "2", "31", "32", "33", "36"];

/// Where private characters begin that no script uses, and how many of them there are.
const PRIVATE: u32 = 0x10_0000;
const PRIVATE_COUNT: u64 = 0xfff0;

/// The first mark of this process: who made a file cannot have known it.
static FIRST: LazyLock<u32> = LazyLock::new(|| {
    let random = RandomState::new().hash_one("marks") % PRIVATE_COUNT;
    PRIVATE + u32::try_from(random).expect("less than 2¹⁶")
});

fn mark(index: usize) -> char {
    let index = u32::try_from(index).expect("one of a few");
    char::from_u32(*FIRST + index).expect("private characters have no gaps")
}

/// The index of a mark.
fn index(char: char) -> Option<usize> {
    let index = usize::try_from(u32::from(char).checked_sub(*FIRST)?).ok()?;
    (index < CODES.len()).then_some(index)
}

/// The text with marks of a style around it.
pub(crate) fn marked(style: Style, text: &str) -> String {
    let code = match style {
        Style::Plain => return text.to_string(),
        Style::Bold => 1,
        Style::Dim => 2,
        Style::Red => 3,
        Style::Green => 4,
        Style::Yellow => 5,
        Style::Cyan => 6,
    };
    format!("{}{text}{}", mark(code), mark(0))
}

/// Whether a character does something to a terminal, or to the order of what is shown, instead of being shown.
fn acts(char: char) -> bool {
    let turns = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    char.is_control() || turns
}

/// The text on one line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    spelled_out(text, acts, |char, out| {
        let _ = match char {
            '\n' => write!(out, "\\n"),
            char => write!(out, "{}", char.escape_unicode()),
        };
    })
}

/// The text with its lines and tabs, and with marks as what they stand for.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    let special = |char| (!matches!(char, '\n' | '\t') && acts(char)) || index(char).is_some();
    spelled_out(text, special, |char, out| {
        let _ = match index(char) {
            Some(index) => write!(out, "\x1b[{}m", CODES[index]),
            None => write!(out, "{}", char.escape_unicode()),
        };
    })
}

/// A message: only its first line begins at the margin, so that no name can forge a line of ours.
pub(crate) fn indented(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut out = lines.next().unwrap_or_default().to_string();
    for line in lines {
        let margin = if line.starts_with(' ') || line.is_empty() {
            ""
        } else {
            "  "
        };
        out.push('\n');
        out.push_str(margin);
        out.push_str(line);
    }
    out
}

/// JSON, which is the same with every character spelled out that does something.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    let special = |char| char != '\n' && acts(char);
    spelled_out(text, special, |char, out| {
        let mut units = [0; 2];
        for unit in char.encode_utf16(&mut units) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

fn spelled_out(
    text: &str,
    special: impl Fn(char) -> bool,
    spell: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.chars().any(&special) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match special(char) {
            true => spell(char, &mut out),
            false => out.push(char),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_spelled_out() {
        let hostile = "a\u{1b}]0;pwned\u{7}\r\u{9b}31m\u{7f}\u{202e}\tz\nü";
        assert_eq!(
            shown(hostile),
            "a\\u{1b}]0;pwned\\u{7}\\u{d}\\u{9b}31m\\u{7f}\\u{202e}\tz\nü"
        );
        assert!(line(hostile).ends_with("z\\nü"));
        let parsed: String =
            serde_json::from_str(&json(&serde_json::to_string(hostile).unwrap())).unwrap();
        assert_eq!(parsed, hostile);
        assert!(json("\"\u{9b}\"").is_ascii());
    }

    #[test]
    fn our_own_colours_arrive_and_those_of_others_do_not() {
        let text = marked(Style::Red, "\u{1b}[32mx");
        assert_eq!(shown(&text), "\x1b[31m\\u{1b}[32mx\x1b[0m");
        assert_eq!(marked(Style::Plain, "x"), "x");
    }

    #[test]
    fn a_message_cannot_forge_another() {
        assert_eq!(indented("a\nhint: b\n  c\n"), "a\n  hint: b\n  c\n");
    }
}
