//! Steadfast as a mounted file system, over FUSE.
//!
//! [`mount()`] attaches a [`Volume`](steadfast::Volume) to a directory and serves it with several
//! threads until it is unmounted. The crate implements the kernel's protocol itself (reasons:
//! docs/decisions/0004-fuse-transport.md). Programs send commands to a mounted volume through
//! [`ioctl`].
//!
//! ```no_run
//! # fn example<M, P>(volume: std::sync::Arc<steadfast::Volume<M, P>>) -> std::io::Result<()>
//! # where M: steadfast_media::Medium + 'static, P: steadfast::Platform + Clone + 'static {
//! use steadfast_fuse::{MountOptions, mount};
//!
//! let session = mount(volume.clone(), "/mnt".as_ref(), &MountOptions::default())?;
//! let unmount = session.unmount_handle();
//! // ... give `unmount` to the thread that handles signals ...
//! session.run()?;
//! # let _ = unmount;
//! # Ok(()) }
//! ```
//!
//! Modules: [`session`] owns the threads. [`workers`] receive and answer requests, over [`device`]
//! or over io_uring ([`ring`]). [`listeners`] decides which of them listen, and which stand by.
//! [`filesystem`] converts requests to operations. [`cluster`] forwards the requests of other
//! machines' kernels to the machine that owns the volume. [`control`] waits for the kernel.
//! [`pull`] writes back the kernel's dirty pages, and [`admission`] bounds them by the room of the
//! volume. [`planned`] is the way of a plan to another machine. [`node`] and [`open`] track the
//! inodes and open files of the kernel. [`snapshots`] serves `.snapshots`. [`null`] is the same
//! transport without a volume, as a baseline for measurements.

mod abi;
mod admission;
#[cfg(test)]
mod admission_model;
mod buffer;
pub mod cluster;
mod commands;
mod control;
mod device;
mod errno;
mod executing;
mod filesystem;
mod init;
mod io_flusher;
pub mod ioctl;
mod jobs;
mod listeners;
mod locks;
mod log;
pub mod metrics;
mod mount;
mod node;
pub mod null;
mod open;
mod options;
mod planned;
mod pull;
mod request;
mod ring;
pub mod scrub;
mod service;
mod session;
mod snapshots;
mod trim;
mod unmount;
mod validity;
pub mod watch;
mod workers;

pub use commands::Commands;
pub use errno::errno;
pub use options::{IoUring, MountOptions};
pub use pull::HELPER_NAME;
pub use session::{Session, mount};
pub use unmount::UnmountHandle;
