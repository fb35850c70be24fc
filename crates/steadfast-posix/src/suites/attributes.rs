//! Extended attributes in the user, trusted and security name spaces.

use rustix::fs::{
    XattrFlags, fgetxattr, fsetxattr, getxattr, getxattr_query, lgetxattr, listxattr,
    listxattr_query, lsetxattr, removexattr, setxattr,
};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("xattr");
    values(list);
    flags(list);
    name_spaces(list);
    permissions(list);
}

fn values(list: &mut List) {
    for length in [0usize, 1, 100, 255, 1000, 3000, 4096, 20_000, 65_536] {
        list.add(format!("value-of-{length}-bytes"), move || {
            put("f", b"")?;
            match set_attribute("f", "user.x", &pattern(length, 1)) {
                // Small file systems limit values; all of them support a quarter of a block.
                Err(Errno::NOSPC | Errno::TOOBIG) if length > 1000 => {
                    return Err(Stop::Unsupported(format!("a value of {length} bytes")));
                }
                other => other?,
            }
            same("value", attribute("f", "user.x")?, pattern(length, 1))
        });
    }
    list.add("value-of-65537-bytes-is-e2big", || {
        put("f", b"")?;
        fails(set_attribute("f", "user.x", &vec![0; 65_537]), Errno::TOOBIG)
    });
    list.add("replacing-changes-the-length", || {
        put("f", b"")?;
        for length in [10usize, 900, 0, 1, 300, 5] {
            set_attribute("f", "user.x", &pattern(length, 3))?;
            same("value", attribute("f", "user.x")?, pattern(length, 3))?;
        }
        same("attributes", attributes("f")?, vec!["user.x".to_owned()])
    });
    list.add("many-attributes", || {
        put("f", b"")?;
        for i in 0..60usize {
            match set_attribute("f", &format!("user.attribute-{i:03}"), &pattern(i, i as u8)) {
                Err(Errno::NOSPC) if i > 10 => {
                    return Err(Stop::Unsupported("60 attributes".into()));
                }
                other => other?,
            }
        }
        for i in 0..60usize {
            same("value", attribute("f", &format!("user.attribute-{i:03}"))?, pattern(i, i as u8))?;
        }
        let expected: Vec<String> = (0..60).map(|i| format!("user.attribute-{i:03}")).collect();
        same("names", attributes("f")?, expected)
    });
    list.add("longest-name-works-longer-is-erange", || {
        put("f", b"")?;
        let longest = format!("user.{}", "n".repeat(250));
        set_attribute("f", &longest, b"1")?;
        same("value", attribute("f", &longest)?, b"1".to_vec())?;
        fails(set_attribute("f", &format!("{longest}n"), b"1"), Errno::RANGE)
    });
    list.add("names-of-any-bytes", || {
        put("f", b"")?;
        let name = b"user.\x01\xff \n\xc3";
        setxattr("f", &name[..], b"1", XattrFlags::empty())?;
        let mut value = [0u8; 4];
        same("length", getxattr("f", &name[..], &mut value[..])?, 1)
    });
    list.add("missing-is-enodata", || {
        put("f", b"")?;
        fails(attribute("f", "user.x"), Errno::NODATA)?;
        fails(removexattr("f", "user.x"), Errno::NODATA)
    });
    list.add("length-zero-asks-for-the-length", || {
        put("f", b"")?;
        set_attribute("f", "user.x", &pattern(123, 1))?;
        same("length", getxattr_query("f", "user.x")?, 123)?;
        same("length of list", listxattr_query("f")?, "user.x\0".len())
    });
    list.add("short-buffer-is-erange", || {
        put("f", b"")?;
        set_attribute("f", "user.x", &pattern(123, 1))?;
        fails(getxattr("f", "user.x", &mut [0u8; 122][..]), Errno::RANGE)?;
        fails(listxattr("f", &mut [0u8; 3][..]), Errno::RANGE)
    });
    list.add("list-of-none-is-empty", || {
        put("f", b"")?;
        same("names", attributes("f")?, vec![])
    });
    list.add("through-descriptors", || {
        let f = create("f")?;
        fsetxattr(&f, "user.x", b"abc", XattrFlags::empty())?;
        let mut value = [0u8; 8];
        same("length", fgetxattr(&f, "user.x", &mut value[..])?, 3)?;
        rustix::fs::fremovexattr(&f, "user.x")?;
        same("names", attributes("f")?, vec![])
    });
    list.add("on-directories", || {
        mkdir("d", 0o755)?;
        set_attribute("d", "user.x", b"1")?;
        put("d/f", b"")?;
        same("directory", attribute("d", "user.x")?, b"1".to_vec())?;
        same("nothing is inherited", attributes("d/f")?, vec![])
    });
    list.add("gone-with-the-file", || {
        put("f", b"")?;
        set_attribute("f", "user.x", b"1")?;
        unlink("f")?;
        put("f", b"")?;
        same("names", attributes("f")?, vec![])
    });
    list.add("survive-truncation-and-rename", || {
        put("f", &pattern(10_000, 1))?;
        set_attribute("f", "user.x", b"1")?;
        truncate("f", 0)?;
        rename("f", "g")?;
        same("value", attribute("g", "user.x")?, b"1".to_vec())
    });
}

