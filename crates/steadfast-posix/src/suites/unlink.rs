//! unlink(2) and rmdir(2).

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("unlink");
    list.add("removes-the-name", || {
        put("f", b"")?;
        unlink("f")?;
        fails(lstat("f"), Errno::NOENT)?;
        same("names", names(".")?.len(), 0)
    });
    list.add("removes-every-type-but-directories", || {
        put("file", b"")?;
        symlink("x", "sym")?;
        mkfifo("fifo", 0o600)?;
        mknod("sock", Kind::Socket, 0o600, 0)?;
        for name in ["file", "sym", "fifo", "sock"] {
            unlink(name)?;
        }
        same("names", names(".")?.len(), 0)
    });
    list.add("missing-is-enoent", || fails(unlink("f"), Errno::NOENT));
    list.add("directory-is-eisdir", || {
        mkdir("d", 0o755)?;
        fails_with(unlink("d"), &[Errno::ISDIR, Errno::PERM])
    });
    list.add("file-with-trailing-slash-is-enotdir", || {
        put("f", b"")?;
        fails(unlink("f/"), Errno::NOTDIR)
    });
    list.add("open-file-stays-usable", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        unlink("f")?;
        write_at(&f, 3, &pattern(100_000, 1))?;
        same("head", read_at(&f, 0, 3)?, b"abc".to_vec())?;
        same("tail", read_at(&f, 3, 200_000)?, pattern(100_000, 1))?;
        same("links", fstat(&f)?.st_nlink as u64, 0)?;
        rustix::fs::fchmod(&f, 0o600.into())?;
        rustix::fs::fsync(&f)?;
        same("mode", fstat(&f)?.st_mode & 0o777, 0o600)
    });
    list.add("name-can-be-reused-while-open", || {
        let old = create("f")?;
        write_all(&old, b"old")?;
        unlink("f")?;
        put("f", b"new")?;
        same("old", read_at(&old, 0, 9)?, b"old".to_vec())?;
        same("new", get("f")?, b"new".to_vec())?;
        holds(fstat(&old)?.st_ino != stat("f")?.st_ino, "inodes differ")
    });
    list.add("attributes-of-open-file-stay", || {
        let f = create("f")?;
        set_attribute("f", "user.x", b"1")?;
        unlink("f")?;
        let mut value = [0u8; 8];
        same("length", rustix::fs::fgetxattr(&f, "user.x", &mut value[..])?, 1)
    });
    list.add("last-close-returns-space", || {
        let f = create("f")?;
        write_all(&f, &pattern(8 << 20, 1))?;
        rustix::fs::fsync(&f)?;
        let used = rustix::fs::statvfs(".")?.f_bfree;
        unlink("f")?;
        drop(f);
        let unit = rustix::fs::statvfs(".")?.f_frsize;
        eventually("8 MiB were freed and are seen as free", || {
            rustix::fs::syncfs(open(".", O::RDONLY)?)?;
            let now = rustix::fs::statvfs(".")?.f_bfree;
            Ok(now.saturating_sub(used) * unit >= 7 << 20)
        })
    });
    list.add("many-open-unlinked-files", || {
        let mut open_files = Vec::new();
        for i in 0..200usize {
            let f = create(format!("f{i}"))?;
            write_all(&f, &pattern(i * 50, i as u8))?;
            unlink(format!("f{i}"))?;
            open_files.push(f);
        }
        for (i, f) in open_files.iter().enumerate() {
            same("content", read_at(f, 0, 20_000)?, pattern(i * 50, i as u8))?;
        }
        Ok(())
    });
    list.add("at-removedir-flag-acts-as-rmdir", || {
        use rustix::fs::{AtFlags, CWD, unlinkat};
        mkdir("d", 0o755)?;
        put("f", b"")?;
        unlinkat(CWD, "d", AtFlags::REMOVEDIR)?;
        fails(unlinkat(CWD, "f", AtFlags::REMOVEDIR), Errno::NOTDIR)
    });
    sticky(list);
    list.group("rmdir");
    list.add("removes-an-empty-directory", || {
        mkdir("d", 0o755)?;
        rmdir("d")?;
        fails(lstat("d"), Errno::NOENT)
    });
    list.add("nonempty-is-enotempty", || {
        mkdir("d", 0o755)?;
        for name in ["d/f", "d/.hidden"] {
            put(name, b"")?;
            fails_with(rmdir("d"), &[Errno::NOTEMPTY, Errno::EXIST])?;
            unlink(name)?;
        }
        mkdir("d/e", 0o755)?;
        fails_with(rmdir("d"), &[Errno::NOTEMPTY, Errno::EXIST])?;
        rmdir("d/e")?;
        Ok(rmdir("d")?)
    });
    list.add("file-is-enotdir", || {
        put("f", b"")?;
        fails(rmdir("f"), Errno::NOTDIR)
    });
    list.add("missing-is-enoent", || fails(rmdir("d"), Errno::NOENT));
    list.add("dot-is-einval-dotdot-is-enotempty", || {
        mkdir("d", 0o755)?;
        mkdir("d/e", 0o755)?;
        fails(rmdir("d/."), Errno::INVAL)?;
        fails(rmdir("d/e/."), Errno::INVAL)?;
        fails_with(rmdir("d/e/.."), &[Errno::NOTEMPTY, Errno::EXIST])
    });
    list.add("trailing-slash-works", || {
        mkdir("d", 0o755)?;
        Ok(rmdir("d/")?)
    });
    list.add("lowers-the-parents-link-count", || {
        mkdir("p", 0o755)?;
        let before = links("p")?;
        mkdir("p/d", 0o755)?;
        rmdir("p/d")?;
        same("links", links("p")?, before)
    });
    list.add("working-directory-can-go", || {
        mkdir("d", 0o755)?;
        rustix::process::chdir("d")?;
        rmdir("../d")?;
        fails(create("f"), Errno::NOENT)?;
        fails(mkdir("e", 0o755), Errno::NOENT)?;
        fails(symlink("x", "s"), Errno::NOENT)?;
        fails(rustix::process::getcwd(Vec::new()), Errno::NOENT)?;
        let st = stat(".")?;
        same("type", kind(&st), Kind::Directory)?;
        holds(st.st_nlink as u64 == 0 || st.st_nlink as u64 == 2, "no links, or its own two")?;
        match entries(open(".", O::RDONLY)?) {
            Ok(left) => {
                holds(left.iter().all(|entry| entry.name.starts_with(b".")), "nothing is in it")
            }
            Err(error) => fails(Err::<(), _>(error), Errno::NOENT),
        }
    });
    list.add("open-directory-can-go", || {
        mkdir("d", 0o755)?;
        let d = open("d", O::RDONLY | O::DIRECTORY)?;
        rmdir("d")?;
        same("type", kind(&fstat(&d)?), Kind::Directory)?;
        fails(
            rustix::fs::openat(&d, "f", O::CREATE | O::RDWR | O::CLOEXEC, 0o644.into()),
            Errno::NOENT,
        )
    });
    list.add("after-many-files", || {
        mkdir("d", 0o755)?;
        for i in 0..1000 {
            drop(create(format!("d/file-{i}"))?);
        }
        for i in (0..1000).rev() {
            unlink(format!("d/file-{i}"))?;
        }
        Ok(rmdir("d")?)
    });
    list.add("needs-write-permission-on-parent", || {
        need_root()?;
        mkdir("d", 0o777)?;
        as_user(USER, USER, &[], || fails(rmdir("d"), Errno::ACCESS))
    });
}

