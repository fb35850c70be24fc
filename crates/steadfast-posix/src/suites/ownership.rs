//! chown(2).

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("chown");
    for (uid, gid) in
        [(0, 0), (1, 2), (65_534, 65_534), (70_000, 80_000), (u32::MAX - 1, u32::MAX - 1)]
    {
        list.add(format!("to-{uid}-{gid}"), move || {
            need_root()?;
            put("f", b"")?;
            chown("f", uid, gid)?;
            let st = stat("f")?;
            same("owner", (st.st_uid, st.st_gid), (uid, gid))
        });
    }
    list.add("minus-one-leaves-each", || {
        need_root()?;
        put("f", b"")?;
        chown("f", 11, 22)?;
        chown("f", 33, None)?;
        same("owner", (stat("f")?.st_uid, stat("f")?.st_gid), (33, 22))?;
        chown("f", None, 44)?;
        same("owner", (stat("f")?.st_uid, stat("f")?.st_gid), (33, 44))
    });
    list.add("every-type", || {
        need_root()?;
        mkdir("d", 0o755)?;
        mkfifo("p", 0o600)?;
        symlink("x", "s")?;
        for name in ["d", "p", "s"] {
            lchown(name, 5, 6)?;
            same(name, (lstat(name)?.st_uid, lstat(name)?.st_gid), (5, 6))?;
        }
        Ok(())
    });
    list.add("follows-symlinks-lchown-does-not", || {
        need_root()?;
        put("f", b"")?;
        symlink("f", "s")?;
        chown("s", 7, 7)?;
        same("target", stat("f")?.st_uid, 7)?;
        same("link", lstat("s")?.st_uid, 0)
    });
    list.add("through-a-descriptor", || {
        need_root()?;
        let f = create("f")?;
        rustix::fs::fchown(&f, Some(rustix::fs::Uid::from_raw(8)), None)?;
        same("owner", fstat(&f)?.st_uid, 8)
    });
    list.add("giving-away-is-eperm", || {
        need_root()?;
        put("f", b"")?;
        chown("f", USER, USER)?;
        as_user(USER, USER, &[], || {
            fails(chown("f", 0, None), Errno::PERM)?;
            fails(chown("f", USER - 1, None), Errno::PERM)?;
            Ok(chown("f", USER, USER)?)
        })
    });
    list.add("owner-may-give-it-to-own-groups-only", || {
        need_root()?;
        put("f", b"")?;
        chown("f", USER, USER)?;
        as_user(USER, USER, &[1234], || {
            chown("f", None, 1234)?;
            fails(chown("f", None, 4321), Errno::PERM)
        })?;
        same("group", stat("f")?.st_gid, 1234)
    });
    list.add("not-the-owner-is-eperm", || {
        need_root()?;
        drop(create_mode("f", 0o666)?);
        as_user(USER, USER, &[], || fails(chown("f", None, USER), Errno::PERM))
    });
}
