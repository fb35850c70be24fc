//! Steadfast as a mounted file system, over FUSE.
//!
//! [`mount()`] attaches a [`Volume`](steadfast::Volume) to a directory and serves it from several
//! threads until it is unmounted. The kernel's protocol is spoken directly
//! (docs/decisions/0004-fuse-transport.md says why). Programs reach the volume behind a mount with
//! the commands in [`ioctl`].
//!
//! ```no_run
//! # fn example<M, P>(volume: std::sync::Arc<steadfast::Volume<M, P>>) -> std::io::Result<()>
//! # where M: steadfast_media::Medium + 'static, P: steadfast::Platform + 'static {
//! use steadfast_fuse::{MountOptions, mount};
//!
//! let session = mount(volume.clone(), "/mnt".as_ref(), &MountOptions::default())?;
//! let unmount = session.unmount_handle();
//! // ... give `unmount` to whoever handles signals ...
//! session.run()?;
//! # let _ = unmount;
//! # Ok(()) }
//! ```
//!
//! Rooms: [`session`] owns the threads, [`device`] the connection, [`filesystem`] turns requests
//! into operations, [`control`] waits for the kernel, [`pull`] gets dirty pages out of it,
//! [`admission`] bounds them by the room of the volume, [`node`] and [`open`] know what it holds,
//! [`snapshots`] shows what `.snapshots` holds. [`null`] has the same transport with nothing behind
//! it, to be measured beside.

mod abi;
mod admission;
#[cfg(test)]
mod admission_model;
mod buffer;
mod commands;
mod control;
mod device;
mod errno;
mod filesystem;
mod init;
pub mod ioctl;
mod log;
pub mod metrics;
mod mount;
mod node;
pub mod null;
mod open;
mod options;
mod pull;
mod request;
mod ring;
pub mod scrub;
mod service;
mod session;
mod snapshots;
mod turns;
pub mod watch;
mod workers;

pub use commands::Commands;
pub use errno::errno;
pub use options::{IoUring, MountOptions};
pub use session::{Session, UnmountHandle, mount};
