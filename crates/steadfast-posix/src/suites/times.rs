//! Setting and keeping times: nanoseconds, times before 1970 and after 2038, now and omit,
//! relatime.

use rustix::fs::{AtFlags, CWD, StatxFlags, futimens, statx};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("times");
    setting(list);
    permissions(list);
    access_time(list);
}

fn setting(list: &mut List) {
    for (name, time) in [
        ("the-epoch", (0, 0)),
        ("one-nanosecond", (0, 1)),
        ("last-nanosecond-of-a-second", (1_000_000_000, 999_999_999)),
        ("2038", (0x7fff_ffff, 123_456_789)),
        ("after-2038", (0x8000_0000, 5)),
        ("after-2106", (0x1_0000_0001, 7)),
        ("year-2400", (13_569_465_600, 999)),
        ("before-1970", (-1, 0)),
        ("before-1970-with-nanoseconds", (-1, 999_999_999)),
        ("1901", (-0x8000_0000, 0)),
    ] {
        list.add(format!("{name}-is-kept"), move || {
            put("f", b"")?;
            set_times("f", time, (time.0 + 1, time.1))?;
            let st = stat("f")?;
            same("atime", atime(&st), time)?;
            same("mtime", mtime(&st), (time.0 + 1, time.1))
        });
    }
    for (name, time) in
        [("before-1901", (-0x8000_0001i64, 1)), ("year-10000", (253_402_300_800, 1))]
    {
        list.add(format!("{name}-is-kept-or-clamped"), move || {
            put("f", b"")?;
            set_times("f", time, time)?;
            let got = mtime(&stat("f")?);
            let clamped = got.0 == -0x8000_0000 || got.0 == 0x3_7fff_ffff;
            holds(got == time || clamped, &format!("{time:?} came back as {got:?}"))
        });
    }
    list.add("of-directory-fifo-and-symlink", || {
        mkdir("d", 0o755)?;
        mkfifo("p", 0o600)?;
        symlink("x", "s")?;
        for name in ["d", "p", "s"] {
            set_link_times(name, (100, 1), (200, 2))?;
            let st = lstat(name)?;
            same(name, (atime(&st), mtime(&st)), ((100, 1), (200, 2)))?;
        }
        Ok(())
    });
    list.add("now-is-now", || {
        put("f", b"")?;
        set_times("f", (1, 1), (1, 1))?;
        let before = stat(".")?;
        tick();
        set_times("f", NOW, NOW)?;
        let st = stat("f")?;
        holds(mtime(&st) >= mtime(&before), "mtime is of now")?;
        same("both", atime(&st), mtime(&st))
    });
    list.add("omit-leaves-each", || {
        put("f", b"")?;
        set_times("f", (1, 1), (2, 2))?;
        set_times("f", OMIT, (3, 3))?;
        same("times", (atime(&stat("f")?), mtime(&stat("f")?)), ((1, 1), (3, 3)))?;
        set_times("f", (4, 4), OMIT)?;
        same("times", (atime(&stat("f")?), mtime(&stat("f")?)), ((4, 4), (3, 3)))
    });
    list.add("omit-both-changes-nothing", || {
        put("f", b"")?;
        let before = stat("f")?;
        tick();
        set_times("f", OMIT, OMIT)?;
        same("ctime", ctime(&stat("f")?), ctime(&before))
    });
    list.add("setting-changes-ctime", || {
        put("f", b"")?;
        let before = stat("f")?;
        tick();
        set_times("f", (1, 1), (2, 2))?;
        holds(ctime(&stat("f")?) > ctime(&before), "ctime grows")
    });
    list.add("bad-nanoseconds-are-einval", || {
        put("f", b"")?;
        fails(set_times("f", (1, 1_000_000_000), (1, 0)), Errno::INVAL)?;
        fails(set_times("f", (1, 0), (1, -1)), Errno::INVAL)
    });
    list.add("through-a-descriptor", || {
        let f = create("f")?;
        futimens(&f, &times((5, 5), (6, 6)))?;
        let st = fstat(&f)?;
        same("times", (atime(&st), mtime(&st)), ((5, 5), (6, 6)))
    });
    list.add("through-a-read-only-descriptor", || {
        put("f", b"")?;
        futimens(open("f", O::RDONLY)?, &times((5, 5), (6, 6)))?;
        same("mtime", mtime(&stat("f")?), (6, 6))
    });
    list.add("set-after-write-is-not-overtaken", || {
        // A kernel that delays written data and times must not overwrite a time that was set later.
        let f = create("f")?;
        write_all(&f, &pattern(100_000, 1))?;
        futimens(&f, &times((5, 5), (6, 6)))?;
        rustix::fs::fsync(&f)?;
        drop(f);
        same("mtime", mtime(&stat("f")?), (6, 6))?;
        same("content", get("f")?.len(), 100_000)
    });
    list.add("set-then-close-keeps", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        set_times("f", (5, 5), (6, 6))?;
        drop(f);
        same("mtime", mtime(&stat("f")?), (6, 6))
    });
    list.add("follow-symlinks-unless-told", || {
        put("f", b"")?;
        symlink("f", "s")?;
        set_times("s", (7, 7), (8, 8))?;
        same("target", mtime(&stat("f")?), (8, 8))?;
        holds(mtime(&lstat("s")?) != (8, 8), "the link keeps its own")
    });
    list.add("birth-time-is-kept", || {
        put("f", b"")?;
        let birth = || -> Result<Option<(i64, u32)>, Stop> {
            let got =
                statx(CWD, "f", AtFlags::empty(), StatxFlags::BTIME | StatxFlags::BASIC_STATS)?;
            let has = got.stx_mask & StatxFlags::BTIME.bits() != 0;
            Ok(has.then_some((got.stx_btime.tv_sec, got.stx_btime.tv_nsec)))
        };
        let Some(born) = birth()? else {
            return Err(Stop::Unsupported("birth time".into()));
        };
        tick();
        put("f", b"changed")?;
        set_times("f", (1, 1), (1, 1))?;
        same("birth time", birth()?, Some(born))
    });
    list.add("mtime-and-ctime-never-run-backwards", || {
        // Kernel and file system may set times with different clocks; the later call must have the
        // later time.
        for round in 0..300 {
            let f = create(format!("f{round}"))?;
            let mut last = fstat(&f)?;
            for step in 0..4 {
                match step {
                    0 | 2 => write_all(&f, b"x")?,
                    1 => rustix::fs::fchmod(&f, (0o600 + step).into())?,
                    _ => sys::ftruncate(&f, 1)?,
                }
                let now = fstat(&f)?;
                let what = format!("round {round}, step {step}");
                holds(
                    mtime(&now) >= mtime(&last),
                    &format!("{what}: mtime {:?}", (mtime(&last), mtime(&now))),
                )?;
                holds(
                    ctime(&now) >= ctime(&last),
                    &format!("{what}: ctime {:?}", (ctime(&last), ctime(&now))),
                )?;
                last = now;
            }
        }
        Ok(())
    });
    list.add("ctime-cannot-go-back", || {
        put("f", b"")?;
        let mut last = ctime(&stat("f")?);
        for bits in [0o600, 0o644, 0o640] {
            tick();
            chmod("f", bits)?;
            let now = ctime(&stat("f")?);
            holds(now > last, "ctime grows")?;
            last = now;
        }
        Ok(())
    });
}

