//! Connection setup, from a socket to the transmission phase.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::buffered::BufferedStream;
use super::error::LinkError;
use super::stream::{ClientTls, Transport};
use crate::protocol::{
    ClientFlags, ExportInfo, InfoRequest, OptionKind, OptionReplyHeader, REQUEST_BYTES_MAX,
    ServerGreeting, option_request, wire,
};

/// Most replies to one option: a server needs only a few.
const REPLIES_MAX: usize = 64;

/// Address of a server, and the export to use.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Host and port, such as `127.0.0.1:10809`.
    pub address: String,
    /// Name of the export; empty for the default one.
    pub export: String,
    /// TLS settings; with them TLS begins before any other option is sent.
    pub tls: Option<ClientTls>,
}

impl Endpoint {
    /// The host without its port.
    fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        host.trim_matches(['[', ']'])
    }
}

/// A connection that is ready for requests.
pub(super) struct Ready {
    pub(super) stream: BufferedStream,
    pub(super) info: ExportInfo,
    pub(super) structured: bool,
}

fn dial(endpoint: &Endpoint, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in endpoint.address.to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects and negotiates within `patience`.
pub(super) fn connect(endpoint: &Endpoint, patience: Duration) -> Result<Ready, LinkError> {
    let deadline = Instant::now() + patience;
    let socket = dial(endpoint, deadline)?;
    socket.set_nodelay(true)?;
    negotiate(Box::new(socket), endpoint, deadline)
}

/// Negotiates over a connected transport until `deadline`.
pub(super) fn negotiate(
    transport: Box<dyn Transport>,
    endpoint: &Endpoint,
    deadline: Instant,
) -> Result<Ready, LinkError> {
    let mut stream = BufferedStream::new(transport);
    stream.set_patience(deadline.saturating_duration_since(Instant::now()))?;
    let mut greeting = [0; ServerGreeting::BYTES];
    stream.read_exact(&mut greeting)?;
    let greeting = ServerGreeting::parse(&greeting)?;
    let no_zeroes = greeting.flags & wire::FLAG_NO_ZEROES != 0;
    stream.write_all(&ClientFlags { no_zeroes }.encode())?;
    if let Some(tls) = &endpoint.tls {
        let (ack, _) = ask(&mut stream, OptionKind::StartTls, &[], deadline)?;
        if !ack {
            return Err(LinkError::NoTls);
        }
        stream.start_tls(tls, endpoint.host())?;
    }
    let (structured, _) = ask(&mut stream, OptionKind::StructuredReply, &[], deadline)?;
    let request = InfoRequest { name: &endpoint.export, block_size: true, canonical_name: false };
    let (ack, info) = ask(&mut stream, OptionKind::Go, &request.encode(), deadline)?;
    if !ack {
        return Err(LinkError::NoExport);
    }
    if info.flags & wire::TRANSMIT_HAS_FLAGS == 0 {
        return Err(LinkError::Protocol(crate::protocol::ProtocolError::Unexpected));
    }
    Ok(Ready { stream, info, structured })
}

/// Sends an option and reads its replies. Returns whether it was granted, and the announced export
/// information.
fn ask(
    stream: &mut BufferedStream,
    kind: OptionKind,
    payload: &[u8],
    deadline: Instant,
) -> Result<(bool, ExportInfo), LinkError> {
    stream.write_all(&option_request(kind, payload))?;
    stream.flush()?;
    let mut info =
        ExportInfo { block_min: 1, payload_max: REQUEST_BYTES_MAX, ..ExportInfo::default() };
    for _ in 0..REPLIES_MAX {
        if Instant::now() > deadline {
            return Err(LinkError::Io(io::ErrorKind::TimedOut.into()));
        }
        let mut header = [0; OptionReplyHeader::BYTES];
        stream.read_exact(&mut header)?;
        let header = OptionReplyHeader::parse(&header)?;
        let mut payload = vec![0; header.length as usize];
        stream.read_exact(&mut payload)?;
        if header.option != kind.number() {
            return Err(LinkError::Protocol(crate::protocol::ProtocolError::Unexpected));
        }
        if header.is_error() {
            return Ok((false, info));
        }
        match header.reply {
            wire::REP_ACK => return Ok((true, info)),
            wire::REP_INFO => info.learn(&payload)?,
            _ => {}
        }
    }
    Err(LinkError::Protocol(crate::protocol::ProtocolError::Unexpected))
}
