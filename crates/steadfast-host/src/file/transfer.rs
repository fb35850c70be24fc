//! Moves bytes between memory and a file descriptor: positional, vectored, completely or with an
//! error.
//!
//! The position of the descriptor is never used, so any number of threads can transfer at the same
//! time.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};

use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2, pwritev2};

use super::bounce::{self, Pool};

/// Largest number of buffers in one system call (the kernel's IOV_MAX).
const BUFFERS_MAX: usize = 1024;

/// Alignment requirements of direct I/O.
pub(super) struct Direct {
    /// Alignment of memory addresses.
    pub(super) memory_alignment: usize,
    /// Alignment of offsets and lengths.
    pub(super) length_alignment: usize,
    /// Buffers for callers with unaligned memory.
    pub(super) pool: Pool,
}

impl Direct {
    fn takes(&self, buffer: &[u8]) -> bool {
        buffer.as_ptr().addr().is_multiple_of(self.memory_alignment)
            && buffer.len().is_multiple_of(self.length_alignment)
    }
}

/// Fills `buffers` from `offset`. The end of the file is an error (EIO), because the medium was
/// longer when it was opened.
pub(super) fn read(
    file: &File,
    direct: Option<&Direct>,
    offset: u64,
    buffers: &mut [&mut [u8]],
) -> Result<(), Errno> {
    match direct {
        Some(direct) if !buffers.iter().all(|buffer| direct.takes(buffer)) => {
            direct.pool.with(|bounce| read_bounced(file, bounce, offset, buffers))
        }
        _ => read_straight(file, offset, buffers),
    }
}

/// Writes `buffers` at `offset`.
pub(super) fn write(
    file: &File,
    direct: Option<&Direct>,
    offset: u64,
    buffers: &[&[u8]],
    flags: ReadWriteFlags,
) -> Result<(), Errno> {
    match direct {
        Some(direct) if !buffers.iter().all(|buffer| direct.takes(buffer)) => {
            direct.pool.with(|bounce| write_bounced(file, bounce, offset, buffers, flags))
        }
        _ => write_straight(file, offset, buffers, flags),
    }
}

/// Fills `buffer` from the page cache if the cache holds all of it. `false` if it does not, or if
/// the host cannot tell.
pub(super) fn read_cached(file: &File, offset: u64, buffer: &mut [u8]) -> bool {
    let length = buffer.len();
    preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) == Ok(length)
}

fn read_straight(file: &File, mut offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), Errno> {
    if let [buffer] = buffers {
        // The usual case, without a heap allocation.
        return read_slices(file, &mut offset, &mut [IoSliceMut::new(buffer)]);
    }
    for buffers in buffers.chunks_mut(BUFFERS_MAX) {
        let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        read_slices(file, &mut offset, &mut slices)?;
    }
    Ok(())
}

fn read_slices(
    file: &File,
    offset: &mut u64,
    mut slices: &mut [IoSliceMut<'_>],
) -> Result<(), Errno> {
    // Skip leading empty slices, which would look like the end of the file.
    IoSliceMut::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match preadv(file, slices, *offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                *offset += count as u64;
                IoSliceMut::advance_slices(&mut slices, count);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn write_straight(
    file: &File,
    mut offset: u64,
    buffers: &[&[u8]],
    flags: ReadWriteFlags,
) -> Result<(), Errno> {
    if let [buffer] = buffers {
        return write_slices(file, &mut offset, &mut [IoSlice::new(buffer)], flags);
    }
    for buffers in buffers.chunks(BUFFERS_MAX) {
        let mut slices: Vec<_> = buffers.iter().map(|buffer| IoSlice::new(buffer)).collect();
        write_slices(file, &mut offset, &mut slices, flags)?;
    }
    Ok(())
}

fn write_slices(
    file: &File,
    offset: &mut u64,
    mut slices: &mut [IoSlice<'_>],
    flags: ReadWriteFlags,
) -> Result<(), Errno> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match pwritev2(file, slices, *offset, flags) {
            // The device accepts no bytes and reports no reason.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                *offset += count as u64;
                IoSlice::advance_slices(&mut slices, count);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn read_bounced(
    file: &File,
    bounce: &mut [u8],
    mut offset: u64,
    buffers: &mut [&mut [u8]],
) -> Result<(), Errno> {
    let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let mut targets = buffers.iter_mut();
    let mut target: &mut [u8] = &mut [];
    let mut done = 0;
    while done < total {
        let length = (total - done).min(bounce::LENGTH);
        let mut piece = &mut bounce[..length];
        read_slices(file, &mut offset, &mut [IoSliceMut::new(piece)])?;
        done += length;
        while !piece.is_empty() {
            if target.is_empty() {
                // The lengths add up to `total`, so another target exists.
                target = targets.next().ok_or(Errno::IO)?;
            }
            let count = piece.len().min(target.len());
            let (front, rest) = core::mem::take(&mut target).split_at_mut(count);
            let (from, left) = piece.split_at_mut(count);
            front.copy_from_slice(from);
            (target, piece) = (rest, left);
        }
    }
    Ok(())
}

fn write_bounced(
    file: &File,
    bounce: &mut [u8],
    mut offset: u64,
    buffers: &[&[u8]],
    flags: ReadWriteFlags,
) -> Result<(), Errno> {
    let mut filled = 0;
    for buffer in buffers {
        let mut rest = *buffer;
        while !rest.is_empty() {
            let count = rest.len().min(bounce.len() - filled);
            bounce[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
            rest = &rest[count..];
            if filled == bounce.len() {
                write_slices(file, &mut offset, &mut [IoSlice::new(bounce)], flags)?;
                filled = 0;
            }
        }
    }
    write_slices(file, &mut offset, &mut [IoSlice::new(&bounce[..filled])], flags)
}
