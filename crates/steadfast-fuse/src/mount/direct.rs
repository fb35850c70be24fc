//! mount(2) and umount2(2), for root.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::MountOptions;
use crate::device;
use crate::mount::{effective_gid, effective_uid};

/// Options that are flags of mount(2): name, bit, and whether the name sets it.
const FLAGS: [(&str, libc::c_ulong, bool); 18] = [
    ("ro", libc::MS_RDONLY, true),
    ("rw", libc::MS_RDONLY, false),
    ("nosuid", libc::MS_NOSUID, true),
    ("suid", libc::MS_NOSUID, false),
    ("nodev", libc::MS_NODEV, true),
    ("dev", libc::MS_NODEV, false),
    ("noexec", libc::MS_NOEXEC, true),
    ("exec", libc::MS_NOEXEC, false),
    ("sync", libc::MS_SYNCHRONOUS, true),
    ("async", libc::MS_SYNCHRONOUS, false),
    ("dirsync", libc::MS_DIRSYNC, true),
    ("noatime", libc::MS_NOATIME, true),
    ("atime", libc::MS_NOATIME, false),
    ("nodiratime", libc::MS_NODIRATIME, true),
    ("diratime", libc::MS_NODIRATIME, false),
    ("relatime", libc::MS_RELATIME, true),
    ("strictatime", libc::MS_STRICTATIME, true),
    ("nosymfollow", 256, true),
];

/// Options that only mount(8) and fstab use.
fn is_for_mount_only(option: &str) -> bool {
    matches!(
        option,
        "defaults"
            | "auto"
            | "noauto"
            | "user"
            | "nouser"
            | "users"
            | "owner"
            | "group"
            | "_netdev"
            | "nofail"
    ) || option.starts_with("x-")
        || option.starts_with("comment=")
}

pub(super) fn mount(directory: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let device = device::open()?;
    // An image may come from an untrusted source. So its set-id bits and devices are honoured only
    // if options request that.
    let mut flags =
        libc::MS_NOSUID | libc::MS_NODEV | if options.read_only { libc::MS_RDONLY } else { 0 };
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        effective_uid(),
        effective_gid()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    for option in &options.extra {
        match FLAGS.iter().find(|(name, _, _)| name == option) {
            Some((_, bit, true)) => flags |= bit,
            Some((_, bit, false)) => flags &= !bit,
            None if is_for_mount_only(option) => {}
            None => {
                data.push(',');
                data.push_str(option);
            }
        }
    }
    let source = string(options.fs_name.as_bytes())?;
    let target = string(directory.as_os_str().as_bytes())?;
    let data = string(data.as_bytes())?;
    // SAFETY: all pointers are NUL-terminated strings that outlive the call.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            c"fuse.steadfast".as_ptr(),
            flags,
            data.as_ptr().cast::<libc::c_void>(),
        )
    };
    if result == 0 { Ok(device) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn unmount(directory: &Path, lazy: bool) -> io::Result<()> {
    let target = string(directory.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazy { libc::MNT_DETACH } else { 0 };
    // SAFETY: the path is a NUL-terminated string that outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::umount2(target.as_ptr(), flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "a mount option or path holds a NUL byte")
    })
}
