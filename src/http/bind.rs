//! Taking a TCP port or the path of a Unix socket, or saying what is in the way.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener, UnixStream};

/// How long a process behind an old socket has to take a connection before it counts as alive but busy.
const PROBE_BOUND: Duration = Duration::from_secs(1);

/// Why a listener could not be made. Each names the address or the path, and says the fix.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A TCP address is not to be had.
    #[error("cannot listen on {address}; {fix}")]
    Address {
        /// Which.
        address: SocketAddr,
        /// What to do.
        fix: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The path is longer than the system takes.
    #[error("the socket path {} is too long for the system; choose a shorter lab.state_dir", path.display())]
    PathTooLong {
        /// Which.
        path: PathBuf,
    },
    /// Another process answers there.
    #[error("another process listens on {}; stop it, or choose another lab.state_dir", path.display())]
    InUse {
        /// Which.
        path: PathBuf,
    },
    /// Something that is no socket has the name.
    #[error("{} is there and is no socket; move it away", path.display())]
    NotASocket {
        /// Which.
        path: PathBuf,
    },
    /// Others may enter the directory, and could reach the socket before it is made private.
    #[error("others may enter {}; make it private with `chmod 700`", dir.display())]
    Exposed {
        /// Which.
        dir: PathBuf,
    },
    /// The system says no.
    #[error("cannot make the socket {}; check its directory", path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Takes a TCP address.
pub(super) async fn tcp(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| {
        let fix = match source.kind() {
            io::ErrorKind::AddrInUse => "another process listens there; stop it or change the key api",
            io::ErrorKind::AddrNotAvailable => "this machine has no such address; change the key api",
            io::ErrorKind::PermissionDenied => "it may not be used by this user; change the key api",
            _ => "change the key api",
        };
        BindError::Address { address, fix, source }
    })
}

/// The file of a socket; gone when this is dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone with its directory; the next start replaces one that stays behind.
        let _ = fs::remove_file(&self.0);
    }
}

/// Takes a path, 0600. Binding makes the file as wide as the umask allows, so its directory must be private.
pub(super) async fn unix(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    let failed = |source| BindError::Socket { path: path.to_owned(), source };
    if std::os::unix::net::SocketAddr::from_pathname(path).is_err() {
        return Err(BindError::PathTooLong { path: path.to_owned() });
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = fs::metadata(dir).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(BindError::Exposed { dir: dir.to_owned() });
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(file) if !file.file_type().is_socket() => return Err(BindError::NotASocket { path: path.to_owned() }),
        Ok(_) => {
            if answers(path).await {
                return Err(BindError::InUse { path: path.to_owned() });
            }
            fs::remove_file(path).map_err(failed)?;
        }
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let file = SocketFile(path.to_owned());
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok((listener, file))
}

/// True unless it is sure that nobody listens on the socket.
async fn answers(path: &Path) -> bool {
    match tokio::time::timeout(PROBE_BOUND, UnixStream::connect(path)).await {
        Ok(Err(error)) => !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
        Ok(Ok(_)) | Err(_) => true,
    }
}
