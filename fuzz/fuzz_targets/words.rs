//! What people give to the command line: indices, sizes, addresses, arrays of NumPy, texts. What an index picks lies inside the tensor.

#![no_main]
#![allow(
    dead_code,
    unused_imports,
    reason = "the sources of the command line are compiled in"
)]

/// As far as it has no arguments to take and nothing to print.
#[path = "../../crates/cli/src"]
mod cli {
    pub(crate) mod slice;
    pub(crate) mod units;
    pub(crate) mod commands {
        pub(crate) mod edit {
            mod npy;

            /// Reads an array; what it holds is as long as it says.
            pub(crate) fn array(bytes: &[u8]) {
                if let Ok(array) = npy::parse(bytes) {
                    let count = array.shape.iter().product();
                    assert_eq!(array.dtype.len_bytes(count), Some(array.bytes.len()));
                }
            }
        }
    }
}

use cairn_data::{Format, Keep, Texts};
use cli::slice::{self, Selection};
use cli::units;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// The errors of the command line that these modules know.
mod error {
    #[derive(Debug)]
    pub(crate) enum Error {
        Slice {
            slice: String,
            shape: Vec<usize>,
            reason: String,
        },
        Npy {
            path: String,
            reason: String,
        },
        Store(cairn::store::Error),
    }

    impl From<cairn::store::Error> for Error {
        fn from(error: cairn::store::Error) -> Self {
            Self::Store(error)
        }
    }
}

/// Results beyond this are not walked through.
const MAX_ELEMENTS: usize = 1000;

/// A file in memory, for what only reads files.
static FILE: LazyLock<tempfile::NamedTempFile> = LazyLock::new(|| {
    tempfile::NamedTempFile::new_in("/dev/shm")
        .or_else(|_| tempfile::NamedTempFile::new())
        .expect("a file")
});

fuzz_target!(|input: (u8, [u8; 3], &[u8])| {
    let (kind, shape, bytes) = input;
    let text = || std::str::from_utf8(bytes).unwrap_or_default();
    match kind % 5 {
        0 => index(text(), &shape.map(usize::from)),
        1 => {
            if let Ok(size) = units::parse_size(text()) {
                let _ = units::size(size);
            }
            let _ = (units::parse_percent(text()), units::parse_age(text()));
        }
        2 => {
            let _ = cairn_store::open(text()).map(|store| store.url());
            assert!(
                !cairn_store::redact(&format!("s3://id:secret@{}", text())).contains("secret@")
            );
        }
        3 => cli::commands::edit::array(bytes),
        _ => texts(bytes, shape[0]),
    }
});

fn index(text: &str, shape: &[usize]) {
    let (_, index) = slice::split(text);
    for index in [index, Some(text)] {
        let Ok(selection) = Selection::new(index, shape) else {
            continue;
        };
        let picked = selection.shape();
        let count = picked
            .iter()
            .try_fold(1_usize, |count, dim| count.checked_mul(*dim));
        let Some(count @ 1..MAX_ELEMENTS) = count else {
            continue;
        };
        let mut found = Vec::new();
        for nth in 0..count {
            let mut rest = nth;
            let mut place: Vec<usize> = picked
                .iter()
                .rev()
                .map(|dim| {
                    let at = rest % dim;
                    rest /= dim;
                    at
                })
                .collect();
            place.reverse();
            selection.source(&place, &mut found);
            assert_eq!(found.len(), shape.len());
            assert!(
                found.iter().zip(shape).all(|(at, len)| at < len),
                "{found:?} of {shape:?}"
            );
        }
        for dim in 0..shape.len() {
            assert!(selection.along(dim).is_none_or(|at| at < picked.len()));
        }
    }
}

/// Every byte of a file of text belongs to one document, or to nothing between two.
fn texts(bytes: &[u8], format: u8) {
    std::fs::write(FILE.path(), bytes).expect("a file");
    let format = match format % 3 {
        0 => Format::Text,
        1 => Format::Json {
            field: "text".into(),
            keep: Keep::Everything,
        },
        _ => Format::Json {
            field: "text".into(),
            keep: Keep::Named(vec!["a".into()]),
        },
    };
    let texts = Texts::open(&FILE.path().to_string_lossy(), format).expect("it is there");
    let mut taken = 0;
    for text in texts.map_while(Result::ok) {
        taken += text.len_bytes;
        assert!(text.len_bytes > 0 && taken <= bytes.len() as u64);
    }
}
