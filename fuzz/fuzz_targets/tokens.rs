//! Files of tokens, ours and Megatron's, whole but for a few bytes: documents of whatever is accepted are read, or refused by name. What nobody
//! touched is read as it was written.

#![no_main]

use cairn_data::{Documents, Megatron, TokenFile, bounds, document_at};
use cairn_store::{Memory, PutMode, Store};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// Documents and tokens beyond these are not asked for.
const MAX_DOCUMENTS: u64 = 64;
const MAX_TOKENS: u64 = 4096;

/// Where the checksum of our header lies.
const CRC: usize = 60;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    kind: Kind<'a>,
    /// How many tokens each document has.
    documents: Vec<u8>,
    /// Which byte becomes which.
    changes: Vec<(u16, u8)>,
    cut: Option<u16>,
}

#[derive(Debug, Arbitrary)]
enum Kind<'a> {
    Ours {
        wide: bool,
        fields: Option<Vec<&'a str>>,
    },
    Megatron {
        code: u8,
        modes: bool,
    },
    /// Any bytes in both files.
    Raw(&'a [u8], &'a [u8]),
}

fuzz_target!(|input: Input| {
    let store = Memory::new();
    let put = |key: &str, bytes: &[u8]| store.put(key, bytes, PutMode::Create).expect("memory");
    let documents = &input.documents;
    match &input.kind {
        Kind::Ours { wide, fields } => {
            let mut bytes = input.change(ours(*wide, fields.as_deref(), documents));
            if let Some((header, crc)) = bytes
                .get_mut(..CRC + 4)
                .and_then(|header| header.split_at_mut_checked(CRC))
            {
                let right = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, header);
                crc.copy_from_slice(&right.to_le_bytes()[..4]);
            }
            put("x", &bytes);
            let file = TokenFile::open(&store, "x");
            assert!(file.is_ok() || input.is_changed(), "{file:?}");
            let _ = file.map(|file| read(&file, (!input.is_changed()).then_some(documents)));
        }
        Kind::Megatron { code, modes } => {
            let (code, width) =
                [(1, 1), (2, 1), (3, 2), (4, 4), (5, 8), (8, 2)][usize::from(*code) % 6];
            let (tokens, index) = megatron(code, width, *modes, documents);
            put("x.bin", &tokens);
            put("x.idx", &input.change(index));
            let file = Megatron::open(&store, "x");
            assert!(file.is_ok() || input.is_changed(), "{file:?}");
            let _ = file.map(|file| read(&file, (!input.is_changed()).then_some(documents)));
        }
        Kind::Raw(tokens, index) => {
            put("x.bin", tokens);
            put("x.idx", index);
            let _ = TokenFile::open(&store, "x.bin").map(|file| read(&file, None));
            let _ = Megatron::open(&store, "x").map(|file| read(&file, None));
        }
    }
});

impl Input<'_> {
    fn is_changed(&self) -> bool {
        self.cut.is_some() || !self.changes.is_empty()
    }

    fn change(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        for (at, byte) in &self.changes {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *byte;
        }
        bytes.truncate(self.cut.map_or(bytes.len(), usize::from));
        bytes
    }
}

/// The token at a place.
fn token(place: usize) -> u32 {
    u32::try_from(place % 100).expect("small")
}

fn ours(wide: bool, fields: Option<&[&str]>, documents: &[u8]) -> Vec<u8> {
    let width = if wide { 4 } else { 2 };
    let count: usize = documents.iter().map(|len| usize::from(*len)).sum();
    let fields = fields.unwrap_or_default();
    let texts: Vec<&str> = (0..documents.len())
        .map(|at| fields.get(at).copied().unwrap_or_default())
        .collect();
    let fields_bytes: usize = texts.iter().map(|text| text.len()).sum();
    let mut bytes = b"CAIRNTOK".to_vec();
    bytes.extend([1_u32, width].map(u32::to_le_bytes).concat());
    let numbers = [documents.len(), count, 0, fields_bytes].map(|number| number as u64);
    bytes.extend(numbers.map(u64::to_le_bytes).concat());
    bytes.resize(64, 0);
    for place in 0..count {
        bytes.extend(&token(place).to_le_bytes()[..width as usize]);
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(ends(documents.iter().map(|len| u64::from(*len))));
    if fields_bytes > 0 {
        bytes.extend(ends(texts.iter().map(|text| text.len() as u64)));
        bytes.extend(texts.concat().as_bytes());
    }
    bytes
}

fn megatron(code: u8, width: usize, modes: bool, documents: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let count = documents.len() as u64;
    let mut index = b"MMIDIDX\0\0".to_vec();
    index.extend(1_u64.to_le_bytes());
    index.push(code);
    index.extend([count, count + 1].map(u64::to_le_bytes).concat());
    documents
        .iter()
        .for_each(|len| index.extend(u32::from(*len).to_le_bytes()));
    let mut start = 0;
    for len in documents {
        index.extend(u64::to_le_bytes(start));
        start += u64::from(*len) * width as u64;
    }
    (0..=count).for_each(|document| index.extend(document.to_le_bytes()));
    if modes {
        index.extend(vec![0; documents.len()]);
    }
    let tokens: usize = documents.iter().map(|len| usize::from(*len)).sum();
    let tokens =
        (0..tokens).flat_map(|place| u64::from(token(place)).to_le_bytes()[..width].to_vec());
    (tokens.collect(), index)
}

/// The sums up to each number.
fn ends(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut sum = 0;
    numbers
        .flat_map(|number| {
            sum += number;
            sum.to_le_bytes()
        })
        .collect()
}

/// Reads documents; they are as long as `expected`, if anything is.
fn read(file: &dyn Documents, expected: Option<&Vec<u8>>) {
    let count = file.documents().min(MAX_DOCUMENTS);
    let _ = file.ends(0..count);
    let mut place = 0;
    for document in 0..count {
        let _ = file.fields(document);
        let Ok(bounds) = bounds(file, document) else {
            assert!(expected.is_none());
            continue;
        };
        assert!(bounds.end <= file.tokens());
        if bounds.end - bounds.start > MAX_TOKENS {
            continue;
        }
        let tokens = file.read(bounds);
        if let Some(documents) = expected {
            let len = usize::from(documents[document as usize]);
            let right: Vec<u32> = (place..place + len).map(token).collect();
            assert_eq!(tokens.expect("it is whole"), right);
            place += len;
        }
    }
    let _ = document_at(file, file.tokens() / 2);
    // What is not there is refused.
    assert!(
        file.read(file.tokens()..file.tokens().saturating_add(1))
            .is_err()
    );
}
