//! Several mounts of one volume in this process, as the nodes of a cluster have them, over
//! connections that break in the middle of messages. Each change is executed once, so a new name is
//! never there already, and a name that is removed was there.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use steadfast::Volume;
use steadfast_fuse::cluster::{Authority, Door, Hub, Link, SharedMount, Standing, Target};
use steadfast_fuse::metrics::{Kind, Metrics};
use steadfast_fuse::{IoUring, MountOptions, UnmountHandle};
use steadfast_host::{BackgroundThread, FileMedium, FileOptions, HostPlatform};

use crate::support::{Place, QUIET, can_mount, wait_for};

type HostVolume = Volume<FileMedium, HostPlatform>;
type Close = Arc<dyn Fn() + Send + Sync>;

/// The mounts of several nodes; the first one owns the volume.
struct Nodes {
    directories: Vec<PathBuf>,
    ends: Vec<UnmountHandle>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    hub: Option<Hub>,
    metrics: Option<Arc<Metrics>>,
    volume: Arc<HostVolume>,
    background: Option<BackgroundThread>,
    open: Arc<Mutex<Vec<Close>>>,
}

/// One end of a connection. Some of its writes go in two pieces, so that a break can come between.
struct Pieces(UnixStream, u64);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1 = self.1.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let length = if self.1 >> 61 == 0 { bytes.len().div_ceil(2) } else { bytes.len() };
        if length < bytes.len() {
            std::thread::yield_now();
        }
        self.0.write(&bytes[..length])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn link(stream: UnixStream, seed: u64) -> Link {
    let reader: Box<dyn Read + Send> = Box::new(stream.try_clone().unwrap());
    let closes = stream.try_clone().unwrap();
    let close = Arc::new(move || drop(closes.shutdown(Shutdown::Both)));
    Link { reader, writer: Box::new(Pieces(stream, seed)), close }
}

impl Nodes {
    fn new(place: &Place, count: usize) -> Nodes {
        let medium = FileMedium::open(place.image(), &FileOptions::default()).unwrap();
        let volume = Volume::open(medium, steadfast::OpenOptions::default(), HostPlatform::new());
        let volume = Arc::new(volume.unwrap());
        let door: Arc<Mutex<Option<Door>>> = Arc::default();
        let open: Arc<Mutex<Vec<Close>>> = Arc::default();
        let mut nodes = Nodes {
            directories: Vec::new(),
            ends: Vec::new(),
            threads: Vec::new(),
            hub: None,
            metrics: None,
            volume: Arc::clone(&volume),
            background: BackgroundThread::spawn(Arc::clone(&volume), |error| {
                eprintln!("{error}");
            })
            .ok(),
            open: Arc::clone(&open),
        };
        let seeds = Arc::new(AtomicU64::new(1));
        for number in 0..count {
            let directory = place.mount_point().with_file_name(format!("node{number}"));
            fs::create_dir(&directory).unwrap();
            let (finds, open, seeds) = (Arc::clone(&door), Arc::clone(&open), Arc::clone(&seeds));
            let dial = move |_: &Target| {
                let door = finds.lock().unwrap().clone().ok_or(std::io::ErrorKind::NotConnected)?;
                let (here, there) = UnixStream::pair()?;
                let seed = seeds.fetch_add(2, Ordering::Relaxed);
                std::thread::spawn(move || door.serve(link(there, seed + 1)));
                let link = link(here, seed);
                open.lock().unwrap().push(Arc::clone(&link.close));
                Ok(link)
            };
            let options = MountOptions { io_uring: IoUring::Off, ..MountOptions::default() };
            let mount =
                SharedMount::new(&directory, &options, &format!("n{number}"), dial).unwrap();
            let ownership = mount.ownership();
            nodes.ends.push(mount.unmount_handle());
            nodes.threads.push(std::thread::spawn(move || mount.run()));
            nodes.directories.push(directory);
            if number == 0 {
                let sure: Authority = Arc::new(|| Standing::Sure(Duration::from_secs(1)));
                let (hub, metrics) = ownership.own(Arc::clone(&volume), 1, sure).unwrap();
                *door.lock().unwrap() = Some(hub.door());
                nodes.hub = Some(hub);
                nodes.metrics = Some(metrics);
            } else {
                ownership.follow(Some(Target { epoch: 1, address: "owner".into() }));
            }
        }
        nodes
    }

