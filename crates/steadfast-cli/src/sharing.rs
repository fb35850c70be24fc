//! A node that shares a volume with others: it mounts at once, and its mount is served by the
//! owner, which may be this process.
//!
//! The election runs in a thread of its own. It tells the mount where the owner is, and opens the
//! volume when this node becomes the owner. Order at the end: the mount ends, then the sessions of
//! the other nodes. Then the last transaction point is made, and the term is released.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use steadfast::volume::KeptDeltas;
use steadfast::{Error, OpenOptions, TransactionMask, Volume};
use steadfast_cluster::ClusterError;
use steadfast_cluster::duplex::{self, Duplex, Listener};
use steadfast_cluster::owner::Watch;
use steadfast_cluster::record::{OwnerRecord, Predecessor};
use steadfast_fuse::UnmountHandle;
use steadfast_fuse::cluster::{
    Authority, Brought, Collector, Door, Hub, Link, Ownership, SharedMount, Standing, Target,
    observer,
};
use steadfast_host::{BackgroundThread, HostPlatform};

use crate::daemon::Ready;
use crate::direct_reads::read_directly;
use crate::failure::{Exit, Failure, Outcome, text_os};
use crate::logger::{Priority, message};
use crate::medium::{HostMedium, HostVolume};
use crate::mount_options::MountSettings;
use crate::observe::server::{Server, SocketFile};
use crate::owning::{Claim, Nodes, Owned, seen_text};
use crate::schedule::Keeper;
use crate::serve;

/// Most connections that greet this node at once. Those that it serves are bounded by the hub.
const CONNECTIONS_MAX: usize = 256;

/// What a node has while it owns the volume.
struct Reign {
    owned: Owned,
    hub: Hub,
    volume: Arc<HostVolume>,
    background: Option<BackgroundThread>,
    keeper: Option<Keeper>,
    socket: Option<SocketFile>,
}

/// What the election needs of the mount, once that exists.
#[derive(Clone)]
struct Mounted {
    ownership: Ownership,
    unmount: UnmountHandle,
}

struct Shared {
    settings: MountSettings,
    listener: Arc<Listener>,
    mounted: OnceLock<Mounted>,
    /// The mount has ended, or there will be none.
    over: AtomicBool,
}

/// Mounts a shared volume, and serves the mount until it is unmounted.
///
/// # Errors
/// What prevents the mount; why this node could not become the owner, or had to give up.
pub fn run(claim: Claim, directory: &Path, settings: &MountSettings, ready: Ready) -> Outcome {
    let ended = run_node(claim, directory, settings, ready);
    if let Err(failure) = &ended {
        ready.failed(failure);
    }
    ended
}

fn run_node(claim: Claim, directory: &Path, settings: &MountSettings, ready: Ready) -> Outcome {
    let at_signals = serve::watch_signals();
    let (address, path, node) =
        (claim.address.clone(), claim.path.clone(), claim.node.name.clone());
    let listener = Listener::bind(address.listen, &address.peers).map_err(|error| {
        let advice = "give ?listen= the address of this machine, and ca=, cert= and key=";
        Failure::new(Exit::Usage, error.to_string(), path.display(), advice)
    })?;
    let shared = Arc::new(Shared {
        settings: settings.clone(),
        listener: Arc::new(listener),
        mounted: OnceLock::new(),
        over: AtomicBool::new(false),
    });
    let direct = read_directly(Path::new(&claim.volume.medium));
    let (joined, has_joined) = mpsc::channel();
    let (give, given) = mpsc::channel();
    let election = {
        let shared = Arc::clone(&shared);
        let run = move || shared.stand(claim, ready, &joined, &given);
        let thread = Builder::new().name("election".into()).spawn(run);
        thread.map_err(|error| Failure::host(&error, "start a thread for", &path))?
    };
    // Without a place among the nodes there is no mount.
    if has_joined.recv().is_err() {
        return end(election, directory, &path, Ok(()));
    }
    let dials = address.peers.clone();
    let dial = move |target: &Target| duplex::connect(&target.address, &dials).map(link);
    let options = serve::kernel_options(&path, settings);
    let mount = match SharedMount::new(directory, &options, &node, dial, direct) {
        Ok(mount) => mount,
        Err(error) => {
            shared.over.store(true, Ordering::Release);
            drop(give);
            let _ = end(election, directory, &path, Ok(()));
            return Err(serve::mount_failure(&error, directory, settings));
        }
    };
    serve::log_panics();
    let mounted = Mounted { ownership: mount.ownership(), unmount: mount.unmount_handle() };
    let _ = shared.mounted.set(mounted.clone());
    let _ = give.send(mounted.clone());
    if let Some(at_signals) = at_signals {
        let _ = at_signals.send(mount.unmount_handle());
    }
    message(Priority::Info, format_args!("mounted {} on {}", path.display(), directory.display()));
    if let Err(error) = ready.mounted() {
        let error = text_os(&error);
        let line = format_args!("cannot detach from the starting process: {error}");
        message(Priority::Warning, line);
    }
    let served = mount.run();
    shared.over.store(true, Ordering::Release);
    let ended = end(election, directory, &path, served);
    mounted.ownership.finish();
    ended
}

