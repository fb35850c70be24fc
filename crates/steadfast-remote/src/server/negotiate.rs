//! Answers options until transmission begins.

use std::io;
use std::sync::Arc;

use super::invalid;
use super::stream::{Accepted, Next, Wire};
use crate::export::{Catalogue, Export, Refusal};
use crate::protocol::{
    BASE_ALLOCATION, ClientFlags, InfoRequest, MetaContextRequest, OPTION_BYTES_MAX, OptionHeader,
    OptionKind, REQUEST_BYTES_MAX, option_reply, wire,
};

/// Most options in one negotiation; a client needs five.
const OPTIONS_MAX: usize = 256;
/// Identifier of `base:allocation` in replies.
pub(super) const ALLOCATION_CONTEXT: u32 = 1;

/// TLS state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    /// TLS is not offered.
    Plain,
    /// TLS must begin first.
    TlsRequired,
    /// TLS is in use.
    Tls,
}

/// Result of a negotiation.
pub(super) struct NegotiatedExport {
    pub(super) export: Arc<dyn Export>,
    pub(super) structured: bool,
    pub(super) allocation: bool,
}

/// How a negotiation ends.
pub(super) enum Negotiated {
    Transmit(NegotiatedExport),
    StartTls,
    Over,
}

/// Transmission flags of an export.
fn flags_of(export: &dyn Export) -> u16 {
    let common = wire::TRANSMIT_HAS_FLAGS
        | wire::TRANSMIT_SEND_FLUSH
        | wire::TRANSMIT_SEND_FUA
        | wire::TRANSMIT_SEND_DF
        | wire::TRANSMIT_SEND_CACHE
        | wire::TRANSMIT_CAN_MULTI_CONN;
    match export.read_only() {
        true => common | wire::TRANSMIT_READ_ONLY,
        false => common | wire::TRANSMIT_SEND_TRIM | wire::TRANSMIT_SEND_WRITE_ZEROES,
    }
}

