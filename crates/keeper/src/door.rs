//! The way to a keeper: a socket, or what stands for one in a simulated world.

use crate::Error;
use crate::client::greet;
use crate::message::{Reply, Request};
use crate::wire::{Received, receive, send};
use std::fmt::Debug;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Where a keeper is found.
pub(crate) trait Door: Debug + Send + Sync {
    /// Connects to the keeper, which may take so long for each answer.
    ///
    /// # Errors
    /// If there is none.
    fn connect(&self, patience: Duration) -> Result<Box<dyn Wire>, Error>;
}

/// A connection. Dropped, it ends, and the keeper notices.
pub(crate) trait Wire: Debug + Send + Sync {
    /// Asks and waits for the answer, whatever it is.
    ///
    /// # Errors
    /// If the connection breaks.
    fn ask(&self, request: &Request, body: &[u8]) -> Result<Received<Reply>, Error>;
}

impl Door for PathBuf {
    fn connect(&self, patience: Duration) -> Result<Box<dyn Wire>, Error> {
        Ok(Box::new(greet(self, patience)?))
    }
}

impl Wire for UnixStream {
    fn ask(&self, request: &Request, body: &[u8]) -> Result<Received<Reply>, Error> {
        send(self, request, &[body], None)?;
        let left = || io::Error::from(io::ErrorKind::UnexpectedEof);
        Ok(receive::<Reply>(self)?.ok_or_else(left)?)
    }
}
