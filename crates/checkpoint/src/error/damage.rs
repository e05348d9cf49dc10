//! Which errors prove damage.

use super::Error;

impl Error {
    /// Whether bytes that were written are no longer what they were.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Damaged { .. } => true,
            Error::Store { source, .. } => matches!(
                source,
                cairn_store::Error::NotFound { .. } | cairn_store::Error::Truncated { .. }
            ),
            _ => false,
        }
    }

    pub(crate) fn damaged(file: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Damaged {
            file: file.into(),
            reason: reason.into(),
        }
    }
}
