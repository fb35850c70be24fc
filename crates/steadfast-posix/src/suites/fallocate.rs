//! fallocate(2) and posix_fallocate.

use libc::{
    FALLOC_FL_COLLAPSE_RANGE as COLLAPSE, FALLOC_FL_INSERT_RANGE as INSERT,
    FALLOC_FL_KEEP_SIZE as KEEP, FALLOC_FL_PUNCH_HOLE as PUNCH, FALLOC_FL_ZERO_RANGE as ZERO,
};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("fallocate");
    list.add("grows-the-file-with-zeros", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        try_allocate(&f, 0, 0, 10_000)?;
        let mut expected = b"abc".to_vec();
        expected.resize(10_000, 0);
        same("content", get("f")?, expected)
    });
    list.add("allocates-blocks", || {
        let f = create("f")?;
        try_allocate(&f, 0, 0, 4 << 20)?;
        rustix::fs::fsync(&f)?;
        holds(fstat(&f)?.st_blocks as u64 >= (4 << 20) / 512, "blocks are allocated")
    });
    list.add("keep-size-allocates-only", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        try_allocate(&f, KEEP, 0, 1 << 20)?;
        same("size", fstat(&f)?.st_size, 3)?;
        same("content", get("f")?, b"abc".to_vec())?;
        rustix::fs::fsync(&f)?;
        holds(fstat(&f)?.st_blocks as u64 >= (1 << 20) / 512, "blocks are allocated")
    });
    list.add("leaves-existing-data", || {
        let f = create("f")?;
        write_all(&f, &pattern(50_000, 1))?;
        try_allocate(&f, 0, 1000, 20_000)?;
        same("content", get("f")? == pattern(50_000, 1), true)
    });
    list.add("fills-holes-with-zeros", || {
        let f = create("f")?;
        write_at(&f, 100_000, b"z")?;
        try_allocate(&f, 0, 0, 100_001)?;
        same("front", read_at(&f, 0, 100_000)?, vec![0; 100_000])?;
        same("end", read_at(&f, 100_000, 1)?, b"z".to_vec())
    });
    list.add("then-write-inside", || {
        let f = create("f")?;
        try_allocate(&f, 0, 0, 1 << 20)?;
        write_at(&f, 500_000, &pattern(10_000, 1))?;
        same("written", read_at(&f, 500_000, 10_000)?, pattern(10_000, 1))?;
        same("before", read_at(&f, 490_000, 10_000)?, vec![0; 10_000])?;
        same("after", read_at(&f, 510_000, 10_000)?, vec![0; 10_000])
    });
    for (offset, length) in [
        (0, 4096),
        (4096, 4096),
        (1, 1),
        (4000, 200),
        (100, 30_000),
        (90_000, 10_000),
        (0, 100_000),
    ] {
        list.add(format!("punch-{length}-at-{offset}"), move || {
            let f = create("f")?;
            write_all(&f, &pattern(100_000, 1))?;
            try_allocate(&f, PUNCH | KEEP, offset, length)?;
            let mut expected = pattern(100_000, 1);
            expected[offset as usize..(offset + length) as usize].fill(0);
            same("content", get("f")? == expected, true)?;
            rustix::fs::fsync(&f)?;
            same("after fsync", get("f")? == expected, true)
        });
        list.add(format!("zero-{length}-at-{offset}"), move || {
            let f = create("f")?;
            write_all(&f, &pattern(100_000, 1))?;
            try_allocate(&f, ZERO, offset, length)?;
            let mut expected = pattern(100_000, 1);
            expected[offset as usize..(offset + length) as usize].fill(0);
            same("content", get("f")? == expected, true)
        });
    }
    list.add("punch-frees-blocks", || {
        let f = create("f")?;
        write_all(&f, &pattern(4 << 20, 1))?;
        rustix::fs::fsync(&f)?;
        drop(f);
        let before = stat("f")?.st_blocks as u64;
        let f = open_rw("f")?;
        try_allocate(&f, PUNCH | KEEP, 1 << 20, 2 << 20)?;
        rustix::fs::fsync(&f)?;
        drop(f);
        holds(stat("f")?.st_blocks as u64 + (1 << 20) / 512 < before, "at least a mebibyte is free")
    });
    list.add("punch-beyond-the-end-keeps-size", || {
        let f = create("f")?;
        write_all(&f, &pattern(5000, 1))?;
        try_allocate(&f, PUNCH | KEEP, 4000, 1 << 20)?;
        same("size", fstat(&f)?.st_size, 5000)?;
        same("front", read_at(&f, 0, 4000)?, pattern(5000, 1)[..4000].to_vec())?;
        same("rest", read_at(&f, 4000, 5000)?, vec![0; 1000])
    });
    list.add("punch-without-keep-size-fails", || {
        let f = create("f")?;
        fails_with(sys::fallocate(&f, PUNCH, 0, 4096), &[Errno::OPNOTSUPP, Errno::INVAL])
    });
    list.add("zero-range-grows-the-file", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        try_allocate(&f, ZERO, 1, 9999)?;
        same("size", fstat(&f)?.st_size, 10_000)?;
        same("front", read_at(&f, 0, 3)?, b"a\0\0".to_vec())
    });
    list.add("zero-range-keep-size", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        try_allocate(&f, ZERO | KEEP, 1, 9999)?;
        same("content", get("f")?, b"a\0\0".to_vec())
    });
    for (name, mode) in [("collapse-range", COLLAPSE), ("insert-range", INSERT)] {
        list.add(format!("{name}-works-or-is-eopnotsupp"), move || {
            let f = create("f")?;
            let (a, b) = (pattern(65_536, 1), pattern(65_536, 2));
            write_all(&f, &[&a[..], &b[..]].concat())?;
            match sys::fallocate(&f, mode, 0, 65_536) {
                Err(Errno::OPNOTSUPP) => same("content", get("f")? == [a, b].concat(), true),
                Ok(()) if mode == COLLAPSE => same("content", get("f")? == b, true),
                Ok(()) => same("content", get("f")? == [vec![0; 65_536], a, b].concat(), true),
                Err(error) => Err(error.into()),
            }
        });
    }
    list.add("unknown-mode-is-eopnotsupp", || {
        let f = create("f")?;
        fails(sys::fallocate(&f, 0x4000, 0, 10), Errno::OPNOTSUPP)?;
        fails_with(
            sys::fallocate(&f, PUNCH | ZERO | KEEP, 0, 10),
            &[Errno::OPNOTSUPP, Errno::INVAL],
        )
    });
    list.add("bad-ranges-are-einval", || {
        let f = create("f")?;
        fails(sys::fallocate(&f, 0, 0, 0), Errno::INVAL)?;
        fails(sys::fallocate(&f, 0, -1, 10), Errno::INVAL)?;
        fails(sys::fallocate(&f, 0, 0, -10), Errno::INVAL)
    });
    list.add("beyond-the-largest-size-is-efbig", || {
        let f = create("f")?;
        fails(sys::fallocate(&f, 0, i64::MAX - 10, 100), Errno::FBIG)
    });
    list.add("more-than-the-volume-is-enospc", || {
        let f = create("f")?;
        let volume = rustix::fs::fstatvfs(&f)?;
        let bytes = volume.f_blocks * volume.f_frsize;
        if bytes > 1 << 42 {
            return Err(Stop::skipped("the volume is too large to ask for more"));
        }
        fails(supported_range(&f, 2 * bytes as i64)?, Errno::NOSPC)?;
        write_at(&f, 0, b"still works")?;
        rustix::fs::fsync(&f)?;
        Ok(())
    });
    list.add("read-only-descriptor-is-ebadf", || {
        put("f", b"abc")?;
        fails(sys::fallocate(open("f", O::RDONLY)?, 0, 0, 10), Errno::BADF)
    });
    list.add("other-types-fail", || {
        mkdir("d", 0o755)?;
        mkfifo("p", 0o600)?;
        fails_with(sys::fallocate(open("d", O::RDONLY)?, 0, 0, 10), &[Errno::BADF, Errno::ISDIR])?;
        fails(sys::fallocate(open("p", O::RDWR)?, 0, 0, 10), Errno::SPIPE)
    });
    list.add("seek-data-skips-a-punched-hole", || {
        let f = create("f")?;
        write_all(&f, &pattern(3 << 20, 1))?;
        rustix::fs::fsync(&f)?;
        try_allocate(&f, PUNCH | KEEP, 1 << 20, 1 << 20)?;
        same("hole", sys::seek(&f, 0, libc::SEEK_HOLE)?, 1 << 20)?;
        same("data", sys::seek(&f, 1 << 20, libc::SEEK_DATA)?, 2 << 20)
    });
}

/// A call that a file system may not support.
#[track_caller]
fn try_allocate(file: &std::os::fd::OwnedFd, mode: i32, offset: i64, length: i64) -> Verdict {
    supported("fallocate", sys::fallocate(file, mode, offset, length))
}

/// A plain allocation; distinguishes a lack of support from a failure.
#[track_caller]
fn supported_range(file: &std::os::fd::OwnedFd, length: i64) -> Result<Call, Stop> {
    match sys::fallocate(file, 0, 0, length) {
        Err(Errno::OPNOTSUPP) => Err(Stop::Unsupported("fallocate".into())),
        other => Ok(other),
    }
}
