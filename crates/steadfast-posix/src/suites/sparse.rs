//! Holes, SEEK_DATA and SEEK_HOLE, and files up to the largest offset.

use crate::calls::*;

const LARGEST: i64 = i64::MAX;

pub fn add(list: &mut List) {
    list.group("sparse");
    list.add("gap-reads-as-zeros", || {
        let f = create("f")?;
        write_at(&f, 0, b"a")?;
        write_at(&f, 100_000, b"z")?;
        let bytes = get("f")?;
        same("length", bytes.len(), 100_001)?;
        holds(bytes[1..100_000].iter().all(|&byte| byte == 0), "all zeros between")
    });
    list.add("hole-takes-no-blocks", || {
        let f = create("f")?;
        write_at(&f, 1 << 30, b"z")?;
        rustix::fs::fsync(&f)?;
        holds((fstat(&f)?.st_blocks as u64) < 2048, "less than a mebibyte for one byte")
    });
    for exponent in [31, 32, 40, 43] {
        list.add(format!("write-at-2-to-the-{exponent}"), move || {
            let f = create("f")?;
            let at = (1u64 << exponent) - 3;
            write_at(&f, at, b"across")?;
            same("size", fstat(&f)?.st_size as u64, at + 6)?;
            same("bytes", read_at(&f, at - 2, 10)?, b"\0\0across".to_vec())
        });
    }
    list.add("write-at-2-to-the-62", || {
        let f = create("f")?;
        write_limited(&f, 1 << 62, b"far")?;
        same("bytes", read_at(&f, (1 << 62) - 1, 9)?, b"\0far".to_vec())
    });
    list.add("largest-size-by-ftruncate", || {
        let f = create("f")?;
        match sys::ftruncate(&f, LARGEST) {
            Err(Errno::FBIG) => return Err(Stop::Unsupported("size 2^63-1".into())),
            other => other?,
        }
        same("size", stat("f")?.st_size, LARGEST)?;
        same("bytes", read_at(&f, (LARGEST - 9) as u64, 9)?, vec![0; 9])
    });
    list.add("last-byte-below-the-largest-offset", || {
        let f = create("f")?;
        write_limited(&f, (LARGEST - 1) as u64, b"!")?;
        same("size", stat("f")?.st_size, LARGEST)?;
        same("byte", read_at(&f, (LARGEST - 1) as u64, 1)?, b"!".to_vec())
    });
    list.add("write-at-the-largest-offset-is-efbig-or-einval", || {
        // If the sum of offset and length overflows, the kernel returns EINVAL before it asks the
        // file system.
        let f = create("f")?;
        fails_with(rustix::io::pwrite(&f, b"x", LARGEST as u64), &[Errno::FBIG, Errno::INVAL])?;
        same("size", fstat(&f)?.st_size, 0)
    });
    list.add("write-across-the-largest-offset-is-cut", || {
        let f = create("f")?;
        match rustix::io::pwrite(&f, b"abcdef", (LARGEST - 2) as u64) {
            Ok(2) => same("size", fstat(&f)?.st_size, LARGEST),
            Ok(count) => Err(Stop::failed(format!("{count} bytes written, there is room for 2"))),
            Err(Errno::FBIG) => Err(Stop::Unsupported("size 2^63-1".into())),
            Err(Errno::INVAL) => {
                holds(fstat(&f)?.st_size == 0, "refused as a whole, nothing changed")
            }
            Err(error) => Err(error.into()),
        }
    });
    seeking(list);
}

/// Writes at an offset for which some file systems return EFBIG, although it is below the system's
/// largest offset.
#[track_caller]
fn write_limited(file: &std::os::fd::OwnedFd, at: u64, bytes: &[u8]) -> Verdict {
    match write_at(file, at, bytes) {
        Err(Errno::FBIG) => Err(Stop::Unsupported(format!("offset {at}"))),
        other => Ok(other?),
    }
}

