//! mkdir(2) and reading directories: complete, without duplicates, with stable positions.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("mkdir");
    making(list);
    list.group("readdir");
    reading(list);
    positions(list);
}

fn making(list: &mut List) {
    list.add("type-mode-and-links", || {
        mkdir("d", 0o750)?;
        let st = stat("d")?;
        same("type", kind(&st), Kind::Directory)?;
        same("mode", st.st_mode & 0o7777, 0o750)?;
        holds(
            st.st_nlink as u64 == 2 || st.st_nlink as u64 == 1,
            "two links, or one where they are not counted",
        )
    });
    for (mask, expected) in [(0o022, 0o755), (0o077, 0o700), (0o777, 0o000)] {
        list.add(format!("applies-umask-{mask:03o}"), move || {
            rustix::process::umask(mask.into());
            mkdir("d", 0o777)?;
            same("mode", mode("d")?, expected)
        });
    }
    list.add("keeps-the-sticky-bit", || {
        mkdir("d", 0o1777)?;
        same("mode", mode("d")?, 0o1777)
    });
    list.add("raises-the-parents-link-count", || {
        mkdir("p", 0o755)?;
        if links("p")? == 1 {
            return Err(Stop::skipped("directories have a link count of one here"));
        }
        for i in 0..20u64 {
            mkdir(format!("p/d{i}"), 0o755)?;
            same("links", links("p")?, 3 + i)?;
        }
        put("p/file", b"")?;
        same("a file counts nothing", links("p")?, 22)
    });
    list.add("existing-is-eexist", || {
        put("f", b"")?;
        mkdir("d", 0o755)?;
        symlink("nowhere", "s")?;
        for name in ["f", "d", "s", ".", ".."] {
            fails(mkdir(name, 0o755), Errno::EXIST)?;
        }
        Ok(())
    });
    list.add("trailing-slash-works", || {
        mkdir("d/", 0o755)?;
        same("type", kind(&lstat("d")?), Kind::Directory)
    });
    list.add("dot-and-dotdot-are-right", || {
        mkdir("d", 0o755)?;
        mkdir("d/e", 0o755)?;
        same("dot", stat("d/e/.")?.st_ino, stat("d/e")?.st_ino)?;
        same("dotdot", stat("d/e/..")?.st_ino, stat("d")?.st_ino)
    });
    list.add("belongs-to-the-caller", || {
        need_root()?;
        mkdir("p", 0o777)?;
        as_user(USER, USER, &[], || Ok(mkdir("p/d", 0o700)?))?;
        let st = stat("p/d")?;
        same("owner", (st.st_uid, st.st_gid), (USER, USER))
    });
}

fn reading(list: &mut List) {
    list.add("dot-and-dotdot-with-their-inodes", || {
        mkdir("d", 0o755)?;
        let list = entries(open("d", O::RDONLY)?)?;
        let find =
            |name: &[u8]| list.iter().find(|entry| entry.name == name).map(|entry| entry.inode);
        same("dot", find(b"."), Some(stat("d")?.st_ino as u64))?;
        same("dotdot", find(b".."), Some(stat(".")?.st_ino as u64))?;
        same("count", list.len(), 2)
    });
    list.add("inodes-match-stat", || {
        for i in 0..200 {
            drop(create(format!("f{i}"))?);
        }
        for entry in entries(open(".", O::RDONLY)?)? {
            if entry.name != b".." {
                same("inode", entry.inode, lstat(&entry.name)?.st_ino as u64)?;
            }
        }
        Ok(())
    });
    for count in [1usize, 10, 100, 1000, 10_000] {
        list.add(format!("{count}-entries-each-once"), move || {
            mkdir("d", 0o755)?;
            for i in 0..count {
                drop(create(format!("d/entry-number-{i}"))?);
            }
            let mut expected: Vec<Vec<u8>> =
                (0..count).map(|i| format!("entry-number-{i}").into_bytes()).collect();
            expected.sort();
            same("names", names("d")? == expected, true)
        });
    }
    list.add("long-names-each-once", || {
        let name = |i: usize| format!("{i:03}{}", "x".repeat(252));
        for i in 0..300 {
            drop(create(name(i))?);
        }
        same("names", names(".")?, (0..300).map(|i| name(i).into_bytes()).collect::<Vec<_>>())
    });
    list.add("new-entry-is-seen-by-new-reader", || {
        for i in 0..50 {
            put(format!("f{i}"), b"")?;
            same("count", names(".")?.len(), i + 1)?;
        }
        Ok(())
    });
    list.add("rewind-shows-changes", || {
        put("a", b"")?;
        let d = open(".", O::RDONLY)?;
        same("first", entries(&d)?.len(), 3)?;
        put("b", b"")?;
        unlink("a")?;
        sys::seek(&d, 0, libc::SEEK_SET)?;
        let again = entries(&d)?;
        holds(again.iter().any(|entry| entry.name == b"b"), "the new name is there")?;
        holds(!again.iter().any(|entry| entry.name == b"a"), "the old name is gone")
    });
    list.add("removal-while-reading-removes-all", || {
        for i in 0..3000 {
            drop(create(format!("file{i}"))?);
        }
        // As `rm -r` does: read some entries, remove them, continue reading.
        let d = open(".", O::RDONLY)?;
        let mut buffer = [std::mem::MaybeUninit::uninit(); 512];
        let mut reader = rustix::fs::RawDir::new(&d, &mut buffer);
        while let Some(entry) = reader.next() {
            let entry = entry?;
            if !entry.file_name().to_bytes().starts_with(b".") {
                unlink(entry.file_name())?;
            }
        }
        same("left", names(".")?.len(), 0)
    });
    list.add("steady-names-are-seen-while-others-change", || {
        mkdir("d", 0o755)?;
        for i in 0..2000 {
            drop(create(format!("d/steady{i}"))?);
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let churn = scope.spawn(|| -> Verdict {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("d/churn{}", round % 100);
                    if unlink(name.as_str()).is_err() {
                        drop(create(name.as_str())?);
                    }
                    round += 1;
                }
                Ok(())
            });
            let mut verdict = Ok(());
            for _ in 0..15 {
                verdict = scan_once();
                if verdict.is_err() {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            churn.join().unwrap_or_else(|_| Err(Stop::failed("the thread panicked")))?;
            verdict
        })
    });
}