/// Waits for the end of the election, and gives back what this node owns.
fn end(
    election: JoinHandle<Outcome<Option<Reign>>>,
    directory: &Path,
    path: &Path,
    served: std::io::Result<()>,
) -> Outcome {
    let panicked = || Failure::new(Exit::Failed, "internal error", path.display(), "report it");
    let Some(reign) = election.join().map_err(|_| panicked())?? else {
        served.map_err(|error| Failure::host(&error, "serve the mount", directory))?;
        let (path, directory) = (path.display(), directory.display());
        message(Priority::Info, format_args!("unmounted {path} from {directory}"));
        return Ok(());
    };
    let Reign { owned, hub, volume, background, keeper, socket } = reign;
    drop((hub, keeper, background, socket));
    let keeps = volume.mask().contains(TransactionMask::UNMOUNT) && !volume.is_held();
    let ended = serve::finish(path, directory, &volume, served);
    // One that has failed is closed as by a crash: what nodes keep leads on from the medium.
    let closed = ended.is_ok() && volume.info().poisoned.is_none();
    let released = owned.release(ended.is_ok(), closed.then_some(keeps));
    ended.and(released)
}

fn link(duplex: Duplex) -> Link {
    let Duplex { reader, writer, close } = duplex;
    Link { reader, writer, close }
}

impl Shared {
    /// The thread of the election. It ends when this node owns the volume, or with the mount.
    fn stand(
        self: &Arc<Self>,
        claim: Claim,
        ready: Ready,
        joined: &Sender<()>,
        given: &Receiver<Mounted>,
    ) -> Outcome<Option<Reign>> {
        let stood = self.elect(claim, ready, joined);
        let Ok(Some(owned)) = stood else {
            if let (Err(failure), Some(mounted)) = (&stood, self.mounted.get()) {
                message(Priority::Error, failure.to_string());
                mounted.unmount.abandon();
            }
            return stood.map(|_| None);
        };
        // It may be the owner before its mount exists.
        let _ = joined.send(());
        let Ok(mounted) = given.recv() else {
            return owned.give_up().map(|()| None);
        };
        match self.reign(&owned, &mounted) {
            Ok(parts) => Ok(Some(parts(owned))),
            Err(failure) => {
                message(Priority::Error, failure.to_string());
                mounted.unmount.abandon();
                let _ = owned.give_up();
                Err(failure)
            }
        }
    }

    fn elect(&self, claim: Claim, ready: Ready, joined: &Sender<()>) -> Outcome<Option<Owned>> {
        let mut told = String::new();
        let place = claim.path.display().to_string();
        claim.stand_by(&mut |seen| {
            let now = seen_text(seen);
            if now != told {
                let line = format!("{place}: {now}");
                if self.mounted.get().is_none() && seen.is_err() {
                    ready.warn(&line);
                }
                message(Priority::Info, &line);
                told = now;
            }
            if seen.is_ok() || matches!(seen, Err(ClusterError::Store(_))) {
                let _ = joined.send(());
            }
            match self.mounted.get() {
                Some(mounted) => {
                    if let Ok(record) = seen {
                        mounted.ownership.follow(target(record));
                    }
                }
                None if ready.is_abandoned() => return false,
                None => {}
            }
            !self.over.load(Ordering::Acquire)
        })
    }

    /// Opens the volume, and serves it to all nodes.
    fn reign(
        &self,
        owned: &Owned,
        mounted: &Mounted,
    ) -> Outcome<impl FnOnce(Owned) -> Reign + use<>> {
        let image = owned.medium();
        let at = self.listener.address().to_string();
        let (epoch, ownership) = (owned.epoch(), &mounted.ownership);
        let nodes = Arc::new(Others::new(epoch, owned.predecessor(), at.clone()));
        ownership.bring_to(&nodes.collector);
        let (greets, listener) = (Arc::clone(&nodes), Arc::clone(&self.listener));
        let accepts =
            Builder::new().name("accept".into()).spawn(move || accept(&listener, &greets));
        accepts.map_err(|error| Failure::host(&error, "start a thread for", image))?;
        let metrics = self.settings.metrics.as_ref().map(Server::bind).transpose()?;
        let warn = |_: &str| {};
        let open = |options| owned.open(self.settings.way, options, &*nodes);
        let volume = Arc::new(serve::open_with(image, &self.settings, &warn, open)?);
        let (mask, timer_ms) = self.settings.parameters(&volume, image)?;
        volume
            .change_parameters(mask, timer_ms)
            .map_err(|error| Failure::core(error, image.display()))?;
        let standing = owned.standing();
        let authority: Authority = Arc::new(move || standing_of(&standing));
        let term = (epoch, nodes.brought());
        let owning = ownership.own(Arc::clone(&volume), term, authority);
        let (hub, counters) =
            owning.map_err(|error| Failure::host(&error, "start threads for", image))?;
        // Not before: it frees removed files, which programs of these nodes may have open.
        let background = serve::start_background(&volume);
        let _ = nodes.door.set(hub.door());
        owned.watch(mounted.unmount.clone());
        let line = format_args!("this node owns {} in epoch {epoch}, at {at}", image.display());
        message(Priority::Info, line);
        let socket =
            metrics.and_then(|server| serve::serve_metrics(server, &volume, counters, image));
        let keeper = serve::keep_snapshots(&self.settings, &volume, ownership.commands());
        Ok(move |owned| Reign { owned, hub, volume, background, keeper, socket })
    }
}

