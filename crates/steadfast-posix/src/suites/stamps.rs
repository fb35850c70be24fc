//! The times that each call changes, one check per call: modification and change time of the object
//! and of its directory.

use rustix::fs::{FallocateFlags, RenameFlags, copy_file_range, fallocate, futimens};

use crate::calls::*;

/// The required change of a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Set to now.
    New,
    /// Unchanged.
    Old,
    /// Not checked (the object is gone, or the standard permits both).
    Any,
}

use Fate::{Any, New, Old};

/// One call and its effect on four times.
struct Row {
    name: &'static str,
    run: fn() -> Verdict,
    /// Modification and change time of `d/f`, or of the object of the row's call (see `object`).
    object: (Fate, Fate),
    /// Modification and change time of `d`.
    parent: (Fate, Fate),
    /// The object to check.
    path: &'static str,
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "create", path: "d/f", object: (Old, Old), parent: (New, New), run: || Ok(drop(create("d/new")?)) },
    Row { name: "open-existing", path: "d/f", object: (Old, Old), parent: (Old, Old),
          run: || Ok(drop(open_mode("d/f", O::CREATE | O::RDWR, 0o644)?)) },
    Row { name: "open-trunc", path: "d/f", object: (New, New), parent: (Old, Old),
          run: || Ok(drop(open("d/f", O::WRONLY | O::TRUNC)?)) },
    Row { name: "write", path: "d/f", object: (New, New), parent: (Old, Old),
          run: || Ok(write_at(open_rw("d/f")?, 1, b"x")?) },
    Row { name: "append", path: "d/f", object: (New, New), parent: (Old, Old),
          run: || Ok(write_all(open("d/f", O::WRONLY | O::APPEND)?, b"x")?) },
    Row { name: "write-sync", path: "d/f", object: (New, New), parent: (Old, Old),
          run: || Ok(write_all(open("d/f", O::WRONLY | O::SYNC)?, b"x")?) },
    Row { name: "read", path: "d/f", object: (Old, Old), parent: (Old, Old), run: || Ok(drop(get("d/f")?)) },
    Row { name: "truncate-shorter", path: "d/f", object: (New, New), parent: (Old, Old), run: || Ok(truncate("d/f", 1)?) },
    Row { name: "truncate-longer", path: "d/f", object: (New, New), parent: (Old, Old), run: || Ok(truncate("d/f", 99_999)?) },
    Row { name: "ftruncate-longer", path: "d/f", object: (New, New), parent: (Old, Old),
          run: || Ok(sys::ftruncate(open_rw("d/f")?, 99_999)?) },
    Row { name: "ftruncate-same-size", path: "d/f", object: (New, New), parent: (Old, Old),
          run: || Ok(sys::ftruncate(open_rw("d/f")?, 3)?) },
    Row { name: "fallocate-grow", path: "d/f", object: (Any, New), parent: (Old, Old),
          run: || supported("fallocate", fallocate(open_rw("d/f")?, FallocateFlags::empty(), 0, 9999)) },
    Row { name: "fallocate-punch-hole", path: "d/f", object: (New, New), parent: (Old, Old),
          run: || supported("fallocate", fallocate(open_rw("d/f")?, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 2)) },
    Row { name: "fallocate-zero-range", path: "d/f", object: (New, New), parent: (Old, Old),
          run: || supported("fallocate", fallocate(open_rw("d/f")?, FallocateFlags::ZERO_RANGE, 0, 2)) },
    Row { name: "copy-file-range-source", path: "d/f", object: (Old, Old), parent: (Old, Old),
          run: || same("count", copy_file_range(open("d/f", O::RDONLY)?, None, create("other")?, None, 3)?, 3) },
    Row { name: "chmod", path: "d/f", object: (Old, New), parent: (Old, Old), run: || Ok(chmod("d/f", 0o600)?) },
    Row { name: "chmod-same-mode", path: "d/f", object: (Old, New), parent: (Old, Old), run: || Ok(chmod("d/f", 0o644)?) },
    Row { name: "fchmod", path: "d/f", object: (Old, New), parent: (Old, Old),
          run: || Ok(rustix::fs::fchmod(open("d/f", O::RDONLY)?, 0o600.into())?) },
    Row { name: "chown", path: "d/f", object: (Old, New), parent: (Old, Old),
          run: || { need_root()?; Ok(chown("d/f", 1, 1)?) } },
    Row { name: "utimensat", path: "d/f", object: (Old, New), parent: (Old, Old), run: || Ok(set_times("d/f", (9, 9), OMIT)?) },
    Row { name: "futimens-now", path: "d/f", object: (New, New), parent: (Old, Old),
          run: || Ok(futimens(open_rw("d/f")?, &times(NOW, NOW))?) },
    Row { name: "setxattr", path: "d/f", object: (Old, New), parent: (Old, Old),
          run: || Ok(set_attribute("d/f", "user.new", b"1")?) },
    Row { name: "setxattr-replace", path: "d/f", object: (Old, New), parent: (Old, Old),
          run: || Ok(set_attribute("d/f", "user.x", b"2")?) },
    Row { name: "removexattr", path: "d/f", object: (Old, New), parent: (Old, Old),
          run: || Ok(rustix::fs::removexattr("d/f", "user.x")?) },
    Row { name: "getxattr", path: "d/f", object: (Old, Old), parent: (Old, Old),
          run: || Ok(drop(attribute("d/f", "user.x")?)) },
    Row { name: "stat", path: "d/f", object: (Old, Old), parent: (Old, Old), run: || same("size", stat("d/f")?.st_size, 3) },
    Row { name: "link-source", path: "d/f", object: (Old, New), parent: (Old, Old), run: || Ok(link("d/f", "other")?) },
    Row { name: "link-target-directory", path: "d/f", object: (Old, New), parent: (New, New),
          run: || Ok(link("d/f", "d/other")?) },
    Row { name: "unlink", path: "d/second", object: (Old, New), parent: (New, New), run: || Ok(unlink("d/f")?) },
    Row { name: "symlink", path: "d/f", object: (Old, Old), parent: (New, New), run: || Ok(symlink("x", "d/s")?) },
    Row { name: "readlink", path: "d/f", object: (Old, Old), parent: (Old, Old),
          run: || { symlink("d/f", "s")?; Ok(drop(readlink("s")?)) } },
    Row { name: "mkfifo", path: "d/f", object: (Old, Old), parent: (New, New), run: || Ok(mkfifo("d/p", 0o600)?) },
    Row { name: "mknod", path: "d/f", object: (Old, Old), parent: (New, New),
          run: || Ok(mknod("d/n", Kind::RegularFile, 0o600, 0)?) },
    Row { name: "mkdir", path: "d/sub", object: (Old, Old), parent: (New, New), run: || Ok(mkdir("d/e", 0o755)?) },
    Row { name: "mkdir-inside", path: "d/sub", object: (New, New), parent: (Old, Old), run: || Ok(mkdir("d/sub/e", 0o755)?) },
    Row { name: "rmdir", path: "d/f", object: (Old, Old), parent: (New, New), run: || Ok(rmdir("d/sub")?) },
    Row { name: "rename-within", path: "d/g", object: (Old, Any), parent: (New, New), run: || Ok(rename("d/f", "d/g")?) },
    Row { name: "rename-out", path: "g", object: (Old, Any), parent: (New, New), run: || Ok(rename("d/f", "g")?) },
    Row { name: "rename-in", path: "d/f", object: (Old, Old), parent: (New, New),
          run: || { put("g", b"")?; Ok(rename("g", "d/g")?) } },
    Row { name: "rename-over-replaced-link", path: "d/second", object: (Old, New), parent: (New, New),
          run: || { put("g", b"")?; Ok(rename("g", "d/f")?) } },
    Row { name: "rename-no-op", path: "d/f", object: (Old, Old), parent: (Old, Old), run: || Ok(rename("d/f", "d/second")?) },
    Row { name: "rename-exchange", path: "d/f", object: (Any, Any), parent: (New, New),
          run: || Ok(rename_with("d/f", "d/sub", RenameFlags::EXCHANGE)?) },
    Row { name: "readdir", path: "d/sub", object: (Old, Old), parent: (Old, Old), run: || Ok(drop(names("d")?)) },
    Row { name: "fsync", path: "d/f", object: (Old, Old), parent: (Old, Old),
          run: || Ok(rustix::fs::fsync(open_rw("d/f")?)?) },
    Row { name: "failed-create", path: "d/f", object: (Old, Old), parent: (Old, Old),
          run: || fails(create("d/f"), Errno::EXIST) },
    Row { name: "failed-mkdir", path: "d/sub", object: (Old, Old), parent: (Old, Old),
          run: || fails(mkdir("d/sub", 0o755), Errno::EXIST) },
    Row { name: "failed-rmdir", path: "d/sub", object: (Old, Old), parent: (Old, Old),
          run: || fails(rmdir("d"), Errno::NOTEMPTY) },
    Row { name: "failed-unlink", path: "d/f", object: (Old, Old), parent: (Old, Old),
          run: || fails(unlink("d/missing"), Errno::NOENT) },
    Row { name: "failed-rename", path: "d/f", object: (Old, Old), parent: (Old, Old),
          run: || fails(rename("d/f", "d/sub"), Errno::ISDIR) },
];

