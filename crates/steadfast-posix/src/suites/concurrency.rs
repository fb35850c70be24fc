//! Several threads at the same time: exactly one succeeds, and no data is torn or lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::calls::*;

/// Largest number of a check's calls that may fail with ESTALE, on file systems whose inodes can
/// disappear during a path lookup. This is a tenth or more of the racing calls. On two idle
/// processors up to 30 occur.
const STALE_MOST: usize = 80;

pub fn add(list: &mut List) {
    list.group("concurrent");
    list.add("exclusive-create-has-one-winner", || {
        one_winner(|round| create(format!("f{round}")).map(drop))
    });
    list.add("mkdir-has-one-winner", || one_winner(|round| mkdir(format!("d{round}"), 0o755)));
    list.add("symlink-has-one-winner", || one_winner(|round| symlink("x", format!("s{round}"))));
    list.add("link-has-one-winner", || {
        put("source", b"")?;
        one_winner(|round| link("source", format!("l{round}")))?;
        same("links", links("source")?, 1 + ROUNDS as u64)
    });
    list.add("unlink-has-one-winner", || {
        for round in 0..ROUNDS {
            drop(create(format!("f{round}"))?);
        }
        one_winner(|round| unlink(format!("f{round}")))
    });
    list.add("rmdir-has-one-winner", || {
        for round in 0..ROUNDS {
            mkdir(format!("d{round}"), 0o755)?;
        }
        one_winner(|round| rmdir(format!("d{round}")))
    });
    list.add("rename-away-has-one-winner", || {
        for round in 0..ROUNDS {
            drop(create(format!("f{round}"))?);
        }
        one_winner(|round| rename(format!("f{round}"), format!("g{round}")))
    });
    list.add("noreplace-has-one-winner", || {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let next = AtomicUsize::new(0);
        one_winner(move |round| {
            let source = format!("source{}", next.fetch_add(1, Ordering::Relaxed));
            drop(create(source.as_str())?);
            rename_with(source.as_str(), format!("g{round}"), flags)
        })
    });
    list.add("appends-are-not-lost-or-torn", || {
        drop(create("log")?);
        each_thread(|thread| {
            let f = open("log", O::WRONLY | O::APPEND)?;
            for i in 0..100 {
                write_all(&f, format!("{thread}:{i:03}\n").as_bytes())?;
            }
            Ok(())
        })?;
        let content = get("log")?;
        let mut lines: Vec<&[u8]> =
            content.split(|&byte| byte == b'\n').filter(|l| !l.is_empty()).collect();
        same("lines", lines.len(), THREADS * 100)?;
        lines.sort();
        lines.dedup();
        same("different lines", lines.len(), THREADS * 100)
    });
    list.add("writers-of-own-parts-do-not-disturb", || {
        drop(create("f")?);
        each_thread(|thread| {
            let f = open_rw("f")?;
            for part in 0..50u64 {
                let at = (part * THREADS as u64 + thread as u64) * 1000;
                write_at(&f, at, &[thread as u8 + 1; 1000])?;
            }
            Ok(())
        })?;
        let content = get("f")?;
        same("length", content.len(), THREADS * 50 * 1000)?;
        for (part, bytes) in content.chunks(1000).enumerate() {
            let expected = (part % THREADS) as u8 + 1;
            holds(bytes.iter().all(|&byte| byte == expected), &format!("part {part} is whole"))?;
        }
        Ok(())
    });
    list.add("each-thread-in-its-own-directory", || {
        each_thread(|thread| {
            mkdir(format!("t{thread}"), 0o755)?;
            for i in 0..200usize {
                put(format!("t{thread}/f{i}"), &pattern(i, thread as u8))?;
            }
            for i in (0..200).step_by(2) {
                unlink(format!("t{thread}/f{i}"))?;
            }
            same("names", names(format!("t{thread}"))?.len(), 100)
        })
    });
    list.add("all-threads-in-one-directory", || {
        each_thread(|thread| {
            for i in 0..200 {
                drop(create(format!("t{thread}-{i}"))?);
            }
            for i in 0..100 {
                rename(format!("t{thread}-{i}"), format!("u{thread}-{i}"))?;
            }
            Ok(())
        })?;
        same("names", names(".")?.len(), THREADS * 200)
    });
    list.add("opposite-directory-moves-do-not-deadlock", || {
        mkdir("a", 0o755)?;
        mkdir("b", 0o755)?;
        each_thread(|thread| {
            let name = format!("d{thread}");
            mkdir(format!("a/{name}"), 0o755)?;
            for _ in 0..50 {
                rename(format!("a/{name}"), format!("b/{name}"))?;
                rename(format!("b/{name}"), format!("a/{name}"))?;
            }
            Ok(())
        })?;
        same("names", (names("a")?.len(), names("b")?.len()), (THREADS, 0))
    });
    list.add("directory-moves-never-make-a-loop", || {
        mkdir("a", 0o755)?;
        mkdir("b", 0o755)?;
        each_thread(|thread| {
            for _ in 0..100 {
                // Each thread moves one into the other. At most one move can succeed at a time;
                // then it is undone.
                let (from, to, back) =
                    if thread % 2 == 0 { ("a", "b/a", "a") } else { ("b", "a/b", "b") };
                let _ = rename(from, to);
                let _ = rename(to, back);
            }
            Ok(())
        })?;
        let mut found = 0;
        for path in ["a", "b", "a/b", "b/a"] {
            found += usize::from(exists(path));
        }
        same("directories that can be reached", found, 2)
    });
    list.add("readers-see-whole-writes-of-a-page", || {
        put("f", &[0; 4096])?;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| -> Verdict {
                let f = open_rw("f")?;
                for i in 0..2000u32 {
                    write_at(&f, 0, &[i as u8; 4096])?;
                }
                Ok(())
            });
            let f = open("f", O::RDONLY)?;
            while !writer.is_finished() {
                same("length", read_at(&f, 0, 4096)?.len(), 4096)?;
            }
            writer.join().unwrap_or_else(|_| Err(Stop::failed("the writer panicked")))?;
            same("last", read_at(&f, 0, 4096)?, vec![1999u32 as u8; 4096])
        })
    });
    list.add("create-and-remove-of-one-name", || {
        // As in the check below: a call that loses the race twice in a row returns ESTALE, which is
        // rare.
        let stale = AtomicUsize::new(0);
        each_thread(|_| {
            for _ in 0..100 {
                match put("same", b"x") {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::STALE) if stale.fetch_add(1, Ordering::Relaxed) < STALE_MOST => {}
                    Err(error) => return Err(error.into()),
                }
                match unlink("same") {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })?;
        same("names", names(".")?.len(), 0)
    });
    list.add("calls-that-race-with-removal-find-it-or-not", || {
        // A name that is created and removed continuously either exists or does not (ENOENT); no
        // other answer is right. On file systems whose inodes can disappear during a path lookup
        // (NFS, FUSE), the kernel retries once after ESTALE. A call that loses the race twice in a
        // row returns it. That must be rare.
        let mut stale = 0;
        let mut found_or_not = |what: &str, result: Call| match result {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::STALE) if stale < STALE_MOST => {
                stale += 1;
                Ok(())
            }
            Err(error) => Err(Stop::failed(format!("{what}: {}", crate::verdict::name(error)))),
        };
        std::thread::scope(|scope| {
            let churn = scope.spawn(|| -> Verdict {
                for _ in 0..500 {
                    put("f", b"abc")?;
                    mkdir("d", 0o755)?;
                    unlink("f")?;
                    // The other thread may briefly have an entry in it.
                    while rmdir("d") == Err(Errno::NOTEMPTY) {}
                    holds(!exists("d"), "the directory is gone")?;
                }
                Ok(())
            });
            let mut verdict = Ok(());
            while !churn.is_finished() && verdict.is_ok() {
                verdict = found_or_not("open", open("f", O::RDONLY).map(drop))
                    .and_then(|()| found_or_not("stat", stat("f").map(drop)))
                    .and_then(|()| found_or_not("chmod", chmod("f", 0o600)))
                    .and_then(|()| found_or_not("setxattr", set_attribute("f", "user.x", b"1")))
                    .and_then(|()| found_or_not("truncate", truncate("f", 1)))
                    .and_then(|()| found_or_not("open directory", open("d", O::RDONLY).map(drop)))
                    .and_then(|()| {
                        found_or_not(
                            "create inside",
                            mkdir("d/e", 0o755).and_then(|()| rmdir("d/e")),
                        )
                    });
            }
            churn.join().unwrap_or_else(|_| Err(Stop::failed("the thread panicked")))?;
            verdict
        })
    });
    list.add("attributes-from-many-threads", || {
        put("f", b"")?;
        each_thread(|thread| {
            for i in 0..30 {
                set_attribute("f", &format!("user.t{thread}"), format!("{i}").as_bytes())?;
            }
            Ok(())
        })?;
        same("attributes", attributes("f")?.len(), THREADS)
    });
}