fn permissions(list: &mut List) {
    list.add("owner-may-set-any", || {
        need_root()?;
        put("f", b"")?;
        chown("f", USER, USER)?;
        chmod("f", 0)?;
        as_user(USER, USER, &[], || Ok(set_times("f", (1, 1), (2, 2))?))
    });
    list.add("writer-may-set-now-only", || {
        need_root()?;
        drop(create_mode("f", 0o666)?);
        as_user(USER, USER, &[], || {
            set_times("f", NOW, NOW)?;
            fails(set_times("f", (1, 1), (2, 2)), Errno::PERM)?;
            fails(set_times("f", NOW, OMIT), Errno::PERM)
        })
    });
    list.add("others-may-set-nothing", || {
        need_root()?;
        drop(create_mode("f", 0o644)?);
        as_user(USER, USER, &[], || {
            fails(set_times("f", NOW, NOW), Errno::ACCESS)?;
            fails(set_times("f", (1, 1), (2, 2)), Errno::PERM)
        })
    });
}

fn access_time(list: &mut List) {
    list.add("relatime-first-read-after-write-updates", || {
        put("f", b"abc")?;
        if noatime()? {
            return Err(Stop::skipped("mounted noatime"));
        }
        set_times("f", (1000, 0), (2000, 0))?;
        tick();
        get("f")?;
        holds(atime(&stat("f")?) > (2000, 0), "access time was older than modification time")
    });
    list.add("relatime-second-read-does-not", || {
        put("f", b"abc")?;
        set_times("f", NOW, (2000, 0))?;
        tick();
        get("f")?;
        let first = atime(&stat("f")?);
        tick();
        get("f")?;
        same("atime", atime(&stat("f")?), first)
    });
    list.add("relatime-old-access-time-updates", || {
        put("f", b"abc")?;
        if noatime()? {
            return Err(Stop::skipped("mounted noatime"));
        }
        // Two days old, but newer than the modification time. The change time counts too, and it is
        // the present time.
        let now = stat("f")?;
        set_times("f", (now.st_mtime - 2 * 86_400, 0), (1000, 0))?;
        tick();
        get("f")?;
        holds(atime(&stat("f")?).0 >= now.st_mtime - 5, "older than a day")
    });
    list.add("o-noatime-leaves-it", || {
        put("f", b"abc")?;
        set_times("f", (1000, 0), (2000, 0))?;
        tick();
        read_some(open("f", O::RDONLY | O::NOATIME)?, 3)?;
        same("atime", atime(&stat("f")?), (1000, 0))
    });
    list.add("o-noatime-leaves-it-when-the-read-is-not-cached", || {
        let f = create("f")?;
        write_all(&f, &pattern(10_000, 1))?;
        rustix::fs::fsync(&f)?;
        set_times("f", (1000, 0), (2000, 0))?;
        tick();
        let reader = open("f", O::RDONLY | O::NOATIME)?;
        rustix::fs::fadvise(&reader, 0, None, rustix::fs::Advice::DontNeed)?;
        same("content", read_at(&reader, 0, 20_000)?, pattern(10_000, 1))?;
        drop(reader);
        same("atime", atime(&stat("f")?), (1000, 0))
    });
    list.add("uncached-read-of-an-open-file-updates-atime", || {
        let f = create("f")?;
        write_all(&f, &pattern(10_000, 1))?;
        rustix::fs::fsync(&f)?;
        if noatime()? {
            return Err(Stop::skipped("mounted noatime"));
        }
        set_times("f", (1000, 0), (2000, 0))?;
        tick();
        rustix::fs::fadvise(&f, 0, None, rustix::fs::Advice::DontNeed)?;
        read_at(&f, 0, 20_000)?;
        drop(f);
        holds(atime(&stat("f")?) > (2000, 0), "access time was older than modification time")
    });
    list.add("reading-leaves-mtime-and-ctime", || {
        put("f", b"abc")?;
        let before = stat("f")?;
        tick();
        get("f")?;
        let after = stat("f")?;
        same("times", (mtime(&after), ctime(&after)), (mtime(&before), ctime(&before)))
    });
    list.add("directory-read-updates-atime", || {
        mkdir("d", 0o755)?;
        if noatime()? {
            return Err(Stop::skipped("mounted noatime"));
        }
        set_times("d", (1000, 0), (2000, 0))?;
        tick();
        names("d")?;
        holds(atime(&stat("d")?) > (2000, 0), "access time of a directory")
    });
}

/// Whether the target is mounted noatime.
fn noatime() -> Result<bool, Stop> {
    Ok(rustix::fs::statvfs(".")?.f_flag.bits() & libc::ST_NOATIME != 0)
}
