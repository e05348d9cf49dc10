//! Reads statements.
//!
//! ```text
//! program   = { statement }                 one on a line; none is needed after an attribute's value
//! statement = names "->" names { "," attribute }
//! names     = name { "," name }
//! name      = ( word | text ) [ "[" number ":" number "]" ] [ "^T" ]
//! attribute = word "=" value | "fused_qkv" | "fused_qkv_old" | "fused_ffn"
//! value     = number | word | text | "[" [ number { "," number } ] "]"
//! ```

use super::{Attribute, Name, Setting, Statement};
use crate::error::{MAX_NAMES, Problem};
use crate::pattern::Pattern;
use crate::token::{Kind, Located, Token, tokens};
use std::ops::Range;

/// Words that are attributes without a value.
const FLAGS: [&str; 3] = ["fused_qkv", "fused_qkv_old", "fused_ffn"];

/// The statements of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Statement>, Located> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        text,
        tokens: &tokens,
        at: 0,
    };
    let mut statements = Vec::new();
    loop {
        parser.skip_lines();
        if parser.peek(0).is_none() {
            return Ok(statements);
        }
        statements.push(parser.statement()?);
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self, ahead: usize) -> Option<Kind> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    fn word(&self, ahead: usize) -> &str {
        let token = self.tokens.get(self.at + ahead);
        token.map_or("", |token| &self.text[token.span.clone()])
    }

    /// Where the next token stands; at the end of the text, just behind the last one.
    fn span(&self) -> Range<usize> {
        let end = self.tokens.last().map_or(0, |last| last.span.end);
        let next = self.tokens.get(self.at);
        next.map_or(end..end, |token| token.span.clone())
    }

    fn skip_lines(&mut self) {
        while self.peek(0) == Some(Kind::Line) {
            self.at += 1;
        }
    }

    fn unexpected(&self, expected: &'static str) -> Located {
        let found = match self.peek(0) {
            None | Some(Kind::Line) => "end of the statement",
            _ => self.word(0),
        };
        let found = found.to_owned();
        (Problem::Unexpected { found, expected }, self.span())
    }

    fn expect(&mut self, kind: Kind, expected: &'static str) -> Result<Range<usize>, Located> {
        if self.peek(0) != Some(kind) {
            return Err(self.unexpected(expected));
        }
        let span = self.span();
        self.at += 1;
        Ok(span)
    }

    fn statement(&mut self) -> Result<Statement, Located> {
        let start = self.span().start;
        let mut left = vec![self.name()?];
        while self.comma() {
            left.push(self.name()?);
        }
        self.expect(Kind::Arrow, "`,` or `->`")?;
        self.skip_lines();
        let mut right = vec![self.name()?];
        while self.peek(0) == Some(Kind::Comma) && !self.attribute_follows() {
            self.comma();
            right.push(self.name()?);
        }
        let mut attributes = Vec::new();
        while self.comma() {
            attributes.push(self.attribute()?);
        }
        let end = self.tokens[self.at - 1].span.end;
        let mut statement = Statement {
            text: self.text[start..end].to_owned(),
            left,
            right,
            attributes,
        };
        statement.shift(start);
        Ok(statement)
    }

    /// Takes a comma; a line may end behind it.
    fn comma(&mut self) -> bool {
        let found = self.peek(0) == Some(Kind::Comma);
        if found {
            self.at += 1;
            self.skip_lines();
        }
        found
    }

    /// Whether an attribute stands behind the comma, and not a name.
    fn attribute_follows(&self) -> bool {
        let lines = (1..)
            .take_while(|ahead| self.peek(*ahead) == Some(Kind::Line))
            .count();
        self.peek(1 + lines) == Some(Kind::Word)
            && (self.peek(2 + lines) == Some(Kind::Equal) || FLAGS.contains(&self.word(1 + lines)))
    }

    fn name(&mut self) -> Result<Name, Located> {
        let span = self.span();
        let word = self.word(0);
        let (pattern, blank, mut transposed) = match self.peek(0) {
            Some(Kind::Word) => {
                let name = word.strip_suffix("^T");
                let transposed = name.is_some_and(|name| !name.is_empty());
                let name = name.filter(|_| transposed).unwrap_or(word);
                (Pattern::parse(name), name == "_", transposed)
            }
            Some(Kind::Text) if word.len() > 2 => {
                let inside = &word[1..word.len() - 1];
                match word.starts_with('"') {
                    true => (Pattern::parse(inside), false, false),
                    false => (Pattern::literal(inside), false, false),
                }
            }
            _ => return Err(self.unexpected("a name")),
        };
        self.at += 1;
        let range = self.range()?;
        if self.peek(0) == Some(Kind::Transpose) {
            self.at += 1;
            transposed = true;
        }
        let end = self.tokens[self.at - 1].span.end;
        let span = span.start..end;
        Ok(Name {
            pattern,
            blank,
            transposed,
            range,
            span,
        })
    }

    /// The range of `name[0:4]`.
    fn range(&mut self) -> Result<Option<Range<usize>>, Located> {
        if self.peek(0) != Some(Kind::Open) {
            return Ok(None);
        }
        let start = self.span().start;
        self.at += 1;
        let first = self.index()?;
        self.expect(Kind::Colon, "`:`")?;
        let end = self.index()?;
        let close = self.expect(Kind::Close, "`]`")?;
        let span = start..close.end;
        if end <= first {
            let found = self.text[span.clone()].to_owned();
            let expected = "a range with something in it, such as `[0:4]`";
            return Err((Problem::Unexpected { found, expected }, span));
        }
        if end - first > MAX_NAMES {
            return Err((Problem::TooLarge { what: "the range" }, span));
        }
        Ok(Some(first..end))
    }

    fn index(&mut self) -> Result<usize, Located> {
        let expected = "a number such as in `name[0:4]`";
        let number = self.word(0).parse().ok();
        let number = number.ok_or_else(|| self.unexpected(expected))?;
        self.at += 1;
        Ok(number)
    }

    fn attribute(&mut self) -> Result<Attribute, Located> {
        let key = self.expect(Kind::Word, "an attribute such as `axis=0`")?;
        let name = self.text[key.clone()].to_owned();
        let value = match self.peek(0) {
            Some(Kind::Equal) => {
                self.at += 1;
                self.setting()?
            }
            _ if FLAGS.contains(&name.as_str()) => Setting::Flag,
            _ => return Err(self.unexpected("`=` and a value")),
        };
        let end = self.tokens[self.at - 1].span.end;
        let span = key.start..end;
        Ok(Attribute {
            key: name,
            value,
            span,
        })
    }

    fn setting(&mut self) -> Result<Setting, Located> {
        let word = self.word(0);
        let setting = match self.peek(0) {
            Some(Kind::Number) => {
                let number = word.parse().map_err(|_| self.unexpected("a number"))?;
                Setting::Number(number)
            }
            Some(Kind::Word) if word == "true" => Setting::Flag,
            Some(Kind::Word) => Setting::Text(word.to_owned()),
            Some(Kind::Text) => {
                let inside = &word[1..word.len() - 1];
                list(inside).map_or_else(|| Setting::Text(inside.to_owned()), Setting::List)
            }
            Some(Kind::Open) => return self.list(),
            _ => return Err(self.unexpected("a value")),
        };
        self.at += 1;
        Ok(setting)
    }

    fn list(&mut self) -> Result<Setting, Located> {
        let start = self.span();
        while !matches!(self.peek(0), None | Some(Kind::Line | Kind::Close)) {
            self.at += 1;
        }
        let end = self.expect(Kind::Close, "`]`")?;
        let span = start.start..end.end;
        let found = &self.text[span.clone()];
        list(found).map(Setting::List).ok_or_else(|| {
            let found = found.to_owned();
            let expected = "a list of numbers such as `[1, 0]`";
            (Problem::Unexpected { found, expected }, span)
        })
    }
}

/// The numbers of `[1, 0]`.
fn list(text: &str) -> Option<Vec<i64>> {
    let inside = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    if inside.is_empty() {
        return Some(Vec::new());
    }
    let inside = inside.strip_suffix(',').unwrap_or(inside);
    inside
        .split(',')
        .map(|number| number.trim().parse().ok())
        .collect()
}

impl Statement {
    /// Counts places from `start` on.
    fn shift(&mut self, start: usize) {
        let names = self
            .left
            .iter_mut()
            .chain(&mut self.right)
            .map(|name| &mut name.span);
        let attributes = self
            .attributes
            .iter_mut()
            .map(|attribute| &mut attribute.span);
        for span in names.chain(attributes) {
            *span = span.start - start..span.end - start;
        }
    }
}
