//! [`SharedMount`]: the mount of one node.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use steadfast::{Platform, TransactionMask, Volume};
use steadfast_media::Medium;

use super::channel::since_boot;
use super::collector::{Brought, Collector};
use super::deltas::{Changes, KeptChanges};
use super::frame::{AnswerFrame, Progress, Told};
use super::hello::{Hello, Purpose, Welcome};
use super::holdings::Holdings;
use super::hub::{Hub, Returning};
use super::keeper::Keeper;
use super::link::{Authority, Link, Standing};
use super::page_keeper::PageKeeper;
use super::session::{Guest, PeerSession};
use super::switch::Switch;
use crate::abi::output::AttrOut;
use crate::commands::Commands;
use crate::device::FuseDevice;
use crate::filesystem::delegations::Lasting;
use crate::filesystem::kernels::Kernels;
use crate::filesystem::recall::{Done, Recalled, RecalledNode, Recaller};
use crate::filesystem::{Filesystem, Kernel};
use crate::init::{self, Agreement};
use crate::jobs::Job;
use crate::listeners::Listeners;
use crate::log::{log_info, log_warning};
use crate::metrics::Metrics;
use crate::mount as mounting;
use crate::pull::{self, Connection, Puller};
use crate::request::Request;
use crate::unmount::UnmountHandle;
use crate::workers::Workers;
use crate::{MountOptions, control};

/// Time between two attempts to reach the owner.
const PAUSE: Duration = Duration::from_millis(50);
/// Time between two pings.
const PING: Duration = Duration::from_secs(1);
/// How long a node tries to reach the next owner before what was sent to the one before is decided.
const PATIENCE: Duration = Duration::from_secs(2);

/// The owner, as a peer finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its term.
    pub epoch: u64,
    /// Where it listens.
    pub address: String,
    /// It has not opened the volume yet: it collects what the other nodes keep.
    pub collects: bool,
}

/// Connects to an owner.
type Dial = Box<dyn Fn(&Target) -> io::Result<Link> + Send>;

#[derive(Default)]
struct Wish {
    target: Option<Target>,
    /// The connection that serves the target.
    close: Option<Arc<dyn Fn() + Send + Sync>>,
    over: bool,
}

struct MountState {
    switch: Arc<Switch>,
    device: FuseDevice,
    agreement: Agreement,
    user: u32,
    delegations: bool,
    end: UnmountHandle,
    listeners: Option<Arc<Listeners>>,
    wish: Mutex<Wish>,
    wake: Condvar,
    /// What this node keeps for the next owner.
    kept: Mutex<KeptChanges>,
    /// Distinguishes what it keeps from what others do.
    id: u64,
    /// Of the owner; none yet. Run when the mount ends.
    attendants: Mutex<Option<Attendants>>,
}

/// Ends the threads of an owner; whether open files were cut off.
type Attendants = Box<dyn FnOnce(bool) + Send>;

/// The mount of one node of a cluster. [`run`](Self::run) serves it until the end.
pub struct SharedMount {
    shared: Arc<MountState>,
    workers: Workers,
    follower: Option<JoinHandle<()>>,
}

/// Gives a mount its role. Cheap to clone.
#[derive(Clone)]
pub struct Ownership(Arc<MountState>);

