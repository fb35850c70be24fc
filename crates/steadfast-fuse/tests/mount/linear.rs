//! Several threads change the names of two directories through the kernel. Their observations must
//! fit one sequential order (linearizability). After a kill -9 in the middle the volume must be
//! exactly at a transaction point of that order. It is the last acknowledged one, or one in flight.
//!
//! The lab (`linear`) checks the histories and knows nothing of FUSE. Both directories are one
//! object, so that renames between them are checked too. Links are created from open files, because
//! by path they are two steps on any system.
//!
//! The kernel also answers from its own names, and these follow the daemon's names only when a call
//! returns. So every answer is checked for the order of the calls. But whether a transaction point
//! contains a concurrent change is not checked against what other threads then saw of that name
//! ([`seen_by_the_daemon`]).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steadfast_fuse::{MountOptions, ioctl};
use steadfast_torture::linear::namespace::{
    Answer, Id, Namespace, NamespaceOperation, NamespaceState, Path,
};
use steadfast_torture::linear::{Invocation, Refused, check};
use steadfast_torture::random::Random;

use crate::support::{Place, QUIET, can_mount};
use crate::sys;

const DIRECTORIES: u8 = 2;
const NAMES: u8 = 4;
const THREADS: u64 = 4;

type History = Vec<Invocation<NamespaceOperation, Answer>>;
type Found = BTreeMap<Path, u64>;

/// State that the threads share.
struct Shared {
    mount_point: PathBuf,
    clock: AtomicU64,
    /// Number of operations that have returned.
    done: AtomicU64,
    stop: AtomicBool,
    /// The daemon is being killed: from now on errors do not count as answers.
    killing: AtomicBool,
}

impl Shared {
    fn new(mount_point: PathBuf) -> Shared {
        Shared {
            mount_point,
            clock: AtomicU64::new(0),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            killing: AtomicBool::new(false),
        }
    }

    fn directory(&self, number: u8) -> PathBuf {
        self.mount_point.join(format!("d{number}"))
    }

    fn path(&self, path: Path) -> PathBuf {
        self.directory(path.directory).join(format!("n{}", path.name))
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn wait_for_operations(&self, count: u64) {
        let start = Instant::now();
        while self.done.load(Ordering::Relaxed) < count {
            assert!(start.elapsed() < Duration::from_secs(60), "the threads are stuck");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A thread: its random choices and its open files.
struct Client<'a> {
    shared: &'a Shared,
    random: Random,
    open: Vec<(u64, File)>,
    next_tag: u32,
}

impl Client<'_> {
    fn run(mut self) -> History {
        let mut history = History::new();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let (operation, file) = self.draw();
            let invoked = self.shared.tick();
            let answer = self.perform(operation, file);
            let returned = answer.map(|answer| (answer, self.shared.tick()));
            if !refused_by_the_kernel(operation, answer) {
                history.push(Invocation { operation, invoked, returned });
            }
            self.shared.done.fetch_add(1, Ordering::Relaxed);
            if returned.is_none() {
                break;
            }
        }
        history
    }

    fn draw(&mut self) -> (NamespaceOperation, usize) {
        let mut path = || Path {
            directory: self.random.below(DIRECTORIES.into()) as u8,
            name: self.random.below(NAMES.into()) as u8,
        };
        let (one, other) = (path(), path());
        let file = self.random.index(self.open.len());
        self.next_tag += THREADS as u32;
        let operation = match (self.random.below(50), self.open.get(file)) {
            (0..13, _) => NamespaceOperation::Create(one, self.next_tag),
            (13..18, Some((number, _))) => NamespaceOperation::Link(*number, one),
            (18..28, _) => NamespaceOperation::Rename(one, other),
            (28..35, _) => NamespaceOperation::Unlink(one),
            (35..36, _) => NamespaceOperation::Commit,
            _ => NamespaceOperation::Lookup(one),
        };
        (operation, file)
    }

    /// Executes the operation. Returns none if the daemon died before it answered.
    fn perform(&mut self, operation: NamespaceOperation, file: usize) -> Option<Answer> {
        let shared = self.shared;
        let result = match operation {
            NamespaceOperation::Create(path, _) => {
                let made = OpenOptions::new().write(true).create_new(true).open(shared.path(path));
                made.and_then(|made| self.keep(made))
            }
            NamespaceOperation::Link(_, path) => match self.open.get(file) {
                Some((_, file)) => sys::link_file(file, &shared.path(path)).map(|()| Answer::Done),
                None => unreachable!("drawn from the open files"),
            },
            NamespaceOperation::Rename(from, to) => {
                fs::rename(shared.path(from), shared.path(to)).map(|()| Answer::Done)
            }
            NamespaceOperation::Unlink(path) => {
                fs::remove_file(shared.path(path)).map(|()| Answer::Done)
            }
            NamespaceOperation::Lookup(path) if self.random.chance(1, 4) => {
                again_if_stale(|| File::open(shared.path(path))).and_then(|found| self.keep(found))
            }
            NamespaceOperation::Lookup(path) => {
                again_if_stale(|| fs::symlink_metadata(shared.path(path)))
                    .map(|found| Answer::Found(found.ino()))
            }
            NamespaceOperation::Commit if self.random.chance(1, 2) => {
                File::open(&shared.mount_point)
                    .and_then(|root| ioctl::transact(&root))
                    .map(|()| Answer::Done)
            }
            NamespaceOperation::Commit => File::open(shared.directory(0))
                .and_then(|file| file.sync_all())
                .map(|()| Answer::Done),
            NamespaceOperation::Rollback => unreachable!("not drawn"),
        };
        match result {
            Ok(answer) => Some(answer),
            // Ignore the answer: the path may have led to the unmounted directory.
            Err(_) if shared.killing.load(Ordering::SeqCst) => None,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Some(Answer::Exists),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_open(operation) => {
                Some(Answer::Missing)
            }
            Err(error) => panic!("{operation:?}: {error}"),
        }
    }

    fn keep(&mut self, file: File) -> io::Result<Answer> {
        let number = file.metadata()?.ino();
        if self.open.len() >= 4 {
            self.open.remove(0);
        }
        self.open.push((number, file));
        Ok(Answer::Found(number))
    }
}

/// A path whose file is replaced twice during the call can be stale (POSIX.md).
fn again_if_stale<T>(call: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {}
            other => return other,
        }
    }
}

