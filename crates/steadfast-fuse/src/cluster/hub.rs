//! [`Hub`]: the owner's sessions with the peers.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::executions::{Executions, Inherited};
use super::guest::Guest;
use super::hello::{Hello, Purpose, Welcome};
use super::link::{Authority, Link};
use super::session::{PeerNode, PeerSession, SESSION_TIME};
use crate::init::Agreement;
use crate::log::{log_info, log_warning};

/// Most peers of one volume.
const SESSIONS_MAX: usize = 64;
/// Time between two looks for peers that have been away for too long. As often the others learn how
/// far the volume is, if they have not asked for anything.
const LOOK: Duration = Duration::from_millis(250);

/// Makes the file system of a peer's kernel.
pub(super) type Make = Box<dyn Fn(Agreement) -> Arc<dyn Guest> + Send + Sync>;

/// The kernels of nodes that were served by the owner before, by [`Hello::node`]. They have their
/// open files and locks. Beside each is what is known of its requests.
pub(super) type Returning = HashMap<u64, (Arc<dyn Guest>, Inherited)>;

struct Sessions {
    by_id: HashMap<u64, Arc<PeerSession>>,
    /// Those whose nodes have not come yet.
    returning: Returning,
    over: bool,
}

struct HubState {
    epoch: u64,
    since: Instant,
    authority: Authority,
    make: Make,
    executions: Arc<Executions>,
    sessions: Mutex<Sessions>,
    wake: Condvar,
}

/// See the module. Dropping it ends all sessions, but gives back nothing of what they have: the
/// process serves no kernel after that, and ends soon.
pub struct Hub {
    shared: Arc<HubState>,
    reaper: Option<JoinHandle<()>>,
}

/// Serves connections of peers. Cheap to clone.
#[derive(Clone)]
pub struct Door(Arc<HubState>);

impl Hub {
    pub(super) fn start(
        (epoch, returning): (u64, Returning),
        authority: Authority,
        make: Make,
    ) -> io::Result<Hub> {
        // Another owner may come before the nodes have the answers.
        let executed =
            returning.iter().flat_map(|(node, (_, inherited))| inherited.executed(*node));
        let executions = Arc::new(Executions::inherited(executed));
        let sessions = Mutex::new(Sessions { by_id: HashMap::new(), returning, over: false });
        let (since, wake) = (Instant::now(), Condvar::new());
        let shared =
            Arc::new(HubState { epoch, since, authority, make, executions, sessions, wake });
        let reaps = Arc::clone(&shared);
        let reaper = Builder::new().name("peers".into()).spawn(move || reaps.reap())?;
        Ok(Hub { shared, reaper: Some(reaper) })
    }

    /// Where new connections go.
    pub fn door(&self) -> Door {
        Door(Arc::clone(&self.shared))
    }

    /// The names of the nodes that are connected.
    pub fn peers(&self) -> Vec<String> {
        let sessions = self.shared.sessions();
        sessions.by_id.values().map(|session| session.name().to_owned()).collect()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shared.sessions().over = true;
        self.shared.wake.notify_all();
        if let Some(reaper) = self.reaper.take() {
            let _ = reaper.join();
        }
        // What nodes have is not given back: they bring it to the next owner. No other node must get
        // a lock of theirs now, nor background work free a removed file that they have open.
        let ended = std::mem::take(&mut self.shared.sessions().by_id);
        // At once: one that takes nothing must not make the others wait.
        std::thread::scope(|scope| {
            for session in ended.values() {
                if Builder::new().spawn_scoped(scope, || session.part()).is_err() {
                    session.part();
                }
            }
        });
    }
}

impl Door {
    /// Takes a connection over, which is served until it breaks.
    ///
    /// # Errors
    /// What the other side has sent is not of a node of this version.
    pub fn serve(&self, mut link: Link) -> io::Result<()> {
        let Some(hello) = Hello::read(&mut *link.reader)? else {
            Welcome::OtherVersion.write(0, &mut *link.writer)?;
            return Err(io::Error::other("a node of another version was refused"));
        };
        let session = match self.0.session(&hello) {
            Ok(session) => session,
            Err(verdict) => return verdict.write(0, &mut *link.writer),
        };
        Welcome::served(session.reached()).write(session.tag(), &mut *link.writer)?;
        session.connect(link);
        Ok(())
    }
}

impl HubState {
    /// The session of a peer, old or new.
    fn session(&self, hello: &Hello) -> Result<Arc<PeerSession>, Welcome> {
        let mut sessions = self.sessions();
        if sessions.over || hello.epoch != self.epoch {
            return Err(Welcome::OtherTerm);
        }
        if let Some(session) = sessions.by_id.get(&hello.session) {
            // The peer takes the welcome for a sign that the session goes on.
            session.is_back();
            return Ok(Arc::clone(session));
        }
        let goes_on = hello.purpose == Purpose::GoOn;
        let begins = goes_on || hello.purpose == Purpose::Begin;
        if !begins || sessions.by_id.len() >= SESSIONS_MAX {
            return Err(Welcome::Gone);
        }
        let returned = if goes_on { sessions.returning.remove(&hello.node) } else { None };
        let (guest, inherited) = match returned {
            Some((guest, inherited)) => (guest, Some(inherited)),
            None => ((self.make)(Agreement::of_peer(hello.minor, hello.flags)), None),
        };
        let node = PeerNode { name: hello.name.clone(), id: hello.node, inherited };
        let (authority, executions) = (Arc::clone(&self.authority), Arc::clone(&self.executions));
        let session = PeerSession::start(node, guest, authority, executions);
        let session = session.map_err(|error| {
            log_warning!("no threads for node {}: {error}", hello.name);
            Welcome::Gone
        })?;
        log_info!("node {} uses the volume", hello.name);
        sessions.by_id.insert(hello.session, Arc::clone(&session));
        Ok(session)
    }

    /// Ends the sessions of peers that have been away for too long, until the hub ends.
    fn reap(&self) {
        let mut sessions = self.sessions();
        while !sessions.over {
            let gone: Vec<u64> = sessions
                .by_id
                .iter()
                .filter(|(_, session)| session.is_abandoned())
                .map(|(id, _)| *id)
                .collect();
            let gone: Vec<_> = gone.iter().filter_map(|id| sessions.by_id.remove(id)).collect();
            let lost = match self.since.elapsed() >= SESSION_TIME {
                true => std::mem::take(&mut sessions.returning),
                false => HashMap::new(),
            };
            if !gone.is_empty() || !lost.is_empty() {
                drop(sessions);
                if !lost.is_empty() {
                    log_info!("{} nodes of the owner before have not come back", lost.len());
                    for (node, (guest, inherited)) in lost {
                        guest.depart();
                        self.executions.forget(node, inherited.numbers());
                    }
                }
                for session in gone {
                    log_info!("node {} is gone; its files and locks are released", session.name());
                    session.end();
                }
                sessions = self.sessions();
                continue;
            }
            let present: Vec<_> = sessions.by_id.values().map(Arc::clone).collect();
            drop(sessions);
            for session in present {
                session.tell_progress();
            }
            sessions = self.sessions();
            if sessions.over {
                return;
            }
            let waited = self.wake.wait_timeout(sessions, LOOK);
            sessions = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
