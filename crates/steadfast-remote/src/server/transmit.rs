//! The transmission phase: requests in, answers out, in order.

use std::io;

use super::invalid;
use super::negotiate::{ALLOCATION_CONTEXT, NegotiatedExport};
use super::stream::{Accepted, Next, PIECE, Wire};
use crate::export::{Export, ExportError};
use crate::protocol::{
    AllocationExtent, ChunkHeader, ChunkKind, Command, REQUEST_BYTES_MAX, Request, SimpleReply,
    wire,
};

/// Most bytes moved at once: bounds the buffers and the time under the export's locks.
const STEP: usize = 256 << 10;
/// Most extents in one answer to BLOCK_STATUS.
const EXTENTS_MAX: usize = 512;
/// Holes shorter than this are sent as zeros.
const HOLE_MIN: u64 = 4096;

/// Answers requests until the client disconnects.
pub(super) fn transmit<S: Accepted>(
    wire: &mut Wire<'_, S>,
    session: &NegotiatedExport,
) -> io::Result<()> {
    let mut scratch = Vec::new();
    loop {
        let mut bytes = [0; Request::BYTES];
        if wire.next_request(&mut bytes)? == Next::Over {
            return wire.flush();
        }
        let request = Request::parse(&bytes).map_err(invalid)?;
        let answer = match request.command {
            Command::Disconnect => return wire.flush(),
            Command::Read => {
                read(wire, session, &request)?;
                continue;
            }
            Command::BlockStatus if session.allocation => {
                block_status(wire, session, &request)?;
                continue;
            }
            Command::Write => write(wire, session, &request, &mut scratch)?,
            _ => simple(&*session.export, &request),
        };
        match answer {
            Err(number) if session.structured && request.command == Command::BlockStatus => {
                error_chunk(wire, request.cookie, number)?;
            }
            answer => {
                let reply =
                    SimpleReply { error: answer.err().unwrap_or(0), cookie: request.cookie };
                wire.put(&reply.encode())?;
            }
        }
    }
}

/// Checks a request, except for its command.
fn admit(export: &dyn Export, request: &Request, flags: u16, outside: u32) -> Result<(), u32> {
    let mask = u64::from(export.block_min()) - 1;
    let length = u64::from(request.length);
    if request.flags.0 & !flags != 0 || length == 0 || (request.offset | length) & mask != 0 {
        return Err(wire::EINVAL);
    }
    match request.offset.checked_add(length) {
        Some(end) if end <= export.size() => Ok(()),
        _ => Err(outside),
    }
}

fn number(result: Result<(), ExportError>) -> Result<(), u32> {
    result.map_err(ExportError::number)
}

fn changes(export: &dyn Export) -> Result<(), u32> {
    if export.read_only() { Err(wire::EPERM) } else { Ok(()) }
}

/// Answers requests without a payload in either direction.
fn simple(export: &dyn Export, request: &Request) -> Result<(), u32> {
    let (offset, length) = (request.offset, u64::from(request.length));
    match request.command {
        Command::Flush if offset != 0 || length != 0 || request.flags.0 != 0 => Err(wire::EINVAL),
        Command::Flush => number(export.flush()),
        Command::Cache => admit(export, request, 0, wire::EINVAL),
        Command::Trim | Command::WriteZeroes => {
            changes(export)?;
            let zeroes = request.command == Command::WriteZeroes;
            let flags = if zeroes { wire::CMD_FLAG_NO_HOLE } else { 0 };
            admit(export, request, wire::CMD_FLAG_FUA | flags, wire::ENOSPC)?;
            number(match zeroes {
                true => {
                    export.write_zeroes(offset, length, request.flags.has(wire::CMD_FLAG_NO_HOLE))
                }
                false => export.trim(offset, length),
            })?;
            match request.flags.has(wire::CMD_FLAG_FUA) {
                true => number(export.flush()),
                false => Ok(()),
            }
        }
        _ => Err(wire::EINVAL),
    }
}

/// A write: all of its bytes are read, whatever the result, at most one step at a time.
fn write<S: Accepted>(
    wire: &mut Wire<'_, S>,
    session: &NegotiatedExport,
    request: &Request,
    scratch: &mut Vec<u8>,
) -> io::Result<Result<(), u32>> {
    if request.length > REQUEST_BYTES_MAX {
        // If this length is a mistake, the start of the next request is unknown.
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a write is too long"));
    }
    let export = &*session.export;
    // Unknown flags may mean another payload; it is read according to the length.
    let mut answer =
        changes(export).and_then(|()| admit(export, request, wire::CMD_FLAG_FUA, wire::ENOSPC));
    let length = request.length as usize;
    scratch.resize(scratch.len().max(length.min(STEP)), 0);
    // Whole blocks, so that each step is as aligned as the request.
    let block = export.block_min().max(1) as usize;
    let step = STEP - STEP % block;
    let mut at = 0;
    while at < length {
        let piece = &mut scratch[..(length - at).min(step)];
        wire.read_exact(piece)?;
        if answer.is_ok() {
            answer = number(export.write(request.offset + at as u64, piece));
        }
        at += piece.len();
    }
    if answer.is_ok() && request.flags.has(wire::CMD_FLAG_FUA) {
        answer = number(export.flush());
    }
    Ok(answer)
}

fn error_chunk<S: Accepted>(wire: &mut Wire<'_, S>, cookie: u64, number: u32) -> io::Result<()> {
    let header = ChunkHeader { done: true, kind: ChunkKind::Error, cookie, length: 6 };
    wire.put(&header.encode())?;
    wire.put(&number.to_be_bytes())?;
    wire.put(&0_u16.to_be_bytes())
}

