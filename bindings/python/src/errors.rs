//! Errors of the core as Python exceptions: one class for each kind, with the hint kept.

use cairn::checkpoint::{Error, KeyProblems, Meeting};
use cairn::recipe::library::LibraryError;
use cairn::store::redact;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A result whose error Python can raise.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception that says what went wrong.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| exception(&error))
    }
}

impl<T> OrRaise<T> for Result<T, cairn::sharding::Error> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| raise("StateError", &error.to_string(), error.hint(), None))
    }
}

impl<T> OrRaise<T> for Result<T, LibraryError> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| match error {
            LibraryError::Program(error) => recipe_exception(&error),
            other => raise("RecipeError", &other.to_string(), other.hint(), None),
        })
    }
}

impl<T> OrRaise<T> for Result<T, cairn::recipe::Error> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| recipe_exception(&error))
    }
}

/// The exception for a recipe, with the statement at fault.
fn recipe_exception(error: &cairn::recipe::Error) -> PyErr {
    let message = format!("{error}\n{}", error.trace());
    raise("RecipeError", message.trim_end(), error.hint(), None)
}

impl<T> OrRaise<T> for Result<T, cairn::store::Error> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| raise("StoreError", &chain(&error), error.hint(), None))
    }
}

impl<T> OrRaise<T> for Result<T, cairn::device::Error> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| raise("DeviceError", &error.to_string(), error.hint(), None))
    }
}

/// The exception for an error of the engine.
pub(crate) fn exception(error: &Error) -> PyErr {
    let problems = match error {
        Error::Keys(problems) => Some(problems.as_ref()),
        _ => None,
    };
    raise(class(error), &chain(error), error.hint(), problems)
}

/// The name of the class in `cairn.errors`.
fn class(error: &Error) -> &'static str {
    match error {
        Error::PreviousSave { source, .. } => class(source),
        Error::NotUploaded { .. } => "NotUploaded",
        Error::Keys(_) => "KeyMismatch",
        Error::StepTaken { .. } => "StepExists",
        Error::NoSuchStep { .. } | Error::NothingUsable { .. } | Error::Deleted { .. } => {
            "StepNotFound"
        }
        Error::Incomplete { .. } => "StepIncomplete",
        Error::WritersMissing { .. }
        | Error::WriterFailed { .. }
        | Error::Meeting(Meeting::RanksAbsent { .. })
        | Error::PeerLost { .. }
        | Error::PeerFailed { .. } => "RankFailed",
        Error::Meeting(_)
        | Error::Disagreement { .. }
        | Error::SessionReused { .. }
        | Error::PeersDisagree { .. } => "RanksDisagree",
        Error::Untrusted { .. } => "Untrusted",
        Error::Version { .. } | Error::Needs { .. } => "VersionError",
        Error::Format(_) => "FormatError",
        error if error.is_damage() => "Damaged",
        Error::Store { .. } | Error::Address(_) | Error::BasesGone { .. } => "StoreError",
        Error::Stopped { .. } => "Error",
        Error::Capture { .. } => "DeviceError",
        Error::Torn { .. } => "Torn",
        Error::Cancelled => "Cancelled",
        Error::Skipped { .. } => "Skipped",
        _ => "StateError",
    }
}

/// The error and its causes, as one sentence.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// An exception of `cairn.errors`, which is imported when it is first needed.
pub(crate) fn raise(
    class: &str,
    message: &str,
    hint: Option<String>,
    problems: Option<&KeyProblems>,
) -> PyErr {
    // Addresses may have secrets in them.
    let message = redact(message);
    let make = |py: Python| {
        let class = py.import("cairn.errors")?.getattr(class)?;
        let arguments = PyDict::new(py);
        arguments.set_item("hint", hint)?;
        let raised = class.call((&message,), Some(&arguments))?;
        if let Some(problems) = problems {
            let missing: Vec<&str> = problems.missing.iter().map(|m| m.name.as_str()).collect();
            raised.setattr("missing", missing)?;
            raised.setattr("unexpected", &problems.unexpected)?;
            let mismatched: Vec<&str> = problems
                .mismatched
                .iter()
                .map(|m| m.name.as_str())
                .collect();
            raised.setattr("mismatched", mismatched)?;
        }
        Ok(PyErr::from_value(raised))
    };
    Python::attach(|py| make(py).unwrap_or_else(|error| error))
}
