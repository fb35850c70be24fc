//! Pulling dirty pages out of the kernel's cache while the daemon keeps serving.
//!
//! A daemon must never wait for its own mount: a thread that is stuck in such a wait when the
//! daemon is killed keeps `/dev/fuse` open, the kernel keeps waiting for answers that nobody will
//! give, and neither ends. So a *helper process* does the waiting. It holds no descriptor of the
//! connection; it opens the file through the mount, by a name that only the daemon and it know, and
//! writes the dirty pages back with `sync_file_range`, which needs no lock that a client of the
//! mount could hold, leaves the pages cached and returns when the daemon has answered every write.
//!
//! The helper is also the watchdog of the connection: when the daemon dies it aborts the
//! connection, so that even a daemon that was killed in the middle of an invalidation, which does
//! wait for the kernel, cannot hang.
//!
//! Where there is no helper, or it may not open a file, or the kernel is older than 6.16, the
//! daemon falls back to invalidating the pages of the file, which writes them back first, one by
//! one, and forgets them.

mod child;
mod connection;

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::device::Device;
use crate::log::log_warning;

pub(crate) use connection::Connection;

/// Start of the name by which the helper opens a file; the secret and the node id follow, both as
/// 16 hexadecimal digits.
const NAME_PREFIX: &str = ".steadfast-pull-";
const DIGITS: usize = 16;

/// Recognises the helper's requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    secret: u64,
}

impl Pass {
    /// The node id that a name in the root directory stands for, if it is the helper that asks.
    pub(crate) fn node(&self, name: &[u8]) -> Option<u64> {
        let digits = name.strip_prefix(NAME_PREFIX.as_bytes())?;
        let (secret, nodeid) = digits.split_at_checked(DIGITS)?;
        (hexadecimal(secret)? == self.secret && nodeid.len() == DIGITS)
            .then(|| hexadecimal(nodeid))?
    }