fn flags(list: &mut List) {
    list.add("create-flag-on-existing-is-eexist", || {
        put("f", b"")?;
        setxattr("f", "user.x", b"1", XattrFlags::CREATE)?;
        fails(setxattr("f", "user.x", b"2", XattrFlags::CREATE), Errno::EXIST)?;
        same("value", attribute("f", "user.x")?, b"1".to_vec())
    });
    list.add("replace-flag-on-missing-is-enodata", || {
        put("f", b"")?;
        fails(setxattr("f", "user.x", b"1", XattrFlags::REPLACE), Errno::NODATA)?;
        set_attribute("f", "user.x", b"1")?;
        setxattr("f", "user.x", b"2", XattrFlags::REPLACE)?;
        same("value", attribute("f", "user.x")?, b"2".to_vec())
    });
    list.add("unknown-flag-is-einval", || {
        put("f", b"")?;
        fails(setxattr("f", "user.x", b"1", XattrFlags::from_bits_retain(0x100)), Errno::INVAL)
    });
}

fn name_spaces(list: &mut List) {
    list.add("unknown-name-space-is-eopnotsupp", || {
        put("f", b"")?;
        fails(set_attribute("f", "nobody.x", b"1"), Errno::OPNOTSUPP)?;
        fails(set_attribute("f", "plain", b"1"), Errno::OPNOTSUPP)
    });
    list.add("empty-name-fails", || {
        put("f", b"")?;
        fails(set_attribute("f", "", b"1"), Errno::RANGE)?;
        fails_with(set_attribute("f", "user.", b"1"), &[Errno::INVAL, Errno::OPNOTSUPP])
    });
    list.add("trusted-for-root", || {
        need_root()?;
        put("f", b"")?;
        set_attribute("f", "trusted.x", b"secret")?;
        same("value", attribute("f", "trusted.x")?, b"secret".to_vec())?;
        same("names", attributes("f")?, vec!["trusted.x".to_owned()])
    });
    list.add("trusted-is-hidden-from-users", || {
        need_root()?;
        drop(create_mode("f", 0o666)?);
        set_attribute("f", "trusted.x", b"secret")?;
        set_attribute("f", "user.x", b"open")?;
        as_user(USER, USER, &[], || {
            fails(attribute("f", "trusted.x"), Errno::NODATA)?;
            fails(set_attribute("f", "trusted.y", b"1"), Errno::PERM)?;
            same("names", attributes("f")?, vec!["user.x".to_owned()])
        })
    });
    list.add("trusted-on-symlinks", || {
        need_root()?;
        symlink("nowhere", "s")?;
        lsetxattr("s", "trusted.x", b"abc", XattrFlags::empty())?;
        let mut value = [0u8; 8];
        same("length", lgetxattr("s", "trusted.x", &mut value[..])?, 3)
    });
    list.add("user-on-symlinks-is-eperm", || {
        symlink("nowhere", "s")?;
        fails(lsetxattr("s", "user.x", b"1", XattrFlags::empty()), Errno::PERM)
    });
    list.add("user-on-fifos-is-eperm", || {
        mkfifo("p", 0o666)?;
        fails(set_attribute("p", "user.x", b"1"), Errno::PERM)
    });
    list.add("security-for-root", || {
        need_root()?;
        put("f", b"")?;
        set_attribute("f", "security.example", b"label")?;
        same("value", attribute("f", "security.example")?, b"label".to_vec())
    });
    list.add("security-by-user-is-eperm-read-is-free", || {
        need_root()?;
        drop(create_mode("f", 0o666)?);
        set_attribute("f", "security.example", b"label")?;
        as_user(USER, USER, &[], || {
            fails(set_attribute("f", "security.example", b"x"), Errno::PERM)?;
            same("value", attribute("f", "security.example")?, b"label".to_vec())
        })
    });
    list.add("capabilities-are-cleared-by-a-write", || {
        need_root()?;
        put("f", b"abc")?;
        // Version 2 of the capability structure with one permitted capability, little-endian.
        let mut value = vec![0u8; 20];
        value[..4].copy_from_slice(&0x0200_0000u32.to_le_bytes());
        value[4] = 1;
        match set_attribute("f", "security.capability", &value) {
            Err(Errno::OPNOTSUPP | Errno::PERM) => {
                return Err(Stop::skipped("no file capabilities here"));
            }
            other => other?,
        }
        chmod("f", 0o777)?;
        as_user(USER, USER, &[], || Ok(write_at(open_rw("f")?, 0, b"x")?))?;
        fails(attribute("f", "security.capability"), Errno::NODATA)
    });
}

fn permissions(list: &mut List) {
    list.add("user-read-needs-r-write-needs-w", || {
        need_root()?;
        drop(create_mode("f", 0o604)?);
        drop(create_mode("g", 0o602)?);
        set_attribute("f", "user.x", b"1")?;
        set_attribute("g", "user.x", b"1")?;
        as_user(USER, USER, &[], || {
            same("value", attribute("f", "user.x")?, b"1".to_vec())?;
            fails(set_attribute("f", "user.x", b"2"), Errno::ACCESS)?;
            fails(removexattr("f", "user.x"), Errno::ACCESS)?;
            set_attribute("g", "user.x", b"2")?;
            fails(attribute("g", "user.x"), Errno::ACCESS)
        })
    });
    list.add("user-on-sticky-directory-needs-the-owner", || {
        need_root()?;
        mkdir("d", 0o1777)?;
        as_user(USER, USER, &[], || fails(set_attribute("d", "user.x", b"1"), Errno::PERM))
    });
}
