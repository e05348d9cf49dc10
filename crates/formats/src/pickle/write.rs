//! Pickles written by hand, in the opcodes that every Python 3 accepts and, among those of protocol 2, torch's own reader.

use std::collections::HashMap;

/// A pickle being written. Every method puts something on the reader's stack, or gathers what lies there.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Names that were written, and their numbers in the memo.
    globals: HashMap<&'static str, u32>,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            bytes: b"\x80\x02".to_vec(),
            globals: HashMap::new(),
        }
    }
}

impl Writer {
    /// An empty pickle.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty pickle of protocol 4, which knows byte strings.
    pub fn with_bytes() -> Self {
        Self {
            bytes: b"\x80\x04".to_vec(),
            globals: HashMap::new(),
        }
    }

    /// What was written since the last time; somebody else writes it before what comes.
    pub fn drain(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// A byte string.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes_follow(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    /// A byte string of this length, whose bytes come next.
    pub fn bytes_follow(&mut self, len: u64) {
        self.bytes.push(0x8e);
        self.bytes.extend(len.to_le_bytes());
    }

    /// The pickle of what was put last.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    /// `None`.
    pub fn none(&mut self) {
        self.bytes.push(b'N');
    }

    /// A truth value.
    pub fn bool(&mut self, value: bool) {
        self.bytes.push(if value { 0x88 } else { 0x89 });
    }

    /// An integer.
    pub fn int(&mut self, value: i128) {
        match i32::try_from(value) {
            Ok(small) => {
                self.bytes.push(b'J');
                self.bytes.extend(small.to_le_bytes());
            }
            Err(_) => self.long(crate::pickle::trimmed(&value.to_le_bytes())),
        }
    }

    /// A size.
    pub fn size(&mut self, value: usize) {
        self.int(value as i128);
    }

    /// An integer in two's complement, lowest byte first.
    pub fn long(&mut self, bytes: &[u8]) {
        match u8::try_from(bytes.len()) {
            Ok(len) => self.bytes.extend([0x8a, len]),
            Err(_) => {
                self.bytes.push(0x8b);
                self.len_of(bytes.len());
            }
        }
        self.bytes.extend(bytes);
    }

    /// A float.
    pub fn float(&mut self, value: f64) {
        self.bytes.push(b'G');
        self.bytes.extend(value.to_be_bytes());
    }

    /// A string.
    ///
    /// # Panics
    /// If it has 4 GiB or more.
    pub fn str(&mut self, text: &str) {
        self.bytes.push(b'X');
        self.len_of(text.len());
        self.bytes.extend(text.as_bytes());
    }

    fn len_of(&mut self, len: usize) {
        let len = u32::try_from(len).expect("names and values are shorter than 4 GiB");
        self.bytes.extend(len.to_le_bytes());
    }

    /// A name in a module, `torch.float32`.
    pub fn global(&mut self, name: &'static str) {
        if let Some(known) = self.globals.get(name) {
            self.bytes.push(b'j');
            self.bytes.extend(known.to_le_bytes());
            return;
        }
        let (module, attribute) = name.rsplit_once('.').unwrap_or(("", name));
        self.bytes
            .extend(format!("c{module}\n{attribute}\n").as_bytes());
        let number = u32::try_from(self.globals.len()).expect("few names");
        self.bytes.push(b'r');
        self.bytes.extend(number.to_le_bytes());
        self.globals.insert(name, number);
    }

    /// Opens a tuple.
    pub fn mark(&mut self) {
        self.bytes.push(b'(');
    }

    /// Opens a list.
    pub fn open_list(&mut self) {
        self.bytes.extend(b"](");
    }

    /// Opens a dict.
    pub fn open_dict(&mut self) {
        self.bytes.extend(b"}(");
    }

    /// A tuple of everything since it was opened.
    pub fn tuple(&mut self) {
        self.bytes.push(b't');
    }

    /// A list of everything since it was opened.
    pub fn list(&mut self) {
        self.bytes.push(b'e');
    }

    /// A dict of the keys and values since it was opened.
    pub fn dict(&mut self) {
        self.bytes.push(b'u');
    }

    /// A call of the name below the tuple on top.
    pub fn call(&mut self) {
        self.bytes.push(b'R');
    }

    /// An object of a class without arguments.
    pub fn object(&mut self, class: &'static str) {
        self.global(class);
        self.bytes.extend(b")\x81");
    }

    /// Gives what is on top to the object below as its state.
    pub fn build(&mut self) {
        self.bytes.push(b'b');
    }

    /// Something kept beside the pickle, by the key on top.
    pub fn persistent(&mut self) {
        self.bytes.push(b'Q');
    }

    /// A tuple of sizes.
    pub fn sizes(&mut self, sizes: &[usize]) {
        self.mark();
        for size in sizes {
            self.size(*size);
        }
        self.tuple();
    }
}
