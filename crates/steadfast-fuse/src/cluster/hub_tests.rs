use std::sync::atomic::{AtomicBool, Ordering};

use steadfast::volume::Reached;

use super::super::deltas::Changes;
use super::super::frame::Progress;
use super::super::link::Standing;
use super::*;
use crate::abi::output::AttrOut;
use crate::buffer::AnswerBuffer;
use crate::executing::Ending;
use crate::filesystem::recall::{RecalledNode, Recaller};
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

    fn reached_by(&self, _: Arc<dyn Recaller>) {}

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

    fn answer_again(&self, _: &Request<'_>, _: Ending, _: &mut AnswerBuffer) -> Outcome {
        Ok(Answer::Ready)
    }
}

fn hello(session: u64, node: u64, purpose: Purpose) -> Hello {
    let (epoch, name) = (3, "n".to_owned());
    Hello { epoch, session, purpose, node, minor: 44, flags: 0, name }
}

fn hub(returning: Returning) -> Hub {
    let authority: Authority = Arc::new(|| Standing::Sure(Duration::from_secs(1)));
    Hub::start((3, returning), authority, Box::new(|_| Arc::new(Silent::default()))).unwrap()
}

#[test]
fn a_node_goes_on_once_with_what_it_has_brought() {
    let guest: Arc<dyn Guest> = Arc::new(Silent::default());
    let hub = hub(HashMap::from([(7, (guest, Inherited::default()))]));
    let begin =
        |session, node, purpose| hub.shared.session(&hello(session, node, purpose)).ok().unwrap();
    let is_new = |session: Arc<PeerSession>| session.reached() == Reached::Less;
    assert!(is_new(begin(1, 7, Purpose::Begin)), "it has given that up");
    assert!(is_new(begin(2, 8, Purpose::GoOn)), "it has brought nothing");
    let session = begin(3, 7, Purpose::GoOn);
    assert_eq!(session.reached(), Reached::All);
    let again = begin(3, 7, Purpose::GoOn);
    assert!(Arc::ptr_eq(&session, &again), "the welcome was lost, and the node asks again");
    assert!(is_new(begin(4, 7, Purpose::GoOn)), "it has lost that session");
}

/// The next owner gets it from the nodes. Here another node must not get a lock of theirs.
#[test]
fn an_owner_that_ends_gives_nothing_back() {
    let (comes, stays_away) = (Arc::new(Silent::default()), Arc::new(Silent::default()));
    let returning = [(7, Arc::clone(&comes)), (8, Arc::clone(&stays_away))];
    let returning =
        returning.map(|(node, guest)| (node, (guest as Arc<dyn Guest>, Inherited::default())));
    let hub = hub(returning.into());
    hub.shared.session(&hello(1, 7, Purpose::GoOn)).ok().unwrap();
    drop(hub);
    assert!(!comes.0.load(Ordering::SeqCst) && !stays_away.0.load(Ordering::SeqCst));
}