fn seeking(list: &mut List) {
    use libc::{SEEK_DATA, SEEK_HOLE};
    list.add("seek-data-and-hole-in-a-dense-file", || {
        put("f", &pattern(10_000, 1))?;
        let f = open("f", O::RDONLY)?;
        same("data at 0", sys::seek(&f, 0, SEEK_DATA)?, 0)?;
        same("data at 5000", sys::seek(&f, 5000, SEEK_DATA)?, 5000)?;
        same("hole from 0", sys::seek(&f, 0, SEEK_HOLE)?, 10_000)?;
        same("hole from 9999", sys::seek(&f, 9_999, SEEK_HOLE)?, 10_000)
    });
    list.add("seek-at-or-beyond-the-end-is-enxio", || {
        put("f", b"abc")?;
        let f = open("f", O::RDONLY)?;
        for whence in [SEEK_DATA, SEEK_HOLE] {
            fails(sys::seek(&f, 3, whence), Errno::NXIO)?;
            fails(sys::seek(&f, 1000, whence), Errno::NXIO)?;
        }
        Ok(())
    });
    list.add("seek-in-an-empty-file-is-enxio", || {
        let f = create("f")?;
        fails(sys::seek(&f, 0, SEEK_DATA), Errno::NXIO)?;
        fails(sys::seek(&f, 0, SEEK_HOLE), Errno::NXIO)
    });
    list.add("seek-with-negative-offset-fails", || {
        put("f", b"abc")?;
        let f = open("f", O::RDONLY)?;
        fails_with(sys::seek(&f, -1, SEEK_DATA), &[Errno::NXIO, Errno::INVAL])?;
        fails_with(sys::seek(&f, -1, SEEK_HOLE), &[Errno::NXIO, Errno::INVAL])
    });
    list.add("seek-finds-data-after-a-hole", || {
        let f = create("f")?;
        write_at(&f, 1 << 20, &pattern(1 << 16, 1))?;
        let data = sys::seek(&f, 0, SEEK_DATA)?;
        holds(data <= 1 << 20, "no data is missed")?;
        holds(data > 0, "the hole in front is known")?;
        same("hole at 0", sys::seek(&f, 0, SEEK_HOLE)?, 0)?;
        same("the end counts as a hole", sys::seek(&f, 1 << 20, SEEK_HOLE)?, (1 << 20) + (1 << 16))
    });
    list.add("seek-in-a-wholly-sparse-file", || {
        let f = create("f")?;
        sys::ftruncate(&f, 1 << 30)?;
        fails(sys::seek(&f, 0, SEEK_DATA), Errno::NXIO)?;
        same("hole", sys::seek(&f, 12345, SEEK_HOLE)?, 12345)
    });
    list.add("seek-walk-misses-no-data", || {
        let f = create("f")?;
        let places: Vec<u64> = (0..40).map(|i| i * 300_000 + i * i * 17).collect();
        for &at in &places {
            write_at(&f, at, &pattern(100, 1))?;
        }
        let end = fstat(&f)?.st_size;
        let (mut at, mut ranges) = (0, Vec::new());
        while let Ok(data) = sys::seek(&f, at, SEEK_DATA) {
            let hole = sys::seek(&f, data, SEEK_HOLE)?;
            holds(hole > data && hole <= end, "ranges go forward")?;
            ranges.push(data as u64..hole as u64);
            at = hole;
            if at >= end {
                break;
            }
        }
        for place in places {
            let covered =
                ranges.iter().any(|range| range.start <= place && place + 100 <= range.end);
            holds(covered, &format!("data at {place} lies in a data range"))?;
        }
        holds(ranges.len() > 20, "most holes are seen")
    });
    list.add("seek-moves-the-position", || {
        put("f", b"abcdef")?;
        let f = open("f", O::RDONLY)?;
        sys::seek(&f, 2, SEEK_DATA)?;
        same("rest", read_some(&f, 9)?, b"cdef".to_vec())
    });
    list.add("seek-sees-unflushed-data", || {
        let f = create("f")?;
        sys::ftruncate(&f, 1 << 24)?;
        write_at(&f, 1 << 22, b"here")?;
        let at = sys::seek(&f, 0, SEEK_DATA)?;
        holds(at > 0 && at <= 1 << 22, "the new data is found at once")
    });
}
