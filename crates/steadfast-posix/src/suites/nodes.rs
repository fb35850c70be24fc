//! FIFOs, sockets and device nodes.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{major, makedev, minor};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("node");
    list.add("mkfifo-type-and-mode", || {
        mkfifo("p", 0o640)?;
        let st = lstat("p")?;
        same("type", kind(&st), Kind::Fifo)?;
        same("mode", st.st_mode & 0o7777, 0o640)?;
        same("size", st.st_size, 0)
    });
    list.add("mkfifo-applies-umask", || {
        rustix::process::umask(0o027.into());
        mkfifo("p", 0o666)?;
        same("mode", mode("p")?, 0o640)
    });
    list.add("fifo-carries-bytes", || {
        mkfifo("p", 0o600)?;
        let reader = std::thread::spawn(|| get_stream("p"));
        let writer = open("p", O::WRONLY)?;
        write_all(&writer, b"through the pipe")?;
        drop(writer);
        match reader.join() {
            Ok(bytes) => same("bytes", bytes?, b"through the pipe".to_vec()),
            Err(_) => Err(Stop::failed("the reader panicked")),
        }
    });
    list.add("fifo-without-reader-is-enxio", || {
        mkfifo("p", 0o600)?;
        fails(open("p", O::WRONLY | O::NONBLOCK), Errno::NXIO)
    });
    list.add("fifo-cannot-seek", || {
        mkfifo("p", 0o600)?;
        let p = open("p", O::RDONLY | O::NONBLOCK)?;
        fails(sys::seek(&p, 0, libc::SEEK_CUR), Errno::SPIPE)
    });
    list.add("mknod-of-regular-file", || {
        mknod("f", Kind::RegularFile, 0o604, 0)?;
        let st = lstat("f")?;
        same("type", kind(&st), Kind::RegularFile)?;
        same("mode", st.st_mode & 0o7777, 0o604)?;
        put("f", b"abc")?;
        same("content", get("f")?, b"abc".to_vec())
    });
    list.add("mknod-of-socket", || {
        mknod("s", Kind::Socket, 0o666, 0)?;
        same("type", kind(&lstat("s")?), Kind::Socket)
    });
    list.add("mknod-of-directory-is-eperm", || {
        fails_with(mknod("d", Kind::Directory, 0o755, 0), &[Errno::PERM, Errno::INVAL])
    });
    list.add("mknod-of-existing-is-eexist", || {
        put("f", b"")?;
        symlink("nowhere", "s")?;
        fails(mkfifo("f", 0o600), Errno::EXIST)?;
        fails(mkfifo("s", 0o600), Errno::EXIST)
    });
    for (name, node, numbers) in [
        ("character-device", Kind::CharacterDevice, (1, 3)),
        ("block-device", Kind::BlockDevice, (7, 200)),
        ("character-device-large-minor", Kind::CharacterDevice, (300, 70_000)),
        ("block-device-largest-numbers", Kind::BlockDevice, (0xfff, 0xf_ffff)),
    ] {
        list.add(format!("{name}-keeps-its-number"), move || {
            need_root()?;
            mknod("n", node, 0o620, makedev(numbers.0, numbers.1))?;
            let st = lstat("n")?;
            same("type", kind(&st), node)?;
            same("number", (major(st.st_rdev), minor(st.st_rdev)), numbers)?;
            same("mode", st.st_mode & 0o7777, 0o620)
        });
    }
    list.add("device-by-user-is-eperm", || {
        need_root()?;
        mkdir("d", 0o777)?;
        as_user(USER, USER, &[], || {
            fails(mknod("d/n", Kind::CharacterDevice, 0o600, makedev(1, 3)), Errno::PERM)
        })
    });
    list.add("null-device-works", || {
        need_root()?;
        mknod("null", Kind::CharacterDevice, 0o666, makedev(1, 3))?;
        let file = match open("null", O::RDWR) {
            Err(Errno::ACCESS) => return Err(Stop::skipped("mounted nodev")),
            other => other?,
        };
        write_all(&file, b"gone")?;
        same("bytes", read_some(&file, 4)?, vec![])
    });
    list.add("socket-listens-and-carries-bytes", || {
        // Socket addresses hold 108 bytes, so the path must be relative.
        let listener = UnixListener::bind("s")?;
        same("type", kind(&lstat("s")?), Kind::Socket)?;
        let mut client = UnixStream::connect("s")?;
        let (mut server, _) = listener.accept()?;
        client.write_all(b"hello")?;
        drop(client);
        let mut bytes = Vec::new();
        server.read_to_end(&mut bytes)?;
        same("bytes", bytes, b"hello".to_vec())
    });
    list.add("socket-bind-twice-fails", || {
        let _listener = UnixListener::bind("s")?;
        match UnixListener::bind("s") {
            Err(error) => same("error", error.kind(), std::io::ErrorKind::AddrInUse),
            Ok(_) => Err(Stop::failed("a second socket of the same name was made")),
        }
    });
    list.add("socket-open-is-enxio", || {
        mknod("s", Kind::Socket, 0o666, 0)?;
        fails(open("s", O::RDONLY), Errno::NXIO)
    });
    list.add("nodes-survive-rename", || {
        mkfifo("p", 0o600)?;
        let inode = lstat("p")?.st_ino;
        rename("p", "q")?;
        same("inode", lstat("q")?.st_ino, inode)?;
        same("type", kind(&lstat("q")?), Kind::Fifo)
    });
    list.add("every-type-is-seen-by-readdir", || {
        put("file", b"")?;
        mkdir("dir", 0o755)?;
        symlink("x", "sym")?;
        mkfifo("fifo", 0o600)?;
        mknod("sock", Kind::Socket, 0o600, 0)?;
        let list = entries(open(".", O::RDONLY | O::DIRECTORY)?)?;
        for entry in list.iter().filter(|entry| !entry.name.starts_with(b".")) {
            let expected = kind(&lstat(&entry.name)?);
            holds(
                entry.kind == expected || entry.kind == Kind::Unknown,
                "the type is right or unknown",
            )?;
        }
        Ok(())
    });
}

/// Reads a stream to its end.
fn get_stream(path: &str) -> Call<Vec<u8>> {
    let file = open(path, O::RDONLY)?;
    let mut all = Vec::new();
    loop {
        let part = read_some(&file, 100)?;
        if part.is_empty() {
            return Ok(all);
        }
        all.extend(part);
    }
}