const THREADS: usize = 6;
const ROUNDS: usize = 40;

/// Runs `body` in several threads at the same time; all must pass.
fn each_thread(body: impl Fn(usize) -> Verdict + Sync) -> Verdict {
    std::thread::scope(|scope| {
        let body = &body;
        let workers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || body(thread))).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|_| Err(Stop::failed("a thread panicked")))?;
        }
        Ok(())
    })
}

/// All threads make the same attempt, round by round. In each round one succeeds, and the others
/// fail with EEXIST or ENOENT.
fn one_winner(attempt: impl Fn(usize) -> Call + Sync) -> Verdict {
    let barrier = std::sync::Barrier::new(THREADS);
    let wins: Vec<AtomicUsize> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
    let verdict = each_thread(|_| {
        let mut verdict = Ok(());
        // Every thread goes through all rounds, even after a failure, because the others would
        // otherwise wait forever.
        for (round, count) in wins.iter().enumerate() {
            barrier.wait();
            match attempt(round) {
                Ok(()) => {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Err(Errno::EXIST | Errno::NOENT) => {}
                Err(error) => verdict = Err(Stop::from(error)),
            }
        }
        verdict
    });
    verdict?;
    let wins: Vec<usize> = wins.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    same("winners in each round", wins, vec![1; ROUNDS])
}
