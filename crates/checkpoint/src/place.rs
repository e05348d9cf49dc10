//! From a path to what lies there: a run, a step, or a model in another format.

use crate::Error;
use crate::names::parse_step_folder;
use crate::run::{all_steps, committed_steps};
use crate::source::ModelSource;
use cairn_formats::Error as FormatError;
use cairn_store::Store;
use std::sync::Arc;

/// How addresses begin that are no paths, beside those with `://` in them.
const SCHEMES: [&str; 3] = ["file:", "tiers:", "node-tiers:"];

/// What lies at a path.
#[derive(Debug)]
pub enum Place {
    /// A run, by the store that is rooted there.
    Run(Arc<dyn Store>),
    /// A step of a run.
    Step(Arc<dyn Store>, u64),
    /// A folder in another format.
    Folder(ModelSource),
    /// A file in another format.
    File(ModelSource),
}

/// Finds out what lies at `path`.
///
/// # Errors
/// If there is nothing, or nothing that is known; what is wrong with it otherwise.
pub fn find(path: &str) -> Result<Place, Error> {
    find_with(path, &[])
}

/// Finds out what lies at `path`, in a store that is opened with `options`, such as `("region", "eu-west-1")`.
///
/// # Errors
/// As [`find`], and for an option that the store does not have.
pub fn find_with(path: &str, options: &[(String, String)]) -> Result<Place, Error> {
    let open_store = |path: &str| cairn_store::open_with(path, options).map_err(Error::Address);
    let (parent, name) = split(path);
    let step = parse_step_folder(&name);
    let here = open_store(path)?;
    if here.tiers().is_some() && step.is_none() {
        // They have no folder in common to look into.
        return match all_steps(here.as_ref())?.is_empty() {
            true => Err(Error::NoSuchPath { path: path.into() }),
            false => Ok(Place::Run(here)),
        };
    }
    let above = open_store(&parent)?;
    if let Some(step) = step {
        let steps = all_steps(above.as_ref())?;
        return match steps.contains(&step) {
            true => Ok(Place::Step(above, step)),
            false if steps.is_empty() => Err(Error::NoSuchPath { path: path.into() }),
            false => Err(no_such_step(above.as_ref(), step)?),
        };
    }
    if !all_steps(here.as_ref())?.is_empty() {
        return Ok(Place::Run(here));
    }
    if is_file(above.as_ref(), &name) {
        return match cairn_formats::open_file(above.as_ref(), &name) {
            Ok(model) => Ok(Place::File(ModelSource::of_file(above, model))),
            Err(FormatError::NotAModel { .. }) => Err(Error::NotACheckpoint { path: path.into() }),
            Err(error) => Err(error.into()),
        };
    }
    match cairn_formats::open(here.as_ref()) {
        Ok(model) => Ok(Place::Folder(ModelSource::new(here, model))),
        Err(FormatError::NotAModel { .. }) => Err(match is_folder(above.as_ref(), &name) {
            true => Error::NotACheckpoint { path: path.into() },
            false => Error::NoSuchPath { path: path.into() },
        }),
        Err(error) => Err(error.into()),
    }
}

fn no_such_step(run: &dyn Store, step: u64) -> Result<Error, Error> {
    Ok(Error::NoSuchStep {
        step,
        url: run.url(),
        available: committed_steps(run)?,
    })
}

fn is_file(above: &dyn Store, name: &str) -> bool {
    above.head(name).is_ok_and(|found| found.is_some())
}

/// Whether a folder exists, or cannot be told not to.
fn is_folder(above: &dyn Store, name: &str) -> bool {
    let folders = above.list_folders("");
    name.is_empty() || folders.is_ok_and(|folders| folders.iter().any(|folder| folder == name))
}

/// The folder a path lies in, and its name there. `.` is looked up, so that it has a name, too.
pub fn split(path: &str) -> (String, String) {
    let is_url = path.contains("://") || SCHEMES.iter().any(|scheme| path.starts_with(scheme));
    let whole = match std::path::absolute(path) {
        Ok(absolute) if !is_url => absolute.to_str().unwrap_or(path).to_string(),
        _ => path.to_string(),
    };
    let whole = match whole.trim_end_matches('/') {
        "" if whole.starts_with('/') => return ("/".into(), String::new()),
        trimmed => trimmed,
    };
    match whole.rsplit_once('/') {
        // A bucket lies in nothing.
        Some((parent, _)) if parent.ends_with(":/") => (whole.into(), String::new()),
        Some(("", name)) => ("/".into(), name.into()),
        Some((parent, name)) => (parent.into(), name.into()),
        None => (whole.into(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_are_split_at_their_last_name() {
        let case = |path| {
            let (parent, name) = split(path);
            format!("{parent} {name}")
        };
        assert_eq!(case("/data/run/"), "/data run");
        assert_eq!(case("/run"), "/ run");
        assert_eq!(case("file:///data/run"), "file:///data run");
        assert_eq!(case("s3://bucket/run/"), "s3://bucket run");
        assert_eq!(case("s3://bucket/"), "s3://bucket ");
        assert_eq!(case("tiers:a,b/step-1"), "tiers:a,b step-1");
        let here = std::path::absolute("x/y").unwrap();
        assert_eq!(
            case("x/./y"),
            format!("{} y", here.parent().unwrap().display())
        );
    }

    #[test]
    fn the_root_and_nothing_have_no_name() {
        assert_eq!(split("/"), ("/".into(), "".into()));
        assert_eq!(split(""), ("".into(), "".into()));
    }
}
