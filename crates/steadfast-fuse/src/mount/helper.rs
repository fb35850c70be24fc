//! `fusermount3`, the set-user-id helper that mounts for non-root users and returns the connection
//! over a socket.
//!
//! Errors use the number of the system if there is one. ENOENT means that the helper is not
//! installed.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::MountOptions;
use crate::device::own;

/// Names under which distributions install the helper.
const PROGRAMS: [&str; 2] = ["fusermount3", "fusermount"];

pub(super) fn mount(directory: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    inheritable(theirs.as_raw_fd())?;
    // Commas separate options; the helper accepts an escaping backslash before a comma in a name.
    let name = options.fs_name.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("rw,fsname={name},subtype=steadfast");
    if options.read_only {
        list.replace_range(..2, "ro");
    }
    if options.allow_other {
        list.push_str(",allow_other");
    }
    if options.default_permissions {
        list.push_str(",default_permissions");
    }
    for option in &options.extra {
        list.push(',');
        list.push_str(option);
    }
    let output = run(|command| {
        command
            .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
            .args(["-o", &list, "--"])
            .arg(directory)
            .stderr(Stdio::piped())
    })?;
    drop(theirs);
    if !output.status.success() {
        return Err(refusal(&String::from_utf8_lossy(&output.stderr)));
    }
    receive_descriptor(ours.as_raw_fd())
}

pub(super) fn unmount(directory: &Path, lazy: bool) -> io::Result<()> {
    let output = run(|command| {
        command.arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(directory).stderr(Stdio::piped())
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(if text.contains("busy") {
        io::Error::from_raw_os_error(libc::EBUSY)
    } else {
        refusal(&text)
    })
}

/// Converts the helper's message to an error; keeps the message if it has no errno.
fn refusal(text: &str) -> io::Error {
    let said = |words: &str| text.contains(words);
    if said("Permission denied")
        || said("not permitted")
        || said("no write access")
        || said("user_allow_other")
    {
        return io::Error::from_raw_os_error(libc::EPERM);
    }
    io::Error::other(text.lines().next().unwrap_or("fusermount3 gave no reason").trim().to_owned())
}

fn run(configure: impl Fn(&mut Command) -> &mut Command) -> io::Result<std::process::Output> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        match configure(command.stdin(Stdio::null()).stdout(Stdio::null())).output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENOENT))
}

/// The helper must keep its end of the socket across exec.
#[allow(unsafe_code)]
fn inheritable(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is open; F_SETFD takes an integer.
    if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Receives one byte that carries the descriptor of the connection.
#[allow(unsafe_code)]
fn receive_descriptor(socket: RawFd) -> io::Result<OwnedFd> {
    let mut byte = [0u8; 1];
    let mut vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // Aligned for cmsghdr, and larger than one descriptor needs.
    let mut control = [0u64; 8];
    // SAFETY: msghdr is plain data for which zeros are valid, and its pointers are set to live
    // buffers with their lengths. The control message is read only if the kernel reports one with a
    // descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        loop {
            if libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) >= 0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len as usize >= libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize
        {
            let descriptor = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
            return Ok(own(descriptor));
        }
    }
    Err(io::Error::other("fusermount3 gave no connection back"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{self, FuseDevice};
    use crate::init;
    use crate::mount::table;

    #[test]
    fn mounts_and_unmounts_through_the_helper() {
        let options = MountOptions { fs_name: "a,name\\x".into(), ..MountOptions::default() };
        let directory = tempfile::tempdir().unwrap();
        let descriptor = match (device::open(), mount(directory.path(), &options)) {
            (Ok(_), Ok(descriptor)) => descriptor,
            (Err(error), _) | (_, Err(error)) => {
                eprintln!("SKIPPED: no fusermount3 or /dev/fuse: {error}");
                return;
            }
        };
        init::handshake(&FuseDevice::new(descriptor), &options).unwrap();
        assert!(table::find(directory.path()).is_some());
        unmount(directory.path(), true).unwrap();
        assert!(table::find(directory.path()).is_none());
        assert!(unmount(directory.path(), false).is_err());
    }

    #[test]
    fn refusals_become_errors_of_the_system_where_there_is_one() {
        let errno = |text| refusal(text).raw_os_error();
        assert_eq!(
            errno("fusermount3: user has no write access to mountpoint /x\n"),
            Some(libc::EPERM)
        );
        assert_eq!(errno("fusermount3: too many FUSE filesystems mounted"), None);
    }
}
