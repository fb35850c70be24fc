//! Whose turn it is to hear the kernel.
//!
//! A worker that waits for the medium hears nobody meanwhile, and a device that could work on
//! sixteen reads at once is given as many as there are workers. If there were more that all listen,
//! each would be asleep for longer and wake up on a processor that has forgotten it: two clients
//! creating files got 8,500 instead of 13,500 a second with eight. So as many as the mount was
//! asked for listen, and the others stand by until a worker is [about to
//! wait](Turns::about_to_wait) and nobody listens.
//!
//! Invariant: while nobody listens, every worker that does not stand by is busy, and none has said
//! since that it is about to wait; so where all wait, one listens as long as there is one more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Workers that listen at most.
    most: usize,
    listening: AtomicUsize,
    /// Whether the mount has ended. Who stands by decides so under this lock, so that no call is
    /// missed.
    over: Mutex<bool>,
    call: Condvar,
}

impl Turns {
    pub(crate) fn new(most: usize) -> Turns {
        Turns {
            most,
            listening: AtomicUsize::new(0),
            over: Mutex::new(false),
            call: Condvar::new(),
        }
    }

    /// Stands by until the caller may listen; `false`: the mount has ended.
    pub(crate) fn listen(&self) -> bool {
        if self.try_listen() {
            return true;
        }
        let mut over = self.over();
        loop {
            if *over {
                return false;
            }
            if self.try_listen() {
                return true;
            }
            over = self.call.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn try_listen(&self) -> bool {
        let one_more = |count| (count < self.most).then_some(count + 1);
        self.listening.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// The caller, who listened, has heard something.
    pub(crate) fn heard(&self) {
        self.listening.fetch_sub(1, Ordering::SeqCst);
    }

    /// The caller will hear nobody for a while: where nobody else listens, one who stands by does
    /// from now on.
    pub(crate) fn about_to_wait(&self) {
        if self.listening.load(Ordering::SeqCst) == 0 {
            // With the lock, so that whoever has just found no place to listen waits for this call
            // already.
            let over = self.over();
            self.call.notify_one();
            drop(over);
        }
    }

    /// There is nothing to be heard any more.
    pub(crate) fn end(&self) {
        *self.over() = true;
        self.call.notify_all();
    }

    fn over(&self) -> MutexGuard<'_, bool> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Workers that say that they listen, and do what they are told by whoever takes the way back.
    fn worker(
        turns: &Arc<Turns>,
        say: &mpsc::Sender<mpsc::Sender<bool>>,
    ) -> thread::JoinHandle<()> {
        let (turns, say) = (turns.clone(), say.clone());
        thread::spawn(move || {
            while turns.listen() {
                let (tell, told) = mpsc::channel();
                if say.send(tell).is_err() {
                    return;
                }
                // Heard; `true` is a request that waits for the medium, an end of the channel its
                // end.
                let waits = told.recv().unwrap_or(false);
                turns.heard();
                if waits {
                    turns.about_to_wait();
                    let _ = told.recv();
                }
            }
        })
    }

    #[test]
    fn those_who_stand_by_listen_where_all_others_wait() {
        let turns = Arc::new(Turns::new(2));
        let (say, said) = mpsc::channel();
        let workers: Vec<_> = (0..5).map(|_| worker(&turns, &say)).collect();
        let mut waiting = Vec::new();
        let first = [said.recv_timeout(LONG).unwrap(), said.recv_timeout(LONG).unwrap()];
        assert!(said.recv_timeout(Duration::from_millis(50)).is_err(), "no more than two listen");
        let [one, two] = first;
        one.send(true).unwrap();
        waiting.push(one);
        assert!(said.recv_timeout(Duration::from_millis(50)).is_err(), "one listens still");
        // From now on nobody does, but for the one who is sent.
        two.send(true).unwrap();
        waiting.push(two);
        for _ in 0..3 {
            let next = said.recv_timeout(LONG).expect("one who stood by listens");
            next.send(true).unwrap();
            waiting.push(next);
        }
        // All five wait. When they are done two listen again.
        drop(waiting);
        let back = [said.recv_timeout(LONG).unwrap(), said.recv_timeout(LONG).unwrap()];
        assert!(said.recv_timeout(Duration::from_millis(50)).is_err());
        turns.end();
        // Who listens hears of the end from the kernel; who stands by is told.
        drop(said);
        drop(back);
        for worker in workers {
            worker.join().unwrap();
        }
    }
}
