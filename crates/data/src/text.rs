//! Documents of text: paragraphs of plain text, or lines of JSON.

use crate::file::{File, locate};
use crate::{Error, Fields};
use serde_json::Value;

/// The longest line, in bytes.
const MAX_LINE_BYTES: usize = 256 << 20;
/// How many bytes are read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// How documents lie in a file of text. Lines end with `\n` or `\r\n`; a byte order mark is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Plain text, in which blank lines separate documents.
    Text,
    /// An object of JSON in each line that is not blank.
    Json {
        /// The field with the text.
        field: String,
        /// Which of the other fields are carried along.
        keep: Keep,
    },
}

impl Format {
    /// The format of a file by its name: `.jsonl`, `.ndjson` and `.json` are lines of JSON with the text in `field`, all else is plain text.
    pub fn of(path: &str, field: &str, keep: &Keep) -> Self {
        let json = [".jsonl", ".ndjson", ".json"];
        match json.iter().any(|end| path.ends_with(end)) {
            true => Self::Json {
                field: field.to_owned(),
                keep: keep.clone(),
            },
            false => Self::Text,
        }
    }
}

/// Which fields of a document are carried along with its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Keep {
    /// None.
    #[default]
    Nothing,
    /// These, where a document has them.
    Named(Vec<String>),
    /// All but the text.
    Everything,
}

/// One document of text.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    /// The text.
    pub text: String,
    /// What else is known about it.
    pub fields: Option<Fields>,
    /// The line it begins in, from 1.
    pub line: u64,
    /// How many bytes of the file it took, with all around it.
    pub len_bytes: u64,
}

/// The documents of a file of text, one after another; the first error is the last item.
#[derive(Debug)]
pub struct Texts {
    lines: Lines,
    format: Format,
    failed: bool,
}

impl Texts {
    /// Opens a file.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn open(path: &str, format: Format) -> Result<Self, Error> {
        let (store, key) = locate(path)?;
        let file = File::open(store.as_ref(), &key)?.named(path);
        Ok(Self {
            lines: Lines::new(file),
            format,
            failed: false,
        })
    }

    /// How many bytes the file has.
    pub fn len_bytes(&self) -> u64 {
        self.lines.file.len_bytes()
    }

    fn read(&mut self) -> Result<Option<Text>, Error> {
        let Self { lines, format, .. } = self;
        let before = lines.taken;
        let text = match format {
            Format::Text => paragraph(lines),
            Format::Json { field, keep } => json(lines, field, keep),
        };
        let len_bytes = lines.taken - before;
        Ok(text?.map(|text| Text { len_bytes, ..text }))
    }
}

impl Iterator for Texts {
    type Item = Result<Text, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let read = self.read().transpose();
        self.failed = matches!(read, Some(Err(_)));
        read
    }
}

/// The next lines up to a blank one.
fn paragraph(lines: &mut Lines) -> Result<Option<Text>, Error> {
    let mut text = String::new();
    let mut first = 0;
    while let Some(line) = lines.next()? {
        match (text.is_empty(), line.trim().is_empty()) {
            (true, true) => continue,
            (false, true) => break,
            (true, false) => first = lines.number,
            (false, false) => text.push('\n'),
        }
        text.push_str(&line);
        if text.len() > MAX_LINE_BYTES {
            return Err(lines.refuse(format!(
                "is in a document of more than {MAX_LINE_BYTES} bytes"
            )));
        }
    }
    Ok((!text.is_empty()).then_some(Text {
        text,
        fields: None,
        line: first,
        len_bytes: 0,
    }))
}

/// The document of the next line that is not blank.
fn json(lines: &mut Lines, field: &str, keep: &Keep) -> Result<Option<Text>, Error> {
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        let mut fields: Fields = serde_json::from_str(&line).map_err(|error| {
            let (text, column) = (error.to_string(), error.column());
            let what = text.split(" at line ").next().unwrap_or_default();
            lines.refuse(format!("is no JSON object: {what} at column {column}"))
        })?;
        let text = match fields.shift_remove(field) {
            Some(Value::String(text)) => text,
            Some(_) => return Err(lines.refuse(format!("has a field `{field}` that is no string"))),
            None => return Err(lines.refuse(format!("has no field `{field}`"))),
        };
        match keep {
            Keep::Nothing => fields.clear(),
            Keep::Named(names) => fields.retain(|name, _| names.contains(name)),
            Keep::Everything => {}
        }
        return Ok(Some(Text {
            text,
            fields: (!fields.is_empty()).then_some(fields),
            line: lines.number,
            len_bytes: 0,
        }));
    }
    Ok(None)
}

/// The lines of a file, read in blocks.
#[derive(Debug)]
struct Lines {
    file: File,
    /// Bytes that were read last; those from `start` on are not taken, and those from there to `searched` hold no end of a line.
    waiting: Vec<u8>,
    start: usize,
    searched: usize,
    /// How many bytes of the file were read, and how many taken.
    read: u64,
    taken: u64,
    /// The number of the line that was taken last, from 1.
    number: u64,
}

impl Lines {
    fn new(file: File) -> Self {
        Self {
            file,
            waiting: Vec::new(),
            start: 0,
            searched: 0,
            read: 0,
            taken: 0,
            number: 0,
        }
    }

    /// Takes the next line, without its end.
    fn next(&mut self) -> Result<Option<String>, Error> {
        loop {
            let found = self.waiting[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n');
            if let Some(place) = found {
                return self.take(self.searched + place + 1).map(Some);
            }
            self.searched = self.waiting.len();
            let waiting = self.searched - self.start;
            if waiting > MAX_LINE_BYTES {
                self.number += 1;
                return Err(self.refuse(format!("has more than {MAX_LINE_BYTES} bytes")));
            }
            match (self.file.len_bytes() - self.read, waiting) {
                (0, 0) => return Ok(None),
                (0, _) => return self.take(self.searched).map(Some),
                (left, _) => self.read_block(left)?,
            }
        }
    }

    /// Reads the next block, of at most the `left` bytes that the file has.
    fn read_block(&mut self, left: u64) -> Result<(), Error> {
        self.waiting.drain(..self.start);
        self.start = 0;
        self.searched = self.waiting.len();
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        self.waiting.resize(self.searched + count, 0);
        self.file
            .read(self.read, &mut self.waiting[self.searched..])?;
        self.read += count as u64;
        Ok(())
    }

    /// Takes what waits before `end` as a line.
    fn take(&mut self, end: usize) -> Result<String, Error> {
        let mut line = self.waiting[self.start..end].to_vec();
        self.taken += line.len() as u64;
        (self.start, self.searched) = (end, end);
        self.number += 1;
        for end in [b'\n', b'\r'] {
            line.pop_if(|byte| *byte == end);
        }
        let line = String::from_utf8(line).map_err(|error| {
            let place = error.utf8_error().valid_up_to() + 1;
            self.refuse(format!("is not UTF-8 from byte {place} on"))
        })?;
        match line.strip_prefix('\u{feff}') {
            Some(rest) if self.number == 1 => Ok(rest.to_owned()),
            _ => Ok(line),
        }
    }

    /// The error about the line that was taken last.
    fn refuse(&self, reason: String) -> Error {
        Error::Line {
            file: self.file.name().to_owned(),
            line: self.number,
            reason,
        }
    }
}

#[cfg(test)]
mod tests;
