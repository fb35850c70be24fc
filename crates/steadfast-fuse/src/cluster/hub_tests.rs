use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::deltas::Changes;
use super::super::frame::Progress;
use super::super::link::Standing;
use super::*;
use crate::abi::output::AttrOut;
use crate::buffer::AnswerBuffer;
use crate::filesystem::recall::RecalledNode;
use crate::request::Request;
use crate::service::{Answer, Later, Outcome, Service};

/// A kernel that asks for nothing.
#[derive(Default)]
struct Silent(AtomicBool);

impl Service for Silent {
    fn serve(&self, _: Later<'_>, _: &Request<'_>, _: &mut AnswerBuffer) -> Outcome {
        Ok(Answer::Ready)
    }
}

impl Guest for Silent {
    fn depart(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn reached_by(&self, _: Weak<PeerSession>) {}

    fn end_locks(&self, _: &Request<'_>) {}

    fn changed_directory(&self, _: &Request<'_>) -> Option<AttrOut> {
        None
    }

    fn changes(&self, _: u64) -> Changes {
        Changes::Same
    }

    fn set_point(&self) {}

    fn now(&self, node: RecalledNode) -> RecalledNode {
        node
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn tag(&self) -> u16 {
        5
    }
}

fn hello(session: u64, brought: u64) -> Hello {
    let (epoch, purpose, name) = (3, Purpose::Begin, "n".to_owned());
    Hello { epoch, session, purpose, brought, minor: 44, flags: 0, name }
}

fn hub(returning: Returning) -> Hub {
    let authority: Authority = Arc::new(|| Standing::Sure(Duration::from_secs(1)));
    Hub::start((3, returning), authority, Box::new(|_| Arc::new(Silent::default()))).unwrap()
}

#[test]
fn a_node_goes_on_once_with_what_it_has_brought() {
    let hub = hub(HashMap::from([(7, Arc::new(Silent::default()) as Arc<dyn Guest>)]));
    let begin = |session, brought| hub.shared.session(&hello(session, brought)).ok().unwrap();
    assert!(!begin(1, 0).goes_on() && !begin(2, 8).goes_on(), "these have brought nothing");
    let session = begin(3, 7);
    assert!(session.goes_on());
    assert!(Arc::ptr_eq(&session, &begin(3, 7)), "the welcome was lost, and the node asks again");
    assert!(!begin(4, 7).goes_on(), "it has lost that session");
}

/// The next owner gets it from the nodes. Here another node must not get a lock of theirs.
#[test]
fn an_owner_that_ends_gives_nothing_back() {
    let (comes, stays_away) = (Arc::new(Silent::default()), Arc::new(Silent::default()));
    let returning = [(7, Arc::clone(&comes)), (8, Arc::clone(&stays_away))];
    let hub = hub(returning.map(|(id, guest)| (id, guest as Arc<dyn Guest>)).into());
    hub.shared.session(&hello(1, 7)).ok().unwrap();
    drop(hub);
    assert!(!comes.0.load(Ordering::SeqCst) && !stays_away.0.load(Ordering::SeqCst));
}