/// One pass over `d`: each of the 2000 `steady` names must appear exactly once.
fn scan_once() -> Verdict {
    let mut seen = HashSet::new();
    for entry in entries(open("d", O::RDONLY)?)? {
        let is_steady = entry.name.starts_with(b"steady");
        if !seen.insert(entry.name.clone()) && is_steady {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            return Err(Stop::failed(format!("{name} was seen twice in one pass")));
        }
    }
    let steady = seen.iter().filter(|name| name.starts_with(b"steady")).count();
    same("steady names seen", steady, 2000)
}

fn positions(list: &mut List) {
    list.add("positions-are-distinct", || {
        for i in 0..500 {
            drop(create(format!("f{i}"))?);
        }
        let list = entries(open(".", O::RDONLY)?)?;
        let cookies: HashSet<u64> = list.iter().map(|entry| entry.cookie).collect();
        same("distinct", cookies.len(), list.len())
    });
    list.add("seek-to-any-position-continues-there", || {
        for i in 0..300 {
            drop(create(format!("f{i}"))?);
        }
        let d = open(".", O::RDONLY)?;
        let list = entries(&d)?;
        for at in [0, 1, 2, 17, 150, 298, 300, 301] {
            sys::seek(&d, list[at].cookie as i64, libc::SEEK_SET)?;
            let rest = entries(&d)?;
            same("what follows", rest == list[at + 1..], true)?;
        }
        Ok(())
    });
    list.add("position-holds-after-its-entry-is-removed", || {
        for i in 0..300 {
            drop(create(format!("f{i}"))?);
        }
        let d = open(".", O::RDONLY)?;
        let list = entries(&d)?;
        let (removed, rest) = list.split_at(150);
        for entry in removed.iter().filter(|entry| !entry.name.starts_with(b".")) {
            unlink(&entry.name)?;
        }
        let d = open(".", O::RDONLY)?;
        sys::seek(&d, removed[149].cookie as i64, libc::SEEK_SET)?;
        let seen: HashSet<Vec<u8>> = entries(&d)?.into_iter().map(|entry| entry.name).collect();
        for entry in rest.iter().filter(|entry| !entry.name.starts_with(b".")) {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            holds(seen.contains(&entry.name), &format!("{name} follows the position"))?;
        }
        Ok(())
    });
    list.add("position-holds-while-many-are-added", || {
        for i in 0..300 {
            drop(create(format!("f{i}"))?);
        }
        let list = entries(open(".", O::RDONLY)?)?;
        for i in 0..3000 {
            drop(create(format!("later{i}"))?);
        }
        let d = open(".", O::RDONLY)?;
        sys::seek(&d, list[100].cookie as i64, libc::SEEK_SET)?;
        let seen: HashSet<Vec<u8>> = entries(&d)?.into_iter().map(|entry| entry.name).collect();
        // The positions of `.` and `..` in the list are not guaranteed.
        for entry in list[101..].iter().filter(|entry| !entry.name.starts_with(b".")) {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            holds(seen.contains(&entry.name), &format!("{name} follows the position"))?;
        }
        Ok(())
    });
    list.add("file-is-enotdir", || {
        put("f", b"")?;
        fails(entries(open("f", O::RDONLY)?), Errno::NOTDIR)
    });
    list.add("needs-read-permission", || {
        need_root()?;
        mkdir("d", 0o711)?;
        put("d/f", b"")?;
        as_user(USER, USER, &[], || {
            fails(open("d", O::RDONLY), Errno::ACCESS)?;
            stat("d/f")?;
            Ok(())
        })
    });
}
