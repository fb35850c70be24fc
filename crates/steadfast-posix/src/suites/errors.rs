//! Errors that every call on a path has in common. They are missing and wrong components, names and
//! paths that are too long, loops, no search permission, and existing or missing objects.

use rustix::fs::Access;

use crate::calls::*;

/// A call on one path. It creates other paths that it needs.
struct PathCall {
    name: &'static str,
    run: fn(&str) -> Call,
    /// The object that the call needs at the path.
    needs: Needs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// An existing object: any object, or a regular file.
    Object,
    /// An unused name.
    Nothing,
}

use Needs::{Nothing, Object};

#[rustfmt::skip]
const CALLS: &[PathCall] = &[
    PathCall { name: "open", needs: Object, run: |p| open(p, O::RDONLY).map(drop) },
    PathCall { name: "open-write", needs: Object, run: |p| open(p, O::WRONLY).map(drop) },
    PathCall { name: "open-path", needs: Object, run: |p| open(p, O::PATH).map(drop) },
    PathCall { name: "creat", needs: Nothing, run: |p| create(p).map(drop) },
    PathCall { name: "mkdir", needs: Nothing, run: |p| mkdir(p, 0o755) },
    PathCall { name: "mkfifo", needs: Nothing, run: |p| mkfifo(p, 0o600) },
    PathCall { name: "mknod", needs: Nothing, run: |p| mknod(p, Kind::RegularFile, 0o600, 0) },
    PathCall { name: "symlink", needs: Nothing, run: |p| symlink("target", p) },
    PathCall { name: "link-from", needs: Object, run: |p| link(p, "made") },
    PathCall { name: "link-to", needs: Nothing, run: |p| link("file", p) },
    PathCall { name: "unlink", needs: Object, run: |p| unlink(p) },
    PathCall { name: "rmdir", needs: Object, run: |p| rmdir(p) },
    PathCall { name: "rename-from", needs: Object, run: |p| rename(p, "made") },
    PathCall { name: "rename-to", needs: Nothing, run: |p| rename("file", p) },
    PathCall { name: "chmod", needs: Object, run: |p| chmod(p, 0o644) },
    PathCall { name: "chown", needs: Object, run: |p| chown(p, None, None) },
    PathCall { name: "lchown", needs: Object, run: |p| lchown(p, None, None) },
    PathCall { name: "truncate", needs: Object, run: |p| truncate(p, 0) },
    PathCall { name: "utimensat", needs: Object, run: |p| set_times(p, NOW, NOW) },
    PathCall { name: "access", needs: Object, run: |p| access(p, Access::EXISTS) },
    PathCall { name: "stat", needs: Object, run: |p| stat(p).map(drop) },
    PathCall { name: "lstat", needs: Object, run: |p| lstat(p).map(drop) },
    PathCall { name: "readlink", needs: Object, run: |p| readlink(p).map(drop) },
    PathCall { name: "statfs", needs: Object, run: |p| rustix::fs::statfs(p).map(drop) },
    PathCall { name: "chdir", needs: Object, run: |p| rustix::process::chdir(p) },
    PathCall { name: "setxattr", needs: Object, run: |p| set_attribute(p, "user.x", b"1") },
    PathCall { name: "getxattr", needs: Object, run: |p| attribute(p, "user.x").map(drop) },
    PathCall { name: "listxattr", needs: Object, run: |p| attributes(p).map(drop) },
    PathCall { name: "removexattr", needs: Object, run: |p| rustix::fs::removexattr(p, "user.x") },
];

/// Objects for all calls: a file, a directory without search permission, and links that dangle or
/// form loops.
fn prepare() -> Verdict {
    drop(create_mode("file", 0o666)?);
    mkdir("locked", 0o700)?;
    drop(create_mode("locked/f", 0o666)?);
    symlink("circle2", "circle1")?;
    symlink("circle1", "circle2")?;
    Ok(symlink("nowhere", "dangling")?)
}

pub fn add(list: &mut List) {
    list.group("errors");
    for call in CALLS {
        let name = call.name;
        let run = call.run;
        list.add(format!("{name}-missing-component-is-enoent"), move || {
            prepare()?;
            fails(run("missing/x"), Errno::NOENT)
        });
        list.add(format!("{name}-dangling-component-is-enoent"), move || {
            prepare()?;
            fails(run("dangling/x"), Errno::NOENT)
        });
        list.add(format!("{name}-file-as-component-is-enotdir"), move || {
            prepare()?;
            fails(run("file/x"), Errno::NOTDIR)
        });
        list.add(format!("{name}-loop-as-component-is-eloop"), move || {
            prepare()?;
            fails(run("circle1/x"), Errno::LOOP)
        });
        list.add(format!("{name}-256-byte-name-is-enametoolong"), move || {
            prepare()?;
            fails(run(&"n".repeat(256)), Errno::NAMETOOLONG)?;
            fails(run(&format!("{}/x", "n".repeat(256))), Errno::NAMETOOLONG)
        });
        list.add(format!("{name}-4096-byte-path-is-enametoolong"), move || {
            prepare()?;
            fails(run(&"./".repeat(2048)), Errno::NAMETOOLONG)
        });
        list.add(format!("{name}-empty-path-is-enoent"), move || {
            prepare()?;
            fails(run(""), Errno::NOENT)
        });
        list.add(format!("{name}-unsearchable-component-is-eacces"), move || {
            need_root()?;
            prepare()?;
            // The working directory is writable, so only the component can cause the error.
            chmod(".", 0o777)?;
            as_user(USER, USER, &[], || fails(run("locked/f"), Errno::ACCESS))
        });
        if call.needs == Object {
            list.add(format!("{name}-missing-is-enoent"), move || {
                prepare()?;
                fails(run("missing"), Errno::NOENT)
            });
        }
    }
    for (name, run) in [
        ("chmod", (|p| chmod(p, 0o600)) as fn(&str) -> Call),
        ("chown", |p| chown(p, 1, 1)),
        ("utimensat-now", |p| set_times(p, NOW, NOW)),
        ("utimensat", |p| set_times(p, (1, 0), (1, 0))),
        ("setxattr", |p| set_attribute(p, "user.x", b"1")),
        ("truncate", |p| truncate(p, 0)),
    ] {
        list.add(format!("{name}-of-anothers-file-is-refused"), move || {
            need_root()?;
            put("f", b"abc")?;
            as_user(USER, USER, &[], || fails_with(run("f"), &[Errno::PERM, Errno::ACCESS]))?;
            same("content", get("f")?, b"abc".to_vec())
        });
    }
    list.add("o-path-descriptor-is-ebadf-for-io", || {
        let _made = create("f")?;
        let path = open("f", O::PATH)?;
        fails(rustix::fs::fsync(&path), Errno::BADF)?;
        fails(sys::ftruncate(&path, 0), Errno::BADF)?;
        fails(sys::fallocate(&path, 0, 0, 1), Errno::BADF)?;
        fails(rustix::fs::flock(&path, rustix::fs::FlockOperation::LockShared), Errno::BADF)
    });
}
