//! open(2) and its flags.

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("open");
    creation(list);
    kinds(list);
    descriptors(list);
}

fn creation(list: &mut List) {
    list.add("create-makes-an-empty-regular-file", || {
        let st = fstat(create("f")?)?;
        same("type", kind(&st), Kind::RegularFile)?;
        same("size", st.st_size, 0)?;
        same("links", st.st_nlink as u64, 1)
    });
    for bits in [0o000, 0o400, 0o644, 0o777] {
        list.add(format!("create-sets-mode-{bits:03o}"), move || {
            drop(create_mode("f", bits)?);
            same("mode", mode("f")?, bits)
        });
    }
    list.add("create-keeps-suid-sgid-sticky-bits", || {
        need_root()?;
        drop(create_mode("f", 0o7755)?);
        same("mode", mode("f")?, 0o7755)
    });
    list.add("create-of-unreadable-file-gives-usable-descriptor", || {
        let f = create_mode("f", 0)?;
        write_all(&f, b"abc")?;
        same("content", read_at(&f, 0, 9)?, b"abc".to_vec())
    });
    for (mask, expected) in [(0o022, 0o644), (0o077, 0o600), (0o777, 0o000), (0o111, 0o666)] {
        list.add(format!("create-applies-umask-{mask:03o}"), move || {
            rustix::process::umask(mask.into());
            drop(create_mode("f", 0o666)?);
            same("mode", mode("f")?, expected)
        });
    }
    list.add("create-of-existing-opens-it-and-keeps-mode", || {
        put("f", b"abc")?;
        chmod("f", 0o640)?;
        let f = open_mode("f", O::CREATE | O::RDWR, 0o777)?;
        same("content", read_at(&f, 0, 9)?, b"abc".to_vec())?;
        same("mode", mode("f")?, 0o640)
    });
    list.add("excl-fails-on-file", || {
        put("f", b"")?;
        fails(open_mode("f", O::CREATE | O::EXCL | O::RDWR, 0o644), Errno::EXIST)
    });
    list.add("excl-fails-on-directory", || {
        mkdir("d", 0o755)?;
        fails(open_mode("d", O::CREATE | O::EXCL | O::RDWR, 0o644), Errno::EXIST)
    });
    list.add("excl-fails-on-symlink-even-dangling", || {
        symlink("nowhere", "s")?;
        fails(open_mode("s", O::CREATE | O::EXCL | O::RDWR, 0o644), Errno::EXIST)?;
        holds(!exists("nowhere"), "the target is not made")
    });
    list.add("create-through-dangling-symlink-makes-target", || {
        symlink("t", "s")?;
        drop(open_mode("s", O::CREATE | O::RDWR, 0o644)?);
        same("type", kind(&lstat("t")?), Kind::RegularFile)
    });
    list.add("create-on-directory-is-eisdir", || {
        mkdir("d", 0o755)?;
        fails(open_mode("d", O::CREATE | O::RDWR, 0o644), Errno::ISDIR)
    });
    list.add("create-with-trailing-slash-fails", || {
        fails(open_mode("f/", O::CREATE | O::RDWR, 0o644), Errno::ISDIR)?;
        holds(!exists("f"), "nothing is made")
    });
    list.add("new-file-has-caller-as-owner", || {
        need_root()?;
        mkdir("d", 0o777)?;
        as_user(USER, USER, &[], || {
            drop(create("d/f")?);
            let st = stat("d/f")?;
            same("owner", (st.st_uid, st.st_gid), (USER, USER))
        })
    });
    list.add("create-updates-all-three-times", || {
        let before = stat(".")?;
        tick();
        drop(create("f")?);
        let st = stat("f")?;
        holds(mtime(&st) > mtime(&before) && ctime(&st) > ctime(&before), "times are of now")?;
        holds(atime(&st) > ctime(&before), "access time is of now")
    });
}

