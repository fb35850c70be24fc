//! Connections between the nodes of a shared volume: TCP, or TLS over it.
//!
//! One thread reads and others write at the same time, so a TLS connection is taken apart. The
//! state of the encryption is behind a lock. It is held only while bytes are encrypted or
//! decrypted, never while the socket is waited for. Two sides that both wait to write would
//! otherwise never read.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use steadfast_remote::client::client_config;
use steadfast_remote::server::{TlsError, TlsFiles, is_loopback, server_config};

/// Time limit for a connection and its handshake.
const PATIENCE: Duration = Duration::from_secs(2);
/// A side that takes nothing for this long counts as gone.
const SILENCE: Duration = Duration::from_secs(5);
/// Bytes that are read from the socket at once.
const BUFFER: usize = 64 << 10;

/// The two directions of a connection.
pub struct Duplex {
    /// Receives.
    pub reader: Box<dyn Read + Send>,
    /// Sends. Not buffered.
    pub writer: Box<dyn Write + Send>,
    /// Ends both directions at once.
    pub close: Arc<dyn Fn() + Send + Sync>,
}

/// Why a node cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Other machines could reach the address, and nothing protects the volume.
    #[error("{0} is reachable from other machines, and no certificates are given")]
    Open(SocketAddr),
    /// The other nodes cannot connect to "all addresses".
    #[error("{0} is no address of this machine")]
    Unspecified(SocketAddr),
    /// The server must know which nodes may connect.
    #[error("certificates need all of ca, cert and key")]
    Incomplete,
    /// A certificate or key is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operating system refuses the address.
    #[error("cannot listen on {0}: {1}")]
    System(SocketAddr, io::Error),
}

/// Whether certificates are given; all or none must be.
fn uses_tls(tls: &TlsFiles) -> Result<bool, ListenError> {
    let given = [&tls.certificate, &tls.key, &tls.authorities].map(Option::is_some);
    match given {
        [true, true, true] => Ok(true),
        [false, false, false] => Ok(false),
        _ => Err(ListenError::Incomplete),
    }
}

/// Accepts the connections of other nodes.
pub struct Listener {
    socket: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    address: SocketAddr,
}

impl Listener {
    /// Listens. With certificates, a node must show one of the same authority.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(address: SocketAddr, tls: &TlsFiles) -> Result<Listener, ListenError> {
        let config = if uses_tls(tls)? { Some(server_config(tls)?) } else { None };
        if address.ip().is_unspecified() {
            return Err(ListenError::Unspecified(address));
        }
        if config.is_none() && !is_loopback(&address) {
            return Err(ListenError::Open(address));
        }
        let fail = |error| ListenError::System(address, error);
        let socket = TcpListener::bind(address).map_err(fail)?;
        let address = socket.local_addr().map_err(fail)?;
        Ok(Listener { socket, tls: config, address })
    }

    /// The address, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a connection. Its handshake is not done yet, see [`Incoming::greet`].
    ///
    /// # Errors
    /// The listener is unusable.
    pub fn accept(&self) -> io::Result<Incoming> {
        loop {
            match self.socket.accept() {
                Ok((socket, from)) => return Ok(Incoming { socket, from, tls: self.tls.clone() }),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A new connection.
pub struct Incoming {
    socket: TcpStream,
    from: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Incoming {
    /// Where the connection is from.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// Does the handshake.
    ///
    /// # Errors
    /// The other side shows no certificate of the authority, is too slow, or has gone.
    pub fn greet(self) -> io::Result<Duplex> {
        prepare(&self.socket)?;
        match self.tls {
            None => plain(self.socket),
            Some(config) => {
                let session = ServerConnection::new(config).map_err(io::Error::other)?;
                encrypted(self.socket, session.into())
            }
        }
    }
}

/// Connects to an owner.
///
/// # Errors
/// There is none, or it shows no certificate of the authority.
pub fn connect(address: &str, tls: &TlsFiles) -> io::Result<Duplex> {
    let to: SocketAddr =
        address.parse().map_err(|_| io::Error::other(format!("'{address}' is no address")))?;
    let tls =
        if uses_tls(tls).map_err(io::Error::other)? { Some(client_config(tls)?) } else { None };
    if tls.is_none() && !is_loopback(&to) {
        return Err(io::Error::other(ListenError::Open(to)));
    }
    let socket = TcpStream::connect_timeout(&to, PATIENCE)?;
    prepare(&socket)?;
    match tls {
        None => plain(socket),
        Some(config) => {
            let name = ServerName::from(to.ip());
            let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
            encrypted(socket, session.into())
        }
    }
}

/// Small frames go at once, and a machine that is gone is noticed within seconds.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(SILENCE))?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(socket, 4)?;
    sockopt::set_tcp_user_timeout(socket, SILENCE.as_millis() as u32)?;
    Ok(())
}

fn closer(socket: &TcpStream) -> io::Result<Arc<dyn Fn() + Send + Sync>> {
    let socket = socket.try_clone()?;
    Ok(Arc::new(move || {
        // Fails only if it is closed already.
        let _ = socket.shutdown(Shutdown::Both);
    }))
}

fn plain(socket: TcpStream) -> io::Result<Duplex> {
    let close = closer(&socket)?;
    let reader = io::BufReader::with_capacity(BUFFER, socket.try_clone()?);
    Ok(Duplex { reader: Box::new(reader), writer: Box::new(socket), close })
}

fn encrypted(mut socket: TcpStream, mut session: Connection) -> io::Result<Duplex> {
    socket.set_read_timeout(Some(PATIENCE))?;
    while session.is_handshaking() || session.wants_write() {
        session.complete_io(&mut socket)?;
    }
    socket.set_read_timeout(None)?;
    let close = closer(&socket)?;
    let session = Arc::new(Mutex::new(session));
    let reader = TlsReader {
        socket: socket.try_clone()?,
        session: Arc::clone(&session),
        buffer: vec![0; BUFFER],
        unread: 0..0,
    };
    Ok(Duplex { reader: Box::new(reader), writer: Box::new(TlsWriter { socket, session }), close })
}

struct TlsReader {
    socket: TcpStream,
    session: Arc<Mutex<Connection>>,
    buffer: Vec<u8>,
    /// What was received and is not decrypted.
    unread: std::ops::Range<usize>,
}

impl Read for TlsReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            {
                let mut session = self.session.lock();
                match session.reader().read(out) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
                if !self.unread.is_empty() {
                    let mut bytes = &self.buffer[self.unread.clone()];
                    let before = bytes.len();
                    session.read_tls(&mut bytes)?;
                    self.unread.start += before - bytes.len();
                    let garbled = |error| io::Error::new(io::ErrorKind::InvalidData, error);
                    session.process_new_packets().map_err(garbled)?;
                    continue;
                }
            }
            let length = match self.socket.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if length == 0 {
                return Ok(0);
            }
            self.unread = 0..length;
        }
    }
}

