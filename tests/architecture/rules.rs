//! The rules, as data: the crate table and what each crate does without.

use std::collections::BTreeSet;
use std::path::Path;

use Uses::{Only, Through};

/// What a crate may depend on inside the workspace.
pub(crate) enum Uses {
    /// These, and everything they may use.
    Through(&'static [&'static str]),
    /// These alone.
    Only(&'static [&'static str]),
}

impl Uses {
    pub(crate) fn names(&self) -> &'static [&'static str] {
        let (Through(names) | Only(names)) = self;
        names
    }
}

/// Every crate by package name, in dependency order; some have a place here before they have code.
pub(crate) const CRATES: &[(&str, Uses)] = &[
    ("cairn-tensor", Through(&[])),
    ("cairn-sharding", Through(&["cairn-tensor"])),
    ("cairn-reshard", Through(&["cairn-sharding"])),
    ("cairn-recipe", Through(&["cairn-sharding"])),
    ("cairn-store", Through(&[])),
    ("cairn-device", Through(&[])),
    ("cairn-random", Through(&[])),
    ("cairn-protocol", Through(&[])),
    ("cairn-formats", Through(&["cairn-sharding", "cairn-store"])),
    (
        "cairn-checkpoint",
        Through(&[
            "cairn-reshard",
            "cairn-recipe",
            "cairn-formats",
            "cairn-device",
        ]),
    ),
    ("cairn-keeper", Through(&["cairn-checkpoint"])),
    ("cairn-faults", Through(&["cairn-keeper"])),
    (
        "cairn-merge",
        Through(&["cairn-checkpoint", "cairn-random"]),
    ),
    (
        "cairn-collectives",
        Through(&["cairn-reshard", "cairn-device"]),
    ),
    ("cairn-mpi", Through(&["cairn-collectives"])),
    ("cairn-kernels", Through(&["cairn-random"])),
    (
        "cairn-arena",
        Through(&["cairn-checkpoint", "cairn-collectives", "cairn-kernels"]),
    ),
    ("cairn-model", Through(&["cairn-arena"])),
    ("cairn-data", Through(&["cairn-store", "cairn-random"])),
    ("cairn-plan", Through(&["cairn-sharding"])),
    (
        "cairn-train",
        Through(&["cairn-keeper", "cairn-model", "cairn-data", "cairn-plan"]),
    ),
    (
        "cairn",
        Through(&["cairn-merge", "cairn-mpi", "cairn-train"]),
    ),
    ("cairn-cli", Only(&["cairn"])),
    ("cairn-python", Only(&["cairn"])),
    ("xtask", Only(&["cairn"])),
];

/// Paths that the code of some crates never names, except in files of the listed names.
pub(crate) struct Absence {
    pub(crate) packages: &'static [&'static str],
    pub(crate) has_no: &'static str,
    pub(crate) paths: &'static [&'static str],
    pub(crate) except: &'static [&'static str],
}

impl Absence {
    /// Whether a source file of `package` has to obey.
    pub(crate) fn binds(&self, package: &str, source: &Path) -> bool {
        self.packages.contains(&package) && !self.except.iter().any(|name| source.ends_with(name))
    }
}

pub(crate) const ABSENCES: &[Absence] = &[
    Absence {
        packages: &[
            "cairn-tensor",
            "cairn-sharding",
            "cairn-reshard",
            "cairn-recipe",
            "cairn-kernels",
            "cairn-plan",
            "cairn-protocol",
        ],
        has_no: "I/O",
        paths: &["std::fs", "std::io", "std::net", "std::process"],
        except: &[],
    },
    Absence {
        packages: &[
            "cairn-formats",
            "cairn-checkpoint",
            "cairn-keeper",
            "cairn-merge",
            "cairn-collectives",
            "cairn-arena",
            "cairn-model",
            "cairn-data",
            "cairn-train",
            "cairn",
            "cairn-cli",
            "cairn-python",
        ],
        has_no: "files of its own: `cairn-store` reads and writes them",
        paths: &["std::fs"],
        except: &[],
    },
    Absence {
        packages: &["cairn-sharding", "cairn-recipe", "cairn-formats"],
        has_no: "threads",
        paths: &["std::thread"],
        except: &[],
    },
    Absence {
        packages: &["cairn-reshard"],
        has_no: "threads outside the execution of a plan",
        paths: &["std::thread"],
        except: &["execute.rs"],
    },
    Absence {
        packages: &[
            "cairn-sharding",
            "cairn-reshard",
            "cairn-recipe",
            "cairn-protocol",
        ],
        has_no: "clock",
        paths: &["std::time"],
        except: &[],
    },
    Absence {
        packages: &["cairn-reshard"],
        has_no: "randomness",
        paths: &["rand::", "fastrand::", "getrandom::", "RandomState"],
        except: &[],
    },
];

/// The sources that may contain unsafe code: a crate, and how their paths in it end.
pub(crate) const UNSAFE: &[(&str, &str)] = &[
    ("cairn-device", ""),
    // Where slices become the pointers that the library for products of matrices takes.
    ("cairn-kernels", "src/gemm.rs"),
    // Where large targets are written past the caches.
    ("cairn-tensor", "src/stream.rs"),
    // Where the memory of Python's tensors becomes ours to read.
    ("cairn-python", "src/memory.rs"),
];

/// A file is one idea; this counts its lines before the tests.
pub(crate) const MAX_FILE_LINES: usize = 400;

/// Everything `package` may use, directly or behind what it uses.
pub(crate) fn closure(package: &str) -> BTreeSet<&'static str> {
    let row = CRATES.iter().find(|(name, _)| *name == package);
    let names = row.map_or(&[][..], |(_, uses)| uses.names());
    names
        .iter()
        .flat_map(|name| closure(name).into_iter().chain([*name]))
        .collect()
}
