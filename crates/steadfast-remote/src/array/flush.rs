//! Flushes: accepted writes become durable in as few round trips as possible.
//!
//! The last record of a flush is written durably, together with a flush of everything that was
//! answered before. So a flush is one round trip, however much was written before it, if the
//! servers can write durably (FUA).

use parking_lot::MutexGuard;

use super::record::SegmentStream;
use super::seal::Log;
use super::{Array, ArrayError, Call, Fleet, Outcome};
use crate::client::Ask;

impl<F: Fleet> Array<F> {
    /// Makes all accepted writes durable.
    pub(crate) fn flush_all(&self) -> Result<(), ArrayError> {
        self.alive()?;
        if self.options.read_only {
            return Ok(());
        }
        let mut log = self.log.lock();
        self.flush_held(&mut log)?;
        self.tally.flushed();
        Ok(())
    }

    /// As [`flush_all`](Self::flush_all), with the log locked.
    pub(crate) fn flush_held(&self, log: &mut MutexGuard<'_, Log>) -> Result<(), ArrayError> {
        self.seal(log, SegmentStream::Fresh, true)?;
        self.flush_servers(log)?;
        self.alive()?;
        log.durable = log.next - 1;
        let marked = std::mem::take(&mut log.marked);
        log.free.extend(marked);
        Ok(())
    }

    /// Flushes sent records, if there are any.
    pub(crate) fn flush_servers(&self, log: &mut Log) -> Result<(), ArrayError> {
        if log.unflushed {
            let seats = self.members.read().writable_seats();
            let mut calls: Vec<Call<'_>> =
                seats.iter().map(|(_, seat)| Call::new(*seat, 0, Ask::Flush)).collect();
            // Not repeated: an answer on a new connection does not cover what went over the old
            // one.
            self.fleet.round(&mut calls, 2 * self.options.patience_ms);
            let mut lost = self.forgetful(&seats);
            lost.extend(
                seats
                    .iter()
                    .zip(&calls)
                    .filter(|(_, call)| call.outcome != Outcome::Done)
                    .map(|((member, _), _)| *member),
            );
            lost.sort_unstable();
            lost.dedup();
            self.lose(&lost)?;
            log.unflushed = false;
        }
        Ok(())
    }

    /// Members with a broken connection since data was sent that no flush covers. Such a server may
    /// have lost that data and still answer the flush. Checked after the answers, because a flush
    /// may be answered on a new connection.
    pub(crate) fn forgetful(&self, seats: &[(usize, usize)]) -> Vec<usize> {
        let before = self.members.read().breaks.clone();
        let broke =
            |seat: usize| before.get(seat).is_none_or(|count| self.fleet.breaks(seat) != *count);
        seats.iter().filter(|(_, seat)| broke(*seat)).map(|(member, _)| *member).collect()
    }
}