fn sticky(list: &mut List) {
    list.add("sticky-directory-protects-others-files", || {
        need_root()?;
        mkdir("d", 0o1777)?;
        put("d/f", b"")?;
        mkdir("d/e", 0o777)?;
        as_user(USER, USER, &[], || {
            fails(unlink("d/f"), Errno::PERM)?;
            fails(rmdir("d/e"), Errno::PERM)?;
            fails(rename("d/f", "d/g"), Errno::PERM)
        })
    });
    list.add("sticky-directory-lets-owners-remove", || {
        need_root()?;
        mkdir("d", 0o1777)?;
        put("d/f", b"")?;
        chown("d/f", USER, USER)?;
        as_user(USER, USER, &[], || Ok(unlink("d/f")?))
    });
    list.add("sticky-directorys-owner-may-remove", || {
        need_root()?;
        mkdir("d", 0o1777)?;
        chown("d", USER, USER)?;
        put("d/f", b"")?;
        as_user(USER, USER, &[], || Ok(unlink("d/f")?))
    });
    list.add("writable-directory-lets-anyone-remove", || {
        need_root()?;
        mkdir("d", 0o777)?;
        drop(create_mode("d/f", 0)?);
        as_user(USER, USER, &[], || Ok(unlink("d/f")?))
    });
    list.add("needs-write-permission-on-directory", || {
        need_root()?;
        put("f", b"")?;
        chown("f", USER, USER)?;
        as_user(USER, USER, &[], || fails(unlink("f"), Errno::ACCESS))
    });
}
