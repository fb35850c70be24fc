//! Flags of files and directories (FS_IOC_GETFLAGS, FS_IOC_SETFLAGS): what chattr(1) promises.

use std::os::fd::OwnedFd;

use rustix::fs::{IFlags, RenameFlags, ioctl_getflags, ioctl_setflags, removexattr};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("flags");
    list.add("a-new-file-and-directory-have-none", || {
        put("f", b"")?;
        mkdir("d", 0o755)?;
        for name in ["f", "d"] {
            same("flags", flags(name)? & OURS, IFlags::empty())?;
        }
        Ok(())
    });
    list.add("set-read-and-clear", || {
        put("f", b"")?;
        mkdir("d", 0o755)?;
        for name in ["f", "d"] {
            for wanted in [IFlags::NODUMP, IFlags::NOATIME, IFlags::NODUMP | IFlags::NOATIME] {
                let _flagged = set(name, wanted)?;
                same("flags", flags(name)? & OURS, wanted)?;
            }
            same("flags", flags(name)? & OURS, IFlags::empty())?;
        }
        Ok(())
    });
    list.add("an-unknown-flag-is-eopnotsupp", || {
        put("f", b"")?;
        let unknown = IFlags::from_bits_retain(1 << 26);
        fails(ioctl_setflags(open("f", O::RDONLY)?, unknown), Errno::OPNOTSUPP)
    });
    list.add("nodump-is-for-the-owner-the-others-for-root", || {
        need_root()?;
        put("f", b"")?;
        chown("f", 1234, 1234)?;
        chmod("f", 0o666)?;
        drop(set("f", IFlags::NODUMP)?);
        let file = open("f", O::RDONLY)?;
        let change = |wanted| ioctl_setflags(&file, others(&file)? | wanted);
        as_user(1235, 1235, &[], || fails(change(IFlags::NODUMP), Errno::PERM))?;
        as_user(1234, 1234, &[], || {
            change(IFlags::NODUMP)?;
            fails(change(IFlags::IMMUTABLE), Errno::PERM)?;
            fails(change(IFlags::APPEND), Errno::PERM)?;
            Ok(change(IFlags::empty())?)
        })?;
        let _flagged = set("f", IFlags::IMMUTABLE)?;
        as_user(1234, 1234, &[], || fails(change(IFlags::empty()), Errno::PERM))
    });
    list.add("reading-keeps-the-access-time-with-noatime", || {
        put("f", b"content")?;
        let _flagged = set("f", IFlags::NOATIME)?;
        let before = atime(&stat("f")?);
        tick();
        same("content", get("f")?, b"content".to_vec())?;
        same("access time", atime(&stat("f")?), before)
    });
    immutable(list);
    append_only(list);
    directories(list);
}

fn immutable(list: &mut List) {
    list.add("immutable-file-cannot-be-opened-for-writing", || {
        let _flagged = made(IFlags::IMMUTABLE)?;
        for how in [O::WRONLY, O::RDWR, O::WRONLY | O::APPEND, O::WRONLY | O::TRUNC] {
            fails(open("f", how), Errno::PERM)?;
        }
        fails(open_mode("f", O::WRONLY | O::CREATE, 0o644), Errno::PERM)?;
        fails(truncate("f", 0), Errno::PERM)?;
        same("content", get("f")?, b"content".to_vec())
    });
    list.add("immutable-file-keeps-its-names", || {
        let _flagged = made(IFlags::IMMUTABLE)?;
        keeps_its_names()
    });
    list.add("immutable-file-keeps-its-attributes", || {
        let _flagged = made(IFlags::IMMUTABLE)?;
        keeps_its_attributes()?;
        fails(set_times("f", NOW, NOW), Errno::PERM)
    });
    list.add("immutable-can-be-cleared", || {
        drop(made(IFlags::IMMUTABLE)?);
        put("f", b"new")?;
        Ok(unlink("f")?)
    });
}

fn append_only(list: &mut List) {
    list.add("append-only-file-grows-and-nothing-else", || {
        let _flagged = made(IFlags::APPEND)?;
        for how in [O::WRONLY, O::RDWR, O::WRONLY | O::TRUNC, O::WRONLY | O::APPEND | O::TRUNC] {
            fails(open("f", how), Errno::PERM)?;
        }
        let file = open("f", O::WRONLY | O::APPEND)?;
        write_all(&file, b" grows")?;
        for length in [0, 3, 100] {
            fails(sys::ftruncate(&file, length), Errno::PERM)?;
            fails(truncate("f", length), Errno::PERM)?;
        }
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        fails(sys::fallocate(&file, punch, 0, 4096), Errno::PERM)?;
        drop(file);
        same("content", get("f")?, b"content grows".to_vec())
    });
    list.add("append-only-file-keeps-its-names", || {
        let _flagged = made(IFlags::APPEND)?;
        keeps_its_names()
    });
    list.add("append-only-file-keeps-its-attributes", || {
        let _flagged = made(IFlags::APPEND)?;
        keeps_its_attributes()?;
        Ok(set_times("f", NOW, NOW)?)
    });
}

