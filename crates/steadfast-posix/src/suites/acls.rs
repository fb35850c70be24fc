//! POSIX access control lists: storage, inheritance, interaction with the mode, enforcement.

use rustix::fs::{Access, removexattr};

use crate::calls::*;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Entry tags of the kernel's form.
const USER_OBJ: u16 = 0x01;
const NAMED_USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

type AclEntry = (u16, u16, u32);

/// The attribute value for these entries (tag, bits, id).
fn value(entries: &[AclEntry]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for &(tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[track_caller]
fn set(path: &str, kind: &str, entries: &[AclEntry]) -> Verdict {
    supported("POSIX ACLs", set_attribute(path, kind, &value(entries)))
}

/// An ACL with one named user.
fn with_user(id: u32, named: u16, owner: u16, group: u16, mask: u16, other: u16) -> Vec<AclEntry> {
    vec![
        (USER_OBJ, owner, NO_ID),
        (NAMED_USER, named, id),
        (GROUP_OBJ, group, NO_ID),
        (MASK, mask, NO_ID),
        (OTHER, other, NO_ID),
    ]
}

fn minimal(owner: u16, group: u16, other: u16) -> Vec<AclEntry> {
    vec![(USER_OBJ, owner, NO_ID), (GROUP_OBJ, group, NO_ID), (OTHER, other, NO_ID)]
}

pub fn add(list: &mut List) {
    list.group("acl");
    keeping(list);
    enforcement(list);
    inheritance(list);
}

fn keeping(list: &mut List) {
    list.add("comes-back-as-set", || {
        put("f", b"")?;
        let acl = with_user(1000, 6, 6, 4, 6, 4);
        set("f", ACCESS, &acl)?;
        same("acl", attribute("f", ACCESS)?, value(&acl))
    });
    list.add("many-entries", || {
        put("f", b"")?;
        let mut acl = vec![(USER_OBJ, 6, NO_ID)];
        acl.extend((0..20).map(|i| (NAMED_USER, 4, 1000 + i)));
        acl.push((GROUP_OBJ, 4, NO_ID));
        acl.extend((0..20).map(|i| (NAMED_GROUP, 4, 2000 + i)));
        acl.extend([(MASK, 7, NO_ID), (OTHER, 0, NO_ID)]);
        set("f", ACCESS, &acl)?;
        same("acl", attribute("f", ACCESS)?, value(&acl))
    });
    list.add("is-seen-in-the-mode-as-mask", || {
        put("f", b"")?;
        set("f", ACCESS, &with_user(1000, 7, 6, 4, 5, 1))?;
        same("mode", mode("f")?, 0o651)
    });
    list.add("minimal-becomes-the-mode-only", || {
        put("f", b"")?;
        set("f", ACCESS, &minimal(7, 5, 1))?;
        same("mode", mode("f")?, 0o751)?;
        fails(attribute("f", ACCESS), Errno::NODATA)
    });
    list.add("chmod-changes-the-mask", || {
        put("f", b"")?;
        set("f", ACCESS, &with_user(1000, 7, 6, 4, 5, 1))?;
        chmod("f", 0o720)?;
        same("acl", attribute("f", ACCESS)?, value(&with_user(1000, 7, 7, 4, 2, 0)))?;
        same("mode", mode("f")?, 0o720)
    });
    list.add("removal-leaves-the-mode", || {
        put("f", b"")?;
        set("f", ACCESS, &with_user(1000, 7, 6, 4, 5, 1))?;
        removexattr("f", ACCESS)?;
        fails(attribute("f", ACCESS), Errno::NODATA)?;
        same("mode's owner bits", mode("f")? & 0o700, 0o600)
    });
    list.add("missing-is-enodata", || {
        put("f", b"")?;
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &minimal(7, 5, 5))?;
        fails(attribute("f", ACCESS), Errno::NODATA)?;
        same("default", attribute("d", DEFAULT)?, value(&minimal(7, 5, 5)))?;
        removexattr("d", DEFAULT)?;
        fails(attribute("d", DEFAULT), Errno::NODATA)
    });
    list.add("default-on-a-file-is-refused", || {
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &minimal(7, 5, 5))?;
        put("f", b"")?;
        fails_with(
            set_attribute("f", DEFAULT, &value(&minimal(7, 5, 5))),
            &[Errno::ACCESS, Errno::INVAL],
        )
    });
    list.add("bad-values-are-einval", || {
        put("f", b"")?;
        set("f", ACCESS, &minimal(6, 4, 4))?;
        let no_mask = vec![
            (USER_OBJ, 6, NO_ID),
            (NAMED_USER, 6, 9),
            (GROUP_OBJ, 4, NO_ID),
            (OTHER, 4, NO_ID),
        ];
        fails(set_attribute("f", ACCESS, &value(&no_mask)), Errno::INVAL)?;
        fails(set_attribute("f", ACCESS, &value(&[(USER_OBJ, 6, NO_ID)])), Errno::INVAL)?;
        fails(set_attribute("f", ACCESS, b"\x02\0\0\0xyz"), Errno::INVAL)
    });
    list.add("wrong-version-is-refused", || {
        put("f", b"")?;
        set("f", ACCESS, &minimal(6, 4, 4))?;
        let mut bytes = value(&minimal(6, 4, 4));
        bytes[0] = 9;
        fails_with(set_attribute("f", ACCESS, &bytes), &[Errno::OPNOTSUPP, Errno::INVAL])
    });
    list.add("changes-ctime", || {
        put("f", b"")?;
        let before = stat("f")?;
        tick();
        set("f", ACCESS, &with_user(1000, 7, 6, 4, 5, 1))?;
        holds(ctime(&stat("f")?) > ctime(&before), "ctime grows")
    });
    list.add("by-another-user-is-eperm", || {
        need_root()?;
        put("f", b"")?;
        set("f", ACCESS, &minimal(6, 6, 6))?;
        as_user(USER, USER, &[], || {
            fails(set_attribute("f", ACCESS, &value(&minimal(7, 7, 7))), Errno::PERM)
        })
    });
    list.add("survives-rename-and-link", || {
        put("f", b"")?;
        let acl = with_user(1000, 6, 6, 4, 6, 4);
        set("f", ACCESS, &acl)?;
        rename("f", "g")?;
        link("g", "h")?;
        same("acl", attribute("h", ACCESS)?, value(&acl))
    });
    list.add("both-kinds-on-a-directory", || {
        mkdir("d", 0o755)?;
        let (own, passed) = (with_user(1000, 7, 7, 5, 7, 0), with_user(2000, 5, 7, 5, 5, 0));
        set("d", ACCESS, &own)?;
        set("d", DEFAULT, &passed)?;
        same("access", attribute("d", ACCESS)?, value(&own))?;
        same("default", attribute("d", DEFAULT)?, value(&passed))?;
        same("names", attributes("d")?.len(), 2)
    });
}

