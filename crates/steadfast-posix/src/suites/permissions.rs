//! chmod(2), set-id bits and when they are cleared.

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("chmod");
    for bits in [0o000, 0o111, 0o222, 0o444, 0o755, 0o1755, 0o2755, 0o4755, 0o7777] {
        list.add(format!("file-{bits:04o}"), move || {
            put("f", b"")?;
            chmod("f", bits)?;
            same("mode", mode("f")?, bits)
        });
        list.add(format!("directory-{bits:04o}"), move || {
            mkdir("d", 0o755)?;
            chmod("d", bits)?;
            same("mode", mode("d")?, bits)
        });
    }
    list.add("other-types", || {
        mkfifo("p", 0o600)?;
        mknod("s", Kind::Socket, 0o600, 0)?;
        chmod("p", 0o651)?;
        chmod("s", 0o615)?;
        same("modes", (mode("p")?, mode("s")?), (0o651, 0o615))
    });
    list.add("follows-symlinks", || {
        put("f", b"")?;
        symlink("f", "s")?;
        chmod("s", 0o601)?;
        same("modes", (mode("f")?, mode("s")?), (0o601, 0o777))
    });
    list.add("umask-does-not-matter", || {
        rustix::process::umask(0o777.into());
        put("f", b"")?;
        chmod("f", 0o666)?;
        same("mode", mode("f")?, 0o666)
    });
    list.add("open-descriptor-keeps-its-rights", || {
        need_root()?;
        put("f", b"abc")?;
        chown("f", USER, USER)?;
        as_user(USER, USER, &[], || {
            let f = open_rw("f")?;
            chmod("f", 0)?;
            same("content", read_some(&f, 9)?, b"abc".to_vec())?;
            write_all(&f, b"d")?;
            fails(open("f", O::RDONLY), Errno::ACCESS)
        })
    });
    list.add("by-owner-works-by-others-is-eperm", || {
        need_root()?;
        put("f", b"")?;
        chown("f", USER, USER)?;
        as_user(USER, USER, &[], || Ok(chmod("f", 0o600)?))?;
        as_user(USER - 1, USER, &[], || fails(chmod("f", 0o777), Errno::PERM))?;
        same("mode", mode("f")?, 0o600)
    });
    set_id(list);
}

fn set_id(list: &mut List) {
    list.group("setid");
    for (name, run) in [
        ("write", (|| Ok(write_at(open_rw("f")?, 0, b"x")?)) as fn() -> Verdict),
        ("append", || Ok(write_all(open("f", O::WRONLY | O::APPEND)?, b"x")?)),
        ("truncate", || Ok(truncate("f", 1)?)),
        ("ftruncate", || Ok(sys::ftruncate(open_rw("f")?, 1)?)),
        ("open-trunc", || Ok(drop(open("f", O::WRONLY | O::TRUNC)?))),
        ("fallocate", || supported("fallocate", sys::fallocate(open_rw("f")?, 0, 0, 10_000))),
    ] {
        list.add(format!("{name}-by-user-clears-suid-and-sgid"), move || {
            need_root()?;
            put("f", b"abc")?;
            chmod("f", 0o6777)?;
            as_user(USER, USER, &[], run)?;
            same("mode", mode("f")?, 0o777)
        });
    }
    list.add("write-by-root-keeps-suid-and-sgid", || {
        need_root()?;
        put("f", b"abc")?;
        chmod("f", 0o6777)?;
        write_at(open_rw("f")?, 0, b"x")?;
        same("mode", mode("f")?, 0o6777)
    });
    list.add("read-by-user-keeps-suid-and-sgid", || {
        need_root()?;
        put("f", b"abc")?;
        chmod("f", 0o6777)?;
        as_user(USER, USER, &[], || get("f").map(drop).map_err(Stop::from))?;
        same("mode", mode("f")?, 0o6777)
    });
    list.add("chown-by-root-clears-suid-and-sgid-of-executables", || {
        need_root()?;
        put("f", b"")?;
        chmod("f", 0o6755)?;
        chown("f", USER, USER)?;
        same("mode", mode("f")?, 0o755)
    });
    list.add("chown-keeps-sgid-of-non-group-executables", || {
        need_root()?;
        put("f", b"")?;
        chmod("f", 0o2745)?;
        chown("f", USER, USER)?;
        same("mode", mode("f")?, 0o2745)
    });
    list.add("chown-of-directory-keeps-bits", || {
        need_root()?;
        mkdir("d", 0o755)?;
        chmod("d", 0o6755)?;
        chown("d", USER, USER)?;
        same("mode", mode("d")?, 0o6755)
    });
    list.add("group-change-by-owner-clears-suid-and-sgid", || {
        need_root()?;
        put("f", b"")?;
        chown("f", USER, USER)?;
        chmod("f", 0o6755)?;
        as_user(USER, USER, &[100], || Ok(chown("f", None, 100)?))?;
        same("mode", mode("f")?, 0o755)
    });
    list.add("chmod-outside-own-groups-loses-sgid", || {
        need_root()?;
        put("f", b"")?;
        chown("f", USER, 1234)?;
        as_user(USER, USER, &[], || Ok(chmod("f", 0o2755)?))?;
        same("mode", mode("f")?, 0o755)
    });
    list.add("chmod-within-own-groups-keeps-sgid", || {
        need_root()?;
        put("f", b"")?;
        chown("f", USER, 1234)?;
        as_user(USER, USER, &[1234], || Ok(chmod("f", 0o2755)?))?;
        same("mode", mode("f")?, 0o2755)
    });
    list.add("directory-passes-its-group-on", || {
        need_root()?;
        mkdir("d", 0o777)?;
        chown("d", 0, 1234)?;
        chmod("d", 0o2777)?;
        as_user(USER, USER, &[], || {
            drop(create("d/f")?);
            symlink("x", "d/s")?;
            mkfifo("d/p", 0o600)?;
            Ok(mkdir("d/e", 0o755)?)
        })?;
        for name in ["d/f", "d/s", "d/p", "d/e"] {
            same(name, lstat(name)?.st_gid, 1234)?;
        }
        same("sgid is passed to directories", mode("d/e")? & 0o2000, 0o2000)?;
        same("and not to files", mode("d/f")? & 0o2000, 0)
    });
    list.add("directory-without-sgid-gives-callers-group", || {
        need_root()?;
        mkdir("d", 0o777)?;
        chown("d", 0, 1234)?;
        as_user(USER, USER, &[], || Ok(drop(create("d/f")?)))?;
        same("group", lstat("d/f")?.st_gid, USER)
    });
    list.add("create-with-sgid-outside-own-groups-loses-it", || {
        need_root()?;
        mkdir("d", 0o777)?;
        chown("d", 0, 1234)?;
        chmod("d", 0o2777)?;
        as_user(USER, USER, &[], || Ok(drop(create_mode("d/f", 0o2755)?)))?;
        same("mode", mode("d/f")?, 0o755)
    });
    list.add("store-through-a-map-by-user-keeps-content", || {
        // Linux clears no bits for stores through maps; only the arrival of the data is guaranteed.
        need_root()?;
        put("f", &[0; 4096])?;
        chmod("f", 0o4777)?;
        as_user(USER, USER, &[], || {
            Map::new(open_rw("f")?, 0, 4096, true, true)?.write(0, b"abc");
            Ok(())
        })?;
        same("content", get("f")?[..3].to_vec(), b"abc".to_vec())
    });
}
