//! Several mounts of one volume in this process, as the nodes of a cluster have them, over
//! connections that break in the middle of messages. Each change is executed once, so a new name is
//! never there already, and a name that is removed was there.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use steadfast::InodeNumber;
use steadfast_fuse::cluster::{
    Authority, Door, Hub, Link, ReadDirectly, SharedMount, Standing, Target,
};
use steadfast_fuse::metrics::{Kind, Metrics};
use steadfast_fuse::watch::readings;
use steadfast_fuse::{IoUring, MountOptions, UnmountHandle};
use steadfast_host::{BackgroundThread, FileMedium, FileOptions, HostPlatform, LockMode};
use steadfast_media::random::Random;

use crate::support::{HostVolume, Place, QUIET, can_mount, open, wait_for};

type Close = Arc<dyn Fn() + Send + Sync>;

/// The mounts of several nodes; the first one owns the volume.
pub struct Nodes {
    pub directories: Vec<PathBuf>,
    ends: Vec<UnmountHandle>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    hub: Option<Hub>,
    pub metrics: Option<Arc<Metrics>>,
    volume: Arc<HostVolume>,
    background: Option<BackgroundThread>,
    open: Arc<Mutex<Vec<Close>>>,
    /// Bytes that nodes have read from the medium as the owner told.
    pub found: Arc<AtomicU64>,
}

/// Whether peers read from the medium what the owner tells.
#[derive(Clone, Copy)]
pub enum Directly {
    Always,
    /// Now and then they find other bytes, an error, or take very long.
    Often,
}

impl Directly {
    /// Adds the bytes that it finds to `found`.
    fn reads(self, image: &Path, found: &Arc<AtomicU64>) -> ReadDirectly {
        let options = FileOptions { read_only: true, lock: LockMode::None, ..Default::default() };
        let medium = FileMedium::open(image, &options).unwrap();
        let (number, found) = (AtomicU64::new(0), Arc::clone(found));
        Box::new(move |plan| {
            let odd = matches!(self, Directly::Often);
            match number.fetch_add(1, Ordering::Relaxed) % 256 {
                1 | 9 | 30 if odd => return Ok(None),
                20 if odd => std::thread::sleep(Duration::from_millis(300)),
                255 if odd => return Err(std::io::ErrorKind::TimedOut.into()),
                _ => {}
            }
            let read = plan.read(&medium, &HostPlatform::new()).map_err(std::io::Error::other)?;
            found.fetch_add(read.as_ref().map_or(0, Vec::len) as u64, Ordering::Relaxed);
            Ok(read)
        })
    }
}

/// One end of a connection. Some of its writes go in two pieces, so that a break can come between.
struct Pieces(UnixStream, Random);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let length = if self.1.one_in(8) { bytes.len().div_ceil(2) } else { bytes.len() };
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
    Link { reader, writer: Box::new(Pieces(stream, Random::new(seed))), close }
}

impl Nodes {
    pub fn new(place: &Place, count: usize, delegations: bool) -> Nodes {
        Nodes::with(place, count, delegations, Directly::Always)
    }

    pub fn with(place: &Place, count: usize, delegations: bool, directly: Directly) -> Nodes {
        let volume = open(&place.image(), false);
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
            found: Arc::default(),
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
            let options =
                MountOptions { io_uring: IoUring::Off, delegations, ..MountOptions::default() };
            let (name, direct) =
                (format!("n{number}"), directly.reads(&place.image(), &nodes.found));
            let mount = SharedMount::new(&directory, &options, &name, dial, Some(direct)).unwrap();
            let ownership = mount.ownership();
            nodes.ends.push(mount.unmount_handle());
            nodes.threads.push(std::thread::spawn(move || mount.run()));
            nodes.directories.push(directory);
            if number == 0 {
                let sure: Authority = Arc::new(|| Standing::Sure(Duration::from_secs(1)));
                let (hub, metrics) =
                    ownership.own(Arc::clone(&volume), (1, Vec::new()), sure).unwrap();
                *door.lock().unwrap() = Some(hub.door());
                nodes.hub = Some(hub);
                nodes.metrics = Some(metrics);
            } else {
                ownership.follow(Some(Target {
                    epoch: 1,
                    address: "owner".into(),
                    collects: false,
                }));
            }
        }
        nodes
    }

    /// Requests of all kernels for names and attributes so far.
    pub fn looks(&self) -> u64 {
        self.count(Kind::Lookup) + self.count(Kind::Getattr)
    }

    /// Requests of one kind that the owner has executed.
    pub fn count(&self, kind: Kind) -> u64 {
        self.metrics.as_ref().unwrap().operations(kind).latency.count()
    }

    /// Transaction points so far.
    pub fn points(&self) -> u64 {
        self.volume.info().transaction_points
    }

    /// Breaks all connections.
    pub fn break_all(&self) {
        for close in self.open.lock().unwrap().drain(..) {
            close();
        }
    }

    /// Unmounts everywhere, the owner last, and closes the volume.
    pub fn end(mut self) {
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
fn a_node_tells_how_long_its_owner_takes() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 2, true);
    let round_trips = |node: usize| {
        let root = fs::File::open(&nodes.directories[node]).unwrap();
        readings(&root).unwrap().round_trips
    };
    for number in 0..20 {
        fs::create_dir(nodes.directories[1].join(number.to_string())).unwrap();
    }
    let peer = round_trips(1);
    assert!(peer.count() >= 20 && peer.quantile(0.5) > Some(0), "{peer:?}");
    assert_eq!(round_trips(0).count(), 0, "the owner asks no other node");
    nodes.end();
}