impl SharedMount {
    /// Mounts on `directory`. Requests wait until [`Ownership::follow`] or [`Ownership::own`] tells
    /// where the volume is. `node`: the name of this node, for the owner's log. `dial` connects to
    /// an owner.
    ///
    /// # Errors
    /// As [`mount`](crate::mount()).
    pub fn new(
        directory: &Path,
        options: &MountOptions,
        node: &str,
        dial: impl Fn(&Target) -> io::Result<Link> + Send + 'static,
    ) -> io::Result<SharedMount> {
        let options = MountOptions { several_kernels: true, ..options.clone() };
        let (mount, descriptor) = mounting::attach(directory, &options)?;
        let device = FuseDevice::new(descriptor);
        // From here on an error must undo the mount.
        let undo = |error: io::Error| {
            let _ = mount.detach(true);
            error
        };
        let (agreement, _) = init::handshake(&device, &options).map_err(undo)?;
        // A node that is no owner has no jobs.
        let (jobs, _) = mpsc::channel();
        let connection = Connection::find(mount.device);
        let at = (&*mount.directory, mount.device);
        let puller = Puller::start(device.clone(), at, &connection, true);
        let end = UnmountHandle::new(mount.clone(), connection, jobs);
        let reads = agreement.looks_before_reads();
        if reads && let Some(limits) = mount.cache_limits() {
            limits.raise_read_ahead();
        }
        let (pages, page_recalls) = PageKeeper::new(device.clone(), puller, reads);
        let keeper = Keeper::new(device.clone(), agreement.epochs(), pages);
        let switch = Arc::new(Switch::new(keeper));
        let mut workers = Workers::default();
        let at = (&device, &*mount.directory);
        let started = workers.start(&switch, "steadfast", at, options.threads, None, true);
        let fail = |error: io::Error, workers: &mut Workers| {
            end.abandon();
            let _ = workers.join();
            error
        };
        let listeners = started.map_err(|error| fail(error, &mut workers))?;
        let drops = Arc::downgrade(&switch.keeper.pages);
        // It ends with the mount.
        Builder::new()
            .name("page-recalls".into())
            .spawn(move || PageKeeper::run(&drops, &page_recalls))
            .map_err(|error| fail(error, &mut workers))?;
        let shared = Arc::new(MountState {
            switch,
            device,
            agreement,
            user: mounting::effective_uid(),
            delegations: options.delegations,
            end: end.clone(),
            listeners,
            wish: Mutex::default(),
            wake: Condvar::new(),
            kept: Mutex::default(),
            id: pull::random(),
            attendants: Mutex::default(),
        });
        let (confirm, recalls) = mpsc::channel();
        let confirms = Arc::clone(&shared);
        // It ends with the follower.
        Builder::new()
            .name("recalls".into())
            .spawn(move || confirms.switch.channel.attend(&recalls, PING))
            .map_err(|error| fail(error, &mut workers))?;
        let (follows, node, dial) = (Arc::clone(&shared), node.to_owned(), Box::new(dial));
        let follower = Builder::new()
            .name("follower".into())
            .spawn(move || follows.follow(&node, dial, &confirm))
            .map_err(|error| fail(error, &mut workers))?;
        Ok(SharedMount { shared, workers, follower: Some(follower) })
    }

    /// Returns a handle to unmount from another thread.
    pub fn unmount_handle(&self) -> UnmountHandle {
        self.shared.end.clone()
    }

    /// Returns a handle to give the mount its role from another thread.
    pub fn ownership(&self) -> Ownership {
        Ownership(Arc::clone(&self.shared))
    }

    /// Serves until the volume is unmounted, then ends all threads. An owner drops its [`Hub`] and
    /// closes the volume afterwards.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn run(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        let result = self.workers.join();
        let cut = self.shared.end.0.is_over_now();
        self.shared.set_target(None, true);
        if let Some(follower) = self.follower.take() {
            let _ = follower.join();
        }
        self.shared.finish(cut);
        // The helper process may be looking.
        self.shared.end.0.end_connection();
        self.shared.switch.keeper.pages.end();
        result
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        if !self.shared.end.0.is_over() {
            self.shared.end.abandon();
            let _ = self.join();
        }
    }
}

impl Ownership {
    /// Another node owns the volume, or none does: requests go there from now on, or wait.
    pub fn follow(&self, target: Option<Target>) {
        self.0.set_target(target, false);
    }

    /// Brings what this node keeps to the collector of its own process.
    pub fn bring_to(&self, collector: &Collector) {
        // The owner before is fenced next: its answers count no more.
        self.0.set_target(None, false);
        let (kept, holdings) = self.0.take_stock();
        let (id, agreement) = (self.0.id, self.0.agreement);
        collector.take(kept.epoch, Brought::new(id, agreement, kept, holdings));
    }