struct TlsWriter {
    socket: TcpStream,
    session: Arc<Mutex<Connection>>,
}

impl Write for TlsWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut encrypted = Vec::new();
        let taken = {
            let mut session = self.session.lock();
            let taken = session.writer().write(bytes)?;
            while session.wants_write() {
                session.write_tls(&mut encrypted)?;
            }
            taken
        };
        self.socket.write_all(&encrypted)?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    #[test]
    fn both_sides_write_more_than_the_sockets_hold_before_they_read() {
        let listener = Listener::bind(loopback(), &TlsFiles::default()).unwrap();
        let address = listener.address().to_string();
        let side = |duplex: Duplex| {
            let Duplex { mut reader, mut writer, .. } = duplex;
            let sends = std::thread::spawn(move || {
                writer.write_all(&vec![7; 8 << 20]).unwrap();
                writer
            });
            let mut found = vec![0; 8 << 20];
            reader.read_exact(&mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == 7));
            drop(sends.join().unwrap());
        };
        let accepts = std::thread::spawn(move || side(listener.accept().unwrap().greet().unwrap()));
        side(connect(&address, &TlsFiles::default()).unwrap());
        accepts.join().unwrap();
    }

    #[test]
    fn addresses_that_protect_nothing_are_refused() {
        let none = TlsFiles::default();
        let said = |address: SocketAddr, tls: &TlsFiles| {
            Listener::bind(address, tls).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(said(([192, 0, 2, 1], 0).into(), &none).contains("no certificates are given"));
        assert!(said(([0, 0, 0, 0], 0).into(), &none).contains("no address of this machine"));
        let half = TlsFiles { key: Some("/key".into()), ..TlsFiles::default() };
        assert!(said(loopback(), &half).contains("all of ca, cert and key"));
        assert!(connect("192.0.2.1:7", &none).err().unwrap().to_string().contains("certificates"));
        assert!(connect("nonsense", &none).err().unwrap().to_string().contains("no address"));
    }

    #[test]
    fn a_closed_connection_ends_both_directions() {
        let listener = Listener::bind(loopback(), &TlsFiles::default()).unwrap();
        let mut here = connect(&listener.address().to_string(), &TlsFiles::default()).unwrap();
        let mut there = listener.accept().unwrap().greet().unwrap();
        (here.close)();
        assert_eq!(there.reader.read(&mut [0]).unwrap(), 0);
        assert_eq!(here.reader.read(&mut [0]).unwrap_or(0), 0);
    }
}
