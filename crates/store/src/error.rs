//! What can go wrong with a store, named for what the caller can do about it.

use std::io;

/// Where credentials of the services are looked for.
const CREDENTIALS: &str = "\
set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` or a profile of `~/.aws` (S3), `GOOGLE_APPLICATION_CREDENTIALS` (Google), \
`AZURE_STORAGE_ACCOUNT_NAME` and a key (Azure), or give them as storage options";

/// The failure of a store operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no object under this key.
    #[error("object `{key}` does not exist")]
    NotFound {
        /// The key asked for.
        key: String,
    },
    /// An object is already published under this key, and the operation creates only.
    #[error("object `{key}` already exists")]
    AlreadyExists {
        /// The key that is taken.
        key: String,
    },
    /// The store has no room for the object.
    #[error("no space for `{key}`: {needed} bytes needed, {available} bytes available")]
    NoSpace {
        /// The object that does not fit.
        key: String,
        /// Its length, in bytes.
        needed: u64,
        /// What the store can still take, in bytes.
        available: u64,
    },
    /// The operating system or the service refuses this user the operation.
    #[error("permission denied: cannot {operation} `{key}`")]
    PermissionDenied {
        /// The object concerned.
        key: String,
        /// What was attempted.
        operation: &'static str,
    },
    /// The store cannot be written at all.
    #[error("cannot {operation} `{key}`: the store is read-only")]
    ReadOnly {
        /// The object concerned.
        key: String,
        /// What was attempted.
        operation: &'static str,
    },
    /// The object ends before the bytes asked for.
    #[error(
        "object `{key}` is too short: {wanted} bytes wanted at offset {offset}, {got} bytes there"
    )]
    Truncated {
        /// The object read.
        key: String,
        /// Where the read began.
        offset: u64,
        /// How many bytes were asked for.
        wanted: u64,
        /// How many of them exist.
        got: u64,
    },
    /// The object is larger than an operation on whole objects accepts.
    #[error("object `{key}` has {len} bytes, and at most {limit} can be read at once")]
    TooLarge {
        /// The object asked for.
        key: String,
        /// Its length, in bytes.
        len: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The key is not well formed.
    #[error("invalid key `{key}`: {reason}")]
    InvalidKey {
        /// The key as given.
        key: String,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// A write does not fit the object: out of bounds, misaligned or overlapping.
    #[error("cannot write {len} bytes at offset {offset} of `{key}`: {reason}")]
    InvalidRange {
        /// The object being written.
        key: String,
        /// Where the write begins.
        offset: u64,
        /// How many bytes it has.
        len: u64,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// An object was finished before all of its bytes were written.
    #[error("object `{key}` is incomplete: {written} of {len} bytes were written")]
    Incomplete {
        /// The object being written.
        key: String,
        /// How many bytes it got.
        written: u64,
        /// How many it was created with.
        len: u64,
    },
    /// No store can be opened from this address.
    #[error("cannot open a store at `{url}`: {reason}")]
    InvalidUrl {
        /// The address as given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file system or service under the store lacks something the operation needs.
    #[error("cannot {operation} `{key}`: the store underneath does not support it")]
    Unsupported {
        /// The object concerned.
        key: String,
        /// What was attempted.
        operation: &'static str,
    },
    /// The object was replaced or deleted while it was read.
    #[error("object `{key}` changed while it was read")]
    Changed {
        /// The object read.
        key: String,
    },
    /// The service does not take the credentials, or there are none.
    #[error("cannot open `{url}` with these credentials: {reason}")]
    Credentials {
        /// The bucket.
        url: String,
        /// What is wrong with them.
        reason: &'static str,
    },
    /// There is no such bucket.
    #[error("bucket `{url}` does not exist")]
    NoBucket {
        /// The bucket asked for.
        url: String,
    },
    /// The service refuses a request that was made at another time than it has.
    #[error("`{url}` refuses requests, because the clock of this machine is wrong")]
    ClockSkew {
        /// The bucket.
        url: String,
    },
    /// Nothing answers at the service's address.
    #[error("`{url}` cannot be reached: {reason}")]
    Unreachable {
        /// The bucket.
        url: String,
        /// The system's own report.
        reason: String,
    },
    /// The service under the store failed, after all tries.
    #[error("cannot {operation} `{key}`: the service failed: {reason}")]
    Service {
        /// The object concerned.
        key: String,
        /// What was attempted.
        operation: &'static str,
        /// What the service said.
        reason: String,
    },
    /// A test double stopped this process's view of the store.
    #[error("the store has crashed, as the test asked")]
    Crashed,
    /// Any other failure of the system underneath.
    #[error("cannot {operation} `{key}`")]
    Io {
        /// The object concerned.
        key: String,
        /// What was attempted.
        operation: &'static str,
        /// The system's own report.
        source: io::Error,
    },
}

impl Error {
    /// Gives an I/O error its meaning for the object it concerns.
    pub(crate) fn from_io(key: &str, operation: &'static str, source: io::Error) -> Self {
        let key = key.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { key },
            io::ErrorKind::AlreadyExists => Self::AlreadyExists { key },
            io::ErrorKind::PermissionDenied => Self::PermissionDenied { key, operation },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { key, operation },
            _ => Self::Io {
                key,
                operation,
                source,
            },
        }
    }

    /// What the reader can do next, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::AlreadyExists { .. } => {
                "choose another key, or replace the object on purpose".to_owned()
            }
            Self::NoSpace {
                needed, available, ..
            } => {
                let missing = needed.saturating_sub(*available);
                format!("free at least {missing} bytes, or save elsewhere")
            }
            Self::PermissionDenied { .. } => {
                "check who owns the folder or bucket and what this user may do there".to_owned()
            }
            Self::Changed { .. } => "open it again".to_owned(),
            Self::Credentials { .. } => CREDENTIALS.to_owned(),
            Self::NoBucket { .. } => {
                "make the bucket, or correct its name, the region or the endpoint".to_owned()
            }
            Self::ClockSkew { .. } => "set the clock, for example with NTP".to_owned(),
            Self::Unreachable { .. } | Self::Service { .. } => {
                "check the endpoint and the network; `cairn doctor URL` shows what works".to_owned()
            }
            Self::ReadOnly { .. } => "mount it writable, or save elsewhere".to_owned(),
            Self::Truncated { .. } => {
                "the object is damaged or was written by another tool; use another copy".to_owned()
            }
            Self::TooLarge { .. } => "read it in ranges with `reader`".to_owned(),
            Self::InvalidKey { .. } => {
                "keys look like `folder/name`; see the rules of `Store`".to_owned()
            }
            Self::InvalidUrl { .. } => {
                "give a path, or a URL such as `file:///data/run` or `s3://bucket/run`".to_owned()
            }
            Self::Unsupported { .. } => {
                "use a file system with hard links or atomic renames, such as ext4, XFS or NFS, or an object store that keeps conditions"
                    .to_owned()
            }
            Self::Io { source, .. } => return hint_for_io(source.kind()),
            Self::NotFound { .. }
            | Self::InvalidRange { .. }
            | Self::Incomplete { .. }
            | Self::Crashed => return None,
        })
    }

    /// Whether the same call may succeed later with nothing changed by the caller.
    pub fn is_retryable(&self) -> bool {
        use io::ErrorKind as Kind;
        let source = match self {
            Self::Io { source, .. } => source,
            other => {
                return matches!(
                    other,
                    Self::Service { .. } | Self::Unreachable { .. } | Self::Changed { .. }
                );
            }
        };
        matches!(
            source.kind(),
            Kind::Interrupted
                | Kind::TimedOut
                | Kind::WouldBlock
                | Kind::ResourceBusy
                | Kind::BrokenPipe
                | Kind::ConnectionAborted
                | Kind::ConnectionRefused
                | Kind::ConnectionReset
                | Kind::HostUnreachable
                | Kind::NetworkDown
                | Kind::NetworkUnreachable
                | Kind::StaleNetworkFileHandle
        )
    }
}