    /// This node owns the volume from now on, in this term. Connections of peers go to the hub.
    /// `brought` is what nodes have brought: those whose changes the volume has go on with their
    /// open files and locks. Nothing that a file needs may have been freed since the volume was
    /// opened, so background work begins later. Returns the counters of all kernels' requests, too.
    ///
    /// # Errors
    /// No threads.
    pub fn own<M: Medium + 'static, P: Platform + Clone + 'static>(
        &self,
        volume: Arc<Volume<M, P>>,
        (epoch, brought): (u64, Vec<Brought>),
        authority: Authority,
    ) -> io::Result<(Hub, Arc<Metrics>)> {
        let shared = &self.0;
        shared.set_target(None, false);
        let (jobs, received) = mpsc::channel();
        let metrics = Arc::new(Metrics::shared(crate::workers::THREADS_MIN, epoch));
        let tags = AtomicU64::new(0);
        // No answer waits for the cluster when the mount has ended.
        let over = Arc::new(AtomicBool::new(false));
        let authority: Authority = {
            let over = Arc::clone(&over);
            Arc::new(move || match authority() {
                Standing::Unsure if over.load(Ordering::Acquire) => Standing::Over,
                standing => standing,
            })
        };
        let lasting = shared.delegations.then(|| -> Lasting {
            let authority = Arc::clone(&authority);
            Box::new(move || match authority() {
                Standing::Sure(left) => left,
                _ => Duration::ZERO,
            })
        });
        let kernels = Kernels::new(&volume, true, lasting, &metrics, tag(epoch, 0));
        let user = shared.user;
        let make = {
            let (volume, kernels) = (Arc::clone(&volume), Arc::clone(&kernels));
            let (jobs, metrics) = (Mutex::new(jobs.clone()), Arc::clone(&metrics));
            move |device: Option<FuseDevice>, agreement: Agreement, earlier: Option<&Brought>| {
                let id = tags.fetch_add(1, Ordering::Relaxed);
                let tag = earlier.map_or_else(|| tag(epoch, id), |earlier| earlier.tag);
                let kernel = Kernel { id, device, agreement, owner: user, tag };
                let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let (volume, metrics) = (Arc::clone(&volume), Arc::clone(&metrics));
                let filesystem =
                    Arc::new(Filesystem::new(volume, Arc::clone(&kernels), kernel, jobs, metrics));
                kernels.attach(&filesystem);
                if let Some(Brought { holdings, .. }) = earlier {
                    filesystem.restore(holdings.files(), holdings.locks());
                }
                filesystem
            }
        };
        let (here, others): (Vec<_>, Vec<_>) = brought
            .into_iter()
            .filter(|brought| brought.has_all && brought.tag != 0 && brought.holdings.is_complete())
            .partition(|brought| brought.node == shared.id);
        let filesystem = make(Some(shared.device.clone()), shared.agreement, here.first());
        filesystem.reached_by(Arc::new(OwnerKernel(Arc::downgrade(&shared.switch))));
        let mut returning = Returning::new();
        for other in others {
            let guest = make(None, other.agreement, Some(&other));
            returning.insert(other.node, guest);
        }
        let hub = Hub::start(
            (epoch, returning),
            Arc::clone(&authority),
            Box::new(move |agreement| make(None, agreement, None)),
        )?;
        if let Some(listeners) = shared.listeners.clone() {
            let others = Arc::clone(&listeners);
            kernels.before_waits(Box::new(move || others.about_to_wait()));
            volume.medium().before_waits(Arc::new(move || listeners.about_to_wait()));
        }
        let controls = Arc::clone(&filesystem);
        let run = move || control::run(&*controls, &received);
        let control = Builder::new().name("steadfast-ctl".into()).spawn(run)?;
        let scrubs = Arc::clone(&filesystem);
        let run = move || scrubs.kernels.scrubber.run(&scrubs.volume);
        let scrub = Builder::new().name("steadfast-scrub".into()).spawn(run)?;
        shared.end.0.set_jobs(jobs.clone());
        let ends = Arc::clone(&filesystem);
        *shared.attendants() = Some(Box::new(move |_cut| {
            over.store(true, Ordering::Release);
            // The next owner knows of nothing that was delegated.
            std::mem::forget(ends.kernels.stop_delegations());
            ends.kernels.scrubber.end();
            let _ = scrub.join();
            let _ = jobs.send(Job::Stop);
            let _ = control.join();
        }));
        shared.switch.own(filesystem, authority, !here.is_empty());
        Ok((hub, metrics))
    }

    /// Ends the threads of an owner, if the mount has ended while it became the owner.
    pub fn finish(&self) {
        self.0.finish(true);
    }

