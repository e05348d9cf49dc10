//! Where a keeper listens: a socket that only its user reaches.

use crate::Error;
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The variable that names the keeper's socket.
pub const KEEPER_VARIABLE: &str = "CAIRN_KEEPER";

/// The permissions of others.
const OTHERS: Mode = Mode::RWXG.union(Mode::RWXO);

/// Where keepers listen unless told otherwise: `CAIRN_KEEPER`, or else a folder of the user's for things that end with the session.
pub fn default_socket() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = variable(KEEPER_VARIABLE) {
        return path.into();
    }
    let folder = match variable("XDG_RUNTIME_DIR") {
        Some(runtime) => PathBuf::from(runtime).join("cairn"),
        None => std::env::temp_dir().join(format!("cairn-{}", own_user())),
    };
    folder.join("keeper.sock")
}

/// The user this process runs as.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Listens at `path`, in place of a keeper that is gone.
///
/// # Errors
/// [`Error::Taken`] if one is there, [`Error::Folder`] if others could come in.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, Error> {
    let folder = open_folder(path)?;
    // Of keepers that start at the same time one finds the socket taken.
    let failed = |action| {
        move |source: io::Error| Error::Socket {
            action,
            path: path.to_path_buf(),
            source,
        }
    };
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)
        .map_err(|error| failed("lock the folder of")(error.into()))?;
    match UnixStream::connect(path) {
        Ok(_) => {
            let path = path.to_path_buf();
            return Err(Error::Taken { path });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // Nobody listens: a keeper that was killed left it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
            remove(path).map_err(failed("remove"))?;
        }
        Err(error) => return Err(failed("look at")(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed("listen at"))?;
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)
        .map_err(|error| failed("close to others")(error.into()))?;
    Ok(listener)
}

/// Connects to the keeper at `path`, if it is this user's.
///
/// # Errors
/// [`Error::NoKeeper`] if nobody listens, [`Error::Stranger`] if somebody else does.
pub(crate) fn connect(path: &Path) -> Result<UnixStream, Error> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    match UnixStream::connect(path) {
        Ok(stream) => {
            check_user(&stream, own_user())?;
            Ok(stream)
        }
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => {
            Err(Error::NoKeeper {
                path: path.to_path_buf(),
            })
        }
        Err(source) => Err(Error::Socket {
            action: "connect to",
            path: path.to_path_buf(),
            source,
        }),
    }
}

/// Refuses a peer that is not `expected`. Returns its process.
pub(crate) fn check_user(
    stream: &UnixStream,
    expected: u32,
) -> Result<rustix::process::Pid, Error> {
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(io::Error::from)?;
    let found = peer.uid.as_raw();
    match found == expected {
        true => Ok(peer.pid),
        false => Err(Error::Stranger { found, expected }),
    }
}

fn is_socket(path: &Path) -> bool {
    let found = rustix::fs::lstat(path);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket)
}

/// Takes a socket away.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The folder of a socket, made if need be, which only its user may enter.
fn open_folder(path: &Path) -> Result<OwnedFd, Error> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let failed = |reason: String| Error::Folder {
        path: folder.to_path_buf(),
        reason,
    };
    match rustix::fs::mkdirat(CWD, folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed(format!("it cannot be made: {error}"))),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = rustix::fs::openat(CWD, folder, flags, Mode::empty())
        .map_err(|error| failed(error.to_string()))?;
    let about = rustix::fs::fstat(&opened).map_err(|error| failed(error.to_string()))?;
    let mode = Mode::from_raw_mode(about.st_mode);
    if about.st_uid != own_user() {
        return Err(failed(format!("it belongs to user {}", about.st_uid)));
    }
    if mode.intersects(OTHERS) {
        let mode = mode.as_raw_mode() & 0o777;
        return Err(failed(format!("others may enter it (mode {mode:04o})")));
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    //! Folders that are open, sockets that are stale, and a user that is not this one.

    use super::*;

    #[test]
    fn a_folder_that_others_may_enter_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        rustix::fs::mkdir(&open, Mode::RWXU).unwrap();
        rustix::fs::chmod(&open, Mode::RWXU | Mode::XOTH).unwrap();
        let error = listen(&open.join("keeper.sock")).unwrap_err();
        assert!(matches!(error, Error::Folder { .. }), "{error}");
        assert!(error.to_string().contains("0701"), "{error}");
    }

    #[test]
    fn a_folder_is_made_for_its_user_alone_and_a_socket_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cairn/keeper.sock");
        let listener = listen(&path).unwrap();
        let socket = rustix::fs::stat(&path).unwrap();
        assert_eq!(socket.st_mode & 0o777, 0o600);
        let made = rustix::fs::stat(path.parent().unwrap()).unwrap();
        assert_eq!(made.st_mode & 0o777, 0o700);
        assert!(matches!(listen(&path), Err(Error::Taken { .. })));
        assert!(connect(&path).is_ok());
        drop(listener);
        assert!(matches!(connect(&path), Err(Error::NoKeeper { .. })));
        listen(&path).unwrap();
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        rustix::fs::chmod(folder.path(), Mode::RWXU).unwrap();
        let path = folder.path().join("file");
        let flags = OFlags::CREATE | OFlags::WRONLY;
        drop(rustix::fs::open(&path, flags, Mode::RWXU).unwrap());
        assert!(listen(&path).is_err());
        assert!(rustix::fs::stat(&path).is_ok());
    }

    #[test]
    fn somebody_else_is_refused() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(check_user(&ours, own_user()).is_ok());
        let error = check_user(&ours, own_user() + 1).unwrap_err();
        assert!(matches!(error, Error::Stranger { .. }), "{error}");
    }
}