/// Answers options until transmission begins, TLS begins, or the client disconnects.
pub(super) fn negotiate<S: Accepted>(
    wire: &mut Wire<'_, S>,
    catalogue: &dyn Catalogue,
    client: ClientFlags,
    security: Security,
) -> io::Result<Negotiated> {
    let mut structured = false;
    // The export name for which `base:allocation` was negotiated.
    let mut allocation: Option<String> = None;
    for _ in 0..OPTIONS_MAX {
        let mut header = [0; OptionHeader::BYTES];
        if wire.read(&mut header, true)? == Next::Over {
            return Ok(Negotiated::Over);
        }
        let OptionHeader { kind, length } = OptionHeader::parse(&header).map_err(invalid)?;
        if length > OPTION_BYTES_MAX {
            if kind == OptionKind::ExportName || length > 16 * OPTION_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an option is too long"));
            }
            wire.skip(length.into())?;
            wire.put(&option_reply(kind, wire::REP_ERR_TOO_BIG, b"the option is too long"))?;
            continue;
        }
        let mut payload = vec![0; length as usize];
        wire.read_exact(&mut payload)?;
        let mut refuse =
            |reply: u32, text: &str| wire.put(&option_reply(kind, reply, text.as_bytes()));
        let before_tls = matches!(kind, OptionKind::StartTls | OptionKind::Abort);
        if security == Security::TlsRequired && !before_tls {
            if kind == OptionKind::ExportName {
                return Ok(Negotiated::Over);
            }
            refuse(wire::REP_ERR_TLS_REQD, "this server wants TLS")?;
            continue;
        }
        match kind {
            OptionKind::Abort => {
                wire.put(&option_reply(kind, wire::REP_ACK, &[]))?;
                // The client may have closed without waiting for the reply.
                let _ = wire.flush();
                return Ok(Negotiated::Over);
            }
            OptionKind::StartTls if !payload.is_empty() => {
                refuse(wire::REP_ERR_INVALID, "STARTTLS has no data")?;
            }
            OptionKind::StartTls => match security {
                Security::Plain => refuse(wire::REP_ERR_POLICY, "this server has no TLS")?,
                Security::Tls => refuse(wire::REP_ERR_INVALID, "TLS has begun already")?,
                Security::TlsRequired => {
                    wire.put(&option_reply(kind, wire::REP_ACK, &[]))?;
                    return Ok(Negotiated::StartTls);
                }
            },
            OptionKind::StructuredReply if payload.is_empty() => {
                structured = true;
                wire.put(&option_reply(kind, wire::REP_ACK, &[]))?;
            }
            OptionKind::List if payload.is_empty() => {
                for name in catalogue.names() {
                    let mut entry = (name.len() as u32).to_be_bytes().to_vec();
                    entry.extend_from_slice(name.as_bytes());
                    wire.put(&option_reply(kind, wire::REP_SERVER, &entry))?;
                }
                wire.put(&option_reply(kind, wire::REP_ACK, &[]))?;
            }
            OptionKind::List | OptionKind::StructuredReply => {
                refuse(wire::REP_ERR_INVALID, "this option has no data")?;
            }
            OptionKind::Info | OptionKind::Go => {
                let Ok(request) = InfoRequest::parse(&payload) else {
                    refuse(wire::REP_ERR_INVALID, "the option is malformed")?;
                    continue;
                };
                let export = match catalogue.open(request.name) {
                    Ok(export) => export,
                    Err(refusal) => {
                        let (reply, text) = refused(refusal);
                        refuse(reply, text)?;
                        continue;
                    }
                };
                // A client that does not ask for the block size would not respect it.
                if export.block_min() > 512 && !request.block_size {
                    const BLOCK_SIZE_REQUIRED: u32 = (1 << 31) | 8;
                    refuse(BLOCK_SIZE_REQUIRED, "ask for the block size and keep to it")?;
                    continue;
                }
                describe(wire, kind, &*export, &request)?;
                wire.put(&option_reply(kind, wire::REP_ACK, &[]))?;
                if kind == OptionKind::Go {
                    let allocation = structured && allocation.as_deref() == Some(request.name);
                    return Ok(Negotiated::Transmit(NegotiatedExport {
                        export,
                        structured,
                        allocation,
                    }));
                }
            }
            OptionKind::ListMetaContext | OptionKind::SetMetaContext => {
                let set = kind == OptionKind::SetMetaContext;
                if set {
                    allocation = None;
                }
                match MetaContextRequest::parse(&payload) {
                    Err(_) => refuse(wire::REP_ERR_INVALID, "the option is malformed")?,
                    Ok(_) if !structured => {
                        refuse(wire::REP_ERR_INVALID, "ask for structured replies first")?;
                    }
                    Ok(request) => {
                        if request.allocation || (!set && request.empty) {
                            let mut context = ALLOCATION_CONTEXT.to_be_bytes().to_vec();
                            context.extend_from_slice(BASE_ALLOCATION.as_bytes());
                            wire.put(&option_reply(kind, wire::REP_META_CONTEXT, &context))?;
                            if set {
                                allocation = Some(request.name.to_owned());
                            }
                        }
                        wire.put(&option_reply(kind, wire::REP_ACK, &[]))?;
                    }
                }
            }
            OptionKind::ExportName => {
                let Some(export) =
                    std::str::from_utf8(&payload).ok().and_then(|name| catalogue.open(name).ok())
                else {
                    // EXPORT_NAME has no error reply, so the connection is closed.
                    return Ok(Negotiated::Over);
                };
                let mut reply = export.size().to_be_bytes().to_vec();
                reply.extend_from_slice(&flags_of(&*export).to_be_bytes());
                if !client.no_zeroes {
                    reply.resize(reply.len() + 124, 0);
                }
                wire.put(&reply)?;
                let name = std::str::from_utf8(&payload).ok();
                let allocation =
                    structured && allocation.is_some() && allocation.as_deref() == name;
                return Ok(Negotiated::Transmit(NegotiatedExport {
                    export,
                    structured,
                    allocation,
                }));
            }
            OptionKind::Unknown(_) => refuse(wire::REP_ERR_UNSUP, "unknown option")?,
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "too many options"))
}

fn refused(refusal: Refusal) -> (u32, &'static str) {
    match refusal {
        Refusal::Unknown => (wire::REP_ERR_UNKNOWN, "there is no such export"),
        Refusal::Policy => (wire::REP_ERR_POLICY, "no more exports for now"),
        Refusal::Fenced => (wire::REP_ERR_POLICY, "another client has taken over"),
    }
}

fn describe<S: Accepted>(
    wire: &mut Wire<'_, S>,
    kind: OptionKind,
    export: &dyn Export,
    request: &InfoRequest<'_>,
) -> io::Result<()> {
    let mut info = wire::INFO_EXPORT.to_be_bytes().to_vec();
    info.extend_from_slice(&export.size().to_be_bytes());
    info.extend_from_slice(&flags_of(export).to_be_bytes());
    wire.put(&option_reply(kind, wire::REP_INFO, &info))?;
    if request.canonical_name {
        let mut name = wire::INFO_NAME.to_be_bytes().to_vec();
        name.extend_from_slice(request.name.as_bytes());
        wire.put(&option_reply(kind, wire::REP_INFO, &name))?;
    }
    let mut sizes = wire::INFO_BLOCK_SIZE.to_be_bytes().to_vec();
    for size in [export.block_min(), export.block_min().max(4096), REQUEST_BYTES_MAX] {
        sizes.extend_from_slice(&size.to_be_bytes());
    }
    wire.put(&option_reply(kind, wire::REP_INFO, &sizes))
}
