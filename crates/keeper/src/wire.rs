//! Messages over a socket, with an open file where one comes along.

use crate::Error;
use crate::message::{PREFIX_BYTES, Prefix, decode, encode};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A message that was received.
pub(crate) struct Received<T> {
    pub(crate) head: T,
    pub(crate) body: Vec<u8>,
    pub(crate) file: Option<OwnedFd>,
}

/// Sends a message whose body is `body`, piece after piece.
pub(crate) fn send(
    stream: &UnixStream,
    head: &impl Serialize,
    body: &[&[u8]],
    file: Option<BorrowedFd<'_>>,
) -> Result<(), Error> {
    let body_len = body.iter().map(|piece| piece.len()).sum();
    let bytes = encode(head, body_len)?;
    let sent = send_first(stream, &bytes, file)?;
    let mut stream = stream;
    stream.write_all(&bytes[sent..])?;
    for piece in body {
        stream.write_all(piece)?;
    }
    Ok(())
}

/// Receives a message; `None` if the other side has left between two.
pub(crate) fn receive<T: DeserializeOwned>(
    stream: &UnixStream,
) -> Result<Option<Received<T>>, Error> {
    let mut prefix = [0; PREFIX_BYTES];
    let (count, file) = receive_first(stream, &mut prefix)?;
    if count == 0 {
        return Ok(None);
    }
    let mut reader = stream;
    reader.read_exact(&mut prefix[count..])?;
    let prefix = Prefix::decode(prefix)?;
    let head = read(stream, prefix.head_len)?;
    let body = read(stream, prefix.body_len)?;
    Ok(Some(Received {
        head: decode(&head)?,
        body,
        file,
    }))
}

/// Reads `len` bytes. Memory is taken as they come: nobody gets any by announcing much.
fn read(stream: &UnixStream, len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    stream.take(len as u64).read_to_end(&mut bytes)?;
    match bytes.len() == len {
        true => Ok(bytes),
        false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

/// Sends what the system takes at once, and the file with it.
fn send_first(
    stream: &UnixStream,
    bytes: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> Result<usize, Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let bytes = [IoSlice::new(bytes)];
    let sent = retry(|| rustix::net::sendmsg(stream, &bytes, &mut control, SendFlags::NOSIGNAL))?;
    Ok(sent)
}

/// Receives what there is of a prefix, and the file that comes with it.
fn receive_first(
    stream: &UnixStream,
    prefix: &mut [u8],
) -> Result<(usize, Option<OwnedFd>), Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(prefix)];
    let received =
        retry(|| rustix::net::recvmsg(stream, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok((received.bytes, files.flatten().next()))
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}
