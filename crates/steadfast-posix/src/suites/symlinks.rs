//! Symbolic links.

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("symlink");
    for length in [1usize, 59, 60, 255, 256, 1000, 4000, 4095] {
        list.add(format!("target-of-{length}-bytes"), move || {
            let target = "x".repeat(length);
            symlink(target.as_str(), "s")?;
            same("target", readlink("s")?, target.into_bytes())?;
            same("size", lstat("s")?.st_size, length as i64)
        });
    }
    list.add("target-of-4096-bytes-is-enametoolong", || {
        fails(symlink("x".repeat(4096), "s"), Errno::NAMETOOLONG)
    });
    list.add("empty-target-is-enoent", || fails(symlink("", "s"), Errno::NOENT));
    list.add("target-of-any-bytes", || {
        let target: Vec<u8> = (1..=255u8).collect();
        symlink(&target[..], "s")?;
        same("target", readlink("s")?, target)
    });
    list.add("mode-is-0777-and-one-link", || {
        rustix::process::umask(0o077.into());
        symlink("t", "s")?;
        let st = lstat("s")?;
        same("mode", st.st_mode & 0o7777, 0o777)?;
        same("links", st.st_nlink as u64, 1)
    });
    list.add("is-followed-to-file-and-directory", || {
        mkdir("d", 0o755)?;
        put("d/f", b"abc")?;
        symlink("d", "s")?;
        symlink("d/f", "t")?;
        same("through directory", get("s/f")?, b"abc".to_vec())?;
        same("to file", get("t")?, b"abc".to_vec())?;
        same("size", stat("t")?.st_size, 3)
    });
    list.add("relative-target-starts-at-the-link", || {
        mkdir("a", 0o755)?;
        mkdir("b", 0o755)?;
        put("b/f", b"abc")?;
        symlink("../b/f", "a/s")?;
        same("content", get("a/s")?, b"abc".to_vec())
    });
    list.add("absolute-target", || {
        put("f", b"abc")?;
        symlink(std::env::current_dir()?.join("f").as_path(), "s")?;
        same("content", get("s")?, b"abc".to_vec())
    });
    list.add("dangling-is-enoent", || {
        symlink("nowhere", "s")?;
        fails(stat("s"), Errno::NOENT)?;
        fails(open("s", O::RDONLY), Errno::NOENT)?;
        same("type", kind(&lstat("s")?), Kind::Symlink)
    });
    list.add("loop-is-eloop", || {
        symlink("b", "a")?;
        symlink("a", "b")?;
        fails(stat("a"), Errno::LOOP)?;
        fails(open("b", O::RDONLY), Errno::LOOP)?;
        symlink("self", "self")?;
        fails(stat("self"), Errno::LOOP)
    });
    list.add("chain-of-forty-works-forty-one-is-eloop", || {
        put("l0", b"abc")?;
        for i in 1..=41 {
            symlink(format!("l{}", i - 1), format!("l{i}"))?;
        }
        same("content", get("l40")?, b"abc".to_vec())?;
        fails(stat("l41"), Errno::LOOP)
    });
    list.add("existing-name-is-eexist", || {
        put("f", b"")?;
        fails(symlink("t", "f"), Errno::EXIST)?;
        symlink("t", "s")?;
        fails(symlink("u", "s"), Errno::EXIST)?;
        same("target", readlink("s")?, b"t".to_vec())
    });
    list.add("readlink-of-other-types-is-einval", || {
        put("f", b"")?;
        mkdir("d", 0o755)?;
        fails(readlink("f"), Errno::INVAL)?;
        fails(readlink("d"), Errno::INVAL)
    });
    list.add("readlink-is-cut-at-the-buffer", || {
        symlink("abcdef", "s")?;
        let mut buffer = [0u8; 3];
        let count = rustix::fs::readlinkat_raw(rustix::fs::CWD, "s", &mut buffer[..])?;
        same("count", count, 3)?;
        same("bytes", &buffer, b"abc")
    });
    list.add("removal-leaves-the-target", || {
        put("f", b"abc")?;
        symlink("f", "s")?;
        unlink("s")?;
        same("content", get("f")?, b"abc".to_vec())
    });
    list.add("chown-and-times-of-the-link-itself", || {
        put("f", b"")?;
        symlink("f", "s")?;
        let before = lstat("f")?;
        set_link_times("s", (5, 6), (7, 8))?;
        if sys::is_root() {
            lchown("s", 12, 34)?;
            same("owner", (lstat("s")?.st_uid, lstat("s")?.st_gid), (12, 34))?;
        }
        let st = lstat("s")?;
        same("times", (atime(&st), mtime(&st)), ((5, 6), (7, 8)))?;
        same("target's mtime", mtime(&lstat("f")?), mtime(&before))?;
        same("target's owner", lstat("f")?.st_uid, before.st_uid)
    });
    list.add("trailing-slash-needs-a-directory", || {
        mkdir("d", 0o755)?;
        put("f", b"")?;
        symlink("d", "s")?;
        symlink("f", "t")?;
        same("type", kind(&lstat("s/")?), Kind::Directory)?;
        fails(lstat("t/"), Errno::NOTDIR)
    });
    list.add("rmdir-is-enotdir", || {
        mkdir("d", 0o755)?;
        symlink("d", "s")?;
        fails(rmdir("s"), Errno::NOTDIR)
    });
    list.add("new-symlink-belongs-to-caller", || {
        need_root()?;
        mkdir("d", 0o777)?;
        as_user(USER, USER, &[], || Ok(symlink("x", "d/s")?))?;
        same("owner", lstat("d/s")?.st_uid, USER)
    });
}
