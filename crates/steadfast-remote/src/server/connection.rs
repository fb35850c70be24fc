//! The phases of a connection: greeting, negotiation, TLS in between, transmission.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::Limits;
use super::invalid;
use super::negotiate::{Negotiated, Security, negotiate};
use super::stream::{Accepted, Next, Timed, Wire};
use super::transmit::transmit;
use crate::export::Catalogue;
use crate::protocol::{ClientFlags, ServerGreeting};

/// Serves one client on `stream` until it disconnects, breaks the protocol, or `stop` is set while
/// it is idle.
///
/// With `tls` a client must begin TLS before any other option is answered.
///
/// # Errors
/// Errors of the stream; `InvalidData` for a violation of the protocol; `TimedOut` for a client
/// that is too slow.
pub fn serve_stream<S: Accepted>(
    stream: S,
    catalogue: &dyn Catalogue,
    tls: Option<Arc<rustls::ServerConfig>>,
    limits: &Limits,
    stop: &AtomicBool,
) -> io::Result<()> {
    let deadline = Some(Instant::now() + limits.negotiation_time);
    let mut wire = Wire::new(Timed::new(stream), stop, limits.stall_time)?;
    wire.set_deadline(deadline);
    wire.put(&ServerGreeting::encode())?;
    let mut flags = [0; 4];
    if wire.read(&mut flags, true)? == Next::Over {
        return Ok(());
    }
    let flags = ClientFlags::parse(flags).map_err(invalid)?;
    let security = if tls.is_some() { Security::TlsRequired } else { Security::Plain };
    match negotiate(&mut wire, catalogue, flags, security)? {
        Negotiated::Over => Ok(()),
        Negotiated::Transmit(session) => {
            wire.set_deadline(None);
            transmit(&mut wire, &session)
        }
        Negotiated::StartTls => {
            let Some(config) = tls else { return Err(io::ErrorKind::InvalidData.into()) };
            wire.flush()?;
            let stream = wire.into_stream().ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the client has sent something before TLS",
                )
            })?;
            let session = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
            let mut wire =
                Wire::new(rustls::StreamOwned::new(session, stream), stop, limits.stall_time)?;
            wire.set_deadline(deadline);
            match negotiate(&mut wire, catalogue, flags, Security::Tls)? {
                Negotiated::Transmit(session) => {
                    wire.set_deadline(None);
                    transmit(&mut wire, &session)
                }
                Negotiated::Over | Negotiated::StartTls => Ok(()),
            }
        }
    }
}