fn kinds(list: &mut List) {
    list.add("missing-is-enoent", || fails(open("f", O::RDONLY), Errno::NOENT));
    list.add("file-with-trailing-slash-is-enotdir", || {
        put("f", b"")?;
        fails(open("f/", O::RDONLY), Errno::NOTDIR)
    });
    list.add("directory-for-writing-is-eisdir", || {
        mkdir("d", 0o755)?;
        fails(open("d", O::WRONLY), Errno::ISDIR)?;
        fails(open("d", O::RDWR), Errno::ISDIR)?;
        fails(open("d", O::RDONLY | O::TRUNC), Errno::ISDIR)
    });
    list.add("directory-can-be-read-but-not-with-read", || {
        mkdir("d", 0o755)?;
        fails(read_some(open("d", O::RDONLY)?, 10), Errno::ISDIR)
    });
    list.add("o-directory-on-file-is-enotdir", || {
        put("f", b"")?;
        fails(open("f", O::RDONLY | O::DIRECTORY), Errno::NOTDIR)
    });
    list.add("o-directory-on-symlink-to-directory-works", || {
        mkdir("d", 0o755)?;
        symlink("d", "s")?;
        open("s", O::RDONLY | O::DIRECTORY)?;
        Ok(())
    });
    list.add("o-nofollow-on-symlink-is-eloop", || {
        put("f", b"")?;
        symlink("f", "s")?;
        fails(open("s", O::RDONLY | O::NOFOLLOW), Errno::LOOP)
    });
    list.add("o-nofollow-follows-inner-symlinks", || {
        mkdir("d", 0o755)?;
        put("d/f", b"x")?;
        symlink("d", "s")?;
        same("content", read_some(open("s/f", O::RDONLY | O::NOFOLLOW)?, 4)?, b"x".to_vec())
    });
    list.add("o-path-gives-stat-but-no-io", || {
        put("f", b"abc")?;
        let f = open("f", O::PATH)?;
        same("size", fstat(&f)?.st_size, 3)?;
        fails(read_some(&f, 1), Errno::BADF)?;
        fails(rustix::fs::fchmod(&f, 0o600.into()), Errno::BADF)
    });
    list.add("o-path-nofollow-opens-the-symlink", || {
        symlink("nowhere", "s")?;
        same("type", kind(&fstat(open("s", O::PATH | O::NOFOLLOW)?)?), Kind::Symlink)
    });
    list.add("o-path-needs-no-permission", || {
        need_root()?;
        drop(create_mode("f", 0)?);
        as_user(USER, USER, &[], || open("f", O::PATH).map(drop).map_err(Stop::from))
    });
    list.add("o-noatime-by-another-user-is-eperm", || {
        need_root()?;
        put("f", b"")?;
        as_user(USER, USER, &[], || fails(open("f", O::RDONLY | O::NOATIME), Errno::PERM))
    });
}

