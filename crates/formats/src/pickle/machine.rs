//! The stack machine that writes down what a pickle says.

mod literals;
mod objects;
mod stack;

use super::node::{Id, Pickle, Value};
use super::{Bytes, Input, Policy};
use crate::Error;
use cairn_store::ObjectReader;
use std::collections::HashMap;
use std::ops::Range;

/// Reads the pickle in `bytes`, called `file` in errors.
///
/// # Errors
/// [`Error::Global`] at the first name that `policy` does not allow, [`Error::Pickle`] for anything that is not a pickle.
pub fn parse(file: &str, bytes: &[u8], policy: &Policy) -> Result<Pickle, Error> {
    read(file, &Bytes(bytes), 0..bytes.len() as u64, policy)
}

/// Reads the pickle that lies in the bytes `range` of `reader`, called `file` in errors.
///
/// Byte strings of [`MIN_FILE_BYTES`](super::MIN_FILE_BYTES) and more are passed over, and only their place is noted.
///
/// # Errors
/// [`Error::Global`] at the first name that `policy` does not allow, [`Error::Pickle`] for anything that is not a pickle.
pub fn read(
    file: &str,
    reader: &dyn ObjectReader,
    range: Range<u64>,
    policy: &Policy,
) -> Result<Pickle, Error> {
    let mut machine = Machine {
        file,
        policy,
        input: Input::new(reader, range.clone()),
        start: range.start,
        opcode_at: 0,
        values: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        text_bytes: 0,
    };
    let root = machine.run()?;
    Ok(Pickle {
        values: machine.values,
        root,
    })
}

struct Machine<'a> {
    file: &'a str,
    policy: &'a Policy,
    input: Input<'a>,
    /// Where the pickle begins in its file.
    start: u64,
    /// Where the current opcode lies in the pickle.
    opcode_at: u64,
    values: Vec<Value>,
    stack: Vec<Id>,
    /// Where the stack stood at each open `MARK`.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    text_bytes: u64,
}

impl Machine<'_> {
    /// Runs to `STOP` and returns the value left.
    fn run(&mut self) -> Result<Id, Error> {
        loop {
            self.opcode_at = self.input.position() - self.start;
            let opcode = self.byte()?;
            if opcode == b'.' {
                return self.pop();
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: u8) -> Result<(), Error> {
        match opcode {
            0x80 => self.protocol(),
            0x95 => self.number(8).map(drop), // FRAME: a hint for readers that buffer
            b'0' => self.discard(),
            b'2' => self.duplicate(),
            b'(' => self.mark(),
            b'1' => self.pop_mark().map(drop),
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'J' | b'K' | b'M' => self.integer(opcode),
            0x8a => self.long(1),
            0x8b => self.long(4),
            b'G' => self.float(),
            0x8c => self.string(1),
            b'X' => self.string(4),
            0x8d => self.string(8),
            b'C' => self.bytes(1),
            b'B' => self.bytes(4),
            0x8e | 0x96 => self.bytes(8),
            b'U' => self.old_string(1),
            b'T' => self.old_string(4),
            b')' => self.push(Value::Tuple(Vec::new())),
            b']' => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            0x8f => self.push(Value::Set(Vec::new())),
            0x85..=0x87 => self.short_tuple(usize::from(opcode - 0x84)),
            b't' => self.container(Value::Tuple),
            b'l' => self.container(Value::List),
            0x91 => self.container(Value::Set), // FROZENSET
            b'd' => self.dict(),
            b'a' => self.append_one(),
            b'e' | 0x90 => self.append_marked(),
            b's' => self.set_one(),
            b'u' => self.set_marked(),
            b'q' | b'r' | b'p' | 0x94 => self.put(opcode),
            b'h' | b'j' | b'g' => self.get(opcode),
            b'c' | b'i' => self.text_global(opcode),
            0x93 => self.stack_global(),
            b'R' => self.call(),
            0x81 => self.new_object(false),
            0x92 => self.new_object(true),
            b'b' => self.build(),
            b'Q' => self.persistent(),
            _ => Err(self.unsupported(opcode)),
        }
    }

    fn fail(&self, reason: String) -> Error {
        Error::Pickle {
            file: self.file.to_string(),
            offset: self.opcode_at,
            reason,
        }
    }

    fn refuse(&self, deed: &'static str, global: String) -> Error {
        Error::Global {
            file: self.file.to_string(),
            offset: self.opcode_at,
            deed,
            global,
        }
    }

    fn ends(&self, wanted: u64) -> Error {
        self.fail(format!(
            "it ends after {} bytes where {wanted} are needed",
            self.input.remaining()
        ))
    }

    fn unsupported(&self, opcode: u8) -> Error {
        let name = match opcode {
            b'i' => "INST",
            b'o' => "OBJ",
            b'P' => "PERSID",
            0x82..=0x84 => "EXT",
            0x97 | 0x98 => "NEXT_BUFFER or READONLY_BUFFER",
            b'I' | b'L' | b'F' | b'S' | b'V' => "a text opcode of protocol 0",
            _ => return self.fail(format!("byte 0x{opcode:02x} is no opcode")),
        };
        self.fail(format!("it uses {name}, which is not read"))
    }
}
