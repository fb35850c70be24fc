//! Hard links.

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("link");
    list.add("both-names-are-one-file", || {
        put("a", b"abc")?;
        link("a", "b")?;
        same("inode", stat("a")?.st_ino, stat("b")?.st_ino)?;
        put("b", b"xyz")?;
        same("content", get("a")?, b"xyz".to_vec())
    });
    list.add("counts-links", || {
        put("f", b"")?;
        for i in 1..=50u64 {
            link("f", format!("l{i}"))?;
            same("links", links("f")?, i + 1)?;
        }
        for i in 1..=50u64 {
            unlink(format!("l{i}"))?;
            same("links", links("f")?, 51 - i)?;
        }
        Ok(())
    });
    list.add("a-thousand-links", || {
        put("f", b"abc")?;
        for i in 0..1000 {
            link("f", format!("l{i}"))?;
        }
        same("links", links("l999")?, 1001)?;
        same("content", get("l500")?, b"abc".to_vec())
    });
    list.add("file-survives-removal-of-first-name", || {
        put("a", b"abc")?;
        link("a", "b")?;
        unlink("a")?;
        same("content", get("b")?, b"abc".to_vec())?;
        same("links", links("b")?, 1)
    });
    list.add("attributes-are-shared", || {
        put("a", b"")?;
        link("a", "b")?;
        chmod("b", 0o600)?;
        set_attribute("b", "user.x", b"1")?;
        same("mode", mode("a")?, 0o600)?;
        same("attribute", attribute("a", "user.x")?, b"1".to_vec())
    });
    list.add("across-directories", || {
        mkdir("d", 0o755)?;
        put("f", b"abc")?;
        link("f", "d/g")?;
        same("content", get("d/g")?, b"abc".to_vec())
    });
    list.add("existing-target-is-eexist", || {
        put("a", b"")?;
        put("b", b"")?;
        mkdir("d", 0o755)?;
        symlink("nowhere", "s")?;
        fails(link("a", "b"), Errno::EXIST)?;
        fails(link("a", "a"), Errno::EXIST)?;
        fails(link("a", "d"), Errno::EXIST)?;
        fails(link("a", "s"), Errno::EXIST)?;
        same("links", links("a")?, 1)
    });
    list.add("missing-source-is-enoent", || fails(link("a", "b"), Errno::NOENT));
    list.add("directory-is-eperm", || {
        mkdir("d", 0o755)?;
        fails(link("d", "e"), Errno::PERM)
    });
    list.add("symlink-itself-is-linked", || {
        symlink("nowhere", "s")?;
        link("s", "t")?;
        same("type", kind(&lstat("t")?), Kind::Symlink)?;
        same("target", readlink("t")?, b"nowhere".to_vec())?;
        same("links", links("s")?, 2)
    });
    list.add("symlink-is-followed-when-asked", || {
        put("f", b"abc")?;
        symlink("f", "s")?;
        link_follow("s", "t")?;
        same("inode", lstat("t")?.st_ino, lstat("f")?.st_ino)
    });
    list.add("fifo-can-be-linked", || {
        mkfifo("p", 0o644)?;
        link("p", "q")?;
        same("type", kind(&lstat("q")?), Kind::Fifo)?;
        same("links", links("p")?, 2)
    });
    list.add("target-with-trailing-slash-fails", || {
        put("f", b"")?;
        fails_with(link("f", "g/"), &[Errno::NOENT, Errno::NOTDIR])
    });
    list.add("needs-write-permission-on-directory", || {
        need_root()?;
        drop(create_mode("f", 0o666)?);
        as_user(USER, USER, &[], || fails(link("f", "g"), Errno::ACCESS))
    });
    list.add("of-an-unlinked-open-file-is-enoent", || {
        use std::os::fd::AsRawFd;
        let f = create("f")?;
        unlink("f")?;
        let name = format!("/proc/thread-self/fd/{}", f.as_raw_fd());
        fails(link_follow(name, "g"), Errno::NOENT)
    });
}