fn descriptors(list: &mut List) {
    list.add("read-only-descriptor-cannot-write", || {
        put("f", b"")?;
        let f = open("f", O::RDONLY)?;
        fails(rustix::io::write(&f, b"x"), Errno::BADF)?;
        fails_with(sys::ftruncate(&f, 1), &[Errno::INVAL, Errno::BADF])
    });
    list.add("write-only-descriptor-cannot-read", || {
        put("f", b"x")?;
        fails(read_some(open("f", O::WRONLY)?, 1), Errno::BADF)
    });
    list.add("trunc-empties-the-file", || {
        put("f", &pattern(100_000, 1))?;
        let f = open("f", O::RDWR | O::TRUNC)?;
        same("size", fstat(&f)?.st_size, 0)?;
        write_at(&f, 5, b"z")?;
        same("content", get("f")?, b"\0\0\0\0\0z".to_vec())
    });
    list.add("trunc-releases-blocks", || {
        put("f", &pattern(1 << 20, 1))?;
        rustix::fs::fsync(open("f", O::RDONLY)?)?;
        holds(stat("f")?.st_blocks >= 2048, "a mebibyte takes 2048 sectors")?;
        drop(open("f", O::WRONLY | O::TRUNC)?);
        same("size", stat("f")?.st_size, 0)?;
        eventually("no blocks are left", || Ok(stat("f")?.st_blocks == 0))
    });
    list.add("trunc-updates-times-of-nonempty-file", || {
        put("f", b"abc")?;
        let before = stat("f")?;
        tick();
        drop(open("f", O::WRONLY | O::TRUNC)?);
        let after = stat("f")?;
        holds(mtime(&after) > mtime(&before), "mtime grows")?;
        holds(ctime(&after) > ctime(&before), "ctime grows")
    });
    list.add("append-writes-at-the-end", || {
        put("f", b"abc")?;
        let f = open("f", O::WRONLY | O::APPEND)?;
        rustix::fs::seek(&f, rustix::fs::SeekFrom::Start(0))?;
        write_all(&f, b"de")?;
        same("position", sys::seek(&f, 0, libc::SEEK_CUR)?, 5)?;
        same("content", get("f")?, b"abcde".to_vec())
    });
    list.add("append-sees-growth-by-others", || {
        put("f", b"a")?;
        let (x, y) = (open("f", O::WRONLY | O::APPEND)?, open("f", O::WRONLY | O::APPEND)?);
        for i in 0..50u8 {
            write_all(if i % 2 == 0 { &x } else { &y }, &[i])?;
        }
        let expected: Vec<u8> = [b'a'].into_iter().chain(0..50).collect();
        same("content", get("f")?, expected)
    });
    list.add("append-can-be-set-later", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        rustix::fs::fcntl_setfl(&f, O::APPEND)?;
        sys::seek(&f, 0, libc::SEEK_SET)?;
        write_all(&f, b"d")?;
        same("content", get("f")?, b"abcd".to_vec())
    });
    for (name, flag) in [("o-sync", O::SYNC), ("o-dsync", O::DSYNC)] {
        list.add(format!("{name}-writes-and-reads"), move || {
            let f = open_mode("f", O::CREATE | O::RDWR | flag, 0o644)?;
            write_all(&f, &pattern(10_000, 3))?;
            same("content", get("f")?, pattern(10_000, 3))
        });
    }
    list.add("o-direct-aligned-round-trip", || {
        let f = supported(
            "O_DIRECT",
            open_mode("f", O::CREATE | O::RDWR | O::DIRECT, 0o644)
                .map_err(|error| if error == Errno::INVAL { Errno::OPNOTSUPP } else { error }),
        )?;
        let mut storage = vec![0u8; 3 * 4096];
        let skew = storage.as_ptr().align_offset(4096);
        storage[skew..skew + 8192].copy_from_slice(&pattern(8192, 9));
        write_at(&f, 4096, &storage[skew..skew + 8192])?;
        storage.fill(0);
        let count = rustix::io::pread(&f, &mut storage[skew..skew + 8192], 4096)?;
        same("count", count, 8192)?;
        same("direct", storage[skew..skew + 8192].to_vec(), pattern(8192, 9))?;
        same("buffered", get("f")?[4096..].to_vec(), pattern(8192, 9))
    });
    list.add("descriptors-have-positions-of-their-own", || {
        put("f", b"abcdef")?;
        let (x, y) = (open("f", O::RDONLY)?, open("f", O::RDONLY)?);
        read_some(&x, 3)?;
        same("y", read_some(&y, 2)?, b"ab".to_vec())?;
        same("x", read_some(&x, 2)?, b"de".to_vec())
    });
    list.add("duplicated-descriptors-share-the-position", || {
        put("f", b"abcdef")?;
        let x = open("f", O::RDONLY)?;
        let y = rustix::io::fcntl_dupfd_cloexec(&x, 0)?;
        read_some(&x, 3)?;
        same("y", read_some(&y, 2)?, b"de".to_vec())
    });
    list.add("reopen-through-proc-of-unlinked-file", || {
        use std::os::fd::AsRawFd;
        let f = create("f")?;
        write_all(&f, b"abc")?;
        unlink("f")?;
        let again = open(format!("/proc/thread-self/fd/{}", f.as_raw_fd()), O::RDONLY)?;
        same("content", read_some(again, 9)?, b"abc".to_vec())
    });
}