    /// Requests of all kernels for names and attributes so far.
    fn looks(&self) -> u64 {
        let count = |kind| self.metrics.as_ref().unwrap().operations(kind).latency.count();
        count(Kind::Lookup) + count(Kind::Getattr)
    }

    /// Breaks all connections.
    fn break_all(&self) {
        for close in self.open.lock().unwrap().drain(..) {
            close();
        }
    }

    /// Unmounts everywhere, the owner last, and closes the volume.
    fn end(mut self) {
        for (end, thread) in self.ends.drain(..).zip(self.threads.drain(..)).rev() {
            end.unmount().unwrap();
            thread.join().unwrap().unwrap();
        }
        drop((self.hub.take(), self.background.take()));
        self.volume.close().unwrap();
    }
}

impl Drop for Nodes {
    /// A failed test leaves no mount behind.
    fn drop(&mut self) {
        for end in &self.ends {
            end.abandon();
        }
    }
}

/// Makes, renames and removes names that no other thread uses, and appends to a file of all.
fn work(directory: &Path, node: usize, rounds: u64, errors: &Mutex<Vec<String>>) {
    let run = || -> std::io::Result<()> {
        let log = directory.join("log");
        for round in 0..rounds {
            let name = |what: &str| directory.join(format!("{what}-{node}-{round}"));
            fs::create_dir(name("dir"))?;
            let mut file = OpenOptions::new().write(true).create_new(true).open(name("new"))?;
            file.write_all(format!("{node} {round}").as_bytes())?;
            fs::rename(name("new"), name("dir").join("moved"))?;
            fs::hard_link(name("dir").join("moved"), name("kept"))?;
            let mut log = OpenOptions::new().append(true).create(true).open(&log)?;
            log.write_all(format!("{node} {round}\n").as_bytes())?;
            fs::remove_file(name("dir").join("moved"))?;
            fs::remove_dir(name("dir"))?;
        }
        Ok(())
    };
    if let Err(error) = run() {
        errors.lock().unwrap().push(format!("node {node}: {error}"));
    }
}

#[test]
fn each_change_of_a_node_is_executed_once_however_often_connections_break() {
    const NODES: usize = 3;
    const ROUNDS: u64 = 120;
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, NODES);
    let errors = Mutex::default();
    let done = AtomicBool::new(false);
    let breaks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..NODES)
            .map(|node| {
                let (directory, errors) = (&nodes.directories[node], &errors);
                scope.spawn(move || work(directory, node, ROUNDS, errors))
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Longer each time, so that slow machines get on, too.
                let pause = 20 + breaks.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(pause));
                nodes.break_all();
                breaks.fetch_add(1, Ordering::Relaxed);
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(*errors.lock().unwrap(), Vec::<String>::new());
    assert!(breaks.load(Ordering::Relaxed) > 3);
    for directory in &nodes.directories {
        let log = fs::read_to_string(directory.join("log")).unwrap();
        assert_eq!(log.lines().count() as u64, NODES as u64 * ROUNDS, "a line was lost or doubled");
        for node in 0..NODES {
            for round in 0..ROUNDS {
                let kept = fs::read_to_string(directory.join(format!("kept-{node}-{round}")));
                assert_eq!(kept.unwrap(), format!("{node} {round}"));
            }
        }
        assert_eq!(fs::read_dir(directory).unwrap().count() as u64, NODES as u64 * ROUNDS + 1);
    }
    nodes.end();
}

