//! What can go wrong between a keeper and those who talk to it.

use std::io;
use std::path::PathBuf;

/// A failure of a keeper, or of the way to it. No save fails because of one: it goes on without.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens there.
    #[error("no keeper listens at `{}`", path.display())]
    NoKeeper {
        /// The socket.
        path: PathBuf,
    },
    /// Another keeper listens there.
    #[error("a keeper listens at `{}` already", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// The folder of the socket is open to others.
    #[error("`{}` cannot hold a keeper's socket: {reason}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system refused something about the socket.
    #[error("cannot {action} `{}`", path.display())]
    Socket {
        /// What was tried.
        action: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The other side left, or does not answer.
    #[error("the connection broke")]
    Connection(#[from] io::Error),
    /// The other side belongs to somebody else.
    #[error("the other side belongs to user {found}, not to user {expected}")]
    Stranger {
        /// Whose it is.
        found: u32,
        /// Whose it should be.
        expected: u32,
    },
    /// The other side speaks another version.
    #[error("the other side speaks version {found} of the protocol, this one speaks {supported}")]
    Version {
        /// Theirs.
        found: u32,
        /// Ours.
        supported: u32,
    },
    /// A message makes no sense.
    #[error("a message cannot be understood: {reason}")]
    Message {
        /// Why not.
        reason: String,
    },
    /// The keeper will not do what it was asked.
    #[error("the keeper refused: {reason}")]
    Refused {
        /// Its words.
        reason: String,
    },
    /// Memory cannot be had or shared.
    #[error(transparent)]
    Memory(#[from] cairn_device::Error),
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoKeeper { .. } => {
                "start one with `cairn keeper`, or name its socket with `--socket` or CAIRN_KEEPER"
            }
            Self::Taken { .. } => "`cairn keeper status` shows what it holds",
            Self::Folder { .. } => "use a folder of your own that nobody else may enter: mode 0700",
            Self::Stranger { .. } => "keeper and trainer run as the same user",
            Self::Version { .. } => "run the keeper and the trainer from the same release",
            Self::Memory(source) => return source.hint(),
            _ => return None,
        };
        Some(hint.into())
    }

    pub(crate) fn message(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Message { reason }
    }

    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Refused { reason }
    }
}
