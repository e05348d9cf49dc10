//! What a simulated store answers.

use crate::disk::Listed;
use crate::scheduler::time_of_day;
use crate::world::Failure;
use cairn_store::{Error, ObjectMeta};
use std::io::ErrorKind;

pub(super) fn describe(file: Listed) -> ObjectMeta {
    ObjectMeta {
        key: file.path,
        len: file.len,
        modified: time_of_day(file.modified),
    }
}

pub(super) fn taken(key: &str) -> Error {
    Error::AlreadyExists {
        key: key.to_string(),
    }
}

pub(super) fn failed(key: &str, operation: &'static str, failure: Failure) -> Error {
    let key = key.to_string();
    let kind = match failure {
        Failure::Broken => ErrorKind::TimedOut,
        Failure::Conflict => ErrorKind::ResourceBusy,
        Failure::Full => {
            return Error::NoSpace {
                key,
                needed: 1,
                available: 0,
            };
        }
    };
    Error::Io {
        key,
        operation,
        source: kind.into(),
    }
}