fn read<S: Accepted>(
    wire: &mut Wire<'_, S>,
    session: &NegotiatedExport,
    request: &Request,
) -> io::Result<()> {
    let export = &*session.export;
    let flags = if session.structured { wire::CMD_FLAG_DF } else { 0 };
    let mut admitted = admit(export, request, flags, wire::EINVAL);
    if request.length > REQUEST_BYTES_MAX {
        admitted = Err(wire::EINVAL);
    }
    match (admitted, session.structured) {
        (Err(number), true) => error_chunk(wire, request.cookie, number),
        (Err(error), false) => wire.put(&SimpleReply { error, cookie: request.cookie }.encode()),
        (Ok(()), true) => read_in_chunks(wire, export, request),
        (Ok(()), false) => read_simple(wire, export, request),
    }
}

/// Sends the bytes of a read, step by step. After a failure the rest is zeros.
fn pour<S: Accepted>(
    wire: &mut Wire<'_, S>,
    export: &dyn Export,
    offset: u64,
    length: u64,
) -> io::Result<Result<(), ExportError>> {
    let block = export.block_min().max(1) as usize;
    let step = (STEP - STEP % block) as u64;
    let mut outcome = Ok(());
    let mut at = 0;
    while at < length {
        let piece = (length - at).min(step);
        let filled = wire.put_with(piece as usize, |buffer| match outcome {
            Ok(()) => export.read(offset + at, buffer),
            Err(error) => Err(error),
        })?;
        outcome = outcome.and(filled);
        at += piece;
    }
    Ok(outcome)
}

fn read_simple<S: Accepted>(
    wire: &mut Wire<'_, S>,
    export: &dyn Export,
    request: &Request,
) -> io::Result<()> {
    if wire.output_length() + SimpleReply::BYTES + (request.length as usize).min(STEP) > PIECE {
        wire.flush()?;
    }
    let start = wire.output_length();
    wire.put(&SimpleReply { error: 0, cookie: request.cookie }.encode())?;
    match pour(wire, export, request.offset, request.length.into())? {
        Ok(()) => Ok(()),
        Err(error) if request.length as usize <= STEP => {
            // Nothing of this reply has been sent yet.
            wire.truncate_output(start);
            wire.put(&SimpleReply { error: error.number(), cookie: request.cookie }.encode())
        }
        // The header has promised success and the bytes are missing. A simple reply cannot report
        // that, so the connection ends.
        Err(error) => Err(io::Error::other(error)),
    }
}

fn read_in_chunks<S: Accepted>(
    wire: &mut Wire<'_, S>,
    export: &dyn Export,
    request: &Request,
) -> io::Result<()> {
    let cookie = request.cookie;
    let whole = request.flags.has(wire::CMD_FLAG_DF);
    let length = u64::from(request.length);
    let mut at = 0;
    while at < length {
        let (offset, left) = (request.offset + at, length - at);
        let stretch = export.stretch(offset, left);
        let (share, hole) = match stretch.length.clamp(1, left) {
            share if whole || share < HOLE_MIN || share % HOLE_MIN != 0 => (left, false),
            share => (share, stretch.hole),
        };
        let done = at + share == length;
        if hole {
            wire.put(&ChunkHeader { done, kind: ChunkKind::Hole, cookie, length: 12 }.encode())?;
            wire.put(&offset.to_be_bytes())?;
            wire.put(&(share as u32).to_be_bytes())?;
        } else {
            // Only a chunk that is sent in one step can still drop its "done" flag.
            let sure = share as usize <= STEP;
            if wire.output_length() + 64 + (share as usize).min(STEP) > PIECE {
                wire.flush()?;
            }
            let start = wire.output_length();
            let header = ChunkHeader {
                done: done && sure,
                kind: ChunkKind::Data,
                cookie,
                length: share as u32 + 8,
            };
            wire.put(&header.encode())?;
            wire.put(&offset.to_be_bytes())?;
            match pour(wire, export, offset, share)? {
                Ok(()) if done && !sure => {
                    wire.put(
                        &ChunkHeader { done, kind: ChunkKind::None, cookie, length: 0 }.encode(),
                    )?;
                }
                Ok(()) => {}
                Err(error) => {
                    if sure {
                        wire.truncate_output(start);
                    }
                    return error_chunk(wire, cookie, error.number());
                }
            }
        }
        at += share;
    }
    Ok(())
}

fn block_status<S: Accepted>(
    wire: &mut Wire<'_, S>,
    session: &NegotiatedExport,
    request: &Request,
) -> io::Result<()> {
    let export = &*session.export;
    if let Err(number) = admit(export, request, wire::CMD_FLAG_REQ_ONE, wire::EINVAL) {
        return error_chunk(wire, request.cookie, number);
    }
    let count = if request.flags.has(wire::CMD_FLAG_REQ_ONE) { 1 } else { EXTENTS_MAX };
    let mut payload = ALLOCATION_CONTEXT.to_be_bytes().to_vec();
    let length = u64::from(request.length);
    let mut at = 0;
    for _ in 0..count {
        if at >= length {
            break;
        }
        let stretch = export.stretch(request.offset + at, length - at);
        let share = stretch.length.clamp(1, length - at);
        payload.extend_from_slice(
            &AllocationExtent { length: share as u32, hole: stretch.hole }.encode(),
        );
        at += share;
    }
    let header = ChunkHeader {
        done: true,
        kind: ChunkKind::BlockStatus,
        cookie: request.cookie,
        length: payload.len() as u32,
    };
    wire.put(&header.encode())?;
    wire.put(&payload)
}
