//! The members of the workspace as text: manifests and sources, read as simply as the rules need.

use std::fs;
use std::path::{Path, PathBuf};

/// A package of the workspace.
pub(crate) struct Member {
    pub(crate) package: String,
    pub(crate) folder: PathBuf,
    manifest: String,
}

impl Member {
    fn open(folder: PathBuf) -> Self {
        let manifest = read(&folder.join("Cargo.toml"));
        let name = section(&manifest, "package").find(|(key, _)| *key == "name");
        let (_, name) = name.expect("every package has a name");
        Self {
            package: name.trim_matches('"').to_owned(),
            folder,
            manifest,
        }
    }

    /// The packages of this workspace named in a section of the manifest.
    pub(crate) fn dependencies(&self, kind: &str) -> Vec<String> {
        let heading = format!("[{kind}.");
        let lines = self.manifest.lines();
        let headed = lines.filter_map(|line| line.strip_prefix(&heading)?.strip_suffix(']'));
        section(&self.manifest, kind)
            .map(|(key, _)| key.split('.').next().unwrap_or(key))
            .chain(headed)
            .filter(|name| name.starts_with("cairn"))
            .map(str::to_owned)
            .collect()
    }

    /// Every file under `src/` that is not only tests.
    pub(crate) fn sources(&self) -> Vec<Source> {
        let mut paths = Vec::new();
        walk(&self.folder.join("src"), "rs", &mut paths);
        paths.into_iter().map(Source::open).collect()
    }
}

/// The part of a source file that is not tests, and that part without its comments.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) lines: usize,
    pub(crate) code: String,
}

impl Source {
    fn open(path: PathBuf) -> Self {
        let text = read(&path);
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(&text);
        let code = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or(line));
        Self {
            path,
            lines: text.lines().count(),
            code: code.collect::<Vec<_>>().join("\n"),
        }
    }

    /// Whether the code names a path such as `std::fs`, in full or inside `use std::{…}`.
    pub(crate) fn names(&self, path: &str) -> bool {
        let grouped = path.strip_prefix("std::").is_some_and(|module| {
            let groups = self.code.split("use std::{").skip(1);
            let mut groups = groups.map(|rest| rest.split(';').next().unwrap_or(rest));
            groups.any(|group| words(group).any(|word| word == module))
        });
        grouped || self.code.contains(path)
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The members of the workspace in the order of Cargo.toml.
pub(crate) fn members() -> Vec<Member> {
    let manifest = read(&root().join("Cargo.toml"));
    let (_, list) = manifest
        .split_once("\nmembers = [")
        .expect("Cargo.toml lists its members");
    let (list, _) = list.split_once(']').expect("the list of members ends");
    let folders = list.split('"').skip(1).step_by(2);
    folders
        .map(|folder| match folder {
            "." => root().to_path_buf(),
            folder => root().join(folder),
        })
        .map(Member::open)
        .collect()
}

/// The sources of the Python package.
pub(crate) fn python_files() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    walk(&root().join("bindings/python/py_src"), "py", &mut paths);
    paths
}

/// The `key = value` lines of one section of a manifest.
fn section<'a>(manifest: &'a str, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let heading = format!("[{name}]");
    manifest
        .lines()
        .map(str::trim)
        .skip_while(move |line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
}

/// Every file under `folder` with this extension that is not only tests.
fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("sources are readable") {
        let path = entry.expect("sources are readable").path();
        let is_tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !is_tests {
            walk(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) && !is_tests {
            found.push(path);
        }
    }
}

pub(crate) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|character: char| !character.is_alphanumeric() && character != '_')
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
