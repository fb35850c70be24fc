//! Pulls dirty pages out of the kernel's cache while the daemon continues to serve.
//!
//! A daemon must never wait for its own mount. If the daemon is killed, a thread in such a wait
//! keeps `/dev/fuse` open, and the kernel keeps waiting for answers that never come. Neither ends.
//! So a *helper process* waits instead. It holds no descriptor of the connection. It opens the file
//! through the mount, by a name that only the daemon and the helper know. Then it writes back the
//! dirty pages with `sync_file_range`. This call needs no lock that a client of the mount could
//! hold, and keeps the pages cached. It returns when the daemon has answered every write.
//!
//! The helper is also the watchdog of the connection: it aborts the connection when the daemon
//! dies. An invalidation does wait for the kernel, but with the watchdog even a daemon that is
//! killed during one cannot hang.
//!
//! In a cluster it looks at files for the daemon ([`look`]), which must not wait for that, either.
//!
//! The fallback is to invalidate the pages of the file. The daemon uses it if there is no helper,
//! if the helper may not open the file, or before Linux 6.16. Invalidation writes the pages back
//! one by one and drops them.

mod child;
mod connection;
mod look;

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::thread::JoinHandle;

use child::{LOOK, LOOK_UNLESS_LARGER, Question, WRITE_BACK};
use look::{LARGER, Look};
use zerocopy::IntoBytes;

use crate::device::FuseDevice;
use crate::filesystem::recall::RecalledNode;
use crate::log::log_warning;

pub(crate) use connection::Connection;

/// The name of the helper process of a mount. Its command line is that of its daemon.
pub const HELPER_NAME: &str = "steadfast-pull";

/// Start of the name by which the helper opens a file. The secret and the node id follow, each with
/// 16 hexadecimal digits.
const NAME_PREFIX: &str = ".steadfast-pull-";
const DIGITS: usize = 16;

/// Recognises the helper's requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    secret: u64,
}

impl Pass {
    /// The node id that a name in the root directory stands for, if the request is from the helper.
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

/// Whether the kernel has taken attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    Yes,
    /// No: the size is larger than the one that it has.
    Larger,
    /// No, it may have older ones.
    No,
}

