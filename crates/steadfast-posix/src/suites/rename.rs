//! rename(2) and renameat2(2).

use rustix::fs::RenameFlags;

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("rename");
    files(list);
    directories(list);
    flags(list);
    permissions(list);
}

fn files(list: &mut List) {
    list.add("moves-a-file", || {
        put("a", b"abc")?;
        let inode = stat("a")?.st_ino;
        rename("a", "b")?;
        fails(lstat("a"), Errno::NOENT)?;
        same("inode", stat("b")?.st_ino, inode)?;
        same("content", get("b")?, b"abc".to_vec())
    });
    list.add("replaces-a-file", || {
        put("a", b"new")?;
        put("b", b"old")?;
        rename("a", "b")?;
        same("content", get("b")?, b"new".to_vec())?;
        same("names", names(".")?, vec![b"b".to_vec()])
    });
    list.add("replaced-open-file-stays-usable", || {
        put("a", b"new")?;
        put("b", b"old")?;
        let old = open_rw("b")?;
        rename("a", "b")?;
        same("old", read_at(&old, 0, 9)?, b"old".to_vec())?;
        same("links", fstat(&old)?.st_nlink as u64, 0)
    });
    list.add("replacing-one-of-two-links-keeps-the-other", || {
        put("a", b"new")?;
        put("b", b"old")?;
        link("b", "c")?;
        rename("a", "b")?;
        same("content", get("c")?, b"old".to_vec())?;
        same("links", links("c")?, 1)
    });
    list.add("hard-links-of-one-file-is-a-no-op", || {
        put("a", b"abc")?;
        link("a", "b")?;
        rename("a", "b")?;
        holds(exists("a") && exists("b"), "both names stay")?;
        same("links", links("a")?, 2)
    });
    list.add("onto-itself-is-a-no-op", || {
        put("a", b"abc")?;
        mkdir("d", 0o755)?;
        rename("a", "a")?;
        rename("d", "d")?;
        same("content", get("a")?, b"abc".to_vec())
    });
    list.add("open-file-follows", || {
        let f = create("a")?;
        rename("a", "b")?;
        write_all(&f, b"abc")?;
        same("content", get("b")?, b"abc".to_vec())
    });
    list.add("to-another-directory", || {
        mkdir("d", 0o755)?;
        put("a", b"abc")?;
        rename("a", "d/b")?;
        same("content", get("d/b")?, b"abc".to_vec())?;
        same("names", names(".")?, vec![b"d".to_vec()])
    });
    list.add("symlink-itself-moves", || {
        put("f", b"")?;
        symlink("f", "s")?;
        rename("s", "t")?;
        same("target", readlink("t")?, b"f".to_vec())?;
        holds(exists("f"), "the target stays")
    });
    list.add("symlink-as-target-is-replaced", || {
        put("f", b"f")?;
        symlink("f", "s")?;
        put("a", b"a")?;
        rename("a", "s")?;
        same("type", kind(&lstat("s")?), Kind::RegularFile)?;
        same("target", get("f")?, b"f".to_vec())
    });
    list.add("missing-source-is-enoent", || {
        put("b", b"x")?;
        fails(rename("a", "b"), Errno::NOENT)?;
        same("target", get("b")?, b"x".to_vec())
    });
    list.add("keeps-attributes-and-times", || {
        put("a", b"abc")?;
        set_attribute("a", "user.x", b"1")?;
        chmod("a", 0o604)?;
        set_times("a", (11, 12), (13, 14))?;
        rename("a", "b")?;
        let st = stat("b")?;
        same("times", (atime(&st), mtime(&st)), ((11, 12), (13, 14)))?;
        same("mode", st.st_mode & 0o777, 0o604)?;
        same("attribute", attribute("b", "user.x")?, b"1".to_vec())
    });
    list.add("a-thousand-times-back-and-forth", || {
        put("a", b"abc")?;
        for _ in 0..500 {
            rename("a", "b")?;
            rename("b", "a")?;
        }
        same("content", get("a")?, b"abc".to_vec())?;
        same("names", names(".")?.len(), 1)
    });
    list.add("old-or-new-is-always-there", || {
        put("f", b"0000")?;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| -> Verdict {
                for i in 0..300 {
                    put("new", format!("{i:04}").as_bytes())?;
                    rename("new", "f")?;
                }
                Ok(())
            });
            while !writer.is_finished() {
                same("length", get("f")?.len(), 4)?;
            }
            writer.join().unwrap_or_else(|_| Err(Stop::failed("the writer panicked")))
        })
    });
}