fn standing_of(watch: &Watch) -> Standing {
    match (watch.is_over(), watch.sure_for()) {
        (true, _) => Standing::Over,
        (false, Some(left)) => Standing::Sure(left),
        (false, None) => Standing::Unsure,
    }
}

/// The owner, if it serves or takes what the other nodes keep.
fn target(record: &OwnerRecord) -> Option<Target> {
    let address = record.address.clone().filter(|_| record.node.is_some())?;
    Some(Target { epoch: record.epoch, address, collects: !record.serves })
}

/// The other nodes: first they bring what they keep, then they are served.
struct Others {
    at: String,
    collector: Collector,
    /// The owner before has closed the volume.
    closed: bool,
    collected: Mutex<Vec<Brought>>,
    door: OnceLock<Door>,
}

impl Others {
    fn new(epoch: u64, before: Option<Predecessor>, at: String) -> Others {
        let collector = Collector::new(epoch, before.map(|before| before.epoch));
        let closed = before.is_some_and(|before| before.closed);
        Others { at, collector, closed, collected: Mutex::default(), door: OnceLock::new() }
    }

    fn collected(&self) -> MutexGuard<'_, Vec<Brought>> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What nodes have brought, after the volume was opened.
    fn brought(&self) -> Vec<Brought> {
        std::mem::take(&mut *self.collected())
    }

    fn serve(&self, link: Link) -> std::io::Result<()> {
        match self.door.get() {
            Some(door) => door.serve(link),
            None => self.collector.serve(link),
        }
    }
}

impl Nodes for Others {
    fn address(&self) -> Option<String> {
        Some(self.at.clone())
    }

    fn collect(&self, survivors: usize) {
        *self.collected() = self.collector.collect(survivors);
    }

    fn open(
        &self,
        medium: HostMedium,
        options: OpenOptions,
        platform: HostPlatform,
    ) -> Result<HostVolume, Error> {
        let mut collected = self.collected();
        // After a close the medium has them. A transaction that was open is not on it; its changes
        // were told without deltas.
        let deltas = |brought: &Brought| match self.closed {
            true => KeptDeltas { payloads: Vec::new(), ..brought.deltas.clone() },
            false => brought.deltas.clone(),
        };
        let kept: Vec<_> = collected.iter().map(deltas).collect();
        let (mut volume, reached) = Volume::open_after(medium, options, platform, &kept)?;
        volume.observe_batches(observer());
        for (brought, reached) in collected.iter_mut().zip(reached) {
            brought.compared(reached, self.closed);
        }
        let with_all = collected.iter().filter(|brought| brought.has_all()).count();
        if !collected.is_empty() {
            let all = collected.len();
            let line = format_args!("the volume has all that {with_all} of {all} nodes were told");
            message(Priority::Info, line);
        }
        Ok(volume)
    }
}

/// Greets the other nodes, each in a thread of its own, until this process ends. Their sessions then
/// serve them.
fn accept(listener: &Listener, others: &Arc<Others>) {
    let present = Arc::new(());
    loop {
        let incoming = match listener.accept() {
            Ok(incoming) => incoming,
            Err(error) => {
                message(Priority::Error, format_args!("no new nodes: {}", text_os(&error)));
                std::thread::sleep(std::time::Duration::from_secs(1));
                continue;
            }
        };
        let (from, others, counted) = (incoming.from(), Arc::clone(others), Arc::clone(&present));
        if Arc::strong_count(&counted) > CONNECTIONS_MAX {
            // Dropped: the node tries again.
            continue;
        }
        let serve = move || {
            let _counted = counted;
            let served = incoming.greet().and_then(|duplex| others.serve(link(duplex)));
            if let Err(error) = served {
                let error = text_os(&error);
                message(Priority::Warning, format_args!("a connection from {from}: {error}"));
            }
        };
        // Without a thread the connection is closed, and the node tries again.
        let _ = Builder::new().name("node".into()).spawn(serve);
    }
}
