//! Numbers, strings and byte strings.

use super::Machine;
use crate::Error;
use crate::pickle::node::Value;
use crate::pickle::{MAX_INT_BYTES, MAX_TEXT_BYTES, MIN_FILE_BYTES, trimmed};

/// The newest protocol there is.
const MAX_PROTOCOL: u8 = 5;
/// The longest line of a name in the old text form.
const MAX_LINE_BYTES: usize = 1024;

impl Machine<'_> {
    pub(super) fn protocol(&mut self) -> Result<(), Error> {
        let protocol = self.byte()?;
        if protocol > MAX_PROTOCOL {
            return Err(self.fail(format!("protocol {protocol} is not known")));
        }
        Ok(())
    }

    pub(super) fn integer(&mut self, opcode: u8) -> Result<(), Error> {
        let value = match opcode {
            b'K' => i64::from(self.byte()?),
            b'M' => i64::try_from(self.number(2)?).expect("two bytes"),
            _ => i64::from(i32::from_le_bytes(self.array()?)),
        };
        self.push(Value::Int(value))
    }

    pub(super) fn long(&mut self, width: u64) -> Result<(), Error> {
        let len = self.number(width)?;
        if len > MAX_INT_BYTES as u64 {
            return Err(self.fail(format!(
                "an integer of {len} bytes is over the limit of {MAX_INT_BYTES}"
            )));
        }
        let bytes = trimmed(self.take(len)?);
        let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
        let fill = if negative { 0xff } else { 0 };
        let mut low = [fill; 8];
        let value = if bytes.len() <= 8 {
            low[..bytes.len()].copy_from_slice(bytes);
            Value::Int(i64::from_le_bytes(low))
        } else {
            Value::BigInt(bytes.into())
        };
        self.push(value)
    }

    pub(super) fn float(&mut self) -> Result<(), Error> {
        let value = f64::from_be_bytes(self.array()?);
        self.push(Value::Float(value))
    }

    pub(super) fn string(&mut self, width: u64) -> Result<(), Error> {
        let len = self.number(width)?;
        let text = std::str::from_utf8(self.text(len)?).map(Box::from);
        match text {
            Ok(text) => self.push(Value::Str(text)),
            // Python's `surrogatepass` lets half characters through; no name has them.
            Err(_) => Err(self.fail("a string is not UTF-8".into())),
        }
    }

    pub(super) fn bytes(&mut self, width: u64) -> Result<(), Error> {
        let len = self.number(width)?;
        if len < MIN_FILE_BYTES && !self.policy.leaves_bytes() {
            let bytes = Box::from(self.text(len)?);
            return self.push(Value::Bytes(bytes));
        }
        match self.input.skip(len) {
            Some(range) => self.push(Value::FileBytes(range)),
            None => Err(self.ends(len)),
        }
    }

    /// A string of Python 2: text if it is UTF-8, else bytes.
    pub(super) fn old_string(&mut self, width: u64) -> Result<(), Error> {
        let len = self.number(width)?;
        let bytes = self.text(len)?;
        let value = match std::str::from_utf8(bytes) {
            Ok(text) => Value::Str(text.into()),
            Err(_) => Value::Bytes(bytes.into()),
        };
        self.push(value)
    }

    pub(super) fn take(&mut self, len: u64) -> Result<&[u8], Error> {
        if len > self.input.remaining() {
            return Err(self.ends(len));
        }
        let bytes = self.input.take(len)?;
        Ok(bytes.expect("there are so many"))
    }

    /// Bytes that are kept.
    pub(super) fn text(&mut self, len: u64) -> Result<&[u8], Error> {
        self.text_bytes = self.text_bytes.saturating_add(len);
        if self.text_bytes > MAX_TEXT_BYTES {
            return Err(self.fail(format!("its strings have more than {MAX_TEXT_BYTES} bytes")));
        }
        self.take(len)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("so many were taken"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn number(&mut self, width: u64) -> Result<u64, Error> {
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn line(&mut self) -> Result<String, Error> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => break,
                byte => line.push(byte),
            }
            if line.len() > MAX_LINE_BYTES {
                return Err(self.fail(format!("a line has more than {MAX_LINE_BYTES} bytes")));
            }
        }
        String::from_utf8(line).map_err(|_| self.fail("a name is not UTF-8".into()))
    }
}