pub fn add(list: &mut List) {
    list.group("stamps");
    for row in ROWS {
        list.add(row.name, move || {
            mkdir("d", 0o755)?;
            mkdir("d/sub", 0o755)?;
            put("d/f", b"abc")?;
            link("d/f", "d/second")?;
            set_attribute("d/f", "user.x", b"1")?;
            // Only the call may have created the object, so check what exists now.
            let watched = if exists(row.path) { row.path } else { "d/f" };
            let (object, parent) = (lstat(watched)?, lstat("d")?);
            tick();
            (row.run)()?;
            if exists(row.path) {
                let after = lstat(row.path)?;
                judge(
                    "modification time of the object",
                    row.object.0,
                    mtime(&object),
                    mtime(&after),
                )?;
                judge("change time of the object", row.object.1, ctime(&object), ctime(&after))?;
            }
            let after = lstat("d")?;
            judge(
                "modification time of the directory",
                row.parent.0,
                mtime(&parent),
                mtime(&after),
            )?;
            judge("change time of the directory", row.parent.1, ctime(&parent), ctime(&after))
        });
    }
}

fn judge(what: &str, fate: Fate, before: Time, after: Time) -> Verdict {
    match fate {
        New if after <= before => {
            Err(Stop::failed(format!("{what} must become new, it stayed {before:?}")))
        }
        Old if after != before => {
            Err(Stop::failed(format!("{what} must stay {before:?}, it is {after:?}")))
        }
        _ => Ok(()),
    }
}
