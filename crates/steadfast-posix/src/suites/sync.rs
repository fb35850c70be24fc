//! fsync(2) and related calls. Other tests check that data survives power cuts; these check that
//! the calls work.

use rustix::fs::{fdatasync, fsync, syncfs};

use crate::calls::*;

pub fn add(list: &mut List) {
    list.group("sync");
    list.add("fsync-of-a-written-file", || {
        let f = create("f")?;
        write_all(&f, &pattern(100_000, 1))?;
        fsync(&f)?;
        same("content", get("f")? == pattern(100_000, 1), true)
    });
    list.add("fdatasync-of-a-written-file", || {
        let f = create("f")?;
        write_all(&f, &pattern(100_000, 1))?;
        fdatasync(&f)?;
        same("content", get("f")? == pattern(100_000, 1), true)
    });
    list.add("fsync-through-a-read-only-descriptor", || {
        put("f", b"abc")?;
        Ok(fsync(open("f", O::RDONLY)?)?)
    });
    list.add("fsync-of-a-directory", || {
        mkdir("d", 0o755)?;
        put("d/f", b"")?;
        let d = open("d", O::RDONLY | O::DIRECTORY)?;
        fsync(&d)?;
        Ok(fdatasync(&d)?)
    });
    list.add("fsync-of-an-unlinked-file", || {
        let f = create("f")?;
        write_all(&f, b"abc")?;
        unlink("f")?;
        Ok(fsync(&f)?)
    });
    list.add("fsync-of-a-fifo-is-einval", || {
        mkfifo("p", 0o600)?;
        fails(fsync(open("p", O::RDWR)?), Errno::INVAL)
    });
    list.add("syncfs-and-sync", || {
        put("f", &pattern(10_000, 1))?;
        syncfs(open(".", O::RDONLY)?)?;
        rustix::fs::sync();
        same("content", get("f")?, pattern(10_000, 1))
    });
    list.add("syncfs-after-unlink-finds-no-error", || {
        let sync = || -> Verdict { Ok(syncfs(open(".", O::RDONLY)?)?) };
        put("f", &pattern(10_000, 1))?;
        sync()?;
        unlink("f")?;
        sync()?;
        let f = create("g")?;
        write_all(&f, &pattern(10_000, 1))?;
        unlink("g")?;
        sync()?;
        drop(f);
        sync()
    });
    list.add("a-hundred-small-fsyncs", || {
        let f = create("f")?;
        for i in 0..100u8 {
            write_all(&f, &[i; 100])?;
            fsync(&f)?;
        }
        same("size", fstat(&f)?.st_size, 10_000)
    });
    list.add("fsync-from-many-threads", || {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..8u8)
                .map(|i| {
                    scope.spawn(move || -> Verdict {
                        let f = create(format!("f{i}"))?;
                        for round in 0..10u8 {
                            write_all(&f, &[round; 500])?;
                            fsync(&f)?;
                        }
                        same("size", fstat(&f)?.st_size, 5000)
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap_or_else(|_| Err(Stop::failed("a thread panicked")))?;
            }
            Ok(())
        })
    });
    list.add("dropping-cached-pages-keeps-content", || {
        let f = create("f")?;
        write_all(&f, &pattern(100_000, 1))?;
        // Only advice for the page cache; it makes nothing durable.
        Ok(rustix::fs::fadvise(&f, 0, None, rustix::fs::Advice::DontNeed)?)
    });
}
