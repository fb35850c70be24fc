//! The threads that answer a READ with what the owner's plan tells ([`super::direct`]).
//!
//! Invariant: each plan ends once. The thread that reads it ends it, or the one that waits for too
//! long and asks the owner for the data.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::Builder;
use std::time::Instant;

use super::direct::{Planned, Plans};
use super::switch::Switch;
use crate::io_flusher::set_io_flusher;

/// Reads that are under way at once.
const THREADS: usize = 4;

/// Starts the threads that read, and the one that waits for them. They end with the switch.
pub(super) fn start(switch: &Arc<Switch>, Plans { plans, ends }: Plans) -> io::Result<()> {
    if !switch.direct.has_medium() {
        return Ok(());
    }
    let plans = Arc::new(Mutex::new(plans));
    for number in 0..THREADS {
        let (switch, plans) = (Arc::downgrade(switch), Arc::clone(&plans));
        let run = move || read_all(&switch, &plans);
        Builder::new().name(format!("direct-{number}")).spawn(run)?;
    }
    let switch = Arc::downgrade(switch);
    let wait = move || wait_for_ends(&switch, &ends);
    Builder::new().name("direct-ends".into()).spawn(wait).map(drop)
}

fn read_all(switch: &Weak<Switch>, plans: &Mutex<Receiver<Planned>>) {
    set_io_flusher();
    loop {
        let planned = plans.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let (Ok(planned), Some(switch)) = (planned, switch.upgrade()) else { return };
        read(&switch, planned);
    }
}

/// Answers a READ with what the plan tells, or asks the owner for the data.
fn read(switch: &Switch, Planned { mut answer, lost }: Planned) {
    let number = answer.number;
    // A medium that did not answer for a while leaves old plans behind.
    let Some(is_wanted) = switch.direct.is_wanted(number) else { return };
    let found = is_wanted.then(|| switch.direct.read(&answer.bytes)).flatten();
    let Some(under_way) = switch.direct.end(number).filter(|under_way| under_way.lost == lost)
    else {
        return;
    };
    match found {
        Some(_) if under_way.is_late() => {
            switch.direct.note_late();
            switch.channel.ask_for_data(number, lost);
        }
        Some(found) => {
            switch.direct.note_found(&found);
            answer.bytes = found.bytes;
            switch.answered(answer, lost);
        }
        None => switch.channel.ask_for_data(number, lost),
    }
}

fn wait_for_ends(switch: &Weak<Switch>, ends: &Receiver<(u64, Instant)>) {
    for (number, end) in ends {
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        let Some(switch) = switch.upgrade() else { return };
        if let Some(under_way) = switch.direct.end(number) {
            if !under_way.one_too_many {
                switch.direct.note_late();
            }
            switch.channel.ask_for_data(number, under_way.lost);
        }
    }
}