fn directories(list: &mut List) {
    list.add("immutable-directory-keeps-its-names", || {
        let _flagged = made_directory(IFlags::IMMUTABLE)?;
        directory_keeps_its_names()?;
        fails(create("d/new"), Errno::PERM)?;
        fails(mkdir("d/new", 0o755), Errno::PERM)?;
        fails(symlink("x", "d/new"), Errno::PERM)?;
        fails(mkfifo("d/new", 0o644), Errno::PERM)?;
        fails(link("other", "d/new"), Errno::PERM)?;
        fails(rename("other", "d/new"), Errno::PERM)?;
        // What the names stand for may change.
        put("d/f", b"changed")?;
        Ok(chmod("d/f", 0o600)?)
    });
    list.add("append-only-directory-takes-names", || {
        let _flagged = made_directory(IFlags::APPEND)?;
        directory_keeps_its_names()?;
        put("d/new", b"")?;
        mkdir("d/newer", 0o755)?;
        link("other", "d/link")?;
        Ok(rename("other", "d/moved")?)
    });
}

const OURS: IFlags =
    IFlags::IMMUTABLE.union(IFlags::APPEND).union(IFlags::NODUMP).union(IFlags::NOATIME);

/// Has flags until it is dropped, or nothing could remove it.
struct Flagged(&'static str, OwnedFd);

impl Drop for Flagged {
    fn drop(&mut self) {
        let cleared = others(&self.1).and_then(|flags| ioctl_setflags(&self.1, flags));
        if let Err(error) = cleared {
            eprintln!("the flags of {} stay: {error}", self.0);
        }
    }
}

/// Flags that a file system has for itself. It wants them back with each change.
fn others(file: &OwnedFd) -> Call<IFlags> {
    Ok(IFlags::from_bits_retain(ioctl_getflags(file)?.bits() & !OURS.bits()))
}

fn flags(path: &str) -> Result<IFlags, Stop> {
    match ioctl_getflags(open(path, O::RDONLY)?) {
        Err(Errno::NOTTY) => Err(Stop::Unsupported("FS_IOC_GETFLAGS: ENOTTY".to_owned())),
        other => supported("FS_IOC_GETFLAGS", other),
    }
}

fn set(path: &'static str, wanted: IFlags) -> Result<Flagged, Stop> {
    let file = open(path, O::RDONLY)?;
    match others(&file).and_then(|flags| ioctl_setflags(&file, flags | wanted)) {
        Err(Errno::NOTTY) => Err(Stop::Unsupported("FS_IOC_SETFLAGS: ENOTTY".to_owned())),
        other => {
            supported("FS_IOC_SETFLAGS", other)?;
            Ok(Flagged(path, file))
        }
    }
}

/// The file "f" with these flags, and "other" beside it.
fn made(wanted: IFlags) -> Result<Flagged, Stop> {
    need_root()?;
    put("f", b"content")?;
    put("other", b"")?;
    set_attribute("f", "user.a", b"1")?;
    set("f", wanted)
}

fn made_directory(wanted: IFlags) -> Result<Flagged, Stop> {
    need_root()?;
    mkdir("d", 0o755)?;
    mkdir("d/e", 0o755)?;
    put("d/f", b"")?;
    put("other", b"")?;
    set("d", wanted)
}

fn keeps_its_names() -> Verdict {
    fails(unlink("f"), Errno::PERM)?;
    fails(rename("f", "g"), Errno::PERM)?;
    fails(rename("other", "f"), Errno::PERM)?;
    fails(rename_with("other", "f", RenameFlags::EXCHANGE), Errno::PERM)?;
    fails(link("f", "g"), Errno::PERM)?;
    same("names", (exists("f"), exists("g"), exists("other")), (true, false, true))
}

fn keeps_its_attributes() -> Verdict {
    let before = stat("f")?;
    fails(chmod("f", 0o600), Errno::PERM)?;
    fails(chown("f", 1, 1), Errno::PERM)?;
    fails(set_times("f", (1, 2), (3, 4)), Errno::PERM)?;
    fails(set_attribute("f", "user.b", b"1"), Errno::PERM)?;
    fails(removexattr("f", "user.a"), Errno::PERM)?;
    let after = stat("f")?;
    same("mode", after.st_mode, before.st_mode)?;
    same("times", (atime(&after), mtime(&after)), (atime(&before), mtime(&before)))
}

fn directory_keeps_its_names() -> Verdict {
    fails(unlink("d/f"), Errno::PERM)?;
    fails(rmdir("d/e"), Errno::PERM)?;
    fails(rename("d/f", "d/g"), Errno::PERM)?;
    fails(rename("d/f", "g"), Errno::PERM)?;
    fails(rename("other", "d/f"), Errno::PERM)?;
    fails(rename("d", "g"), Errno::PERM)?;
    fails(chmod("d", 0o700), Errno::PERM)?;
    same("names", (exists("d/f"), exists("d/e"), exists("other")), (true, true, true))
}