/// Whether this answer can have come from the kernel's own link count, which may differ from the
/// daemon's. A removal decrements a count that a concurrent lookup has just updated. Until the
/// kernel asks again, it refuses to link an inode that it considers removed. A refused link changes
/// nothing, so it need not be checked.
fn refused_by_the_kernel(operation: NamespaceOperation, answer: Option<Answer>) -> bool {
    matches!((operation, answer), (NamespaceOperation::Link(..), Some(Answer::Missing)))
}

/// Operations that do not depend on an existing name.
fn is_open(operation: NamespaceOperation) -> bool {
    matches!(operation, NamespaceOperation::Create(..) | NamespaceOperation::Commit)
}

/// Lets the threads work until `end` returns. Returns their combined history.
fn work(shared: &Shared, seed: u64, end: impl FnOnce()) -> History {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|number| {
                let random = Random::new(seed).fork(number);
                let client = Client { shared, random, open: Vec::new(), next_tag: number as u32 };
                scope.spawn(move || client.run())
            })
            .collect();
        end();
        shared.stop.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

fn names(mount_point: &std::path::Path) -> Found {
    let mut found = Found::new();
    for directory in 0..DIRECTORIES {
        for entry in fs::read_dir(mount_point.join(format!("d{directory}"))).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_str().unwrap()[1..].parse().unwrap();
            found.insert(Path { directory, name }, entry.metadata().unwrap().ino());
        }
    }
    found
}

/// The state in which exactly these names are durable.
fn settled(found: &Found) -> NamespaceState {
    NamespaceState::settled(
        found.iter().map(|(path, number)| (*path, Id::Number(*number))).collect(),
    )
}

/// Checks that an order of the calls exists, and that one of its transaction points leaves the
/// state that was found.
fn explains(start: &NamespaceState, history: &History, found: &Found) -> Result<(), Refused> {
    let mut calls = history.clone();
    calls.retain(|call| call.operation != NamespaceOperation::Commit);
    check(&Namespace, start.clone(), &calls, |_| true)?;
    let calls = seen_by_the_daemon(history);
    check(&Namespace, start.clone(), &calls, |state| state.may_leave(found))?;
    Ok(())
}

/// The history without observations of a name during a call that may change it. In that time a
/// transaction point could contain the change and be acknowledged, while the kernel still showed
/// the old name.
fn seen_by_the_daemon(history: &History) -> History {
    let changes: Vec<_> = history.iter().filter(|call| may_change(call)).collect();
    let seen = |call: &&Invocation<NamespaceOperation, Answer>| {
        let beside = |change: &&Invocation<NamespaceOperation, Answer>| {
            change.invoked < end(call)
                && call.invoked < end(change)
                && paths(call.operation).iter().any(|path| paths(change.operation).contains(path))
        };
        may_change(call) || !changes.iter().any(beside)
    };
    history.iter().filter(seen).cloned().collect()
}

fn end(call: &Invocation<NamespaceOperation, Answer>) -> u64 {
    call.returned.map_or(u64::MAX, |(_, at)| at)
}