#[test]
fn each_change_of_a_node_is_executed_once_however_often_connections_break() {
    const NODES: usize = 3;
    const ROUNDS: u64 = 120;
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, NODES, true);
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
    let nodes = Nodes::new(&place, 2, false);
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

/// Mode, size and number of links.
type Seen = Option<(u32, u64, u64)>;

/// What a node sees under a name.
fn seen(path: &Path) -> Seen {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.mode(), found.len(), found.nlink()))
}

/// What is under a name in a directory of the root.
fn truth(volume: &HostVolume, directory: &str, name: &str) -> Seen {
    let directory = volume.lookup(InodeNumber::ROOT, directory.as_bytes()).unwrap().inode;
    let found = volume.lookup(directory, name.as_bytes()).ok()?;
    Some((found.mode(), found.size, found.links.into()))
}

/// The changes of `file` and `new` in a directory; `file` is there, and `new` is not.
const CHANGES: [fn(&Path) -> std::io::Result<()>; 12] = [
    |d| fs::set_permissions(d.join("file"), Permissions::from_mode(0o640)),
    |d| OpenOptions::new().append(true).open(d.join("file"))?.write_all(b"more"),
    |d| OpenOptions::new().write(true).open(d.join("file"))?.set_len(100),
    |d| fs::File::create(d.join("file")).map(drop),
    |d| {
        let mut file = OpenOptions::new().write(true).open(d.join("file"))?;
        std::io::copy(&mut fs::File::open(d.join("../source"))?, &mut file).map(drop)
    },
    |d| fs::rename(d.join("file"), d.join("new")),
    |d| fs::rename(d.join("spare"), d.join("file")),
    |d| fs::hard_link(d.join("file"), d.join("new")),
    |d| fs::remove_file(d.join("file")),
    |d| fs::create_dir(d.join("new")),
    |d| symlink("file", d.join("new")),
    |d| fs::write(d.join("new"), b"new"),
];

/// Every kernel keeps names and attributes, also of names that are missing. All nodes see a change
/// of one node as soon as it is answered. They see it by name and through open files, also while
/// connections break.
#[test]
fn no_node_sees_what_another_one_has_changed() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let nodes = Nodes::new(&place, 3, true);
    let at = |node: usize, directory: &str| nodes.directories[node % 3].join(directory);
    fs::write(at(0, "source"), b"a longer text").unwrap();
    let directories: Vec<_> = (0..CHANGES.len()).map(|number| format!("d{number}")).collect();
    for round in 0..3 {
        for directory in &directories {
            let _ = fs::remove_dir_all(at(round, directory));
            fs::create_dir(at(round, directory)).unwrap();
            fs::write(at(round, directory).join("file"), b"old").unwrap();
            fs::write(at(round, directory).join("spare"), b"spare").unwrap();
        }
        let keep = |directories: &[String]| {
            wait_for("all nodes to keep names and attributes", || {
                let before = nodes.looks();
                // Each more than once: a node gives its kernel the same attributes a second time.
                for node in (0..3).flat_map(|node| [node; 3]) {
                    for directory in directories {
                        assert!(seen(&at(node, directory).join("file")).is_some());
                        assert_eq!(seen(&at(node, directory).join("new")), None);
                        fs::metadata(at(node, directory)).unwrap();
                    }
                }
                nodes.looks() == before
            });
        };
        let open: Vec<_> = directories
            .iter()
            .enumerate()
            .map(|(number, directory)| {
                fs::File::open(at(number + round + 1, directory).join("file")).unwrap()
            })
            .collect();
        keep(&directories);
        for (number, directory) in directories.iter().enumerate() {
            let changer = number + round;
            let (one, other) = (changer + 1, changer + 2);
            // The time of each may have ended.
            keep(std::slice::from_ref(directory));
            if round == 2 {
                // Recalls are lost, or come over the next connection.
                nodes.break_all();
            }
            CHANGES[number](&at(changer, directory)).unwrap();
            let inode = open[number].metadata().unwrap();
            let now = nodes.volume.attributes(InodeNumber(inode.ino())).unwrap();
            let found = (inode.mode(), inode.len(), inode.nlink());
            assert_eq!(found, (now.mode(), now.size, now.links.into()), "{directory}, open");
            for name in ["file", "new"] {
                let truth = truth(&nodes.volume, directory, name);
                for node in [changer, one, other] {
                    let found = seen(&at(node, directory).join(name));
                    assert_eq!(found, truth, "node {} sees {directory}/{name}", node % 3);
                }
            }
            let times = |node| fs::metadata(at(node, directory)).unwrap().mtime_nsec();
            assert_eq!([times(one), times(other)], [times(changer); 2], "{directory}");
        }
    }
    nodes.end();
}