fn enforcement(list: &mut List) {
    list.add("named-user-gets-access", || {
        need_root()?;
        drop(create_mode("f", 0o600)?);
        set("f", ACCESS, &with_user(USER, 6, 6, 0, 6, 0))?;
        as_user(USER, USER, &[], || Ok(drop(open("f", O::RDWR)?)))?;
        as_user(USER - 1, USER, &[], || fails(open("f", O::RDONLY), Errno::ACCESS))
    });
    list.add("mask-limits-the-named-user", || {
        need_root()?;
        drop(create_mode("f", 0o600)?);
        set("f", ACCESS, &with_user(USER, 7, 6, 7, 4, 7))?;
        as_user(USER, USER, &[], || {
            open("f", O::RDONLY)?;
            fails(open("f", O::WRONLY), Errno::ACCESS)?;
            fails(access("f", Access::EXEC_OK), Errno::ACCESS)
        })
    });
    list.add("named-user-can-be-shut-out", || {
        need_root()?;
        drop(create_mode("f", 0o666)?);
        set("f", ACCESS, &with_user(USER, 0, 6, 6, 6, 6))?;
        as_user(USER, USER, &[], || fails(open("f", O::RDONLY), Errno::ACCESS))?;
        as_user(USER - 1, USER - 1, &[], || Ok(drop(open("f", O::RDWR)?)))
    });
    list.add("named-group-gets-access", || {
        need_root()?;
        drop(create_mode("f", 0o600)?);
        let acl = [
            (USER_OBJ, 6, NO_ID),
            (GROUP_OBJ, 0, NO_ID),
            (NAMED_GROUP, 4, 4321),
            (MASK, 7, NO_ID),
            (OTHER, 0, NO_ID),
        ];
        set("f", ACCESS, &acl)?;
        as_user(USER, USER, &[4321], || {
            open("f", O::RDONLY)?;
            fails(open("f", O::WRONLY), Errno::ACCESS)
        })?;
        as_user(USER, USER, &[], || fails(open("f", O::RDONLY), Errno::ACCESS))
    });
    list.add("mask-does-not-limit-the-owner", || {
        need_root()?;
        put("f", b"")?;
        chown("f", USER, USER)?;
        set("f", ACCESS, &with_user(1000, 7, 6, 7, 0, 0))?;
        as_user(USER, USER, &[], || Ok(drop(open("f", O::RDWR)?)))
    });
    list.add("on-a-directory-for-search-and-create", || {
        need_root()?;
        mkdir("d", 0o700)?;
        drop(create_mode("d/f", 0o666)?);
        set("d", ACCESS, &with_user(USER, 7, 7, 0, 7, 0))?;
        as_user(USER, USER, &[], || {
            stat("d/f")?;
            drop(create("d/g")?);
            Ok(unlink("d/f")?)
        })?;
        chmod("d", 0o710)?;
        as_user(USER, USER, &[], || {
            stat("d/g")?;
            fails(create("d/h"), Errno::ACCESS)
        })
    });
    list.add("change-takes-effect-at-once", || {
        need_root()?;
        drop(create_mode("f", 0o600)?);
        for _ in 0..10 {
            set("f", ACCESS, &with_user(USER, 4, 6, 0, 4, 0))?;
            as_user(USER, USER, &[], || Ok(drop(open("f", O::RDONLY)?)))?;
            removexattr("f", ACCESS)?;
            chmod("f", 0o600)?;
            as_user(USER, USER, &[], || fails(open("f", O::RDONLY), Errno::ACCESS))?;
        }
        Ok(())
    });
}

