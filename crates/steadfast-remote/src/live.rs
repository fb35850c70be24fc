//! [`Live`]: what an open array is doing, for whoever asks on this machine: a Unix socket beside
//! the witness, which whoever has the array open serves. Who connects gets one JSON document;
//! nothing is read from him, so nothing that he does reaches the array.

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

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest document.
const DOCUMENT_MAX: u64 = 64 << 10;

/// What an open array is doing. Counts are since it was opened.
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
    /// Some members are not good: fewer further losses are survived than the policy promises.
    pub degraded: bool,
    /// More were lost than the policy survives: everything is refused.
    pub failed: bool,
    /// Another client has taken over: everything is refused.
    #[serde(default)]
    pub fenced: bool,
    /// What keeps etcd from noting an epoch, and so what depends on it from going on.
    #[serde(default)]
    pub etcd: Option<String>,
    /// The rebuild that goes on.
    pub rebuild: Option<LiveRebuild>,
    /// The write-behind log, where there is one.
    #[serde(default)]
    pub log: Option<LiveLog>,
    /// Bytes of the medium.
    pub size: u64,
    /// Segments of each server.
    pub segments: u32,
    /// Those that are free.
    pub segments_free: u32,
    /// Reads of the medium.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Records sent.
    pub records: u64,
    /// Members lost.
    pub losses: u64,
    /// Reads that did not wait for a slow server.
    pub hedged: u64,
    /// Blocks computed from other servers.
    pub reconstructed: u64,
    /// Blocks put right on a server that had them wrong.
    pub repaired: u64,
    /// Segments emptied to be used again.
    pub cleaned: u64,
    /// Blocks that were in them and are elsewhere now.
    #[serde(default)]
    pub moved: u64,
    /// Of those, the ones that no server was asked for.
    #[serde(default)]
    pub packed: u64,
    /// Groups of homes that were written without the log.
    #[serde(default)]
    pub groups: u64,
    /// Blocks on the servers that are in memory as well.
    #[serde(default)]
    pub held: u64,
    /// How long reads took.
    pub read_latency: Latency,
    /// How long writes took.
    pub write_latency: Latency,
    /// How long flushes took, and writes that wait to be durable.
    pub flush_latency: Latency,
}

/// A member of an open array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveMember {
    /// Its server.
    pub address: String,
    /// `good`, `lost` or `rebuilding`.
    pub state: String,
}

/// How far a rebuild is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRebuild {
    /// Which member.
    pub member: usize,
    /// Segments that are done.
    pub done: u32,
    /// All of them.
    pub segments: u32,
    /// Bytes written to the member so far.
    pub bytes: u64,
    /// Bytes a second so far.
    pub rate: u64,
}

/// What the write-behind log is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveLog {
    /// Where it is.
    pub path: String,
    /// `complete`, `copying` (nothing can be restored from it yet) or `failed` (given up until the
    /// array is opened again).
    pub state: String,
    /// Why it was given up.
    pub error: Option<String>,
    /// Bytes that were flushed and are not in it.
    pub behind: u64,
    /// The most that this can be.
    pub bound: u64,
    /// Blocks of the medium that are copied.
    pub copied: u32,
    /// All of them.
    pub blocks: u32,
    /// Time of its flush point, in milliseconds since 1970.
    pub time_ms: u64,
    /// Flushes of the array that nobody asked for, made to stay in the bound.
    pub forced_flushes: u64,
}

/// The socket, served until it is dropped.
pub(crate) struct LiveSocket {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveSocket {
    /// Serves what `source` says at `path`. Whoever holds the lock of the array calls this, so a
    /// socket that is there is left over from somebody who has died.
    ///
    /// # Errors
    /// The socket cannot be made, or no thread.
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
                        // One after the other: a document is a few microseconds.
                        Ok(mut client) => {
                            let _ = client.set_write_timeout(Some(PATIENCE));
                            if let Some(Ok(text)) = source().map(|live| serde_json::to_vec(&live)) {
                                let _ = client.write_all(&text);
                            }
                        }
                        // No descriptors left, most likely: that passes.
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
        // Wakes it. Where that fails nobody can be waited for.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

/// What the process says that serves the socket at `path`; `None` where nobody does.
pub(crate) fn ask(path: &Path) -> Option<Live> {
    let stream = UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut text = Vec::new();
    stream.take(DOCUMENT_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
