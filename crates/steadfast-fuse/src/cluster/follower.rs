//! The follower: the thread of a node that keeps its session with the owner, through broken
//! connections and from one owner to the next.
//!
//! Invariants:
//! - It alone receives what an owner sends, and begins and loses sessions, as long as this node does
//!   not become the owner.
//! - What a node has of an owner is brought to the next one before a session begins there.
//! - What was given up does not go on: the next greeting says that the node has brought nothing.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use steadfast::volume::Reached;

use super::channel::since_boot;
use super::deltas::KeptChanges;
use super::frame::{AnswerFrame, Told};
use super::hello::{Hello, Purpose, Welcome};
use super::link::Link;
use super::mount_state::{Dial, MountState, Target};
use super::switch::Switch;
use crate::log::{log_info, log_warning};
use crate::pull;
use crate::request::Request;

/// Time between two attempts to reach the owner.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a node tries to reach the next owner before what was sent to the one before is decided.
const PATIENCE: Duration = Duration::from_secs(2);

impl MountState {
    /// Connects to the owner, again and again, until the mount ends.
    pub(super) fn follow(&self, node: &str, dial: Dial, confirm: &Sender<(u64, u64)>) {
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
                    // What was given up here is not to go on there.
                    (false, false) if self.kept().epoch == target.epoch => Purpose::Begin,
                    (false, false) => Purpose::GoOn,
                },
                node: self.id,
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
                Ok(Welcome::Served | Welcome::ServedWithAll | Welcome::ServedExactly) => {
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
            self.lose_session(target.epoch, Reached::Less, 0);
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

    /// The session with an earlier owner is lost, or one with the owner in term `epoch`. `reached`:
    /// how the volume compares with what this node was told by the earlier one. If it has all of it,
    /// the owner has the node's open files and locks. `tag`: of the next session; 0: there is none. Returns how many sessions were
    /// lost.
    fn lose_session(&self, epoch: u64, reached: Reached, tag: u16) -> u64 {
        let is_first = self.kept().epoch != epoch;
        let lost = self.switch.lose_session(if is_first { reached } else { Reached::Less });
        let mut kept = self.kept();
        match is_first {
            true => *kept = KeptChanges::of_term(epoch, tag),
            false => kept.tag = tag,
        }
        lost
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
        let (welcome, tag) = Welcome::read(&mut *reader)?;
        if let Some(reached) = welcome.reached() {
            if hello.purpose != Purpose::Resume {
                log_info!("the owner at {} serves this node", target.address);
                lost = self.lose_session(target.epoch, reached, tag);
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
                let changes = std::mem::take(&mut answer.changes);
                if self.kept().note(changes, &answer.executed, answer.tag).is_err() {
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
                    Told::Plan => self.switch.direct.queue(answer, lost),
                    Told::GoesOn => channel.goes_on(answer.number),
                    Told::OwnerEnds => channel.owner_says_it_ends(),
                    Told::Executed => self.kept().last = Some(answer.executed),
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
