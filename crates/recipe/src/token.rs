//! The words of a program.

use crate::error::Problem;
use std::ops::Range;

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Arrow,
    Equal,
    Colon,
    Open,
    Close,
    Comma,
    /// `^T` after a quoted name; at the end of a plain one it is part of the word.
    Transpose,
    Number,
    /// A quoted text; the span has the quotes.
    Text,
    Word,
    Line,
}

/// A word and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Range<usize>,
}

/// A problem, and the bytes of the text it is about.
pub(crate) type Located = (Problem, Range<usize>);

/// The words of a text. `#` starts a comment.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, Located> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (kind, len) = match first {
            ' ' | '\t' => (None, 1),
            '#' => (None, rest.find(['\n', '\r']).unwrap_or(rest.len())),
            '\n' | '\r' => (Some(Kind::Line), 1),
            '-' if rest.starts_with("->") => (Some(Kind::Arrow), 2),
            '=' => (Some(Kind::Equal), 1),
            ':' => (Some(Kind::Colon), 1),
            '[' => (Some(Kind::Open), 1),
            ']' => (Some(Kind::Close), 1),
            ',' => (Some(Kind::Comma), 1),
            '^' if rest.starts_with("^T") => (Some(Kind::Transpose), 2),
            '"' | '\'' => match rest[1..].find(first) {
                Some(len) => (Some(Kind::Text), len + 2),
                None => return Err((Problem::OpenQuote, at..text.len())),
            },
            '-' | '0'..='9' if number(rest) > 0 => (Some(Kind::Number), number(rest)),
            'A'..='Z' | 'a'..='z' | '_' => (Some(Kind::Word), word(rest)),
            other => {
                let expected = "a name, a number, a quoted text, `->`, `,` or `=`";
                let found = other.to_string();
                let span = at..at + other.len_utf8();
                return Err((Problem::Unexpected { found, expected }, span));
            }
        };
        if let Some(kind) = kind {
            let span = at..at + len;
            found.push(Token { kind, span });
        }
        at += len;
    }
    Ok(found)
}

/// How long the name at the start of a text is.
fn word(text: &str) -> usize {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '$' | '_' | '*' | '^');
    text.find(|c| !inside(c)).unwrap_or(text.len())
}

/// How long the number at the start of a text is: `12`, `-1`, `0.5`, `1e-3`; zero if there is none.
fn number(text: &str) -> usize {
    let digits = |at: usize| text[at..].bytes().take_while(u8::is_ascii_digit).count();
    let sign = usize::from(text.starts_with('-'));
    let mut len = sign + digits(sign);
    if len == sign {
        return 0;
    }
    if text[len..].starts_with('.') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
    }
    if text[len..].starts_with(['e', 'E']) {
        let signed = len + 1 + usize::from(text[len + 1..].starts_with(['-', '+']));
        if digits(signed) > 0 {
            len = signed + digits(signed);
        }
    }
    len
}
