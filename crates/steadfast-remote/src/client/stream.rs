//! The stream of a connection: plain or TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::server::{TlsError, TlsFiles};

/// TLS settings of a client.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// Authorities, and a certificate in case the server requests one.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that the server's certificate must have; by default the host name.
    pub server_name: Option<String>,
}

/// Makes the TLS configuration of a client. Authorities are required; certificate and key are
/// needed only if servers request them.
///
/// # Errors
/// [`TlsError`], one line each.
pub fn client_config(files: &TlsFiles) -> Result<Arc<rustls::ClientConfig>, TlsError> {
    use crate::server::{tls_authorities, tls_identity, tls_provider};
    let path = files.authorities.as_deref().ok_or(TlsError::Missing("list of authorities"))?;
    let builder = rustls::ClientConfig::builder_with_provider(tls_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(error.to_string()))?
        .with_root_certificates(tls_authorities(path)?);
    let config = match files.certificate {
        None => builder.with_no_client_auth(),
        Some(_) => {
            let (chain, key) = tls_identity(files)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::Unusable(error.to_string()))?
        }
    };
    Ok(Arc::new(config))
}

/// The transport of a connection: a socket, or the bytes of a test.
pub trait Transport: Read + Write + Send {
    /// Sets the time limit of reads and writes; after it they fail with `WouldBlock` or `TimedOut`.
    ///
    /// # Errors
    /// The error of the operating system.
    fn set_patience(&self, patience: Duration) -> io::Result<()>;

    /// Whether the peer is known to have closed the connection. Does not wait.
    fn has_ended(&self) -> bool {
        false
    }
}

impl Transport for TcpStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }

    fn has_ended(&self) -> bool {
        let looked = self.set_nonblocking(true).and_then(|()| self.peek(&mut [0]));
        let blocks = self.set_nonblocking(false);
        let open = match looked {
            // Unrequested bytes: a TLS session ticket.
            Ok(bytes) => bytes > 0,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        !open || blocks.is_err()
    }
}

/// Plain or TLS.
pub(super) enum MaybeTlsStream {
    Plain(Box<dyn Transport>),
    Tls(Box<StreamOwned<ClientConnection, Box<dyn Transport>>>),
    /// Placeholder during the switch to TLS.
    Gone,
}

impl MaybeTlsStream {
    pub(super) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        match self {
            MaybeTlsStream::Plain(transport) => transport.set_patience(patience),
            MaybeTlsStream::Tls(stream) => stream.sock.set_patience(patience),
            MaybeTlsStream::Gone => Err(gone()),
        }
    }

    /// As [`Transport::has_ended`].
    pub(super) fn has_ended(&self) -> bool {
        match self {
            MaybeTlsStream::Plain(transport) => transport.has_ended(),
            MaybeTlsStream::Tls(stream) => stream.sock.has_ended(),
            MaybeTlsStream::Gone => true,
        }
    }

    /// Switches to TLS.
    pub(super) fn start_tls(&mut self, tls: &ClientTls, host: &str) -> io::Result<()> {
        let name = tls.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let session =
            ClientConnection::new(Arc::clone(&tls.config), name).map_err(io::Error::other)?;
        match std::mem::replace(self, MaybeTlsStream::Gone) {
            MaybeTlsStream::Plain(transport) => {
                *self = MaybeTlsStream::Tls(Box::new(StreamOwned::new(session, transport)));
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl Read for MaybeTlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            MaybeTlsStream::Plain(stream) => stream.read(buffer),
            MaybeTlsStream::Tls(stream) => stream.read(buffer),
            MaybeTlsStream::Gone => Err(gone()),
        }
    }
}

impl Write for MaybeTlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            MaybeTlsStream::Plain(stream) => stream.write(bytes),
            MaybeTlsStream::Tls(stream) => stream.write(bytes),
            MaybeTlsStream::Gone => Err(gone()),
        }
    }

    fn write_vectored(&mut self, bytes: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            MaybeTlsStream::Plain(stream) => stream.write_vectored(bytes),
            MaybeTlsStream::Tls(stream) => stream.write_vectored(bytes),
            MaybeTlsStream::Gone => Err(gone()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            MaybeTlsStream::Plain(stream) => stream.flush(),
            MaybeTlsStream::Tls(stream) => stream.flush(),
            MaybeTlsStream::Gone => Err(gone()),
        }
    }
}
