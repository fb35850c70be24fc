//! HTTP/1.1 for one page, `GET /metrics`.
//!
//! Each client is limited: a request of at most 4 KiB, five seconds for all of it, and one answer.
//! At most [`CONNECTIONS_MAX`] clients are served at once; further connections are closed without
//! an answer. No client can affect the mount.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::address::Address;
use super::exposition::CONTENT_TYPE;
use crate::failure::{Exit, Failure, Outcome, text_os};

/// Maximum number of connections served at once.
const CONNECTIONS_MAX: usize = 8;
/// Longest request, bytes.
const REQUEST_MAX: usize = 4096;
/// Time limit for a whole connection.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// Pause after a failed accept; the usual cause is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Only the socket's owner and group may connect.
const SOCKET_MODE: u32 = 0o660;

/// Makes the page; `None` once there is nothing left to report.
pub type PageSource = dyn Fn() -> Option<String> + Send + Sync;

/// A socket that is bound, but not served yet.
pub struct Server {
    listener: Listener,
    /// The socket's file, which is removed together with this value.
    file: Option<SocketFile>,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Owns a socket's file. Removes it at the end, if it is still the same file.
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Server {
    /// Binds the address. A socket file without a listening process is replaced.
    ///
    /// # Errors
    /// The address is in use, the port is not permitted, or the path is not a socket.
    pub fn bind(address: &Address) -> Outcome<Server> {
        let cannot = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => Failure::new(
                Exit::Busy,
                "the metrics address is in use",
                address,
                "choose another one for -o metrics=",
            ),
            io::ErrorKind::PermissionDenied => Failure::new(
                Exit::NoPermission,
                "no permission to serve metrics there",
                address,
                "choose a directory that you may write, or a port above 1023",
            ),
            _ => Failure::new(
                Exit::Failed,
                format!("cannot serve metrics: {}", text_os(&error)),
                address,
                "choose another address for -o metrics=",
            ),
        };
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(cannot)?;
                Ok(Server { listener: Listener::Tcp(listener), file: None })
            }
            Address::Unix(path) => {
                remove_stale(path).map_err(cannot)?;
                let listener = UnixListener::bind(path).map_err(cannot)?;
                let inode = fs::symlink_metadata(path).map_err(cannot)?.ino();
                let file = SocketFile { path: path.clone(), inode };
                fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))
                    .map_err(cannot)?;
                Ok(Server { listener: Listener::Unix(listener), file: Some(file) })
            }
        }
    }

    /// Serves in a separate thread until the process ends. The caller must keep the returned value
    /// until then.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(self, source: Arc<PageSource>) -> io::Result<Option<SocketFile>> {
        let Server { listener, file } = self;
        let run = move || serve(&listener, &source);
        std::thread::Builder::new().name("metrics".into()).spawn(run)?;
        Ok(file)
    }
}

/// Removes a socket that no process listens on. Any other file stays, and makes binding fail.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    let stale = metadata.file_type().is_socket()
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if stale { fs::remove_file(path) } else { Ok(()) }
}

/// The operations that both kinds of connections share.
trait Connection: Read + Write + Send + 'static {
    fn limit(&self, time: Duration) -> io::Result<()>;
    fn end(&self);
}

macro_rules! connection {
    ($stream:ty) => {
        impl Connection for $stream {
            fn limit(&self, time: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(time))?;
                self.set_write_timeout(Some(time))
            }

            fn end(&self) {
                let _ = self.shutdown(Shutdown::Write);
            }
        }
    };
}

connection!(UnixStream);
connection!(TcpStream);

fn serve(listener: &Listener, source: &Arc<PageSource>) {
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted: io::Result<Box<dyn Connection>> = match listener {
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
        };
        let Ok(connection) = accepted else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        // Only this thread increments the counter.
        if busy.load(Ordering::Acquire) >= CONNECTIONS_MAX {
            continue;
        }
        busy.fetch_add(1, Ordering::AcqRel);
        let place = ConnectionSlot(busy.clone());
        let source = source.clone();
        // If the thread cannot be started, its closure is dropped: the connection is closed and the
        // place is free again.
        let _ = std::thread::Builder::new().name("metrics-client".into()).spawn(move || {
            let _place = place;
            answer(connection, &*source);
        });
    }
}

