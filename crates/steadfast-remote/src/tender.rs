//! The tender is a thread that trims obsolete segments of an open array and rebuilds lost members.
//! A member is rebuilt on its own server if that answers, or else on a spare. Spares are those of
//! the address, or servers of etcd's list.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::array::{Array, Progress, Rebuild, State};
use crate::client::TcpFleet;
use crate::etcd::Session;
use crate::live::LiveRebuild;

/// Interval between two rounds.
const INTERVAL: Duration = Duration::from_millis(500);
/// Tries of one rebuild step in a row: a server that the step reads from may be slow for a while.
const TRIES: u32 = 20;

/// State shared by the tender and its owner.
#[derive(Default)]
pub(crate) struct TenderState {
    stop: Mutex<bool>,
    wake: Condvar,
    rebuild: Mutex<Option<LiveRebuild>>,
    /// Servers to be released: no member is rebuilt on them.
    avoided: Mutex<Vec<usize>>,
}

impl TenderState {
    /// Stops the tender.
    pub(crate) fn stop(&self) {
        *self.stop.lock() = true;
        self.wake.notify_all();
    }

    /// Keeps members off a server.
    pub(crate) fn avoid(&self, seat: usize) {
        self.avoided.lock().push(seat);
    }

    /// The rebuild in progress.
    pub(crate) fn rebuild(&self) -> Option<LiveRebuild> {
        *self.rebuild.lock()
    }

    /// Waits for this time. Returns whether the tender must stop.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.wake.wait_for(&mut stop, time);
        }
        *stop
    }
}

/// Begins to rebuild a lost member with etcd's help. With `own`, the member's server is tried at
/// its present address. With `another`, a different server with room comes next.
fn begin_listed(
    array: &Array<TcpFleet>,
    session: &Session,
    (member, seat): (usize, usize),
    own: bool,
    another: bool,
) -> Option<Rebuild> {
    let begin = |address: Option<String>| {
        // The server of a lost member holds no valid data, so its seat can take another server.
        array.fleet().move_to(seat, &address?);
        array.begin_rebuild(member, seat).ok()
    };
    let found = if own { begin(session.whereabouts(member).ok()?) } else { None };
    if found.is_none() && another { begin(session.replace(member).ok()?) } else { found }
}

/// Tends the array until it is told to stop. Rebuilds write at most `rate` bytes a second. A spare
/// is used only after `spare_after`.
pub(crate) fn tend(
    array: &Array<TcpFleet>,
    shared: &TenderState,
    rate: u64,
    spare_after: Duration,
    session: Option<&Session>,
) {
    let mut since: Vec<Option<Instant>> = Vec::new();
    while !shared.rest(INTERVAL) {
        // While etcd is away, the tender does not wait for it.
        if array.awaits_witness() && session.is_none_or(|session| session.whereabouts(0).is_ok()) {
            let _ = array.resume();
        }
        // An error here means that the array has failed; then every request reports it.
        let _ = array.tidy();
        let lost = array.lost();
        since.resize(array.status().members.len().max(since.len()), None);
        for (member, since) in since.iter_mut().enumerate() {
            match lost.contains(&member) {
                true => drop(since.get_or_insert_with(Instant::now)),
                false => *since = None,
            }
        }
        for member in lost {
            let status = array.status();
            if status.failed {
                break;
            }
            let Some((_, own)) = status.members.get(member).copied() else { continue };
            let patient = since
                .get(member)
                .copied()
                .flatten()
                .is_some_and(|since| since.elapsed() < spare_after);
            let avoided = shared.avoided.lock().clone();
            let given_back = avoided.contains(&own);
            let another = given_back || !patient;
            let begun = match session {
                Some(session) => begin_listed(array, session, (member, own), !given_back, another),
                None => {
                    let mut places: Vec<usize> = Vec::new();
                    if !given_back {
                        places.push(own);
                    }
                    if another {
                        places.extend(
                            array.spares().into_iter().filter(|spare| !avoided.contains(spare)),
                        );
                    }
                    places.into_iter().find_map(|place| array.begin_rebuild(member, place).ok())
                }
            };
            let Some(mut rebuild) = begun else { continue };
            if session.is_some() {
                // The seat belongs to another server now.
                shared.avoided.lock().retain(|seat| *seat != own);
            }
            let over = carry_out(array, shared, member, &mut rebuild, rate, session);
            *shared.rebuild.lock() = None;
            if over {
                return;
            }
        }
    }
}

/// Runs one rebuild as far as possible. Returns whether the tender must stop.
fn carry_out(
    array: &Array<TcpFleet>,
    shared: &TenderState,
    member: usize,
    rebuild: &mut Rebuild,
    rate: u64,
    session: Option<&Session>,
) -> bool {
    let begun = Instant::now();
    let mut before = 0;
    let mut failed = 0;
    loop {
        let (done, segments) = match array.rebuild_step(rebuild) {
            Ok(Progress::Going(done, segments)) => (done, segments),
            Ok(Progress::Done) => return false,
            Err(_) => {
                let status = array.status();
                let goes_on = status
                    .members
                    .get(member)
                    .is_some_and(|(state, _)| *state == State::Rebuilding);
                failed += 1;
                if status.failed || !goes_on || failed == TRIES {
                    return false;
                }
                if shared.rest(INTERVAL) {
                    return true;
                }
                continue;
            }
        };
        failed = 0;
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
        let so_far = u128::from(rebuild.bytes) * 1_000_000 / u128::from(micros);
        *shared.rebuild.lock() = Some(LiveRebuild {
            member,
            done,
            segments,
            bytes: rebuild.bytes,
            rate: u64::try_from(so_far).unwrap_or(u64::MAX),
        });
        let given = rebuild.bytes - before;
        before = rebuild.bytes;
        let pause = Duration::from_micros(given.saturating_mul(1_000_000) / rate.max(1));
        if given > 0 && shared.rest(pause) || shared.rest(Duration::ZERO) {
            return true;
        }
        // The last step begins an epoch. It waits here for etcd, because inside the step all
        // requests would wait too.
        while done == segments
            && session.is_some_and(|session| session.whereabouts(member).is_err())
        {
            if shared.rest(INTERVAL) {
                return true;
            }
        }
    }
}
