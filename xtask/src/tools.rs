//! Programs of others that measurements and nightly checks run: installed once, in `target/tools`, never on the system's paths.

use std::path::PathBuf;

use crate::Result;
use crate::workspace::{Workspace, output};

/// A program that cargo installs: its package, version and features.
pub(crate) struct Crate {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    pub(crate) features: &'static str,
}

/// An S3 server that keeps objects as files. 0.17 and later need a newer Rust.
pub(crate) const S3S_FS: Crate = Crate {
    package: "s3s-fs",
    version: "0.14.1",
    features: "binary",
};

impl Crate {
    /// Installs the program unless it is there, and returns its path.
    pub(crate) fn ensure(&self, workspace: &Workspace) -> Result<PathBuf> {
        let folder = workspace.target.join("tools");
        let program = folder.join("bin").join(self.package);
        if program.exists() {
            return Ok(program);
        }
        eprintln!("── {}: some minutes to build; once", self.package);
        let mut install = workspace.cargo(&["install", "--locked", self.package]);
        install
            .args(["--version", self.version, "--features", self.features])
            .arg("--root")
            .arg(&folder)
            // Apart from our own build, which it would not share anything with.
            .env("CARGO_TARGET_DIR", folder.join("build"));
        output(install)?;
        std::fs::remove_dir_all(folder.join("build"))?;
        Ok(program)
    }
}
