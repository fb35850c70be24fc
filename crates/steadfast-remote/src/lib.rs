//! Remote memory for Steadfast: the NBD protocol on both sides, and media in the memory of other
//! machines.
//!
//! - [`protocol`]: the messages of both sides as bytes, without I/O;
//! - [`export`]: what a server serves: [lent memory](export::MemoryPool), or [any
//!   medium](export::MediumExport);
//! - [`RemoteMedium`]: an open array at an [`Address`], with a thread that rebuilds lost members;
//! - [`mod@array`]: a medium on several servers, which survives losses of them;
//! - [`behind`]: the write-behind log, a second state of an array on a local disk, for the loss of
//!   all servers;
//! - [`client`]: the client: one connection, many requests in flight;
//! - [`hostile`]: both sides against arbitrary bytes, for tests and fuzzers;
//! - [`etcd`]: the list of servers, the owner of each server's memory, and the writer of each
//!   array, as recorded in etcd;
//! - [`server`]: the server: one thread for each connection, all resources bounded.

mod address;
pub mod array;
pub mod behind;
pub mod client;
mod error;
pub mod etcd;
pub mod export;
pub mod hostile;
mod latency;
mod live;
mod log_place;
mod medium;
mod place;
pub mod protocol;
mod restore;
#[cfg(feature = "sabotage")]
pub mod sabotage;
#[cfg(not(feature = "sabotage"))]
mod sabotage;
pub mod server;
mod tender;
mod witness;

pub use address::{Address, EtcdAddress, SCHEME, SCHEME_ETCD, is_address};
pub use error::RemoteError;
pub use latency::Latency;
pub use live::{Live, LiveLog, LiveMember, LiveRebuild};
pub use log_place::LogReport;
pub use medium::{RemoteMedium, Watch};
pub use place::ServerReport;
pub use restore::Restored;
pub use witness::DirectoryWitness;