/// The daemon's side of the helper process.
#[derive(Debug)]
pub(crate) struct Puller {
    device: FuseDevice,
    pass: Pass,
    helper: Mutex<Option<UnixStream>>,
    /// The helper's process.
    process: Option<i32>,
    keeper: Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

impl Puller {
    /// Starts the helper for the mount at `directory`. Failure to start it is no error.
    ///
    /// `number`: the device number of the mount. `waits`: `sync_file_range` sees the kernel's page
    /// writeback (Linux 6.16).
    pub(crate) fn start(
        device: FuseDevice,
        (directory, number): (&Path, Option<(u32, u32)>),
        connection: &Connection,
        waits: bool,
    ) -> Puller {
        let pass = Pass { secret: random() };
        let mut puller = Puller {
            device,
            pass,
            helper: Mutex::new(None),
            process: None,
            keeper: Mutex::new(None),
        };
        let path = std::ffi::CString::new(directory.as_os_str().as_bytes()).unwrap_or_default();
        // Without a device number it finds no mount.
        let look = Look::new(path, number.unwrap_or_default());
        match spawn(pass.path_prefix(directory), connection.abort_file(), look) {
            Ok((process, socket, stop, thread)) => {
                puller.process = Some(process);
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

    /// The helper's process, if it may [look](Self::look) at files.
    pub(crate) fn looks(&self) -> Option<u32> {
        self.process.filter(|_| look::is_allowed()).map(|process| process as u32)
    }

    /// Has the kernel take the attributes of a node, see [`look`]. With `grows` also if the size in
    /// `node` is larger than the one that it has.
    ///
    /// # Errors
    /// It may have older ones. ENODEV: the helper does not find the mount any more.
    pub(crate) fn look(&self, node: RecalledNode, grows: bool) -> io::Result<Looked> {
        let mut helper = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || io::Error::from_raw_os_error(libc::ENODEV);
        let socket = helper.as_mut().ok_or_else(gone)?;
        let what = if grows { LOOK } else { LOOK_UNLESS_LARGER };
        match ask(socket, Question { node, what }) {
            Ok(0) => Ok(Looked::Yes),
            Ok(LARGER) => Ok(Looked::Larger),
            Ok(errno) => Err(io::Error::from_raw_os_error(errno)),
            Err(_) => {
                *helper = None;
                Err(gone())
            }
        }
    }

    pub(crate) fn pass(&self) -> Pass {
        self.pass
    }

    /// Returns when every dirty page of the file has been written to the daemon. Other threads must
    /// serve these writes in the meantime.
    ///
    /// # Errors
    /// The kernel could not write a page back: the volume is full or failing.
    pub(crate) fn pull(&self, nodeid: u64) -> io::Result<()> {
        let mut helper = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = helper.as_mut() {
            match ask(socket, Question { node: RecalledNode::stale(nodeid), what: WRITE_BACK }) {
                Ok(0) => return Ok(()),
                // Errors that write-back can return; all others are from opening the file.
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

fn ask(socket: &mut UnixStream, question: Question) -> io::Result<i32> {
    socket.write_all(question.as_bytes())?;
    let mut answer = [0; 4];
    socket.read_exact(&mut answer)?;
    Ok(i32::from_ne_bytes(answer))
}

type Spawned = (i32, UnixStream, mpsc::Sender<()>, JoinHandle<()>);

/// Forks the helper from a thread that afterwards only waits for the end of the session.
///
/// `PR_SET_PDEATHSIG` follows the *thread* that forked, not its process. This is the purpose of the
/// thread:
///
/// - The thread dies immediately when the daemon is killed, whatever other threads wait for. It
///   only waits for a channel, never for the kernel's file system. A worker that is stuck in an
///   invalidation dies only when that ends, and the helper has to bring that about.
/// - The thread does not end before the helper. It ends in [`child::quit`], after `waitpid`, so an
///   orderly end causes no signal: a helper that reads `QUIT` exits before it could receive one.
/// - Nothing else ends the thread. It holds the receiver of a channel whose sender is in the
///   [`Puller`], and does not panic. If it did end early, the helper would take the daemon for dead
///   and abort the connection. The mount would end, but not hang.
/// - If the daemon dies between fork and prctl, `getppid` shows that, because it refers to the
///   process and not to the thread. The thread cannot die alone in between, because it waits for a
///   later event.
/// - The kernel clears the signal when the *receiver* changes its credentials or runs a set-id
///   program. The helper does neither. Capabilities that the daemon drops later do not matter.
fn spawn(path_prefix: Vec<u8>, abort_file: Option<&OwnedFd>, look: Look) -> io::Result<Spawned> {
    let (ours, theirs) = UnixStream::pair()?;
    let second = ours.try_clone()?;
    let abort_file = abort_file.map(OwnedFd::try_clone).transpose()?;
    let (stop, stopped) = mpsc::channel::<()>();
    let (started, start) = mpsc::channel();
    // The helper inherits the thread's name, so it never has that of the daemon.
    let thread = std::thread::Builder::new().name(HELPER_NAME.into()).spawn(move || {
        let plan = child::Plan::new(
            path_prefix,
            theirs.as_raw_fd(),
            abort_file.as_ref().map(AsRawFd::as_raw_fd),
            look,
        );
        let pid = match plan.fork() {
            Ok(pid) => pid,
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        drop((theirs, abort_file));
        let _ = started.send(Ok(pid));
        let _ = stopped.recv();
        child::quit(second, pid);
    })?;
    match start.recv() {
        Ok(Ok(pid)) => Ok((pid, ours, stop, thread)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the thread that starts it ended")),
    }
}

/// A number that other users of the mount cannot guess.
pub(crate) fn random() -> u64 {
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
