//! [`Runs`]: writes to the homes of several members. Contiguous pieces share one request.

use super::seal::Log;
use super::{Array, Call, Fleet, Outcome};
use crate::client::Ask;

/// A contiguous piece of the homes of a member.
struct Run<'a> {
    member: usize,
    seat: usize,
    start: u64,
    end: u64,
    pieces: Vec<&'a [u8]>,
}

/// Pieces, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Runs<'a>(Vec<Run<'a>>);

impl<'a> Runs<'a> {
    /// Adds a piece for a member on this server, from this byte on.
    pub(crate) fn push(&mut self, (member, seat): (usize, usize), start: u64, piece: &'a [u8]) {
        let end = start + piece.len() as u64;
        match self.0.last_mut() {
            Some(last) if last.member == member && last.end == start => {
                last.pieces.push(piece);
                last.end = end;
            }
            _ => self.0.push(Run { member, seat, start, end, pieces: vec![piece] }),
        }
    }
}

impl<F: Fleet> Array<F> {
    /// Writes the pieces for the next flush to cover. Each is written once; with `again`, pieces
    /// without an answer are written once more. Returns the members that have not answered for all
    /// their pieces.
    pub(crate) fn write_runs<'a>(
        &self,
        log: &mut Log,
        runs: &'a Runs<'a>,
        patience_ms: u64,
        again: bool,
    ) -> Vec<usize> {
        let write =
            |run: &'a Run<'a>| Call::new(run.seat, run.start, Ask::Write(&run.pieces, false));
        let mut calls: Vec<Call<'a>> = runs.0.iter().map(write).collect();
        match again {
            true => self.insist_unflushed(log, &mut calls),
            false => self.once_unflushed(log, &mut calls, patience_ms),
        }
        let refused = runs.0.iter().zip(&calls).filter(|(_, call)| call.outcome != Outcome::Done);
        let mut refused: Vec<usize> = refused.map(|(run, _)| run.member).collect();
        refused.dedup();
        refused
    }
}
