//! Record locks, locks of open file descriptions, flock(2).

use rustix::fs::{FlockOperation as F, flock};

use crate::calls::*;
use crate::sys::{Lock, as_other_process, lock, lock_description, lock_in_the_way};

pub fn add(list: &mut List) {
    list.group("locks");
    list.add("record-write-lock-excludes-others", || {
        let f = create("f")?;
        lock(&f, Lock::Write, 0, 100)?;
        as_other_process(|| {
            let g = open_rw("f")?;
            fails_with(lock(&g, Lock::Write, 50, 10), &[Errno::AGAIN, Errno::ACCESS])?;
            fails_with(lock(&g, Lock::Read, 99, 1), &[Errno::AGAIN, Errno::ACCESS])?;
            Ok(lock(&g, Lock::Write, 100, 10)?)
        })
    });
    list.add("record-read-locks-are-shared", || {
        let f = create("f")?;
        lock(&f, Lock::Read, 0, 0)?;
        as_other_process(|| {
            let g = open_rw("f")?;
            lock(&g, Lock::Read, 0, 0)?;
            fails_with(lock(&g, Lock::Write, 0, 1), &[Errno::AGAIN, Errno::ACCESS])
        })
    });
    list.add("record-getlk-tells-who-is-in-the-way", || {
        let f = create("f")?;
        lock(&f, Lock::Write, 1000, 10)?;
        same("own", lock_in_the_way(&f, Lock::Write, 0, 0)?, None)?;
        as_other_process(|| {
            let g = open_rw("f")?;
            same("other", lock_in_the_way(&g, Lock::Write, 0, 0)?, Some((Lock::Write, 1000)))?;
            same("beside", lock_in_the_way(&g, Lock::Write, 0, 1000)?, None)
        })
    });
    list.add("record-unlock-frees-a-part", || {
        let f = create("f")?;
        lock(&f, Lock::Write, 0, 100)?;
        lock(&f, Lock::None, 40, 20)?;
        as_other_process(|| {
            let g = open_rw("f")?;
            lock(&g, Lock::Write, 40, 20)?;
            fails_with(lock(&g, Lock::Write, 39, 1), &[Errno::AGAIN, Errno::ACCESS])?;
            fails_with(lock(&g, Lock::Write, 60, 1), &[Errno::AGAIN, Errno::ACCESS])
        })
    });
    list.add("record-locks-go-with-any-close", || {
        let f = create("f")?;
        lock(&f, Lock::Write, 0, 0)?;
        drop(open("f", O::RDONLY)?);
        as_other_process(|| Ok(lock(open_rw("f")?, Lock::Write, 0, 0)?))
    });
    list.add("record-locks-end-with-their-owner", || {
        let f = create("f")?;
        as_other_process(|| {
            let g = open_rw("f")?;
            lock(&g, Lock::Write, 0, 0)?;
            // The lock ends with this descriptor table.
            std::mem::forget(g);
            Ok(())
        })?;
        // A join can return a moment before the kernel has closed the thread's descriptors.
        for _ in 0..50 {
            if lock(&f, Lock::Write, 0, 0).is_ok() {
                return Ok(());
            }
            tick();
        }
        Err(Stop::failed("the lock of an owner that is gone is still there after a second"))
    });
    list.add("record-lock-at-the-largest-offset", || {
        let f = create("f")?;
        lock(&f, Lock::Write, i64::MAX - 1, 1)?;
        as_other_process(|| {
            fails_with(
                lock(open_rw("f")?, Lock::Write, i64::MAX - 10, 0),
                &[Errno::AGAIN, Errno::ACCESS],
            )
        })
    });
    list.add("record-write-lock-needs-a-writable-descriptor", || {
        put("f", b"")?;
        fails(lock(open("f", O::RDONLY)?, Lock::Write, 0, 1), Errno::BADF)?;
        fails(lock(open("f", O::WRONLY)?, Lock::Read, 0, 1), Errno::BADF)
    });
    list.add("record-negative-range-is-einval", || {
        fails(lock(create("f")?, Lock::Write, -5, 1), Errno::INVAL)
    });
    list.add("description-locks-exclude-within-a-process", || {
        let (f, g) = (create("f")?, open_rw("f")?);
        lock_description(&f, Lock::Write, 0, 10)?;
        fails_with(lock_description(&g, Lock::Write, 5, 1), &[Errno::AGAIN, Errno::ACCESS])?;
        drop(f);
        Ok(lock_description(&g, Lock::Write, 5, 1)?)
    });
    list.add("flock-exclusive-excludes", || {
        let (f, g) = (create("f")?, open_rw("f")?);
        flock(&f, F::NonBlockingLockExclusive)?;
        fails(flock(&g, F::NonBlockingLockExclusive), Errno::AGAIN)?;
        fails(flock(&g, F::NonBlockingLockShared), Errno::AGAIN)?;
        flock(&f, F::Unlock)?;
        Ok(flock(&g, F::NonBlockingLockExclusive)?)
    });
    list.add("flock-shared-is-shared", || {
        let (f, g) = (create("f")?, open_rw("f")?);
        flock(&f, F::NonBlockingLockShared)?;
        flock(&g, F::NonBlockingLockShared)?;
        fails(flock(&g, F::NonBlockingLockExclusive), Errno::AGAIN)
    });
    list.add("flock-goes-with-the-last-close", || {
        let (f, g) = (create("f")?, open_rw("f")?);
        flock(&f, F::NonBlockingLockExclusive)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&f, 0)?;
        drop(f);
        fails(flock(&g, F::NonBlockingLockShared), Errno::AGAIN)?;
        drop(copy);
        Ok(flock(&g, F::NonBlockingLockShared)?)
    });
    list.add("flock-can-be-taken-on-directories", || {
        mkdir("d", 0o755)?;
        let (d, e) = (open("d", O::RDONLY)?, open("d", O::RDONLY)?);
        flock(&d, F::NonBlockingLockExclusive)?;
        fails(flock(&e, F::NonBlockingLockExclusive), Errno::AGAIN)
    });
    list.add("flock-blocks-until-free", || {
        let (f, g) = (create("f")?, open_rw("f")?);
        flock(&f, F::LockExclusive)?;
        std::thread::scope(|scope| {
            let waiter = scope.spawn(move || flock(&g, F::LockExclusive).map(|()| g));
            tick();
            holds(!waiter.is_finished(), "the second one waits")?;
            flock(&f, F::Unlock)?;
            match waiter.join() {
                Ok(got) => Ok(drop(got?)),
                Err(_) => Err(Stop::failed("the waiter panicked")),
            }
        })
    });
}
