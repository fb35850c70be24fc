//! copy_file_range(2) and sendfile(2).

use rustix::fs::copy_file_range;

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("copy");
    for (length, from, to) in [
        (10usize, 0u64, 0u64),
        (100_000, 0, 0),
        (5000, 1000, 0),
        (4096, 4096, 8192),
        (3 << 20, 17, 4099),
    ] {
        list.add(format!("range-of-{length}-from-{from}-to-{to}"), move || {
            let source = pattern(from as usize + length + 50, 1);
            put("a", &source)?;
            let (a, b) = (open("a", O::RDONLY)?, create("b")?);
            let (mut at, mut into) = (from, to);
            while at < from + length as u64 {
                let rest = (from + length as u64 - at) as usize;
                let count = copy_file_range(&a, Some(&mut at), &b, Some(&mut into), rest)?;
                holds(count > 0, "it goes forward")?;
            }
            let mut expected = vec![0; to as usize];
            expected.extend(&source[from as usize..from as usize + length]);
            same("content", get("b")? == expected, true)
        });
    }
    list.add("moves-positions-without-offsets", || {
        put("a", b"abcdef")?;
        let (a, b) = (open("a", O::RDONLY)?, create("b")?);
        same("count", copy_file_range(&a, None, &b, None, 4)?, 4)?;
        same("count", copy_file_range(&a, None, &b, None, 4)?, 2)?;
        same("count at the end", copy_file_range(&a, None, &b, None, 4)?, 0)?;
        same("content", get("b")?, b"abcdef".to_vec())
    });
    list.add("within-one-file", || {
        put("a", &pattern(10_000, 1))?;
        let a = open_rw("a")?;
        same("count", copy_file_range(&a, Some(&mut 0), &a, Some(&mut 20_000), 10_000)?, 10_000)?;
        let mut expected = pattern(10_000, 1);
        expected.resize(20_000, 0);
        expected.extend(pattern(10_000, 1));
        same("content", get("a")? == expected, true)
    });
    list.add("overlap-is-einval", || {
        put("a", &pattern(10_000, 1))?;
        let a = open_rw("a")?;
        fails(copy_file_range(&a, Some(&mut 0), &a, Some(&mut 100), 5000), Errno::INVAL)
    });
    list.add("copies-unsynced-data", || {
        let (a, b) = (create("a")?, create("b")?);
        write_all(&a, &pattern(20_000, 3))?;
        same("count", copy_file_range(&a, Some(&mut 0), &b, Some(&mut 0), 20_000)?, 20_000)?;
        write_at(&a, 0, &[0; 20_000])?;
        same("content", get("b")? == pattern(20_000, 3), true)
    });
    list.add("overwrites-the-middle", || {
        put("a", &[7; 1000])?;
        put("b", &pattern(50_000, 1))?;
        copy_file_range(
            open("a", O::RDONLY)?,
            Some(&mut 0),
            open_rw("b")?,
            Some(&mut 30_000),
            1000,
        )?;
        let mut expected = pattern(50_000, 1);
        expected[30_000..31_000].fill(7);
        same("content", get("b")? == expected, true)
    });
    list.add("reads-holes-as-zeros", || {
        let (a, b) = (create("a")?, create("b")?);
        write_at(&a, 1 << 20, b"end")?;
        write_all(&b, &[9; 5000])?;
        let (mut at, mut into) = (0, 0);
        while copy_file_range(&a, Some(&mut at), &b, Some(&mut into), 4 << 20)? > 0 {}
        let mut expected = vec![0; 1 << 20];
        expected.extend(b"end");
        same("content", get("b")? == expected, true)
    });
    list.add("errors", || {
        put("a", b"abc")?;
        mkdir("d", 0o755)?;
        let (read, write) = (open("a", O::RDONLY)?, create("b")?);
        fails(copy_file_range(&read, None, &read, None, 1), Errno::BADF)?;
        fails(copy_file_range(open("b", O::WRONLY)?, None, &write, None, 1), Errno::BADF)?;
        fails(copy_file_range(open("d", O::RDONLY)?, None, &write, None, 1), Errno::ISDIR)?;
        fails(copy_file_range(&read, None, open("b", O::WRONLY | O::APPEND)?, None, 1), Errno::BADF)
    });
    list.add("changes-times-of-the-target", || {
        put("a", b"abc")?;
        put("b", b"xyz")?;
        let before = stat("b")?;
        tick();
        copy_file_range(open("a", O::RDONLY)?, None, open_rw("b")?, None, 3)?;
        let after = stat("b")?;
        holds(mtime(&after) > mtime(&before) && ctime(&after) > ctime(&before), "both times grow")
    });
    list.add("sendfile-to-a-file", || {
        put("a", &pattern(200_000, 1))?;
        let (a, b) = (open("a", O::RDONLY)?, create("b")?);
        let mut sent = 0;
        while sent < 200_000 {
            let count = rustix::fs::sendfile(&b, &a, None, 200_000)?;
            holds(count > 0, "it goes forward")?;
            sent += count;
        }
        same("content", get("b")? == pattern(200_000, 1), true)
    });
}
