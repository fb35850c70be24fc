//! truncate(2) and ftruncate(2).

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("truncate");
    for (from, to) in [
        (10_000, 0),
        (10_000, 1),
        (10_000, 4096),
        (10_000, 9999),
        (1 << 20, 5000),
        (100, 50),
        (5000, 100),
    ] {
        list.add(format!("shorten-{from}-to-{to}"), move || {
            put("f", &pattern(from, 1))?;
            truncate("f", to as i64)?;
            same("content", get("f")?, pattern(from, 1)[..to].to_vec())
        });
    }
    for (from, to) in [(0, 1), (100, 5000), (5000, 5001), (4096, 100_000), (1, 1 << 21)] {
        list.add(format!("lengthen-{from}-to-{to}"), move || {
            put("f", &pattern(from, 1))?;
            truncate("f", to as i64)?;
            let mut expected = pattern(from, 1);
            expected.resize(to, 0);
            same("content", get("f")? == expected, true)
        });
    }
    for cut in [1usize, 100, 4095, 4096, 4097, 6000] {
        list.add(format!("shorten-then-lengthen-shows-zeros-{cut}"), move || {
            let f = create("f")?;
            write_all(&f, &[0xff; 8192])?;
            sys::ftruncate(&f, cut as i64)?;
            sys::ftruncate(&f, 8192)?;
            let bytes = get("f")?;
            holds(bytes[..cut].iter().all(|&byte| byte == 0xff), "what was kept is kept")?;
            holds(bytes[cut..].iter().all(|&byte| byte == 0), "what was cut never comes back")
        });
    }
    list.add("shorten-fsync-lengthen-shows-zeros", || {
        let f = create("f")?;
        write_all(&f, &[0xff; 20_000])?;
        rustix::fs::fsync(&f)?;
        sys::ftruncate(&f, 5001)?;
        rustix::fs::fsync(&f)?;
        write_at(&f, 12_000, b"x")?;
        let bytes = get("f")?;
        holds(bytes[5001..12_000].iter().all(|&byte| byte == 0), "zeros between")
    });
    list.add("same-size-keeps-content", || {
        put("f", b"abc")?;
        truncate("f", 3)?;
        same("content", get("f")?, b"abc".to_vec())
    });
    list.add("does-not-move-the-position", || {
        let f = create("f")?;
        write_all(&f, b"abcdef")?;
        sys::ftruncate(&f, 2)?;
        write_all(&f, b"g")?;
        same("content", get("f")?, b"ab\0\0\0\0g".to_vec())
    });
    list.add("through-symlink", || {
        put("f", b"abc")?;
        symlink("f", "s")?;
        truncate("s", 1)?;
        same("content", get("f")?, b"a".to_vec())
    });
    list.add("of-unlinked-open-file", || {
        let f = create("f")?;
        write_all(&f, &pattern(9000, 1))?;
        unlink("f")?;
        sys::ftruncate(&f, 10)?;
        same("size", fstat(&f)?.st_size, 10)
    });
    list.add("negative-is-einval", || {
        let f = create("f")?;
        fails(truncate("f", -1), Errno::INVAL)?;
        fails(sys::ftruncate(&f, i64::MIN), Errno::INVAL)
    });
    list.add("directory-is-eisdir", || {
        mkdir("d", 0o755)?;
        fails(truncate("d", 0), Errno::ISDIR)
    });
    list.add("fifo-is-einval", || {
        mkfifo("p", 0o644)?;
        fails(truncate("p", 0), Errno::INVAL)
    });
    list.add("needs-write-permission", || {
        need_root()?;
        put("f", b"abc")?;
        as_user(USER, USER, &[], || fails(truncate("f", 0), Errno::ACCESS))?;
        same("content", get("f")?, b"abc".to_vec())
    });
    list.add("releases-blocks", || {
        put("f", &pattern(4 << 20, 1))?;
        truncate("f", 4096)?;
        rustix::fs::fsync(open("f", O::RDONLY)?)?;
        eventually("less than half a mebibyte is left", || Ok((stat("f")?.st_blocks as u64) < 1024))
    });
    list.add("executed-file-is-etxtbsy", || {
        std::fs::copy("/bin/sleep", "prog")?;
        chmod("prog", 0o755)?;
        let path = std::env::current_dir()?.join("prog");
        let mut child = std::process::Command::new(path).arg("30").spawn()?;
        let (cut, opened) = (truncate("prog", 0), open("prog", O::WRONLY));
        child.kill()?;
        child.wait()?;
        fails(opened, Errno::TXTBSY)?;
        fails(cut, Errno::TXTBSY)
    });
}
