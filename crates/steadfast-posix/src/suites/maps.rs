//! Memory maps of files.

use rustix::mm::MsyncFlags;

use crate::calls::*;

const PAGE: usize = 4096;

pub fn add(list: &mut List) {
    list.group("mmap");
    list.add("read-shows-the-file", || {
        put("f", &pattern(50_000, 1))?;
        let map = Map::new(open("f", O::RDONLY)?, 0, 50_000, false, true)?;
        same("content", map.read(0, 50_000) == pattern(50_000, 1), true)
    });
    list.add("tail-of-the-last-page-is-zero", || {
        put("f", &[1; 5000])?;
        let map = Map::new(open("f", O::RDONLY)?, 0, 2 * PAGE, false, true)?;
        same("tail", map.read(5000, 2 * PAGE - 5000), vec![0; 2 * PAGE - 5000])
    });
    list.add("at-an-offset", || {
        put("f", &pattern(50_000, 1))?;
        let map = Map::new(open("f", O::RDONLY)?, 8192, PAGE, false, true)?;
        same("content", map.read(0, PAGE), pattern(50_000, 1)[8192..8192 + PAGE].to_vec())
    });
    list.add("shared-store-is-seen-by-read-at-once", || {
        let f = create("f")?;
        sys::ftruncate(&f, 3 * PAGE as i64)?;
        let map = Map::new(&f, 0, 3 * PAGE, true, true)?;
        map.write(5000, b"stored");
        same("bytes", read_at(&f, 4999, 8)?, b"\0stored\0".to_vec())?;
        same("by name", get("f")?[5000..5006].to_vec(), b"stored".to_vec())
    });
    list.add("write-is-seen-by-shared-map-at-once", || {
        let f = create("f")?;
        sys::ftruncate(&f, 2 * PAGE as i64)?;
        let map = Map::new(&f, 0, 2 * PAGE, false, true)?;
        same("before", map.read(100, 3), vec![0; 3])?;
        write_at(&f, 100, b"abc")?;
        same("after", map.read(100, 3), b"abc".to_vec())
    });
    list.add("shared-store-survives-unmap-and-close", || {
        let f = create("f")?;
        sys::ftruncate(&f, 100_000)?;
        let map = Map::new(&f, 0, 100_000, true, true)?;
        map.write(0, &pattern(100_000, 5));
        drop(map);
        drop(f);
        same("content", get("f")? == pattern(100_000, 5), true)
    });
    list.add("shared-store-without-descriptor", || {
        let f = create("f")?;
        sys::ftruncate(&f, PAGE as i64)?;
        let map = Map::new(&f, 0, PAGE, true, true)?;
        drop(f);
        map.write(10, b"abc");
        same("bytes", get("f")?[10..13].to_vec(), b"abc".to_vec())
    });
    list.add("msync-then-direct-read", || {
        let f = create("f")?;
        sys::ftruncate(&f, 2 * PAGE as i64)?;
        let map = Map::new(&f, 0, 2 * PAGE, true, true)?;
        map.write(0, &pattern(2 * PAGE, 7));
        map.sync(MsyncFlags::SYNC)?;
        let direct = match open("f", O::RDONLY | O::DIRECT) {
            Err(Errno::INVAL) => return Err(Stop::Unsupported("O_DIRECT".into())),
            other => other?,
        };
        let mut storage = vec![0u8; 3 * PAGE];
        let skew = storage.as_ptr().align_offset(PAGE);
        let count = rustix::io::pread(&direct, &mut storage[skew..skew + 2 * PAGE], 0)?;
        same("content", storage[skew..skew + count].to_vec(), pattern(2 * PAGE, 7))
    });
    list.add("msync-flags", || {
        let f = create("f")?;
        sys::ftruncate(&f, PAGE as i64)?;
        let map = Map::new(&f, 0, PAGE, true, true)?;
        map.write(0, b"x");
        map.sync(MsyncFlags::ASYNC)?;
        map.sync(MsyncFlags::SYNC | MsyncFlags::INVALIDATE)?;
        fails(map.sync(MsyncFlags::SYNC | MsyncFlags::ASYNC), Errno::INVAL)
    });
    list.add("store-changes-mtime-and-ctime-by-msync", || {
        let f = create("f")?;
        sys::ftruncate(&f, PAGE as i64)?;
        rustix::fs::fsync(&f)?;
        let before = stat("f")?;
        tick();
        let map = Map::new(&f, 0, PAGE, true, true)?;
        map.write(0, b"x");
        map.sync(MsyncFlags::SYNC)?;
        let after = stat("f")?;
        holds(mtime(&after) > mtime(&before), "mtime grows")?;
        holds(ctime(&after) > ctime(&before), "ctime grows")
    });
    list.add("private-store-stays-private", || {
        put("f", &[1; PAGE])?;
        let map = Map::new(open("f", O::RDONLY)?, 0, PAGE, true, false)?;
        map.write(0, b"private");
        same("map", map.read(0, 7), b"private".to_vec())?;
        same("file", get("f")?, vec![1; PAGE])
    });
    list.add("store-into-a-hole", || {
        let f = create("f")?;
        sys::ftruncate(&f, 1 << 30)?;
        let map = Map::new(&f, 1 << 29, PAGE, true, true)?;
        map.write(100, b"deep");
        map.sync(MsyncFlags::SYNC)?;
        drop(map);
        same("bytes", read_at(&f, (1 << 29) + 99, 6)?, b"\0deep\0".to_vec())?;
        holds((fstat(&f)?.st_blocks as u64) < 8192, "the rest stays a hole")
    });
    list.add("beyond-the-end-faults", || {
        put("f", &[1; 100])?;
        let map = Map::new(open("f", O::RDONLY)?, 0, 3 * PAGE, false, true)?;
        map.probe(50)?;
        fails(map.probe(PAGE + 1), Errno::FAULT)
    });
    list.add("truncated-away-page-faults-and-comes-back-zero", || {
        let f = create("f")?;
        write_all(&f, &[1; 3 * PAGE])?;
        let map = Map::new(&f, 0, 3 * PAGE, true, true)?;
        map.write(2 * PAGE, b"x");
        sys::ftruncate(&f, PAGE as i64)?;
        fails(map.probe(2 * PAGE), Errno::FAULT)?;
        sys::ftruncate(&f, 3 * PAGE as i64)?;
        map.probe(2 * PAGE)?;
        same("bytes", map.read(2 * PAGE, 4), vec![0; 4])
    });
    list.add("truncate-clears-the-tail-of-a-mapped-page", || {
        let f = create("f")?;
        write_all(&f, &[1; PAGE])?;
        let map = Map::new(&f, 0, PAGE, true, true)?;
        sys::ftruncate(&f, 100)?;
        same("tail", map.read(100, 50), vec![0; 50])?;
        sys::ftruncate(&f, PAGE as i64)?;
        same("content", get("f")?[100..].to_vec(), vec![0; PAGE - 100])
    });
    list.add("store-past-the-end-is-dropped", || {
        let f = create("f")?;
        write_all(&f, &[1; 100])?;
        let map = Map::new(&f, 0, PAGE, true, true)?;
        map.write(200, b"lost");
        map.sync(MsyncFlags::SYNC)?;
        drop(map);
        same("size", fstat(&f)?.st_size, 100)?;
        sys::ftruncate(&f, 300)?;
        same("bytes", read_at(&f, 200, 4)?, vec![0; 4])
    });
    list.add("unlinked-file-stays-mapped", || {
        let f = create("f")?;
        write_all(&f, &pattern(20_000, 1))?;
        let map = Map::new(&f, 0, 20_000, true, true)?;
        unlink("f")?;
        drop(f);
        map.write(0, b"z");
        same("bytes", map.read(1, 19_999) == pattern(20_000, 1)[1..], true)
    });
    list.add("write-from-a-map-of-the-same-file", || {
        let f = create("f")?;
        write_all(&f, &pattern(PAGE, 1))?;
        let map = Map::new(&f, 0, PAGE, false, true)?;
        write_at(&f, PAGE as u64, &map.read(0, PAGE))?;
        same("content", get("f")?, [pattern(PAGE, 1), pattern(PAGE, 1)].concat())
    });
    list.add("shared-writable-needs-a-writable-descriptor", || {
        put("f", &[1; PAGE])?;
        fails(Map::new(open("f", O::RDONLY)?, 0, PAGE, true, true).map(drop), Errno::ACCESS)?;
        fails(Map::new(open("f", O::WRONLY)?, 0, PAGE, false, true).map(drop), Errno::ACCESS)
    });
    list.add("directory-is-enodev", || {
        mkdir("d", 0o755)?;
        fails_with(
            Map::new(open("d", O::RDONLY)?, 0, PAGE, false, true).map(drop),
            &[Errno::NODEV, Errno::ACCESS],
        )
    });
    list.add("punch-hole-is-seen-by-the-map", || {
        let f = create("f")?;
        write_all(&f, &[1; 4 * PAGE])?;
        let map = Map::new(&f, 0, 4 * PAGE, true, true)?;
        same("before", map.read(PAGE, 2), vec![1; 2])?;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        supported("fallocate", sys::fallocate(&f, mode, PAGE as i64, PAGE as i64))?;
        same("after", map.read(PAGE, 2), vec![0; 2])
    });
}