fn inheritance(list: &mut List) {
    list.add("file-gets-the-default-as-access", || {
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &with_user(1000, 7, 7, 5, 7, 5))?;
        drop(create_mode("d/f", 0o666)?);
        same("acl", attribute("d/f", ACCESS)?, value(&with_user(1000, 7, 6, 5, 6, 4)))?;
        same("mode", mode("d/f")?, 0o664)
    });
    list.add("default-replaces-the-umask", || {
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &minimal(7, 7, 7))?;
        rustix::process::umask(0o077.into());
        drop(create_mode("d/f", 0o666)?);
        mkdir("d/e", 0o777)?;
        same("modes", (mode("d/f")?, mode("d/e")?), (0o666, 0o777))
    });
    list.add("without-default-the-umask-counts", || {
        mkdir("d", 0o755)?;
        set("d", ACCESS, &with_user(1000, 7, 7, 5, 7, 5))?;
        rustix::process::umask(0o077.into());
        drop(create_mode("d/f", 0o666)?);
        same("mode", mode("d/f")?, 0o600)?;
        fails(attribute("d/f", ACCESS), Errno::NODATA)
    });
    list.add("directory-gets-both", || {
        mkdir("d", 0o755)?;
        let acl = with_user(1000, 7, 7, 5, 7, 5);
        set("d", DEFAULT, &acl)?;
        mkdir("d/e", 0o700)?;
        same("default", attribute("d/e", DEFAULT)?, value(&acl))?;
        same("access", attribute("d/e", ACCESS)?, value(&with_user(1000, 7, 7, 5, 0, 0)))?;
        same("mode", mode("d/e")?, 0o700)
    });
    list.add("through-several-levels", || {
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &with_user(1000, 6, 7, 5, 7, 0))?;
        mkdir("d/e", 0o777)?;
        mkdir("d/e/g", 0o777)?;
        drop(create_mode("d/e/g/f", 0o640)?);
        same("acl", attribute("d/e/g/f", ACCESS)?, value(&with_user(1000, 6, 6, 5, 4, 0)))
    });
    list.add("minimal-default-gives-a-plain-mode", || {
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &minimal(7, 5, 0))?;
        drop(create_mode("d/f", 0o666)?);
        same("mode", mode("d/f")?, 0o640)?;
        fails(attribute("d/f", ACCESS), Errno::NODATA)
    });
    list.add("fifos-and-nodes-inherit", || {
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &with_user(1000, 6, 7, 5, 7, 0))?;
        mkfifo("d/p", 0o666)?;
        same("acl", attribute("d/p", ACCESS)?, value(&with_user(1000, 6, 6, 5, 6, 0)))
    });
    list.add("symlinks-do-not", || {
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &with_user(1000, 6, 7, 5, 7, 0))?;
        symlink("x", "d/s")?;
        same("mode", mode("d/s")?, 0o777)
    });
    list.add("unnamed-files-inherit", || {
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &with_user(1000, 6, 7, 5, 7, 0))?;
        let f = supported("O_TMPFILE", open_mode("d", O::TMPFILE | O::RDWR, 0o666))?;
        let mut bytes = vec![0u8; 200];
        let length = rustix::fs::fgetxattr(&f, ACCESS, &mut bytes[..])?;
        bytes.truncate(length);
        same("acl", bytes, value(&with_user(1000, 6, 6, 5, 6, 0)))
    });
    list.add("renamed-files-keep-their-own", || {
        mkdir("d", 0o755)?;
        set("d", DEFAULT, &with_user(1000, 6, 7, 5, 7, 0))?;
        put("f", b"")?;
        rename("f", "d/f")?;
        fails(attribute("d/f", ACCESS), Errno::NODATA)
    });
    list.add("default-does-not-count-for-the-directory-itself", || {
        need_root()?;
        mkdir("d", 0o700)?;
        set("d", DEFAULT, &with_user(USER, 7, 7, 7, 7, 7))?;
        as_user(USER, USER, &[], || fails(open("d", O::RDONLY), Errno::ACCESS))
    });
}
