//! [`Guest`]: the owner's side of another node's kernel, as its session uses it.

use std::sync::Arc;

use super::deltas::Changes;
use super::frame::Progress;
use crate::abi::output::AttrOut;
use crate::buffer::AnswerBuffer;
use crate::executing::Ending;
use crate::filesystem::recall::{RecalledNode, Recaller};
use crate::request::Request;
use crate::service::{Outcome, Service};

/// The file system of one peer's kernel.
pub(super) trait Guest: Service {
    /// The kernel is gone: gives back everything that it held.
    fn depart(&self);

    /// How the kernel is reached.
    fn reached_by(&self, recaller: Arc<dyn Recaller>);

    /// Ends the locks of a request that closes a file. The kernel does not wait for that request,
    /// so those that it sends later must not overtake this.
    fn end_locks(&self, request: &Request<'_>);

    /// The attributes of the directory in which a request has changed a name. The kernel asks for
    /// them next. `None`: they are not delegated to it.
    fn changed_directory(&self, request: &Request<'_>) -> Option<AttrOut>;

    /// How far the volume is.
    fn progress(&self) -> Progress;

    /// The tag of the kernel's node ids, see [`crate::node`].
    fn tag(&self) -> u16;

    /// What has changed since batch `seen`, for the peer to keep.
    fn changes(&self, seen: u64) -> Changes;

    /// Makes everything durable, so that peers need not keep it.
    fn set_point(&self);

    /// A node to be recalled, with the size of now.
    fn now(&self, node: RecalledNode) -> RecalledNode;

    /// Answers a request that an owner before has executed, and that has ended so.
    fn answer_again(
        &self,
        request: &Request<'_>,
        ending: Ending,
        out: &mut AnswerBuffer,
    ) -> Outcome;
}
