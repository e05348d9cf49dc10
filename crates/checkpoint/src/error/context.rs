//! What was being done when a store failed.

use super::Error;

/// Adds what was being done to a store's error.
pub(crate) trait StoreContext<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> StoreContext<T> for Result<T, cairn_store::Error> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| match unwrapped(source) {
            Ok(error) => error,
            Err(source) => Error::Store {
                action: action(),
                source,
            },
        })
    }
}

/// The error of a tensor that is worked out from others, which comes wrapped as that of a file.
fn unwrapped(error: cairn_store::Error) -> Result<Error, cairn_store::Error> {
    match error {
        cairn_store::Error::Io {
            key,
            operation,
            source,
        } => source.downcast().map_err(|source| cairn_store::Error::Io {
            key,
            operation,
            source,
        }),
        other => Err(other),
    }
}
