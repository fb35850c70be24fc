//! Decides which workers listen for requests of the kernel.
//!
//! A worker that waits for the medium does not listen. So a device that could process sixteen reads
//! at once gets only as many as there are workers. But if more workers listened, each would sleep
//! longer and wake up on a processor with cold caches. With eight workers two clients created 8,500
//! files a second instead of 13,500. So only the requested number of workers listens. The others
//! stand by until a worker is [about to wait](Listeners::about_to_wait) and no worker listens.
//!
//! Invariant: while no worker listens, every worker that does not stand by is busy. Since then none
//! has announced that it is about to wait. So if all of them wait, one worker listens as long as
//! one is left.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// Largest number of workers that listen.
    most: usize,
    listening: AtomicUsize,
    /// Whether the mount has ended. Workers decide to stand by under this lock, so that they miss
    /// no call.
    over: Mutex<bool>,
    call: Condvar,
}

impl Listeners {
    pub(crate) fn new(most: usize) -> Listeners {
        Listeners {
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

    /// The caller listened and has received a request.
    pub(crate) fn heard(&self) {
        self.listening.fetch_sub(1, Ordering::SeqCst);
    }

    /// The caller will not listen for a while. If no other worker listens, wakes one that stands
    /// by.
    pub(crate) fn about_to_wait(&self) {
        if self.listening.load(Ordering::SeqCst) == 0 {
            // Under the lock: a worker that has just found no place to listen then already waits
            // for this call.
            let over = self.over();
            self.call.notify_one();
            drop(over);
        }
    }

    /// The mount has ended: wakes all workers.
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

    /// Workers that report when they listen. The test sends each its next step on the channel that
    /// the report contains.
    fn worker(
        listeners: &Arc<Listeners>,
        say: &mpsc::Sender<mpsc::Sender<bool>>,
    ) -> thread::JoinHandle<()> {
        let (listeners, say) = (listeners.clone(), say.clone());
        thread::spawn(move || {
            while listeners.listen() {
                let (tell, told) = mpsc::channel();
                if say.send(tell).is_err() {
                    return;
                }
                // A request has arrived. `true`: it waits for the medium. The end of the channel
                // ends the wait.
                let waits = told.recv().unwrap_or(false);
                listeners.heard();
                if waits {
                    listeners.about_to_wait();
                    let _ = told.recv();
                }
            }
        })
    }

    #[test]
    fn those_who_stand_by_listen_where_all_others_wait() {
        let listeners = Arc::new(Listeners::new(2));
        let (say, said) = mpsc::channel();
        let workers: Vec<_> = (0..5).map(|_| worker(&listeners, &say)).collect();
        let mut waiting = Vec::new();
        let first = [said.recv_timeout(LONG).unwrap(), said.recv_timeout(LONG).unwrap()];
        assert!(said.recv_timeout(Duration::from_millis(50)).is_err(), "no more than two listen");
        let [one, two] = first;
        one.send(true).unwrap();
        waiting.push(one);
        assert!(said.recv_timeout(Duration::from_millis(50)).is_err(), "one listens still");
        // From now on no worker listens, except the one that is woken.
        two.send(true).unwrap();
        waiting.push(two);
        for _ in 0..3 {
            let next = said.recv_timeout(LONG).expect("a listener that stood by is told");
            next.send(true).unwrap();
            waiting.push(next);
        }
        // All five wait. When they are done, two listen again.
        drop(waiting);
        let back = [said.recv_timeout(LONG).unwrap(), said.recv_timeout(LONG).unwrap()];
        assert!(said.recv_timeout(Duration::from_millis(50)).is_err());
        listeners.end();
        // The kernel tells listening workers of the end; the others must be told.
        drop(said);
        drop(back);
        for worker in workers {
            worker.join().unwrap();
        }
    }
}
