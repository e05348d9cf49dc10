//! How much memory a keeper takes.

use crate::Error;

/// The share of the machine's memory that a keeper takes unless told otherwise: one half.
const DEFAULT_DIVISOR: u64 = 2;

/// The most memory a keeper hands out. What does not fit is refused, and the save goes on in memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// To all runs together, in bytes.
    pub max_bytes: u64,
    /// To one run, in bytes.
    pub max_run_bytes: u64,
}

impl Default for Limits {
    /// Half of the memory that is available now, and all of that to one run if it wants it.
    fn default() -> Self {
        let available = cairn_device::system::available_bytes().unwrap_or(0);
        Self::total(available / DEFAULT_DIVISOR)
    }
}

impl Limits {
    /// At most `max_bytes`, and all of that to one run if it wants it.
    pub fn total(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            max_run_bytes: max_bytes,
        }
    }

    pub(crate) fn check(&self, used: u64, more: u64) -> Result<(), Error> {
        check(used, more, self.max_bytes, "the keeper")
    }

    pub(crate) fn check_run(&self, used: u64, more: u64) -> Result<(), Error> {
        check(used, more, self.max_run_bytes, "one run")
    }
}

fn check(used: u64, more: u64, most: u64, whose: &str) -> Result<(), Error> {
    match used.checked_add(more) {
        Some(total) if total <= most => Ok(()),
        _ => Err(Error::refused(format!(
            "{more} more bytes beside {used} are over the limit of {most} for {whose}"
        ))),
    }
}
