//! Tells the service manager how far a service is.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `message`, such as `READY=1`, to the socket that the service manager names in `NOTIFY_SOCKET`, if there is one.
///
/// # Errors
/// If the socket does not take it.
pub fn notify(message: &str) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(socket) if !socket.is_empty() => send(&socket, message),
        _ => Ok(()),
    }
}

fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Sockets with a path and with a name.

    use super::*;

    #[test]
    fn the_manager_hears_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        let mut heard = [0; 16];
        let count = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..count], b"READY=1");

        let name = format!("cairn-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
        let count = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..count], b"STOPPING=1");
    }

    #[test]
    fn a_manager_that_is_gone_is_told_of() {
        assert!(send(OsStr::new("/no/such/socket"), "READY=1").is_err());
    }
}
