//! Permission bits are enforced for each class of user and each combination of bits, on files and
//! directories.

use rustix::fs::Access;

use crate::calls::*;

/// The class of user that a check runs as, owner and group of its object, and the position of the
/// class in the mode.
const CLASSES: [(&str, u32, u32, u32); 3] =
    [("owner", USER, 1234, 6), ("group", 1234, USER, 3), ("others", 1234, 1234, 0)];

pub fn add(list: &mut List) {
    list.group("access");
    for (class, uid, gid, shift) in CLASSES {
        for bits in 0..8u32 {
            let (may_read, may_write, may_run) = (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0);
            // All other classes get the complementary bits, so that only the right class can
            // explain the result.
            let other = !bits & 7;
            let mode = (other * 0o111) & !(7 << shift) | bits << shift;
            list.add(format!("file-{class}-{bits:03b}"), move || {
                need_root()?;
                put("f", b"abc")?;
                chown("f", uid, gid)?;
                chmod("f", mode)?;
                as_user(USER, USER, &[], || {
                    allowed("open for reading", open("f", O::RDONLY), may_read)?;
                    allowed("open for writing", open("f", O::WRONLY), may_write)?;
                    allowed("open for both", open("f", O::RDWR), may_read && may_write)?;
                    allowed("truncate", truncate("f", 3), may_write)?;
                    allowed("access R_OK", access("f", Access::READ_OK), may_read)?;
                    allowed("access W_OK", access("f", Access::WRITE_OK), may_write)?;
                    allowed("access X_OK", access("f", Access::EXEC_OK), may_run)
                })
            });
            list.add(format!("directory-{class}-{bits:03b}"), move || {
                need_root()?;
                mkdir("d", 0o755)?;
                put("d/f", b"abc")?;
                chmod("d/f", 0o666)?;
                chown("d", uid, gid)?;
                chmod("d", mode)?;
                as_user(USER, USER, &[], || {
                    allowed("list", open("d", O::RDONLY | O::DIRECTORY), may_read)?;
                    allowed("look up", stat("d/f"), may_run)?;
                    allowed("open below", open("d/f", O::RDONLY), may_run)?;
                    allowed("create", create("d/new"), may_write && may_run)?;
                    allowed("mkdir", mkdir("d/e", 0o755), may_write && may_run)?;
                    allowed("rename", rename("d/f", "d/g"), may_write && may_run)?;
                    allowed(
                        "unlink",
                        unlink(if may_write { "d/g" } else { "d/f" }),
                        may_write && may_run,
                    )
                })
            });
        }
    }
    list.add("supplementary-group-counts", || {
        need_root()?;
        put("f", b"abc")?;
        chown("f", 0, 4321)?;
        chmod("f", 0o040)?;
        as_user(USER, USER, &[4321], || Ok(drop(get("f")?)))?;
        as_user(USER, USER, &[4320], || fails(open("f", O::RDONLY), Errno::ACCESS))
    });
    list.add("root-may-read-and-write-anything", || {
        need_root()?;
        put("f", b"abc")?;
        chown("f", USER, USER)?;
        chmod("f", 0)?;
        same("content", get("f")?, b"abc".to_vec())?;
        Ok(put("f", b"new")?)
    });
    list.add("root-may-execute-only-with-some-x-bit", || {
        need_root()?;
        put("f", b"")?;
        fails(access("f", Access::EXEC_OK), Errno::ACCESS)?;
        chmod("f", 0o001)?;
        Ok(access("f", Access::EXEC_OK)?)
    });
    list.add("program-runs", || {
        put("script", b"#!/bin/sh\nexit 7\n")?;
        chmod("script", 0o755)?;
        let path = std::env::current_dir()?.join("script");
        same("exit status", std::process::Command::new(path).status()?.code(), Some(7))
    });
    list.add("program-without-x-bit-is-eacces", || {
        put("script", b"#!/bin/sh\nexit 7\n")?;
        let path = std::env::current_dir()?.join("script");
        match std::process::Command::new(path).status() {
            Err(error) => same("error", error.raw_os_error(), Some(libc::EACCES)),
            Ok(_) => Err(Stop::failed("it ran")),
        }
    });
    list.add("each-level-needs-search", || {
        need_root()?;
        mkdir("a", 0o755)?;
        mkdir("a/b", 0o700)?;
        mkdir("a/b/c", 0o777)?;
        put("a/b/c/f", b"")?;
        as_user(USER, USER, &[], || fails(stat("a/b/c/f"), Errno::ACCESS))?;
        chmod("a/b", 0o711)?;
        as_user(USER, USER, &[], || stat("a/b/c/f").map(drop).map_err(Stop::from))
    });
    list.add("change-takes-effect-at-once", || {
        need_root()?;
        mkdir("d", 0o755)?;
        put("d/f", b"abc")?;
        for _ in 0..20 {
            chmod("d", 0o755)?;
            as_user(USER, USER, &[], || stat("d/f").map(drop).map_err(Stop::from))?;
            chmod("d", 0o700)?;
            as_user(USER, USER, &[], || fails(stat("d/f"), Errno::ACCESS))?;
        }
        Ok(())
    });
}

/// The call must succeed if and only if `expected`; a refusal must be EACCES.
#[track_caller]
fn allowed<T>(what: &str, result: Call<T>, expected: bool) -> Verdict {
    match (result, expected) {
        (Ok(_), true) | (Err(Errno::ACCESS), false) => Ok(()),
        (Ok(_), false) => Err(Stop::failed(format!("{what}: expected EACCES, but it succeeded"))),
        (Err(error), _) => Err(Stop::failed(format!(
            "{what}: expected {}, got {}",
            if expected { "success" } else { "EACCES" },
            crate::verdict::name(error)
        ))),
    }
}