    fn path_prefix(&self, directory: &Path) -> Vec<u8> {
        let mut path = directory.as_os_str().as_bytes().to_vec();
        path.extend_from_slice(format!("/{NAME_PREFIX}{:016x}", self.secret).as_bytes());
        path
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The helper process, seen from the daemon.
#[derive(Debug)]
pub(crate) struct Puller {
    device: Device,
    pass: Pass,
    helper: Mutex<Option<UnixStream>>,
    keeper: Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

impl Puller {
    /// Starts the helper for the mount at `directory`. It is no failure if there is none in the
    /// end.
    ///
    /// `waits`: the kernel's page writeback is visible to `sync_file_range` (Linux 6.16).
    pub(crate) fn start(
        device: Device,
        directory: &Path,
        connection: &Connection,
        waits: bool,
    ) -> Puller {
        let pass = Pass { secret: random() };
        let puller = Puller { device, pass, helper: Mutex::new(None), keeper: Mutex::new(None) };
        match spawn(pass.path_prefix(directory), connection.abort_file()) {
            Ok((socket, stop, thread)) => {
                if waits {
                    *puller.helper.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
                }
                *puller.keeper.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some((stop, thread));
            }
            Err(error) => {
                log_warning!("no helper process ({error}); transact will drop cached pages instead")
            }
        }
        puller
    }

    pub(crate) fn pass(&self) -> Pass {
        self.pass
    }

    /// Returns once every page of the file that was dirty has been written to the daemon. Other
    /// threads have to serve the writes meanwhile.
    ///
    /// # Errors
    /// The kernel could not write a page back: the volume is full or failing.
    pub(crate) fn pull(&self, nodeid: u64) -> io::Result<()> {
        let mut helper = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = helper.as_mut() {
            match ask(socket, nodeid) {
                Ok(0) => return Ok(()),
                // What writing the pages back can answer; anything else came from opening the file.
                Ok(errno @ (libc::EIO | libc::ENOSPC | libc::EFBIG | libc::EROFS)) => {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                Ok(_) => {}
                Err(error) => {
                    log_warning!(
                        "the helper process is gone ({error}); transact drops cached pages from now on"
                    );
                    *helper = None;
                }
            }
        }
        drop(helper);
        self.device.invalidate_inode(nodeid, 0)
    }

    /// Ends the helper.
    pub(crate) fn stop(&self) {
        self.helper.lock().unwrap_or_else(PoisonError::into_inner).take();
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((stop, thread)) = keeper {
            drop(stop);
            let _ = thread.join();
        }
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        self.stop();
    }
}

fn ask(socket: &mut UnixStream, nodeid: u64) -> io::Result<i32> {
    socket.write_all(&nodeid.to_ne_bytes())?;
    let mut answer = [0; 4];
    socket.read_exact(&mut answer)?;
    Ok(i32::from_ne_bytes(answer))
}

type Spawned = (UnixStream, mpsc::Sender<()>, JoinHandle<()>);

/// Forks the helper from a thread that then does nothing but wait for the end of the session.
///
/// `PR_SET_PDEATHSIG` follows the *thread* that forked, not its process. That is why this thread
/// exists:
///
/// - It dies at once when the daemon is killed, whatever the others wait for: it only ever waits
///   for a channel, never for the kernel's file system. A worker that is stuck in an invalidation
///   dies when that ends, which is what the helper is to bring about.
/// - It does not end before the helper. It ends in [`child::quit`], after `waitpid`, so that no
///   signal comes of an orderly end; a helper that reads `QUIT` is gone before it could see one.
/// - Nothing else ends it: it holds the receiver of a channel whose sender is in the [`Puller`],
///   and does not panic. Were it to end early all the same, the helper would take the daemon for
///   dead and abort the connection: a mount that is gone, and never one that hangs.
/// - A daemon that dies between fork and prctl is seen by `getppid`, which names the process and
///   not the thread. The thread cannot die alone in between: it waits for what happens after.
/// - The kernel clears the signal when the *receiver* changes its credentials or runs a set-id
///   program. The helper does neither; what capabilities the daemon drops later is not its
///   business.
fn spawn(path_prefix: Vec<u8>, abort_file: Option<&OwnedFd>) -> io::Result<Spawned> {
    let (ours, theirs) = UnixStream::pair()?;
    let second = ours.try_clone()?;
    let abort_file = abort_file.map(OwnedFd::try_clone).transpose()?;
    let (stop, stopped) = mpsc::channel::<()>();
    let (started, start) = mpsc::channel();
    let thread = std::thread::Builder::new().name("steadfast-keep".into()).spawn(move || {
        let plan = child::Plan::new(
            path_prefix,
            theirs.as_raw_fd(),
            abort_file.as_ref().map(AsRawFd::as_raw_fd),
        );
        let pid = match plan.fork() {
            Ok(pid) => pid,
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        drop((theirs, abort_file));
        let _ = started.send(Ok(()));
        let _ = stopped.recv();
        child::quit(second, pid);
    })?;
    match start.recv() {
        Ok(Ok(())) => Ok((ours, stop, thread)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the thread that starts it ended")),
    }
}

/// Unpredictable enough to keep other users of the mount from guessing the name.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        use std::hash::{BuildHasher, Hasher};
        return std::collections::hash_map::RandomState::new().build_hasher().finish();
    }
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_name_passes() {
        let pass = Pass { secret: 0x1234 };
        assert_eq!(pass.node(b".steadfast-pull-00000000000012340000000000000abc"), Some(0xabc));
        assert_eq!(pass.node(b".steadfast-pull-00000000000012350000000000000abc"), None);
        assert_eq!(pass.node(b".steadfast-pull-0000000000001234"), None);
        assert_eq!(pass.node(b".steadfast-pull-"), None);
        assert_eq!(pass.node(b"abc"), None);
        let path = pass.path_prefix(Path::new("/mnt"));
        assert_eq!(path, b"/mnt/.steadfast-pull-0000000000001234");
    }
}
