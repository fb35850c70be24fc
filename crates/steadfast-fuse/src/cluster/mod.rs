//! One volume on several machines: every node mounts it, one *owns* it, the others, its *peers*,
//! forward the requests of their kernels to the owner.
//!
//! A request travels as the kernel has sent it, so every operation of the file system, and every
//! command, is forwarded in the same way. The owner has a [`Filesystem`](crate::filesystem) for
//! each kernel ([`crate::filesystem::kernels`]). A kernel may keep what the owner has delegated to
//! it, until the owner recalls it or its time is over ([`crate::filesystem::delegations`],
//! [`keeper`]). Pages that it has read are recalled, too ([`page_keeper`]).
//!
//! ```text
//! node a: kernel ─► switch ─► channel ═══╗ frames ╔═► session ─► file system of a ─┐
//! node b: kernel ─► switch ─► channel ═══╝        ╚═► session ─► file system of b ─┤
//! node c: kernel ─► switch ───────────────────────────────────► file system of c ─┴─► volume
//! ```
//!
//! [`SharedMount`] is the mount of a node, whatever its role. [`Ownership`] gives the role, and
//! [`switch`] has it. [`follower`] keeps a session with the owner, whichever node that is. [`channel`]
//! keeps what the owner has not answered, and [`unsynced`] what it may not have made durable.
//! [`deltas`] is what a node keeps for the next owner, which [`collector`] collects, and
//! [`holdings`] are the open files and locks of its programs. [`executions`] sees to it that each
//! request is executed once, also by two owners.
//! [`closes`] answers most closes without the owner, and [`spares`] some questions for attributes.
//! [`direct`] and [`direct_answers`] read data of large files from the medium.
//! [`hub`], [`session`], [`executors`], [`sending`] and [`sent_recalls`] are the owner's side; [`hello`] and
//! [`frame`] are on the wire.
//! Elections, addresses and encryption are the caller's: it gives a [`Link`] for each connection,
//! and an [`Authority`] to the owner.

mod channel;
mod closes;
mod collector;
mod deltas;
mod direct;
mod direct_answers;
mod executions;
mod executors;
mod follower;
mod frame;
mod guest;
mod hello;
mod holdings;
mod hub;
mod keeper;
mod link;
mod mount;
mod mount_state;
mod ownership;
mod page_keeper;
mod paged_nodes;
mod sending;
mod sent_recalls;
mod session;
mod spares;
mod switch;
#[cfg(test)]
mod takeover_tests;
mod unsynced;

pub use collector::{Brought, Collector};
pub use direct::ReadDirectly;
pub(crate) use holdings::HELD_FOR;
pub use hub::{Door, Hub};
pub use link::{Authority, Link, Standing};
pub use mount::SharedMount;
pub use mount_state::Target;
pub use ownership::{Ownership, observer};
pub use session::SESSION_TIME;
