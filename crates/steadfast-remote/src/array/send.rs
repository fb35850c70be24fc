//! Sends a record to all members in one round: header and shard in one write each, without copying
//! the caller's data.

use std::borrow::Cow;

use super::record::RecordHeader;
use super::seal::{Log, OpenSegment};
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome, checksum, crc32c};
use crate::client::Ask;

impl<F: Fleet> Array<F> {
    /// Data shards and their parity; `buffers` provides memory for the parity.
    pub(crate) fn with_parity<'a>(
        &self,
        data: Vec<&'a [u8]>,
        buffers: &'a mut Vec<Vec<u8>>,
    ) -> Result<Vec<&'a [u8]>, ArrayError> {
        let parity = self.code.encode(&data, buffers);
        let parity = parity.ok_or_else(|| ArrayError::Invalid("no parity".to_owned()))?;
        Ok(data.into_iter().chain(parity).collect())
    }

    /// Makes a record of `blocks`, whose `bytes` are contiguous, and sends it to every member. The
    /// record is valid once `k` of the good members have it; members that lack it are lost. With
    /// `durable`, it is written durably if the servers can do that. Everything that was answered
    /// before is then flushed in the same round.
    pub(crate) fn send(
        &self,
        log: &mut Log,
        open: OpenSegment,
        blocks: &[u32],
        bytes: Cow<'_, [u8]>,
        durable: bool,
    ) -> Result<RecordHeader, ArrayError> {
        let shape = &self.shape;
        let rows = blocks.len().div_ceil(shape.data);
        // Data shards that have blocks.
        let filled = blocks.len().div_ceil(rows);
        let entries: Vec<(u32, u32)> = blocks
            .iter()
            .zip(bytes.chunks_exact(BLOCK))
            .map(|(block, bytes)| (*block, crc32c(bytes)))
            .collect();
        let mut bytes = bytes;
        if bytes.len() < shape.data * rows * BLOCK {
            bytes.to_mut().resize(shape.data * rows * BLOCK, 0);
        }
        let data: Vec<&[u8]> = bytes.chunks_exact(rows * BLOCK).collect();
        // Returned after the record is sent.
        let mut buffers = std::mem::take(&mut log.parity);
        let shards = self.with_parity(data, &mut buffers)?;
        let checksums = self.sums(&entries, rows, &shards);
        let (seats, fua, uuid, session) = {
            let members = self.members.read();
            let superblock = &members.superblock;
            (members.writable_seats(), members.fua.clone(), superblock.uuid, superblock.stamp)
        };
        let header = RecordHeader {
            uuid,
            session,
            generation: open.generation,
            sequence: log.next,
            durable: log.durable,
            slot: open.slot,
            offset: open.offset,
            rows: rows as u32,
            shards: checksums,
            entries,
        };
        log.next += 1;
        let head = header.encode(shape);
        let pieces: Vec<Vec<&[u8]>> = seats
            .iter()
            .map(|(member, _)| {
                let shard = shape.shard_of(*member, header.sequence);
                match shards.get(shard) {
                    Some(bytes) if shard < filled || shard >= shape.data => vec![&head[..], bytes],
                    _ => vec![&head[..]],
                }
            })
            .collect();
        let offset = shape.slot_start(open.slot) + u64::from(open.offset);
        let durably = |seat: usize| durable && fua.get(seat).copied().unwrap_or(false);
        let mut calls: Vec<Call<'_>> = seats
            .iter()
            .zip(&pieces)
            .map(|((_, seat), pieces)| Call::new(*seat, offset, Ask::Write(pieces, durably(*seat))))
            .collect();
        let all_durable = seats.iter().all(|(_, seat)| durably(*seat));
        // Everything sent earlier has been answered, so a flush in parallel with this record covers
        // it.
        let flushes = durable && log.unflushed && all_durable;
        if flushes {
            calls.extend(seats.iter().map(|(_, seat)| Call::new(*seat, 0, Ask::Flush)));
            // Not repeated, but with the time of two tries: see `flush_servers`.
            self.fleet.round(&mut calls, 2 * self.options.patience_ms);
            let (writes, _) = calls.split_at_mut(seats.len());
            self.again(writes, |outcome| outcome == Outcome::Lost);
        } else if all_durable {
            self.insist(&mut calls);
        } else {
            self.insist_unflushed(log, &mut calls);
        }
        let failed = |calls: &[Call<'_>]| -> Vec<usize> {
            seats
                .iter()
                .zip(calls)
                .filter(|(_, call)| call.outcome != Outcome::Done)
                .map(|((member, _), _)| *member)
                .collect()
        };
        let (writes, rest) = calls.split_at(seats.len());
        let mut lost = failed(writes);
        if flushes {
            lost.extend(failed(rest));
            lost.extend(self.forgetful(&seats));
            lost.sort_unstable();
            lost.dedup();
        }
        drop(calls);
        log.parity = buffers;
        self.lose_after_write(&lost)?;
        log.unflushed &= !flushes;
        Ok(header)
    }

    /// The checksums of shards, computed from those of the blocks if possible, so that each byte is
    /// summed once.
    fn sums(&self, entries: &[(u32, u32)], rows: usize, shards: &[&[u8]]) -> Vec<u32> {
        let data = self.shape.data;
        let zero = checksum::zeros(1);
        let mut sums: Vec<u32> = (0..data)
            .map(|shard| {
                let own = entries.iter().skip(shard * rows).take(rows).map(|(_, crc)| *crc);
                checksum::joined(own.chain(std::iter::repeat(zero)).take(rows))
            })
            .collect();
        match (data, self.shape.parity) {
            // The shards are copies of each other.
            (1, copies) => sums.resize(1 + copies, sums[0]),
            (_, 1) => sums.push(checksum::added(&sums, rows)),
            _ => sums.extend(shards.iter().skip(data).map(|shard| crc32c(shard))),
        }
        // Shards without blocks are not written.
        let filled = entries.len().div_ceil(rows);
        sums.iter_mut().take(data).skip(filled).for_each(|sum| *sum = 0);
        sums
    }
}
