//! Becoming the owner and staying it: [`stand_by`] and [`Term`], with threads and etcd.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};
use steadfast_remote::etcd::store::{Store, StoreError};

use crate::cluster::Cluster;
use crate::election::{Candidate, Step};
use crate::record::{Node, OwnerRecord, Predecessor, Wish};
use crate::tenure::{Tenure, Verdict};
use crate::{BEAT, ClusterError, LOOK};

/// Seconds until the key of a dead node is deleted. It is only for display and for names; the owner
/// is known by its beat.
const NODE_LEASE_SECONDS: u64 = 10;
/// Time between two renewals of that key.
const NODE_RENEWAL: Duration = Duration::from_secs(NODE_LEASE_SECONDS / 3);
/// How long to wait for a name that a possibly dead process of this node still has.
const NAME_WAIT: Duration = Duration::from_secs(2 * NODE_LEASE_SECONDS);
/// How long a change of the record may take that the owner asks for.
const CHANGE_WAIT: Duration = Duration::from_secs(10);

/// Time since the start of the machine, sleep included: a machine that slept was silent.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What a process must do because of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Unmount, then [`Term::release`].
    HandOver,
    /// Stop at once: another node has the volume.
    Deposed(String),
    /// No beat was stored for the time of a lease, so another node may take over (`false`); or one
    /// was stored again (`true`).
    Sure(bool),
}

/// What a node that stands by learns; whether it goes on standing by.
pub type Watcher<'a> = &'a mut dyn FnMut(Result<&OwnerRecord, &ClusterError>) -> bool;

/// The key of a node in etcd.
struct Membership {
    lease: i64,
    renewed: Duration,
}

impl Membership {
    fn join(cluster: &Cluster, node: &Node) -> Result<Membership, ClusterError> {
        let lease = cluster.store().grant(NODE_LEASE_SECONDS)?;
        cluster.join(node, lease)?;
        Ok(Membership { lease, renewed: now() })
    }

    /// Renews the key when it is time. A failure is no harm: the next call tries again.
    fn tend(&mut self, cluster: &Cluster, node: &Node) {
        if now().saturating_sub(self.renewed) < NODE_RENEWAL {
            return;
        }
        match cluster.store().renew(self.lease) {
            Ok(true) => self.renewed = now(),
            Ok(false) => {
                if let Ok(membership) = Membership::join(cluster, node) {
                    *self = membership;
                }
            }
            Err(_) => {}
        }
    }
}

/// Stands by until this node is the owner. `watch` sees each look, and ends the wait with `false`;
/// then the result is `None`.
///
/// # Errors
/// `NoVolume`, `NameTaken`, `Garbled`; `Deposed` before the volume was opened. What etcd does not
/// answer is asked again, but not before the first answer.
pub fn stand_by(
    cluster: Cluster,
    node: &Node,
    watch: Watcher<'_>,
) -> Result<Option<Term>, ClusterError> {
    cluster.status()?;
    let Some(mut membership) = join(&cluster, node, watch)? else { return Ok(None) };
    let mut candidate = Candidate::new(node.clone());
    loop {
        membership.tend(&cluster, node);
        let sent = now();
        let record = match cluster.owner() {
            Ok(record) => record,
            Err(error @ ClusterError::Store(_)) => {
                candidate.saw_nothing();
                if !watch(Err(&error)) {
                    break;
                }
                std::thread::sleep(LOOK);
                continue;
            }
            Err(error) => return Err(error),
        };
        if !watch(Ok(&record.value)) {
            break;
        }
        match candidate.saw(sent, now(), &record) {
            Step::Wait => std::thread::sleep(LOOK),
            Step::Take(taken) => {
                let sent = now();
                match cluster.replace(record.revision, &taken) {
                    Ok(true) => return Term::start(cluster, node, &taken, membership, sent),
                    Ok(false) => {}
                    Err(_) => candidate.tried(taken.epoch, sent),
                }
            }
            Step::Own(own, sent) => return Term::start(cluster, node, &own, membership, sent),
            Step::End => {
                let owner = record.value.node.as_ref();
                let by = owner.map_or("an administrator".to_owned(), Node::to_string);
                return Err(ClusterError::Deposed(by, record.value.epoch));
            }
        }
    }
    let _ = cluster.store().revoke(membership.lease);
    Ok(None)
}

/// Joins, and waits for the key of an earlier process of this node that may be dead.
fn join(
    cluster: &Cluster,
    node: &Node,
    watch: Watcher<'_>,
) -> Result<Option<Membership>, ClusterError> {
    let begun = now();
    loop {
        match Membership::join(cluster, node) {
            Err(error @ (ClusterError::NameTaken(..) | ClusterError::Busy))
                if now().saturating_sub(begun) < NAME_WAIT =>
            {
                if !watch(Err(&error)) {
                    return Ok(None);
                }
                std::thread::sleep(LOOK);
            }
            joined => return joined.map(Some),
        }
    }
}