fn directories(list: &mut List) {
    list.add("moves-a-directory-with-content", || {
        mkdir("a", 0o755)?;
        mkdir("a/x", 0o755)?;
        put("a/x/f", b"abc")?;
        rename("a", "b")?;
        same("content", get("b/x/f")?, b"abc".to_vec())
    });
    list.add("directory-over-empty-directory", || {
        mkdir("a", 0o755)?;
        put("a/f", b"")?;
        mkdir("b", 0o755)?;
        rename("a", "b")?;
        same("names", names("b")?, vec![b"f".to_vec()])?;
        same("here", names(".")?.len(), 1)
    });
    list.add("directory-over-nonempty-is-enotempty", || {
        mkdir("a", 0o755)?;
        mkdir("b", 0o755)?;
        put("b/f", b"")?;
        fails_with(rename("a", "b"), &[Errno::NOTEMPTY, Errno::EXIST])?;
        holds(exists("a") && exists("b/f"), "both stay")
    });
    list.add("directory-over-file-is-enotdir", || {
        mkdir("a", 0o755)?;
        put("b", b"")?;
        fails(rename("a", "b"), Errno::NOTDIR)
    });
    list.add("file-over-directory-is-eisdir", || {
        put("a", b"")?;
        mkdir("b", 0o755)?;
        fails(rename("a", "b"), Errno::ISDIR)
    });
    list.add("into-itself-is-einval", || {
        mkdir("a", 0o755)?;
        mkdir("a/b", 0o755)?;
        mkdir("a/b/c", 0o755)?;
        fails(rename("a", "a/x"), Errno::INVAL)?;
        fails(rename("a", "a/b/c/x"), Errno::INVAL)
    });
    list.add("over-an-ancestor-is-enotempty", || {
        mkdir("a", 0o755)?;
        mkdir("a/b", 0o755)?;
        put("a/b/f", b"")?;
        fails_with(rename("a/b/f", "a/b"), &[Errno::ISDIR, Errno::NOTEMPTY, Errno::EXIST])?;
        fails_with(rename("a/b", "a"), &[Errno::NOTEMPTY, Errno::EXIST])
    });
    list.add("dot-and-dotdot-are-refused", || {
        mkdir("a", 0o755)?;
        mkdir("b", 0o755)?;
        for (from, to) in [("a/.", "c"), ("a/..", "c"), ("a", "b/."), ("a", "b/..")] {
            fails_with(rename(from, to), &[Errno::INVAL, Errno::BUSY])?;
        }
        Ok(())
    });
    list.add("dotdot-follows-the-move", || {
        mkdir("a", 0o755)?;
        mkdir("p", 0o755)?;
        rename("a", "p/a")?;
        same("parent", stat("p/a/..")?.st_ino, stat("p")?.st_ino)
    });
    list.add("link-counts-of-parents-follow", || {
        mkdir("p", 0o755)?;
        mkdir("q", 0o755)?;
        mkdir("p/d", 0o755)?;
        let (p, q) = (links("p")?, links("q")?);
        rename("p/d", "q/d")?;
        if p == 1 {
            return Err(Stop::skipped("directories have a link count of one here"));
        }
        same("old parent", links("p")?, p - 1)?;
        same("new parent", links("q")?, q + 1)?;
        same("itself", links("q/d")?, 2)
    });
    list.add("replaced-directory-lowers-the-count", || {
        mkdir("p", 0o755)?;
        mkdir("p/a", 0o755)?;
        mkdir("p/b", 0o755)?;
        rename("p/a", "p/b")?;
        holds(links("p")? == 3 || links("p")? == 1, "one subdirectory is left")
    });
    list.add("working-directory-follows", || {
        mkdir("a", 0o755)?;
        rustix::process::chdir("a")?;
        rename("../a", "../b")?;
        put("f", b"x")?;
        same("content", get("../b/f")?, b"x".to_vec())
    });
    list.add("file-with-trailing-slash-is-enotdir", || {
        put("a", b"")?;
        fails(rename("a/", "b"), Errno::NOTDIR)?;
        fails(rename("a", "b/"), Errno::NOTDIR)
    });
    list.add("directory-with-trailing-slash-works", || {
        mkdir("a", 0o755)?;
        rename("a/", "b/")?;
        same("type", kind(&lstat("b")?), Kind::Directory)
    });
}