fn hint_for_io(kind: io::ErrorKind) -> Option<String> {
    Some(match kind {
        io::ErrorKind::QuotaExceeded => "raise the quota, or delete what is not needed".to_owned(),
        io::ErrorKind::FileTooLarge => {
            "the file system or `ulimit -f` allows only smaller files".to_owned()
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            "a file stands where a folder is needed, or the reverse; choose another key".to_owned()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_become_what_they_mean() {
        let convert = |kind: io::ErrorKind| Error::from_io("a/b", "write", kind.into());
        assert!(matches!(
            convert(io::ErrorKind::NotFound),
            Error::NotFound { key } if key == "a/b"
        ));
        assert!(matches!(
            convert(io::ErrorKind::ReadOnlyFilesystem),
            Error::ReadOnly { .. }
        ));
        assert!(matches!(
            convert(io::ErrorKind::TimedOut),
            Error::Io { operation, .. } if operation == "write"
        ));
    }

    #[test]
    fn only_passing_troubles_are_retryable() {
        let of = |kind: io::ErrorKind| Error::from_io("a", "read", kind.into()).is_retryable();
        assert!(of(io::ErrorKind::TimedOut));
        assert!(of(io::ErrorKind::StaleNetworkFileHandle));
        assert!(!of(io::ErrorKind::NotFound));
        assert!(!of(io::ErrorKind::InvalidInput));
        assert!(!Error::Crashed.is_retryable());
    }

    #[test]
    fn no_space_says_how_much_is_missing() {
        let error = Error::NoSpace {
            key: "a".into(),
            needed: 100,
            available: 40,
        };
        assert_eq!(
            error.to_string(),
            "no space for `a`: 100 bytes needed, 40 bytes available"
        );
        assert_eq!(
            error.hint().as_deref(),
            Some("free at least 60 bytes, or save elsewhere")
        );
    }
}