    /// Returns a handle for commands to this mount, where this node owns the volume.
    pub fn commands(&self) -> Commands {
        Commands(self.0.end.clone())
    }
}

/// The kernel of the owner's node. The switch has the file system, which has this.
struct OwnerKernel(Weak<Switch>);

impl Recaller for OwnerKernel {
    fn recall(&self, nodes: &[RecalledNode], what: Recalled, done: Done) {
        let then = |dropped| if dropped { drop(done) } else { done.never() };
        let Some(switch) = self.0.upgrade() else { return then(true) };
        match what {
            Recalled::Pages => switch.keeper.recall_pages(nodes.to_vec(), then),
            _ => switch.keeper.recall(nodes, what == Recalled::Names, then),
        }
    }
}

/// The kernel of a peer.
struct PeerKernel(Weak<PeerSession>);

impl Recaller for PeerKernel {
    fn recall(&self, nodes: &[RecalledNode], what: Recalled, done: Done) {
        match self.0.upgrade() {
            Some(session) => session.recall(nodes, what, done),
            None => done.never(),
        }
    }
}

/// The first tag of node ids of a session that begins with nothing. A kernel may have node ids from
/// earlier terms and sessions; they must be stale. Rollbacks count on from here, see [`crate::node`].
fn tag(epoch: u64, session: u64) -> u16 {
    // Odd factors, so that neighbours in one number and in the other are far apart.
    let tag = (epoch.wrapping_mul(5_531).wrapping_add(session.wrapping_mul(911)) & 0x7fff) as u16;
    // 0 is none.
    tag.max(1)
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Guest for Filesystem<M, P> {
    fn depart(&self) {
        Filesystem::depart(self);
    }

    fn reached_by(&self, session: Weak<PeerSession>) {
        Filesystem::reached_by(self, Arc::new(PeerKernel(session)));
    }

    fn end_locks(&self, request: &Request<'_>) {
        self.released(request);
    }

    fn changed_directory(&self, request: &Request<'_>) -> Option<AttrOut> {
        Filesystem::changed_directory(self, request)
    }

    fn progress(&self) -> Progress {
        let (accepted, durable) = self.volume.progress();
        Progress { accepted, durable }
    }

    fn tag(&self) -> u16 {
        self.nodes.tag()
    }

    fn changes(&self, seen: u64) -> Changes {
        match self.volume.delta(seen) {
            Ok(Some(delta)) if delta.sequence == seen => Changes::Same,
            Ok(Some(delta)) => Changes::New(delta),
            Ok(None) | Err(_) => Changes::Untold,
        }
    }

    fn set_point(&self) {
        // Without one the peer keeps more. Above a bound it gives up and keeps nothing.
        if self.volume.mask().contains(TransactionMask::TIMER) {
            let _ = self.volume.transact();
        }
    }

    fn now(&self, node: RecalledNode) -> RecalledNode {
        match node.generation {
            0 => node,
            _ => self.recalled(node.nodeid),
        }
    }
}

impl MountState {
    fn wish(&self) -> MutexGuard<'_, Wish> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, KeptChanges> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attendants(&self) -> MutexGuard<'_, Option<Attendants>> {
        self.attendants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, cut: bool) {
        let attendants = self.attendants().take();
        if let Some(end) = attendants {
            end(cut);
        }
    }

    fn set_target(&self, target: Option<Target>, over: bool) {
        let mut wish = self.wish();
        wish.over |= over;
        if wish.target != target || over {
            if wish.target.as_ref().is_some_and(|before| before.epoch == self.kept().epoch) {
                self.switch.channel.owner_ends(since_boot());
            }
            wish.target = target;
            if let Some(close) = wish.close.take() {
                close();
            }
            self.wake.notify_all();
        }
    }

    /// Connects to the owner, again and again, until the mount ends.
    fn follow(&self, node: &str, dial: Dial, confirm: &Sender<(u64, u64)>) {
        // The session, and the owner that it is with.
        let mut session: Option<(Target, u64)> = None;
        // The one that it has begun last. It may have begun at the owner, too.
        let mut begun: Option<(u64, u64)> = None;
        // Since when an owner is not reached, with its term.
        let mut away: Option<(u64, Instant)> = None;
        let mut told = String::new();
        // The term to whose owner it has brought what it keeps.
        let mut brought = None;
        loop {
            let target = {
                let mut wish = self.wish();
                loop {
                    if wish.over {
                        return;
                    }
                    if let Some(target) = wish.target.clone() {
                        break target;
                    }
                    wish = self.wake.wait(wish).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let known = session.as_ref().filter(|(with, _)| with.epoch == target.epoch);
            let (id, resumes) = match (known, begun) {
                (Some((_, id)), _) => (*id, true),
                (None, Some((epoch, id))) if epoch == target.epoch => (id, false),
                (None, _) => (pull::random(), false),
            };
            begun = Some((target.epoch, id)).filter(|_| !resumes);
            let hello = Hello {
                epoch: target.epoch,
                session: id,
                purpose: match (target.collects, resumes) {
                    (true, _) => Purpose::Bring,
                    (false, true) => Purpose::Resume,
                    (false, false) => Purpose::Begin,
                },
                // What was given up here is not to go on there.
                brought: if self.kept().epoch == target.epoch { 0 } else { self.id },
                minor: self.agreement.minor,
                flags: self.agreement.flags(),
                name: node.to_owned(),
            };
            if target.collects {
                if brought != Some(target.epoch) && self.bring(&dial, &hello, &target).is_ok() {
                    brought = Some(target.epoch);
                }
                let wish = self.wish();
                if !wish.over && wish.target.as_ref() == Some(&target) {
                    drop(self.wake.wait_timeout(wish, PAUSE));
                }
                continue;
            }
            if !resumes {
                // What the kernel keeps is of an earlier term. What was sent waits for the welcome.
                self.switch.forget_kept();
            }
            let served = dial(&target).and_then(|link| self.serve(link, &hello, &target, confirm));
            away = away.filter(|_| served.is_err());
            match served {
                Ok(Welcome::Served | Welcome::ServedWithAll) => {
                    session = Some((target, id));
                    told.clear();
                }
                Ok(Welcome::Gone) => {
                    (session, begun) = (None, None);
                    say(
                        &mut told,
                        match resumes {
                            true => {
                                "the owner has ended the session of this node: open files are stale"
                            }
                            false => "the owner takes no more nodes",
                        },
                    );
                }
                Ok(Welcome::OtherTerm) => {}
                Ok(Welcome::OtherVersion) => {
                    self.give_up(&target, resumes);
                    begun = None;
                    say(&mut told, "the owner runs another version of this program");
                }
                Err(error) => {
                    let since = match away {
                        Some((epoch, since)) if epoch == target.epoch => since,
                        _ => Instant::now(),
                    };
                    away = Some((target.epoch, since));
                    if since.elapsed() >= PATIENCE {
                        self.give_up(&target, resumes);
                        begun = None;
                    }
                    say(
                        &mut told,
                        &format!("cannot reach the owner at {}: {error}", target.address),
                    );
                }
            }
            let wish = self.wish();
            if !wish.over {
                drop(self.wake.wait_timeout(wish, PAUSE));
            }
        }
    }

    /// The next owner does not welcome this node: what was sent to the one before is decided now, so
    /// that programs need not wait.
    fn give_up(&self, target: &Target, resumes: bool) {
        if !resumes && self.kept().epoch != target.epoch {
            self.lose_session(target.epoch, false, 0);
        }
    }

    /// Notes the connection to the target, unless that is another one by now.
    fn uses(&self, target: &Target, close: &Arc<dyn Fn() + Send + Sync>) -> bool {
        let mut wish = self.wish();
        let is_target = wish.target.as_ref() == Some(target) && !wish.over;
        if is_target {
            wish.close = Some(Arc::clone(close));
        }
        is_target
    }

    /// The session with an earlier owner is lost, or one with the owner in term `epoch`. `has_all`:
    /// the volume has all that this node was told by the earlier one, and the owner has its open
    /// files and locks. `tag`: of the next session; 0: there is none. Returns how many sessions were
    /// lost.
    fn lose_session(&self, epoch: u64, has_all: bool, tag: u16) -> u64 {
        let is_first = self.kept().epoch != epoch;
        let lost = self.switch.lose_session(has_all && is_first);
        let mut kept = self.kept();
        match is_first {
            true => *kept = KeptChanges::of_term(epoch, tag),
            false => kept.tag = tag,
        }
        lost
    }

    /// What this node has of the owner, which is no more. No program gets an answer of it from now
    /// on, so that it stays all.
    fn take_stock(&self) -> (KeptChanges, Holdings) {
        let holdings = self.switch.channel.end_session();
        (self.kept().clone(), holdings)
    }

    /// Gives the next owner what this node keeps.
    fn bring(&self, dial: &Dial, hello: &Hello, target: &Target) -> io::Result<()> {
        let Link { mut reader, mut writer, close } = dial(target)?;
        if !self.uses(target, &close) {
            close();
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (kept, holdings) = self.take_stock();
        let has = [kept.encode(), holdings.encode()].concat();
        let welcome = hello
            .write(&mut *writer)
            .and_then(|()| writer.write_all(&has))
            .and_then(|()| Welcome::read(&mut *reader));
        close();
        match welcome?.0 {
            Welcome::Served => Ok(()),
            _ => Err(io::Error::other("the next owner takes nothing")),
        }
    }

    /// Greets the owner, and receives answers until the connection breaks.
    ///
    /// # Errors
    /// There was no answer to the greeting.
    fn serve(
        &self,
        link: Link,
        hello: &Hello,
        target: &Target,
        confirm: &Sender<(u64, u64)>,
    ) -> io::Result<Welcome> {
        let Link { mut reader, mut writer, close } = link;
        // Before another thread may take over.
        let mut lost = self.switch.channel.lost();
        if !self.uses(target, &close) {
            return Ok(Welcome::OtherTerm);
        }
        let greeted = since_boot();
        hello.write(&mut *writer)?;
        let (mut welcome, tag) = Welcome::read(&mut *reader)?;
        let has_all = welcome == Welcome::ServedWithAll;
        if has_all {
            welcome = Welcome::Served;
        }
        if welcome == Welcome::Served {
            if hello.purpose == Purpose::Begin {
                log_info!("the owner at {} serves this node", target.address);
                lost = self.lose_session(target.epoch, has_all, tag);
            } else {
                self.kept().tag = tag;
            }
            let Switch { channel, keeper, closes, .. } = &*self.switch;
            let connection = channel.connect(writer, Arc::clone(&close), greeted);
            // Without a confirmation the owner waits for the end of what the kernel keeps.
            let confirms = |number| {
                let confirm = confirm.clone();
                move |dropped| {
                    if dropped {
                        let _ = confirm.send((connection, number));
                    }
                }
            };
            while let Ok(mut answer) = AnswerFrame::read(&mut *reader) {
                // Before the kernel has the answer.
                if self.kept().note(std::mem::take(&mut answer.changes), answer.tag).is_err() {
                    break;
                }
                match answer.told {
                    Told::Answer => {
                        let is_recalling = |request: &Request<'_>| {
                            keeper.pages.is_recalling(request, &answer.bytes)
                        };
                        if channel.pending(answer.number, is_recalling) == Some(true) {
                            let switch = Arc::clone(&self.switch);
                            keeper.pages.queue(move || switch.answered(answer, lost));
                        } else {
                            self.switch.answered(answer, lost);
                        }
                    }
                    // Sending may wait for the owner, which may wait for this node to receive.
                    Told::Recall | Told::RecallNames => {
                        let names = answer.told == Told::RecallNames;
                        let mut nodes = answer.nodes();
                        closes.recall(&mut nodes, Instant::now());
                        channel.recall(&nodes);
                        keeper.recall(&nodes, names, confirms(answer.number));
                    }
                    Told::GoesOn => channel.goes_on(answer.number),
                    Told::OwnerEnds => channel.owner_says_it_ends(),
                    Told::RecallPages => {
                        let nodes = answer.nodes();
                        channel.recall(&nodes);
                        keeper.recall_pages(nodes, confirms(answer.number));
                    }
                }
            }
            channel.close(None);
            channel.give_up(|request| keeper.pages.is_look(request));
        }
        close();
        Ok(welcome)
    }
}

/// Logs a line unless it was the last one.
fn say(told: &mut String, line: &str) {
    if *told != line {
        log_warning!("{line}");
        line.clone_into(told);
    }
}