/// The place of one served connection.
struct ConnectionSlot(Arc<AtomicUsize>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn answer(mut connection: Box<dyn Connection>, source: &PageSource) {
    let deadline = Instant::now() + CONNECTION_TIME;
    let Ok(request) = receive(&mut *connection, deadline) else { return };
    let (status, page) = respond(&request, source);
    let head_only = request.starts_with(b"HEAD ");
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        page.len()
    )
    .into_bytes();
    if !head_only {
        bytes.extend_from_slice(page.as_bytes());
    }
    if send(&mut *connection, &bytes, deadline).is_ok() {
        connection.end();
        // Reads what the client may still send, so that closing does not cut off an answer that the
        // client has not read yet.
        let mut rest = [0; 1024];
        let taken = (0..64).take_while(|_| {
            step(&mut *connection, deadline, |c| c.read(&mut rest)).is_ok_and(|n| n > 0)
        });
        let _ = taken.count();
    }
}

/// Reads up to the empty line that ends a request without a body. Returns the part read so far if
/// the request is too long.
fn receive(connection: &mut dyn Connection, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !is_whole(&request) && request.len() <= REQUEST_MAX {
        let length = step(connection, deadline, |connection| connection.read(&mut buffer))?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&buffer[..length]);
    }
    Ok(request)
}

fn send(connection: &mut dyn Connection, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = step(connection, deadline, |connection| connection.write(rest))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        rest = &rest[written..];
    }
    Ok(())
}

/// One read or write within the remaining time.
fn step(
    connection: &mut dyn Connection,
    deadline: Instant,
    mut action: impl FnMut(&mut dyn Connection) -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.limit(left)?;
        match action(connection) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n")
}

/// Status line and body for a request.
fn respond(request: &[u8], source: &PageSource) -> (&'static str, String) {
    let plain = |status: &'static str, text: &str| (status, format!("{text}\n"));
    if !is_whole(request) {
        return plain("431 Request Header Fields Too Large", "the request is too long");
    }
    let line = request.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return plain("400 Bad Request", "this is not HTTP/1.1");
    };
    if !version.starts_with(b"HTTP/1.") {
        return plain("400 Bad Request", "this is not HTTP/1.1");
    }
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => match source() {
            Some(page) => ("200 OK", page),
            None => plain("503 Service Unavailable", "the volume is being unmounted"),
        },
        (b"GET" | b"HEAD", _) => plain("404 Not Found", "there is only /metrics"),
        _ => plain("405 Method Not Allowed", "only GET and HEAD"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &[u8]) -> &'static str {
        respond(request, &|| Some("page".into())).0
    }

    #[test]
    fn requests() {
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET /metrics?x=1 HTTP/1.0\n\n"), "200 OK");
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        for wrong in [
            &b"\r\n\r\n"[..],
            b"GET /metrics\r\n\r\n",
            b"GET /metrics HTTP/2\r\n\r\n",
            b"\xff\x00 x y z\n\n",
        ] {
            assert_eq!(status(wrong), "400 Bad Request");
        }
        assert!(status(&[b'x'; REQUEST_MAX + 1]).starts_with("431"));
        assert!(respond(b"GET /metrics HTTP/1.1\r\n\r\n", &|| None).0.starts_with("503"));
    }

    #[test]
    fn stale_sockets_are_replaced_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let address = Address::Unix(path.clone());
        let first = Server::bind(&address).unwrap();
        assert_eq!(Server::bind(&address).err().unwrap().exit, Exit::Busy);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        drop(Server::bind(&address).unwrap());
        fs::write(&path, "precious").unwrap();
        assert!(Server::bind(&address).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn slow_and_many_clients_do_not_keep_others_out_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let server = Server::bind(&Address::Unix(path.clone())).unwrap();
        let _file = server.start(Arc::new(|| Some("page".into()))).unwrap();
        let ask = || -> io::Result<String> {
            let mut stream = UnixStream::connect(&path)?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        assert!(ask().unwrap().ends_with("\r\n\r\npage"));
        // Each client sends half a request and then nothing.
        let silent: Vec<UnixStream> = (0..CONNECTIONS_MAX + 4)
            .map(|_| {
                let mut stream = UnixStream::connect(&path).unwrap();
                let _ = stream.write_all(b"GET /met");
                stream
            })
            .collect();
        // While they hold every place, further clients are turned away and do not wait.
        let _ = ask();
        drop(silent);
        let start = Instant::now();
        while !ask().is_ok_and(|text| text.ends_with("page")) {
            assert!(start.elapsed() < Duration::from_secs(20), "the places stay taken");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
