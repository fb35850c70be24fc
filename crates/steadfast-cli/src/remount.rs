//! `mount -o remount`: makes a mount read-only, or writable again, while it is in use.
//!
//! The kernel applies the change for all users of the mount. The daemon keeps the volume open for
//! writing. When a mount has become read-only, earlier writes are durable if the mask has
//! `unmount`, as at the end of the mount. `noatime` and `relatime` go to the daemon, too.
//!
//! All other options of Steadfast last as long as the daemon. mount(8) repeats those of fstab, so
//! they may be there. One that is not in force is refused, because nothing would change. The
//! command line of the daemon tells what is in force. Where it does not, such options are accepted
//! and ignored. That is so for a root file system, whose mount was made in an initramfs, and for a
//! process that may not be seen.
//!
//! Where fstab does not have the mount, mount(8) gives the options that the kernel shows, changed
//! as requested. This list is whole: `async` is in it as the absence of `sync`.

use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use steadfast::{Error, TransactionMask};

use crate::ending;
use crate::failure::{Exit, Failure, Outcome};
use crate::live::Live;
use crate::mount_options::MountSettings;
use crate::mounts;
use crate::running;

/// Mount flags as the kernel reports them, and as a remount sets them.
const KEPT: [(StatVfsMountFlags, MountFlags); 8] = [
    (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
    (StatVfsMountFlags::NODEV, MountFlags::NODEV),
    (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
    (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
    (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    (StatVfsMountFlags::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
    (StatVfsMountFlags::from_bits_retain(ST_NOSYMFOLLOW), NOSYMFOLLOW),
];

/// `ST_NOSYMFOLLOW` and `MS_NOSYMFOLLOW` of Linux 5.10.
const ST_NOSYMFOLLOW: u64 = 0x2000;
const NOSYMFOLLOW: MountFlags = MountFlags::from_bits_retain(0x100);

/// Options of every FUSE mount that only the kernel shows. They cannot change.
const SHOWN: [&str; 4] = ["user_id", "group_id", "max_read", "blksize"];

/// Whether these option lists request a remount.
pub fn is_asked(options: &[String]) -> bool {
    words(options).any(|option| option == "remount")
}

fn words(options: &[String]) -> impl Iterator<Item = &str> {
    options.iter().flat_map(|list| list.split(','))
}

/// Changes the mount on `directory`.
///
/// # Errors
/// Nothing is mounted there, files are open for writing, the volume cannot be written to, or the
/// kernel refuses.
pub fn remount(directory: &Path, options: &[String]) -> Outcome {
    let RemountOptions { settings, writable, whole } = read(directory, options)?;
    let mount = mounts::at(directory)
        .map_err(|error| Failure::host(&error, "read", Path::new("/proc/self/mountinfo")))?;
    let Some(mount) = mount else {
        return Err(Failure::new(
            Exit::Failed,
            "no Steadfast volume is mounted here",
            directory.display(),
            "leave 'remount' out to mount one",
        ));
    };
    let live = Live::open(&mount.directory)?;
    let info = live.info()?;
    if mount.directory != Path::new("/")
        && let Some(own) = ending::daemon_of(&mount.source).and_then(running::options_of)
        && let Some(option) =
            running::first_other(&own.on(&mount.source, info.size), words(options), mount.dirsync)
    {
        return Err(Failure::new(
            Exit::Usage,
            format!("a remount cannot change '{option}'"),
            directory.display(),
            "unmount it and mount it again with that option",
        ));
    }
    let read_only = writable.map_or(mount.read_only, |writable| !writable);
    if !read_only && info.read_only {
        return Err(Failure::new(
            Exit::CannotMount,
            "the volume was opened read-only",
            directory.display(),
            "unmount it, and mount it again without 'ro'",
        ));
    }
    if let Some(why) = info.poisoned.filter(|_| !read_only) {
        return Err(Failure::core(Error::Poisoned(why), directory.display()));
    }
    let kernel = statvfs(&mount.directory)
        .map_err(|errno| Failure::host(&errno.into(), "look at", directory))?
        .f_flag;
    let relatime = words(options).any(|option| matches!(option, "relatime" | "atime"));
    let access_times =
        if relatime { Some(true) } else { (!settings.access_times).then_some(false) };
    let flags = flags(kernel, words(options), access_times, whole)
        | if read_only { MountFlags::RDONLY } else { MountFlags::empty() }
        | if mount.dirsync { MountFlags::DIRSYNC } else { MountFlags::empty() };
    let last_point =
        || match read_only && !info.read_only && info.mask.contains(TransactionMask::UNMOUNT) {
            true => live.transact(),
            false => Ok(()),
        };
    // The first point is made while a failure still leaves the mount unchanged; the second covers
    // the last write.
    last_point()?;
    mount_remount(&mount.directory, flags, c"").map_err(|errno| match errno {
        Errno::BUSY => Failure::new(
            Exit::Busy,
            "files are open for writing",
            directory.display(),
            format!(
                "close them and try again; 'fuser -vm {}' shows who has them",
                directory.display()
            ),
        ),
        errno => Failure::host(&errno.into(), "remount", directory),
    })?;
    if let Some(updated) = access_times {
        live.set_access_times(updated)?;
    }
    last_point()
}

/// What the options of a remount say.
struct RemountOptions {
    settings: MountSettings,
    /// Whether the mount is to be writable, if the options say so.
    writable: Option<bool>,
    /// The options are all those of the mount.
    whole: bool,
}

fn read(directory: &Path, options: &[String]) -> Outcome<RemountOptions> {
    let mut wanted =
        RemountOptions { settings: MountSettings::default(), writable: None, whole: false };
    for option in words(options).filter(|option| *option != "remount") {
        if SHOWN.contains(&option.split('=').next().unwrap_or_default()) {
            wanted.whole = true;
            continue;
        }
        wanted.settings.apply(option).map_err(|line| {
            Failure::new(Exit::Usage, line, directory.display(), "see 'steadfast mount --help'")
        })?;
        match option {
            "ro" => wanted.writable = Some(false),
            "rw" => wanted.writable = Some(true),
            _ => {}
        }
    }
    Ok(wanted)
}

/// The current flags of the mount, changed as requested.
fn flags<'a>(
    kernel: StatVfsMountFlags,
    wanted: impl Iterator<Item = &'a str>,
    access_times: Option<bool>,
    whole: bool,
) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (_, flag) in KEPT.iter().filter(|(told, _)| kernel.contains(*told)) {
        flags |= *flag;
    }
    if whole {
        flags.remove(MountFlags::SYNCHRONOUS | MountFlags::NODIRATIME | NOSYMFOLLOW);
    }
    if let Some(updated) = access_times {
        flags.set(MountFlags::NOATIME, !updated);
        flags.set(MountFlags::RELATIME, updated);
    }
    for option in wanted {
        let (flag, on) = match option {
            "nosuid" => (MountFlags::NOSUID, true),
            "suid" => (MountFlags::NOSUID, false),
            "nodev" => (MountFlags::NODEV, true),
            "dev" => (MountFlags::NODEV, false),
            "noexec" => (MountFlags::NOEXEC, true),
            "exec" => (MountFlags::NOEXEC, false),
            "sync" => (MountFlags::SYNCHRONOUS, true),
            "async" => (MountFlags::SYNCHRONOUS, false),
            "nodiratime" => (MountFlags::NODIRATIME, true),
            "diratime" => (MountFlags::NODIRATIME, false),
            "nosymfollow" => (NOSYMFOLLOW, true),
            "symfollow" => (NOSYMFOLLOW, false),
            _ => continue,
        };
        flags.set(flag, on);
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stay_unless_others_are_asked_for() {
        let now = StatVfsMountFlags::NOSUID
            | StatVfsMountFlags::NODEV
            | StatVfsMountFlags::RELATIME
            | StatVfsMountFlags::SYNCHRONOUS;
        let wanted = || ["suid", "noexec", "nosymfollow", "rw"].into_iter();
        let kept = MountFlags::NODEV | MountFlags::RELATIME | MountFlags::NOEXEC | NOSYMFOLLOW;
        assert_eq!(flags(now, wanted(), None, false), kept | MountFlags::SYNCHRONOUS);
        assert_eq!(flags(now, wanted(), None, true), kept);
        let without = flags(now, ["async"].into_iter(), Some(false), false);
        assert_eq!(without, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME);
    }

    #[test]
    fn options_are_read_as_for_a_mount() {
        let options = |list: &str| read(Path::new("/mnt"), &[list.to_owned()]);
        assert_eq!(options("remount,ro,noatime,timer=1s").unwrap().writable, Some(false));
        assert_eq!(options("rw,remount").unwrap().writable, Some(true));
        let shown =
            options("rw,nosuid,relatime,sync,remount,user_id=0,default_permissions").unwrap();
        assert!(shown.whole && shown.settings.kernel == ["nosuid", "sync"]);
        let given = options("remount,nosuid").unwrap();
        assert!(given.writable.is_none() && !given.whole);
        assert!(options("remount,ro,rw").is_err() && options("remount,bogus").is_err());
        assert!(is_asked(&["noatime,remount".to_owned()]) && !is_asked(&["x-remount".to_owned()]));
    }
}