fn flags(list: &mut List) {
    const NOREPLACE: RenameFlags = RenameFlags::NOREPLACE;
    const EXCHANGE: RenameFlags = RenameFlags::EXCHANGE;
    list.add("noreplace-moves-to-a-free-name", || {
        put("a", b"abc")?;
        rename_with("a", "b", NOREPLACE)?;
        same("content", get("b")?, b"abc".to_vec())
    });
    list.add("noreplace-on-existing-is-eexist", || {
        put("a", b"a")?;
        put("b", b"b")?;
        mkdir("d", 0o755)?;
        fails(rename_with("a", "b", NOREPLACE), Errno::EXIST)?;
        fails(rename_with("a", "d", NOREPLACE), Errno::EXIST)?;
        fails(rename_with("a", "a", NOREPLACE), Errno::EXIST)?;
        same("content", (get("a")?, get("b")?), (b"a".to_vec(), b"b".to_vec()))
    });
    list.add("exchange-of-files", || {
        put("a", b"a")?;
        put("b", b"b")?;
        rename_with("a", "b", EXCHANGE)?;
        same("content", (get("a")?, get("b")?), (b"b".to_vec(), b"a".to_vec()))
    });
    list.add("exchange-of-file-and-directory", || {
        mkdir("p", 0o755)?;
        mkdir("q", 0o755)?;
        put("p/x", b"file")?;
        mkdir("q/y", 0o755)?;
        put("q/y/f", b"inside")?;
        let (p, q) = (links("p")?, links("q")?);
        rename_with("p/x", "q/y", EXCHANGE)?;
        same("file", get("q/y")?, b"file".to_vec())?;
        same("directory", get("p/x/f")?, b"inside".to_vec())?;
        same("parent of moved directory", stat("p/x/..")?.st_ino, stat("p")?.st_ino)?;
        if p > 1 {
            same("link counts", (links("p")?, links("q")?), (p + 1, q - 1))?;
        }
        Ok(())
    });
    list.add("exchange-of-nonempty-directories", || {
        mkdir("a", 0o755)?;
        mkdir("b", 0o755)?;
        put("a/1", b"")?;
        put("b/2", b"")?;
        rename_with("a", "b", EXCHANGE)?;
        same("names", (names("a")?, names("b")?), (vec![b"2".to_vec()], vec![b"1".to_vec()]))
    });
    list.add("exchange-needs-both", || {
        put("a", b"a")?;
        fails(rename_with("a", "b", EXCHANGE), Errno::NOENT)?;
        fails(rename_with("b", "a", EXCHANGE), Errno::NOENT)
    });
    list.add("exchange-with-own-descendant-is-einval", || {
        mkdir("a", 0o755)?;
        mkdir("a/b", 0o755)?;
        fails(rename_with("a", "a/b", EXCHANGE), Errno::INVAL)?;
        fails(rename_with("a/b", "a", EXCHANGE), Errno::INVAL)
    });
    list.add("exchange-with-itself-works", || {
        put("a", b"a")?;
        rename_with("a", "a", EXCHANGE)?;
        same("content", get("a")?, b"a".to_vec())
    });
    list.add("both-flags-are-einval", || {
        put("a", b"a")?;
        put("b", b"b")?;
        fails(rename_with("a", "b", EXCHANGE | NOREPLACE), Errno::INVAL)
    });
    list.add("unknown-flag-is-einval", || {
        put("a", b"a")?;
        fails(rename_with("a", "b", RenameFlags::from_bits_retain(1 << 20)), Errno::INVAL)
    });
}

fn permissions(list: &mut List) {
    list.add("needs-write-on-both-directories", || {
        need_root()?;
        mkdir("open", 0o777)?;
        mkdir("shut", 0o755)?;
        drop(create_mode("open/f", 0o666)?);
        drop(create_mode("shut/g", 0o666)?);
        as_user(USER, USER, &[], || {
            fails(rename("open/f", "shut/f"), Errno::ACCESS)?;
            fails(rename("shut/g", "open/g"), Errno::ACCESS)?;
            Ok(rename("open/f", "open/h")?)
        })
    });
    list.add("directory-to-new-parent-needs-write-on-itself", || {
        need_root()?;
        mkdir("p", 0o777)?;
        mkdir("q", 0o777)?;
        mkdir("p/d", 0o755)?;
        as_user(USER, USER, &[], || {
            fails(rename("p/d", "q/d"), Errno::ACCESS)?;
            Ok(rename("p/d", "p/e")?)
        })
    });
    list.add("sticky-target-protects-others-files", || {
        need_root()?;
        mkdir("d", 0o1777)?;
        put("d/root", b"")?;
        mkdir("mine", 0o777)?;
        as_user(USER, USER, &[], || {
            put("mine/f", b"")?;
            fails(rename("mine/f", "d/root"), Errno::PERM)?;
            Ok(rename("mine/f", "d/f")?)
        })
    });
}