fn may_change(call: &Invocation<NamespaceOperation, Answer>) -> bool {
    let refused = matches!(call.returned, Some((Answer::Exists | Answer::Missing, _)));
    !refused && !matches!(call.operation, NamespaceOperation::Lookup(_))
}

fn paths(operation: NamespaceOperation) -> Vec<Path> {
    match operation {
        NamespaceOperation::Create(path, _)
        | NamespaceOperation::Link(_, path)
        | NamespaceOperation::Unlink(path)
        | NamespaceOperation::Lookup(path) => vec![path],
        NamespaceOperation::Rename(from, to) => vec![from, to],
        NamespaceOperation::Commit | NamespaceOperation::Rollback => Vec::new(),
    }
}

/// The checker must refuse impossible histories.
fn corrupted_is_refused(
    start: &NamespaceState,
    history: &History,
    found: &Found,
    random: &mut Random,
) {
    // The time from which an unanswered creation could have made any inode.
    let unheard =
        history.iter().filter(|call| call.returned.is_none()).map(|call| call.invoked).min();
    let mut lookups: Vec<usize> = (0..history.len())
        .filter(|index| {
            let call = &history[*index];
            matches!(
                (call.operation, call.returned),
                (NamespaceOperation::Lookup(_), Some((Answer::Found(_), _)))
            ) && end(call) < unheard.unwrap_or(u64::MAX)
        })
        .collect();
    for _ in 0..lookups.len().min(3) {
        let mut corrupted = history.clone();
        let index = lookups.swap_remove(random.index(lookups.len()));
        if let Some((answer, _)) = &mut corrupted[index].returned {
            *answer = Answer::Found(u64::MAX);
        }
        assert!(explains(start, &corrupted, found).is_err(), "an inode out of nowhere is accepted");
    }
    let mut ghost = found.clone();
    ghost.insert(Path { directory: 0, name: NAMES }, 1 << 40);
    assert!(explains(start, history, &ghost).is_err(), "a name that no call made is accepted");
}

fn round(place: &Place, seed: u64) {
    let mut random = Random::new(seed);
    let daemon = place.daemon();
    // No calls run at the end: the names must be those of the last operations.
    let shared = Shared::new(place.mount_point());
    let before = names(&place.mount_point());
    let history = work(&shared, random.bits(), || shared.wait_for_operations(400));
    let live = names(&place.mount_point());
    let order = check(&Namespace, settled(&before), &history, |state| {
        NamespaceState::settled(state.live.clone()).may_leave(&live)
    });
    assert!(
        order.is_ok(),
        "seed {seed}: no order leaves {live:?}: {}",
        trouble(&history, order.err())
    );

    // The daemon is killed in the middle.
    ioctl::transact(&daemon.root()).unwrap();
    let start = settled(&live);
    let shared = Shared::new(place.mount_point());
    let operations = random.between(50, 800);
    let history = work(&shared, random.bits(), || {
        shared.wait_for_operations(operations);
        shared.killing.store(true, Ordering::SeqCst);
        daemon.kill();
    });
    let mounted = place.mount(&MountOptions::default());
    let found = names(&place.mount_point());
    mounted.unmount();
    let order = explains(&start, &history, &found);
    assert!(
        order.is_ok(),
        "seed {seed}: killed after {operations} operations: no order leaves {found:?}: {}",
        trouble(&history, order.err())
    );
    corrupted_is_refused(&start, &history, &found, &mut random);
}

/// The calls around the position where no order can continue.
fn trouble(history: &History, refused: Option<Refused>) -> String {
    let Some(refused) = refused else { return String::new() };
    let mut rest: Vec<_> = (0..history.len())
        .filter(|index| !refused.longest.contains(index))
        .map(|index| &history[index])
        .collect();
    rest.sort_by_key(|call| call.invoked);
    let placed = refused.longest.iter().rev().take(12).rev().map(|index| &history[*index]);
    format!(
        "\nplaced, the last ones: {:#?}\nthen: {:#?}",
        placed.collect::<Vec<_>>(),
        rest.iter().take(12).collect::<Vec<_>>()
    )
}

#[test]
fn names_are_linearisable_through_the_kernel_and_after_a_kill() {
    if !can_mount() {
        return;
    }
    let count: u64 =
        std::env::var("STEADFAST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let place = Place::new(64 << 20, QUIET);
    let mounted = place.mount(&MountOptions::default());
    for directory in 0..DIRECTORIES {
        fs::create_dir(mounted.path(&format!("d{directory}"))).unwrap();
    }
    ioctl::transact(&mounted.root()).unwrap();
    mounted.unmount();
    for seed in 0..count {
        round(&place, seed);
    }
}
