//! Goal: casts agree with NumPy and `ml_dtypes`. Method: `casts.py` writes what they make of every
//! bit pattern of the types of at most 16 bits, and of edges and random values of the others; each
//! of these casts is repeated here and compared bit by bit, NaN with any NaN.

#![expect(
    clippy::disallowed_methods,
    reason = "the references are files of another program"
)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cairn_tensor::{DType, Overflow, cast, read_f64};

#[test]
fn every_cast_agrees_with_numpy_and_ml_dtypes() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/casts.py");
    let status = Command::new(python())
        .arg(script)
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(status.success(), "the script failed");

    let mut compared = 0;
    for from in DType::ALL.into_iter().filter(|&from| from != DType::C64) {
        let source = fs::read(folder.path().join(format!("{from}.bin"))).unwrap();
        for to in DType::ALL {
            for (overflow, name) in [
                (Overflow::Native, "native"),
                (Overflow::Saturate, "saturate"),
            ] {
                let reference = folder.path().join(format!("{from}-{to}-{name}.bin"));
                if reference.exists() && from != to {
                    compare(from, to, overflow, &source, &fs::read(reference).unwrap());
                    compared += 1;
                }
            }
        }
    }
    // 21 real types to 22 but themselves, of which 12 real floats and `c64` come twice.
    assert_eq!(compared, 21 * 21 + 21 * 13 - 12);
}

fn compare(from: DType, to: DType, overflow: Overflow, source: &[u8], expected: &[u8]) {
    let mut target = vec![0; expected.len()];
    cast(from, to, source, &mut target, overflow).expect("the lengths match");
    if target == expected {
        return;
    }
    let part = if to == DType::C64 { DType::F32 } else { to };
    let wrong =
        (0..target.len() * 8 / part.bits()).find(|&index| differ(part, &target, expected, index));
    if let Some(index) = wrong {
        let value = |dtype, bytes| read_f64(dtype, bytes, index);
        panic!(
            "{from} to {to}, {overflow:?}: element {index}, {:?}, became {:?} and not {:?}",
            value(from, source),
            value(part, &target),
            value(part, expected),
        );
    }
}

/// Whether an element differs, where one NaN is like any other.
fn differ(dtype: DType, one: &[u8], other: &[u8], index: usize) -> bool {
    let same = match dtype.bits() / 8 {
        0 => {
            read_f64(dtype, one, index).map(f64::to_bits)
                == read_f64(dtype, other, index).map(f64::to_bits)
        }
        len => one[index * len..][..len] == other[index * len..][..len],
    };
    !same
        && [one, other]
            .iter()
            .any(|bytes| !read_f64(dtype, bytes, index).is_some_and(f64::is_nan))
}

/// The interpreter that has NumPy and `ml_dtypes`.
fn python() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python =
        env::var_os("CAIRN_PYTHON").map_or(workspace.join("target/venv/bin/python"), PathBuf::from);
    assert!(python.exists(), "run `cargo xtask venv` first");
    python
}
