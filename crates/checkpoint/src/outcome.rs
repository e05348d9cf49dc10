//! What became of work in the background.

use crate::Error;
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::sync::Arc;

/// The result of work in the background, once there is one.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    result: Mutex<Option<Result<T, Arc<Error>>>>,
    done: Condvar,
}

impl<T: Clone> Outcome<T> {
    /// Says what became of it.
    pub(crate) fn set(&self, result: Result<T, Error>) {
        *self.lock() = Some(result.map_err(Arc::new));
        self.done.notify_all();
    }

    /// What became of it, if it is over.
    pub(crate) fn get(&self) -> Option<Result<T, Arc<Error>>> {
        self.lock().clone()
    }

    /// Waits until it is over.
    pub(crate) fn wait(&self) -> Result<T, Arc<Error>> {
        let mut result = self.lock();
        loop {
            if let Some(result) = result.as_ref() {
                return result.clone();
            }
            let waited = self.done.wait(result);
            result = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether it is over, well or not.
    pub(crate) fn is_set(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<T, Arc<Error>>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for work whose thread panicked.
pub(crate) fn stopped(panic: &(dyn std::any::Any + Send)) -> Error {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    Error::Stopped {
        message: message.unwrap_or_else(|| "no message".into()),
    }
}

impl<T> Default for Outcome<T> {
    fn default() -> Self {
        Self {
            result: Mutex::new(None),
            done: Condvar::new(),
        }
    }
}
