//! [`Ownership`]: gives the mount of a node its role, and serves all kernels where that is the owner's.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::Builder;
use std::time::Duration;

use steadfast::volume::Observer;
use steadfast::{Platform, TransactionMask, Volume};
use steadfast_media::Medium;

use super::collector::{Brought, Collector, inherited};
use super::deltas::Changes;
use super::frame::Progress;
use super::guest::Guest;
use super::hub::{Hub, Returning};
use super::link::{Authority, Standing};
use super::mount_state::{MountState, Target};
use super::switch::Switch;
use crate::abi::output::AttrOut;
use crate::buffer::AnswerBuffer;
use crate::commands::Commands;
use crate::control;
use crate::device::FuseDevice;
use crate::executing::{self, Ending};
use crate::filesystem::delegations::Lasting;
use crate::filesystem::kernels::Kernels;
use crate::filesystem::recall::{Done, Recalled, RecalledNode, Recaller};
use crate::filesystem::{Filesystem, Kernel};
use crate::init::Agreement;
use crate::jobs::Job;
use crate::metrics::Metrics;
use crate::request::Request;
use crate::service::Outcome;

/// Notes the batches that requests make, for [`Volume::observe_batches`]. The volume of an owner
/// needs it.
pub fn observer() -> Observer {
    Box::new(executing::batch)
}

/// Gives a mount its role. Cheap to clone.
#[derive(Clone)]
pub struct Ownership(pub(super) Arc<MountState>);

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
        let inherited = inherited(&brought);
        let (here, others): (Vec<_>, Vec<_>) = brought
            .into_iter()
            .zip(inherited)
            .filter(|(brought, _)| brought.has_all() && brought.tag != 0)
            .filter(|(brought, _)| brought.holdings.is_complete())
            .partition(|(brought, _)| brought.node == shared.id);
        let here = here.into_iter().next();
        let earlier = here.as_ref().map(|(brought, _)| brought);
        let filesystem = make(Some(shared.device.clone()), shared.agreement, earlier);
        filesystem.reached_by(Arc::new(OwnerKernel(Arc::downgrade(&shared.switch))));
        let mut returning = Returning::new();
        for (other, inherited) in others {
            let guest: Arc<dyn Guest> = make(None, other.agreement, Some(&other));
            returning.insert(other.node, (guest, inherited));
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
        shared.switch.own(filesystem, authority, here.map(|(_, inherited)| inherited));
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

    fn reached_by(&self, recaller: Arc<dyn Recaller>) {
        Filesystem::reached_by(self, recaller);
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

    fn answer_again(
        &self,
        request: &Request<'_>,
        ending: Ending,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        Filesystem::answer_again(self, request, ending, out)
    }
}
