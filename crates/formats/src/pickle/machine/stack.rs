//! The stack, what is gathered from it, and what it remembers.

use super::Machine;
use crate::Error;
use crate::pickle::node::{Id, Value};
use crate::pickle::{MAX_DEPTH, MAX_VALUES};

impl Machine<'_> {
    pub(super) fn push(&mut self, value: Value) -> Result<(), Error> {
        if self.values.len() >= MAX_VALUES || self.stack.len() >= MAX_VALUES {
            return Err(self.fail(format!("it has more than {MAX_VALUES} values")));
        }
        let id = Id::try_from(self.values.len()).expect("MAX_VALUES is below 2^32");
        self.values.push(value);
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn push_id(&mut self, id: Id) -> Result<(), Error> {
        if self.stack.len() >= MAX_VALUES {
            return Err(self.fail(format!("its stack has more than {MAX_VALUES} entries")));
        }
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn mark(&mut self) -> Result<(), Error> {
        if self.marks.len() >= MAX_DEPTH {
            return Err(self.fail(format!("it is nested deeper than {MAX_DEPTH}")));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Result<Id, Error> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.fail("it takes a value that is not there".into()));
        }
        Ok(self.stack.pop().expect("above the floor"))
    }

    pub(super) fn pop_mark(&mut self) -> Result<Vec<Id>, Error> {
        match self.marks.pop() {
            Some(start) => Ok(self.stack.split_off(start)),
            None => Err(self.fail("it closes what was never opened".into())),
        }
    }

    /// `POP` takes the mark itself if nothing lies on it.
    pub(super) fn discard(&mut self) -> Result<(), Error> {
        match self.marks.last() {
            Some(start) if *start == self.stack.len() => self.pop_mark().map(drop),
            _ => self.pop().map(drop),
        }
    }

    pub(super) fn duplicate(&mut self) -> Result<(), Error> {
        let top = self.pop()?;
        self.push_id(top)?;
        self.push_id(top)
    }

    pub(super) fn short_tuple(&mut self, len: usize) -> Result<(), Error> {
        let mut ids = Vec::with_capacity(len);
        for _ in 0..len {
            ids.push(self.pop()?);
        }
        ids.reverse();
        self.push(Value::Tuple(ids))
    }

    pub(super) fn container(&mut self, make: fn(Vec<Id>) -> Value) -> Result<(), Error> {
        let ids = self.pop_mark()?;
        self.push(make(ids))
    }

    pub(super) fn dict(&mut self) -> Result<(), Error> {
        let pairs = self.marked_pairs()?;
        self.push(Value::Dict(pairs))
    }

    pub(super) fn marked_pairs(&mut self) -> Result<Vec<(Id, Id)>, Error> {
        let ids = self.pop_mark()?;
        if !ids.len().is_multiple_of(2) {
            return Err(self.fail("a key has no value".into()));
        }
        Ok(ids.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    pub(super) fn append_one(&mut self) -> Result<(), Error> {
        let item = self.pop()?;
        self.extend(vec![item])
    }

    pub(super) fn append_marked(&mut self) -> Result<(), Error> {
        let items = self.pop_mark()?;
        self.extend(items)
    }

    pub(super) fn extend(&mut self, new: Vec<Id>) -> Result<(), Error> {
        match self.top()? {
            Value::List(items) | Value::Set(items) => items.extend(new),
            Value::Object(object) => object.items.extend(new),
            _ => return Err(self.fail("it appends to what is no list".into())),
        }
        Ok(())
    }

    pub(super) fn set_one(&mut self) -> Result<(), Error> {
        let value = self.pop()?;
        let key = self.pop()?;
        self.set(vec![(key, value)])
    }

    pub(super) fn set_marked(&mut self) -> Result<(), Error> {
        let pairs = self.marked_pairs()?;
        self.set(pairs)
    }

    pub(super) fn set(&mut self, new: Vec<(Id, Id)>) -> Result<(), Error> {
        match self.top()? {
            Value::Dict(pairs) => pairs.extend(new),
            Value::Object(object) => object.pairs.extend(new),
            _ => return Err(self.fail("it sets keys of what is no dict".into())),
        }
        Ok(())
    }

    pub(super) fn top(&mut self) -> Result<&mut Value, Error> {
        let id = self.pop()?;
        self.stack.push(id);
        Ok(&mut self.values[id as usize])
    }

    pub(super) fn put(&mut self, opcode: u8) -> Result<(), Error> {
        let index = match opcode {
            0x94 => u32::try_from(self.memo.len()).unwrap_or(u32::MAX),
            _ => self.memo_index(opcode)?,
        };
        let id = self.pop()?;
        self.stack.push(id);
        if self.memo.len() >= MAX_VALUES {
            return Err(self.fail(format!("its memo has more than {MAX_VALUES} entries")));
        }
        self.memo.insert(index, id);
        Ok(())
    }

    pub(super) fn get(&mut self, opcode: u8) -> Result<(), Error> {
        let index = self.memo_index(opcode)?;
        match self.memo.get(&index) {
            Some(id) => self.push_id(*id),
            None => Err(self.fail(format!("it recalls {index}, which it never memorised"))),
        }
    }

    pub(super) fn memo_index(&mut self, opcode: u8) -> Result<u32, Error> {
        let index = match opcode {
            b'q' | b'h' => u64::from(self.byte()?),
            b'r' | b'j' => self.number(4)?,
            _ => {
                let line = self.line()?;
                let index = line.parse();
                index.map_err(|_| self.fail(format!("`{line}` is no number in its memo")))?
            }
        };
        u32::try_from(index).map_err(|_| self.fail(format!("its memo cannot have {index} entries")))
    }
}