#[test]
fn what_a_node_holds_is_given_back_when_its_session_ends() {
    if !can_mount() {
        return;
    }
    let place = Place::new(32 << 20, QUIET);
    let nodes = Nodes::new(&place, 2);
    let (owner, peer) = (nodes.directories[0].clone(), nodes.directories[1].clone());
    fs::write(peer.join("file"), vec![7; 1 << 20]).unwrap();
    let held = fs::File::open(peer.join("file")).unwrap();
    fs::remove_file(owner.join("file")).unwrap();
    let used = |volume: &HostVolume| {
        let found = volume.statistics().unwrap();
        found.blocks - found.blocks_free
    };
    let before = used(&nodes.volume);
    // The node is gone: its mount ends, and nothing more is heard of it.
    nodes.ends[1].abandon();
    drop(held);
    wait_for("the session to end", || nodes.hub.as_ref().unwrap().peers().is_empty());
    let start = Instant::now();
    while used(&nodes.volume) + 200 > before {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the file of a dead node stays: {before} blocks, now {}",
            used(&nodes.volume)
        );
        nodes.volume.checkpoint().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a node sees behind a name: the mode, the size, and the number of links.
fn seen(path: &Path) -> Option<(u32, u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.mode() & 0o7777, found.len(), found.nlink()))
}

/// Every kernel keeps names and attributes, also of names that are missing. A change of one node is
/// seen by all others as soon as it is answered: by name, through open files, and in directories.
#[test]
fn no_node_sees_what_another_one_has_changed() {
    const FILES: usize = 40;
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3);
    let at = |node: usize, name: &str| nodes.directories[node % 3].join("d").join(name);
    fs::create_dir(nodes.directories[1].join("d")).unwrap();
    let names: Vec<_> = (0..FILES).map(|number| format!("f{number}")).collect();
    for name in &names {
        fs::write(at(2, name), b"old").unwrap();
    }
    for round in 0..3 {
        // Until no node has to ask for anything any more.
        wait_for("all nodes to keep names and attributes", || {
            let before = nodes.looks();
            for node in 0..3 {
                for name in &names {
                    let _ = seen(&at(node, name));
                    assert_eq!(seen(&at(node, &format!("{name}-moved"))), None);
                }
            }
            nodes.looks() == before
        });
        for (number, name) in names.iter().enumerate() {
            let changer = number + round;
            let (path, moved) = (at(changer, name), format!("{name}-moved"));
            let (one, other) = (changer + 1, changer + 2);
            let open = fs::File::open(at(one, name)).unwrap();
            let before = seen(&path).unwrap();
            let entries = |node| fs::symlink_metadata(at(node, "")).unwrap().mtime_nsec();
            entries(one);
            let expected = match (number / 3 + round) % 5 {
                0 => {
                    let mode = if before.0 == 0o640 { 0o600 } else { 0o640 };
                    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                    Some((mode, before.1, before.2))
                }
                1 => {
                    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                    file.write_all(b"more").unwrap();
                    Some((before.0, before.1 + 4, before.2))
                }
                2 => {
                    fs::rename(&path, at(changer, &moved)).unwrap();
                    for node in [one, other] {
                        assert_eq!(seen(&at(node, &moved)), Some(before), "{moved}");
                    }
                    assert_eq!(entries(one), entries(changer), "the time of the directory");
                    None
                }
                3 => {
                    fs::hard_link(&path, at(changer, &moved)).unwrap();
                    Some((before.0, before.1, before.2 + 1))
                }
                _ => {
                    fs::remove_file(&path).unwrap();
                    assert_eq!(open.metadata().unwrap().nlink(), before.2 - 1);
                    None
                }
            };
            for node in [one, other] {
                assert_eq!(seen(&at(node, name)), expected, "{name}, changed by {}", changer % 3);
            }
            if let Some((mode, size, links)) = expected {
                let found = open.metadata().unwrap();
                let found = (found.mode() & 0o7777, found.len(), found.nlink());
                assert_eq!(found, (mode, size, links), "{name}, open");
            }
            // As before, for the next round.
            let _ = fs::rename(at(other, &moved), at(other, name));
            if !at(other, name).exists() {
                fs::write(at(other, name), b"new").unwrap();
            }
            let _ = fs::remove_file(at(other, &moved));
        }
    }
    nodes.end();
}