/// What the owner wants to change in its record.
type Change = Arc<dyn Fn(&mut OwnerRecord) + Send + Sync>;

struct State {
    tenure: Tenure,
    /// Goes into the next beat.
    change: Option<Change>,
    /// The change is stored.
    changed: bool,
    deposed: Option<String>,
    over: bool,
}

type EventCallback = Box<dyn Fn(Event) + Send>;

struct Shared {
    cluster: Cluster,
    node: Node,
    state: Mutex<State>,
    wake: Condvar,
    events: Mutex<Option<EventCallback>>,
}

/// Tells whether a term goes on. Cheap to clone.
#[derive(Clone)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// How long no other node can take over, if none can have. It changes with time alone.
    pub fn sure_for(&self) -> Option<Duration> {
        let state = self.0.state.lock();
        if state.deposed.is_some() || state.over {
            return None;
        }
        state.tenure.sure_for(now())
    }

    /// Whether the term has ended.
    pub fn is_over(&self) -> bool {
        let state = self.0.state.lock();
        state.deposed.is_some() || state.over
    }
}

/// What became of a beat.
enum Beat {
    Stored,
    /// Perhaps stored: the next look shows it.
    Lost,
    /// The term has ended.
    Over,
}

/// What a term has done so far.
#[derive(Default)]
struct SoFar {
    /// The lease has ended.
    unsure: bool,
    /// The wish for a handover was told.
    asked: bool,
    /// A beat that gives the volume up was sent.
    gave_up: bool,
}

/// The term of this process as the owner. A thread beats until the term is released, or another
/// node has the volume.
pub struct Term {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    unfenced: Vec<Node>,
    predecessor: Option<Predecessor>,
}

impl Term {
    fn start(
        cluster: Cluster,
        node: &Node,
        record: &OwnerRecord,
        membership: Membership,
        sent: Duration,
    ) -> Result<Option<Term>, ClusterError> {
        let tenure = Tenure::new(node.clone(), record.epoch, sent);
        let state = State { tenure, change: None, changed: false, deposed: None, over: false };
        let shared = Arc::new(Shared {
            cluster,
            node: node.clone(),
            state: Mutex::new(state),
            wake: Condvar::new(),
            events: Mutex::new(None),
        });
        let beating = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("beat".into())
            .spawn(move || beating.beat(membership))
            .map_err(|error| StoreError::Unreachable(format!("no thread: {error}")))?;
        let (unfenced, predecessor) = (record.unfenced.clone(), record.predecessor());
        Ok(Some(Term { shared, thread: Some(thread), unfenced, predecessor }))
    }

    /// The number of the term.
    pub fn epoch(&self) -> u64 {
        self.shared.state.lock().tenure.epoch()
    }

