//! The rules of the workspace as tests: who may use whom, and what each crate does without.
//!
//! The rules are data, in `architecture/rules.rs`. A new edge between crates starts as a change there, where it can be seen.

#![expect(
    clippy::disallowed_methods,
    reason = "reads the sources of the repository"
)]

#[path = "architecture/rules.rs"]
mod rules;
#[path = "architecture/sources.rs"]
mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rules::Uses::{Only, Through};
use rules::{ABSENCES, Absence, CRATES, MAX_FILE_LINES, UNSAFE, closure};
use sources::{Member, members, python_files, read, root, words};

#[test]
fn crates_use_only_what_the_table_allows() {
    let mut problems = Vec::new();
    for member in members() {
        let package = &member.package;
        let Some((_, uses)) = CRATES.iter().find(|(name, _)| name == package) else {
            problems.push(format!("`{package}` has no row in CRATES"));
            continue;
        };
        let through = closure(package);
        let allowed = match uses {
            Through(_) => &through,
            Only(names) => &names.iter().copied().collect(),
        };
        for used in member.dependencies("dependencies") {
            if !allowed.contains(used.as_str()) {
                problems.push(format!("`{package}` uses `{used}`; it may use {allowed:?}"));
            }
        }
        // Tests may also reach the crate itself, for its `testing` feature, and what lies behind its uses.
        for used in member.dependencies("dev-dependencies") {
            if used != *package && !through.contains(used.as_str()) {
                problems.push(format!(
                    "tests of `{package}` use `{used}`; they may use {through:?}"
                ));
            }
        }
    }
    report(&problems);
}

#[test]
fn the_table_stands_in_dependency_order() {
    let mut problems = Vec::new();
    for (index, (package, uses)) in CRATES.iter().enumerate() {
        for name in uses.names() {
            if !CRATES[..index].iter().any(|(earlier, _)| earlier == name) {
                problems.push(format!(
                    "`{package}` may use `{name}`, which has no row above it"
                ));
            }
        }
    }
    report(&problems);
}

#[test]
fn members_stand_in_dependency_order() {
    let members = members();
    let mut problems = Vec::new();
    for (index, member) in members.iter().enumerate() {
        for used in member.dependencies("dependencies") {
            let earlier = &members[..index];
            if !earlier.iter().any(|member| member.package == used) {
                problems.push(format!(
                    "`{}` is listed before `{used}`, which it uses: reorder `members` in Cargo.toml",
                    member.package
                ));
            }
        }
    }
    report(&problems);
}

#[test]
fn every_folder_in_crates_is_a_member() {
    let listed: BTreeSet<PathBuf> = members().into_iter().map(|member| member.folder).collect();
    let folders = fs::read_dir(root().join("crates")).expect("crates/ is readable");
    let folders = folders.map(|entry| entry.expect("crates/ is readable").path());
    let problems: Vec<String> = folders
        .filter(|folder| folder.join("Cargo.toml").exists() && !listed.contains(folder))
        .map(|folder| format!("`{}` is not in `members`", folder.display()))
        .collect();
    report(&problems);
}

#[test]
fn crates_do_without_what_the_table_denies_them() {
    let mut problems = Vec::new();
    for member in members() {
        for source in member.sources() {
            let denied = |absence: &&Absence| absence.binds(&member.package, &source.path);
            for absence in ABSENCES.iter().filter(denied) {
                for path in absence.paths.iter().filter(|path| source.names(path)) {
                    problems.push(format!(
                        "{} names `{path}`: `{}` has no {}",
                        source.path.display(),
                        member.package,
                        absence.has_no
                    ));
                }
            }
        }
    }
    report(&problems);
}

#[test]
fn unsafe_code_lives_where_the_rules_say() {
    let members = members();
    let may = |package: &str, path: &Path| {
        let ends =
            |(name, end): &(&str, &str)| *name == package && path.to_string_lossy().ends_with(end);
        UNSAFE.iter().any(ends)
    };
    let mut problems = Vec::new();
    for member in &members {
        for source in member.sources() {
            let opens = words(&source.code).any(|word| word == "unsafe" || word == "unsafe_code");
            if opens && !may(&member.package, &source.path) {
                let file = source.path.display();
                problems.push(format!("{file} opens unsafe code: only {UNSAFE:?} may"));
            }
        }
    }
    report(&problems);
}

#[test]
fn files_are_short_enough_to_be_one_idea() {
    let members = members();
    let problems: Vec<String> = members
        .iter()
        .flat_map(Member::sources)
        .filter(|source| source.lines > MAX_FILE_LINES)
        .map(|source| {
            let file = source.path.display();
            format!(
                "{file} has {} lines before its tests, at most {MAX_FILE_LINES}: split it",
                source.lines
            )
        })
        .chain(long_python_files())
        .collect();
    report(&problems);
}

fn long_python_files() -> impl Iterator<Item = String> {
    python_files().into_iter().filter_map(|path| {
        let lines = read(&path).lines().count();
        let file = path.display();
        (lines > MAX_FILE_LINES)
            .then(|| format!("{file} has {lines} lines, at most {MAX_FILE_LINES}: split it"))
    })
}

#[test]
fn every_crate_opens_with_an_essay() {
    // The façade's essay is the README.
    let openings = ["//! ", "#![doc = include_str!(\"../README.md\")]"];
    let is_essay = |text: String| openings.iter().any(|opening| text.starts_with(opening));
    let members = members();
    let problems: Vec<String> = members
        .iter()
        .flat_map(|member| ["lib.rs", "main.rs"].map(|name| member.folder.join("src").join(name)))
        .filter(|path| path.exists() && !is_essay(read(path)))
        .map(|path| format!("{} does not start with `//!`", path.display()))
        .collect();
    report(&problems);
}

#[track_caller]
fn report(problems: &[String]) {
    assert!(problems.is_empty(), "\n  {}\n", problems.join("\n  "));
}
