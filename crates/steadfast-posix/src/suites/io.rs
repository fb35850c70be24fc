//! read, write and their relatives on regular files.

use std::io::{IoSlice, IoSliceMut};

use rustix::io::{pread, preadv, pwrite, pwritev};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("io");
    for length in [1, 511, 512, 4095, 4096, 4097, 65_536, 131_073, 1 << 20, (8 << 20) + 7] {
        list.add(format!("write-then-read-{length}-bytes"), move || {
            let f = create("f")?;
            let bytes = pattern(length, 7);
            write_all(&f, &bytes)?;
            same("size", fstat(&f)?.st_size, length as i64)?;
            drop(f);
            same("content", get("f")?, bytes)
        });
    }
    for step in [1, 13, 1000, 4096, 5000] {
        list.add(format!("append-in-steps-of-{step}"), move || {
            let f = create("f")?;
            let bytes = pattern(step * 60, 5);
            for part in bytes.chunks(step) {
                write_all(&f, part)?;
            }
            same("content", get("f")?, bytes)
        });
    }
    for (offset, length) in
        [(0, 3), (4095, 2), (4096, 4096), (1000, 10_000), (19_999, 1), (19_000, 5000)]
    {
        list.add(format!("overwrite-{length}-at-{offset}"), move || {
            let mut model = pattern(20_000, 1);
            put("f", &model)?;
            let patch = pattern(length, 99);
            write_at(open_rw("f")?, offset as u64, &patch)?;
            model.resize(model.len().max(offset + length), 0);
            model[offset..offset + length].copy_from_slice(&patch);
            same("content", get("f")?, model)
        });
    }
    list.add("backward-writes-in-small-pieces", || {
        let f = create("f")?;
        let bytes = pattern(50_000, 2);
        for at in (0..50_000).step_by(1237).rev() {
            write_at(&f, at as u64, &bytes[at..(at + 1237).min(50_000)])?;
        }
        same("content", get("f")?, bytes)
    });
    list.add("random-writes-match-a-model", || {
        let f = create("f")?;
        let mut model = Vec::new();
        // This crate uses no other one, so it has a sequence of its own.
        let mut state = 12345u64;
        let mut next = |limit: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % limit
        };
        for round in 0..400 {
            let (at, length) = (next(200_000) as usize, next(9000) as usize + 1);
            let patch = pattern(length, round as u8);
            write_at(&f, at as u64, &patch)?;
            if model.len() < at + length {
                model.resize(at + length, 0);
            }
            model[at..at + length].copy_from_slice(&patch);
        }
        same("through the same descriptor", read_at(&f, 0, 1 << 20)? == model, true)?;
        rustix::fs::fsync(&f)?;
        drop(f);
        same("after fsync and reopen", get("f")? == model, true)
    });
    list.add("read-at-end-gives-nothing", || {
        put("f", b"abc")?;
        let f = open("f", O::RDONLY)?;
        same("at the end", read_at(&f, 3, 5)?.len(), 0)?;
        same("far beyond", read_at(&f, 1 << 40, 5)?.len(), 0)
    });
    list.add("read-is-cut-at-the-end", || {
        put("f", b"abcdef")?;
        same("bytes", read_at(open("f", O::RDONLY)?, 4, 100)?, b"ef".to_vec())
    });
    list.add("zero-length-write-changes-nothing", || {
        put("f", b"abc")?;
        let before = stat("f")?;
        tick();
        let f = open_rw("f")?;
        same("count", pwrite(&f, b"", 100)?, 0)?;
        let after = stat("f")?;
        same("size", after.st_size, 3)?;
        same("mtime", mtime(&after), mtime(&before))
    });
    list.add("write-moves-the-position", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        write_all(&f, b"def")?;
        same("position", sys::seek(&f, 0, libc::SEEK_CUR)?, 6)?;
        same("content", get("f")?, b"abcdef".to_vec())
    });
    list.add("pwrite-and-pread-leave-the-position", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        pwrite(&f, b"xyz", 10)?;
        pread(&f, &mut [0u8; 4][..], 0)?;
        same("position", sys::seek(&f, 0, libc::SEEK_CUR)?, 3)
    });
    list.add("vectored-write-and-read", || {
        let f = create("f")?;
        let (a, b, c) = (pattern(3, 1), pattern(5000, 2), pattern(70, 3));
        let count = pwritev(&f, &[IoSlice::new(&a), IoSlice::new(&b), IoSlice::new(&c)], 11)?;
        same("written", count, 5073)?;
        let (mut x, mut y) = (vec![0; 5000], vec![0; 73]);
        same(
            "read",
            preadv(&f, &mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)], 11)?,
            5073,
        )?;
        x.extend(y);
        same("content", x, [a, b, c].concat())
    });
    list.add("data-is-seen-through-another-descriptor-at-once", || {
        let w = create("f")?;
        let r = open("f", O::RDONLY)?;
        for i in 0..100u64 {
            write_at(&w, i * 100, &pattern(100, i as u8))?;
            same("bytes", read_at(&r, i * 100, 200)?, pattern(100, i as u8))?;
        }
        Ok(())
    });
    list.add("size-is-seen-through-another-name-at-once", || {
        let w = create("f")?;
        link("f", "g")?;
        for i in 1..20i64 {
            write_all(&w, &[0; 777])?;
            same("size", stat("g")?.st_size, 777 * i)?;
        }
        Ok(())
    });
    for (name, whence, offset, expected) in [
        ("set", libc::SEEK_SET, 4i64, 4i64),
        ("current", libc::SEEK_CUR, 2, 5),
        ("end", libc::SEEK_END, -1, 9),
        ("beyond-end", libc::SEEK_END, 100, 110),
    ] {
        list.add(format!("seek-{name}"), move || {
            put("f", &[1; 10])?;
            let f = open("f", O::RDONLY)?;
            read_some(&f, 3)?;
            same("position", sys::seek(&f, offset, whence)?, expected)
        });
    }
    list.add("seek-before-start-is-einval", || {
        put("f", b"abc")?;
        let f = open("f", O::RDONLY)?;
        fails(sys::seek(&f, -1, libc::SEEK_SET), Errno::INVAL)?;
        fails(sys::seek(&f, -4, libc::SEEK_END), Errno::INVAL)?;
        fails(sys::seek(&f, 0, 99), Errno::INVAL)
    });
    list.add("negative-offset-is-einval", || {
        let f = create("f")?;
        fails(pread(&f, &mut [0u8; 1][..], u64::MAX), Errno::INVAL)?;
        fails(pwrite(&f, b"x", u64::MAX), Errno::INVAL)
    });
    list.add("blocks-grow-with-data", || {
        let f = create("f")?;
        write_all(&f, &pattern(1 << 20, 1))?;
        drop(f);
        holds(stat("f")?.st_blocks as u64 >= (1 << 20) / 512, "st_blocks covers the data")
    });
    list.add("blocks-of-an-open-file-are-right-after-fsync", || {
        let f = create("f")?;
        write_all(&f, &pattern(1 << 20, 1))?;
        rustix::fs::fsync(&f)?;
        holds(fstat(&f)?.st_blocks as u64 >= (1 << 20) / 512, "st_blocks covers the data")
    });
    list.add("many-small-files-keep-their-bytes", || {
        for i in 0..500usize {
            put(format!("f{i}"), &pattern(i * 7 % 5000, i as u8))?;
        }
        for i in 0..500usize {
            same(&format!("f{i}"), get(format!("f{i}"))?, pattern(i * 7 % 5000, i as u8))?;
        }
        Ok(())
    });
    list.add("small-file-grows-to-large-and-shrinks-back", || {
        let f = create("f")?;
        for length in [10usize, 200, 3000, 5000, 100_000, 2_000_000, 100_000, 4000, 100, 0] {
            sys::ftruncate(&f, 0)?;
            write_at(&f, 0, &pattern(length, length as u8))?;
            same("content", read_at(&f, 0, length + 1)? == pattern(length, length as u8), true)?;
        }
        Ok(())
    });
}