    /// Returns a handle that tells whether the term goes on. It outlives the term.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.shared))
    }

    /// Earlier owners that may still write. They must be fenced before anything of the volume is
    /// read.
    pub fn unfenced(&self) -> &[Node] {
        &self.unfenced
    }

    /// The earlier owners are fenced. Only now may this node read the volume: fencing may have
    /// taken so long that it is no longer the owner. At `address` it takes what the other nodes
    /// keep.
    ///
    /// # Errors
    /// `Deposed`; the beat does not reach etcd.
    pub fn fenced(&self, address: Option<String>) -> Result<(), ClusterError> {
        self.change(Arc::new(move |record| {
            record.unfenced.clear();
            record.address = address.clone();
        }))
    }

    /// The earlier owner of which nodes may have something.
    pub fn predecessor(&self) -> Option<Predecessor> {
        self.predecessor
    }

    /// This node is about to open the volume for all nodes. What they keep of earlier owners does
    /// not count from now on.
    ///
    /// # Errors
    /// As [`fenced`](Self::fenced).
    pub fn opening(&self) -> Result<(), ClusterError> {
        self.change(Arc::new(|record| {
            (record.opened, record.closed) = (Some(record.epoch), false);
        }))
    }

    /// How many processes take part beside those that had to be fenced, this one included. A node
    /// that has died counts for up to ten seconds.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn survivors(&self) -> Result<usize, ClusterError> {
        let nodes = self.shared.cluster.status()?.nodes;
        Ok(nodes.iter().filter(|node| !self.unfenced.contains(node)).count())
    }

    /// The volume is open: this node serves it from now on, to other nodes at `address`.
    ///
    /// # Errors
    /// As [`fenced`](Self::fenced).
    pub fn opened(&self, address: Option<String>) -> Result<(), ClusterError> {
        self.change(Arc::new(move |record| {
            (record.serves, record.address) = (true, address.clone());
        }))
    }

    /// Calls `act` for each event, from a thread of the term.
    pub fn on_event(&self, act: impl Fn(Event) + Send + 'static) {
        // The beat sets the state before it tells, so the end of a term is told here, there, or
        // twice.
        let mut events = self.shared.events.lock();
        if let Some(why) = self.shared.state.lock().deposed.clone() {
            act(Event::Deposed(why));
        }
        *events = Some(Box::new(act));
    }

    /// Gives the volume up, so that another node takes it at once. `fenced`: this process writes no
    /// more, because it has closed the volume or never opened it. `closed`: it has closed it, and
    /// with all changes (`true`), or has dropped those since the last transaction point. `None`: it ends
    /// as by a crash, and what nodes keep counts.
    ///
    /// # Errors
    /// `Deposed`; the change does not reach etcd, so the others wait until this node was silent.
    pub fn release(mut self, fenced: bool, closed: Option<bool>) -> Result<(), ClusterError> {
        let released = match fenced {
            true => self.change(Arc::new(move |record| {
                record.next = match record.wish.take() {
                    Some(Wish::HandOver(next)) if !next.is_empty() => Some(next),
                    _ => None,
                };
                (record.node, record.serves, record.address) = (None, false, None);
                match closed {
                    Some(true) => record.closed = true,
                    Some(false) => record.opened = None,
                    None => {}
                }
            })),
            false => Ok(()),
        };
        self.end();
        released
    }

    /// Gives the volume up without having opened it, so that another node takes it at once. What
    /// nodes keep of an earlier owner counts for that one.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn give_up(mut self) -> Result<(), ClusterError> {
        let predecessor = self.predecessor;
        let given_up = self.change(Arc::new(move |record| {
            (record.node, record.serves, record.address) = (None, false, None);
            record.opened = predecessor.map(|before| before.epoch);
            record.closed = predecessor.is_some_and(|before| before.closed);
        }));
        self.end();
        given_up
    }

    /// Puts a change into the next beat, and waits until that is stored.
    fn change(&self, change: Change) -> Result<(), ClusterError> {
        let mut state = self.shared.state.lock();
        (state.change, state.changed) = (Some(change), false);
        self.shared.wake.notify_all();
        let begun = now();
        while !state.changed {
            let epoch = state.tenure.epoch();
            if let Some(why) = &state.deposed {
                return Err(ClusterError::Deposed(why.clone(), epoch));
            }
            if now().saturating_sub(begun) > CHANGE_WAIT {
                return Err(StoreError::Unreachable("no beat was stored".to_owned()).into());
            }
            self.shared.wake.wait_for(&mut state, BEAT);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Beats until the end of the term.
    fn beat(&self, mut membership: Membership) {
        let mut so_far = SoFar::default();
        loop {
            match self.beat_once(&mut so_far) {
                // Only after a beat that etcd took: else the key could make the next one late.
                Beat::Stored => membership.tend(&self.cluster, &self.node),
                Beat::Lost => {}
                Beat::Over => break,
            }
            let unsure = !self.state.lock().tenure.is_sure(now());
            if unsure != so_far.unsure && self.tell(Event::Sure(!unsure)) {
                so_far.unsure = unsure;
            }
            let mut state = self.state.lock();
            if !state.over && (state.change.is_none() || state.changed) {
                self.wake.wait_for(&mut state, BEAT);
            }
            if state.over {
                break;
            }
        }
        let _ = self.cluster.store().revoke(membership.lease);
    }

    /// One look and one beat.
    fn beat_once(&self, so_far: &mut SoFar) -> Beat {
        let Ok(record) = self.cluster.owner() else {
            std::thread::sleep(LOOK);
            return Beat::Lost;
        };
        let (verdict, change) = {
            let state = self.state.lock();
            (state.tenure.saw(&record), state.change.clone().filter(|_| !state.changed))
        };
        let Verdict::Beat(mut beat) = verdict else {
            if so_far.gave_up {
                self.changed();
                return Beat::Over;
            }
            let owner = record.value.node.as_ref();
            let why = owner.map_or("an administrator".to_owned(), Node::to_string);
            self.state.lock().deposed = Some(why.clone());
            self.wake.notify_all();
            self.tell(Event::Deposed(why));
            return Beat::Over;
        };
        if beat.wish.is_some() && !so_far.asked {
            so_far.asked = self.tell(Event::HandOver);
        }
        if let Some(change) = &change {
            change(&mut beat);
        }
        so_far.gave_up |= beat.node.is_none();
        let sent = now();
        // A lost answer is no harm: the next look shows what etcd has.
        let Ok(true) = self.cluster.replace(record.revision, &beat) else { return Beat::Lost };
        self.state.lock().tenure.beaten(sent);
        if change.is_some() {
            self.changed();
        }
        if so_far.gave_up { Beat::Over } else { Beat::Stored }
    }

    fn changed(&self) {
        let mut state = self.state.lock();
        (state.change, state.changed) = (None, true);
        self.wake.notify_all();
    }

    /// Whether there was a listener.
    fn tell(&self, event: Event) -> bool {
        self.events.lock().as_ref().map(|act| act(event)).is_some()
    }
}
