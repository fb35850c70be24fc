//! [`Live`]: live numbers of an open array for processes of the same machine. The process that has
//! the array open serves a Unix socket beside the witness. A client that connects receives one JSON
//! document. Nothing is read from the client, so it cannot influence the array.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// Time limit of either side.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest document, bytes.
const DOCUMENT_MAX: u64 = 64 << 10;

/// Status and counters of an open array. Counts begin at the open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// Identity, 32 hexadecimal digits.
    pub uuid: String,
    /// How blocks are spread.
    pub policy: String,
    /// Newest epoch.
    pub epoch: u64,
    /// Members, by number.
    pub members: Vec<LiveMember>,
    /// Some members are not good: the array survives fewer further losses than the policy promises.
    pub degraded: bool,
    /// More members were lost than the policy survives: every request is refused.
    pub failed: bool,
    /// Another client has taken over: every request is refused.
    #[serde(default)]
    pub fenced: bool,
    /// Why etcd cannot note an epoch; everything that depends on that epoch waits.
    #[serde(default)]
    pub etcd: Option<String>,
    /// The rebuild in progress.
    pub rebuild: Option<LiveRebuild>,
    /// The write-behind log, if there is one.
    #[serde(default)]
    pub log: Option<LiveLog>,
    /// Bytes of the medium.
    pub size: u64,
    /// Segments of each server.
    pub segments: u32,
    /// Free segments of each server.
    pub segments_free: u32,
    /// Reads of the medium.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Records sent.
    pub records: u64,
    /// Members lost.
    pub losses: u64,
    /// Reads answered without waiting for a slow server.
    pub hedged: u64,
    /// Blocks computed from other servers.
    pub reconstructed: u64,
    /// Blocks repaired on a server that had wrong data.
    pub repaired: u64,
    /// Segments cleaned for reuse.
    pub cleaned: u64,
    /// Blocks that cleaning moved.
    #[serde(default)]
    pub moved: u64,
    /// Blocks that cleaning moved from memory, without reading a server.
    #[serde(default)]
    pub packed: u64,
    /// Blocks on the servers that are also held in memory.
    #[serde(default)]
    pub held: u64,
    /// Duration of reads.
    pub read_latency: Latency,
    /// Duration of writes.
    pub write_latency: Latency,
    /// Duration of flushes, and of writes that wait to be durable.
    pub flush_latency: Latency,
}

/// A member of an open array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveMember {
    /// Address of its server.
    pub address: String,
    /// `good`, `lost` or `rebuilding`.
    pub state: String,
}

/// Progress of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRebuild {
    /// Member number.
    pub member: usize,
    /// Segments that are done.
    pub done: u32,
    /// Segments in all.
    pub segments: u32,
    /// Bytes written to the member so far.
    pub bytes: u64,
    /// Bytes a second so far.
    pub rate: u64,
}

/// State of the write-behind log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveLog {
    /// Path of the log.
    pub path: String,
    /// `complete`, `copying` (nothing can be restored from it yet) or `failed` (not used until the
    /// array is opened again).
    pub state: String,
    /// Why the log has failed.
    pub error: Option<String>,
    /// Bytes that were flushed to the array and are not in the log.
    pub behind: u64,
    /// Upper limit of `behind`.
    pub bound: u64,
    /// Blocks of the medium that are copied.
    pub copied: u32,
    /// Blocks of the medium.
    pub blocks: u32,
    /// Time of its flush point, in milliseconds since 1970.
    pub time_ms: u64,
    /// Flushes of the array that the log made itself, to stay within the limit.
    pub forced_flushes: u64,
}

/// The socket, served until this is dropped.
pub(crate) struct LiveSocket {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveSocket {
    /// Serves the document of `source` at `path`. The caller holds the lock of the array, so an
    /// existing socket is left over from a process that has died.
    ///
    /// # Errors
    /// The socket or the thread cannot be made.
    pub(crate) fn serve(
        path: PathBuf,
        source: impl Fn() -> Option<Live> + Send + 'static,
    ) -> io::Result<LiveSocket> {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o660))?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("remote-live".into()).spawn({
            let stop = Arc::clone(&stop);
            move || {
                for client in listener.incoming() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    match client {
                        // One client after the other: a document takes a few microseconds.
                        Ok(mut client) => {
                            let _ = client.set_write_timeout(Some(PATIENCE));
                            if let Some(Ok(text)) = source().map(|live| serde_json::to_vec(&live)) {
                                let _ = client.write_all(&text);
                            }
                        }
                        // Most likely no descriptors are left: that passes.
                        Err(_) => std::thread::sleep(Duration::from_millis(100)),
                    }
                }
            }
        })?;
        Ok(LiveSocket { path, stop, thread: Some(thread) })
    }
}

impl Drop for LiveSocket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The connection wakes the thread. If it fails, the thread cannot be joined.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

/// The document of the process that serves the socket at `path`; `None` without such a process.
pub(crate) fn ask(path: &Path) -> Option<Live> {
    let stream = UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut text = Vec::new();
    stream.take(DOCUMENT_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
