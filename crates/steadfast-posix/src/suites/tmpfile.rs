//! O_TMPFILE, and adding a name to such a file.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("tmpfile");
    list.add("has-no-name-and-no-links", || {
        let f = unnamed(O::RDWR, 0o600)?;
        let st = fstat(&f)?;
        same("links", st.st_nlink as u64, 0)?;
        same("mode", st.st_mode & 0o7777, 0o600)?;
        same("names", names(".")?.len(), 0)
    });
    list.add("carries-data", || {
        let f = unnamed(O::RDWR, 0o600)?;
        write_all(&f, &pattern(100_000, 1))?;
        same("content", read_at(&f, 0, 200_000)? == pattern(100_000, 1), true)
    });
    list.add("applies-umask", || {
        rustix::process::umask(0o027.into());
        same("mode", fstat(unnamed(O::RDWR, 0o666)?)?.st_mode & 0o777, 0o640)
    });
    list.add("linkat-names-it", || {
        let f = unnamed(O::RDWR, 0o640)?;
        write_all(&f, b"abc")?;
        name(&f, "named")?;
        same("content", get("named")?, b"abc".to_vec())?;
        same("links", links("named")?, 1)?;
        same("inode", stat("named")?.st_ino, fstat(&f)?.st_ino)?;
        write_all(&f, b"def")?;
        same("content", get("named")?, b"abcdef".to_vec())
    });
    list.add("linkat-does-not-replace", || {
        put("f", b"old")?;
        let f = unnamed(O::RDWR, 0o600)?;
        fails(name(&f, "f"), Errno::EXIST)?;
        same("content", get("f")?, b"old".to_vec())
    });
    list.add("excl-forbids-naming", || {
        let f = unnamed(O::RDWR | O::EXCL, 0o600)?;
        fails(name(&f, "f"), Errno::NOENT)
    });
    list.add("read-only-is-einval", || {
        fails(open_mode(".", O::TMPFILE | O::RDONLY, 0o600), Errno::INVAL)
    });
    list.add("on-a-file-is-enotdir", || {
        put("f", b"")?;
        fails(open_mode("f", O::TMPFILE | O::RDWR, 0o600), Errno::NOTDIR)
    });
    list.add("attributes-set-before-naming-stay", || {
        let f = unnamed(O::RDWR, 0o600)?;
        rustix::fs::fsetxattr(&f, "user.x", b"1", rustix::fs::XattrFlags::empty())?;
        rustix::fs::fchmod(&f, 0o751.into())?;
        name(&f, "f")?;
        same("attribute", attribute("f", "user.x")?, b"1".to_vec())?;
        same("mode", mode("f")?, 0o751)
    });
    list.add("many-at-once", || {
        let files = (0..100).map(|_| unnamed(O::RDWR, 0o600)).collect::<Result<Vec<_>, _>>()?;
        for (i, f) in files.iter().enumerate() {
            write_all(f, &pattern(1000, i as u8))?;
        }
        for (i, f) in files.iter().enumerate() {
            same("content", read_at(f, 0, 2000)?, pattern(1000, i as u8))?;
        }
        Ok(())
    });
    list.add("needs-write-permission-on-directory", || {
        need_root()?;
        drop(unnamed(O::RDWR, 0o600)?);
        as_user(USER, USER, &[], || {
            fails(open_mode(".", O::TMPFILE | O::RDWR, 0o600), Errno::ACCESS)
        })
    });
}

fn unnamed(flags: O, mode: u32) -> Result<OwnedFd, Stop> {
    supported("O_TMPFILE", open_mode(".", O::TMPFILE | flags, mode))
}

fn name(file: &OwnedFd, name: &str) -> Call {
    link_follow(format!("/proc/thread-self/fd/{}", file.as_raw_fd()), name)
}
