//! Arrays on real servers over loopback: servers die, restart empty and are rebuilt; the client
//! reopens the array.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use steadfast::fs::FileOptions;
use steadfast::{FormatOptions, OpenOptions, TransactionMask, Volume};
use steadfast_host::HostPlatform;
use steadfast_media::Medium;
use steadfast_remote::array::{Array, ArrayOptions, CreateOptions, Policy, State};
use steadfast_remote::client::{Endpoint, FleetOptions, TcpFleet};
use steadfast_remote::export::{Catalogue, GranuleSize, MemoryPool, PoolOptions};
use steadfast_remote::server::{Server, ServerOptions};
use steadfast_remote::{Address, RemoteError, RemoteMedium};

const SIZE: u64 = 16 << 20;

fn serve(address: &str) -> Server {
    serve_from(address, &Arc::new(memory()))
}

fn memory() -> MemoryPool {
    MemoryPool::new(PoolOptions {
        limit: SIZE,
        quota: SIZE,
        lease: None,
        names_max: 4,
        granules: GranuleSize::Small,
    })
}

fn serve_from(address: &str, memory: &Arc<MemoryPool>) -> Server {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let memory: Arc<MemoryPool> = Arc::clone(memory);
        match Server::start(address.parse().unwrap(), memory, ServerOptions::default()) {
            Ok(server) => return server,
            Err(error) if Instant::now() > deadline => panic!("{address}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

struct Fixture {
    servers: Vec<Option<Server>>,
    places: Vec<String>,
    address: Address,
    directory: std::path::PathBuf,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn fixture(name: &str, policy: &str, count: usize) -> Fixture {
    let servers: Vec<Option<Server>> = (0..count).map(|_| Some(serve("127.0.0.1:0"))).collect();
    let places: Vec<String> =
        servers.iter().flatten().map(|server| server.address().to_string()).collect();
    let directory =
        std::env::temp_dir().join(format!("steadfast-array-{name}-{}", std::process::id()));
    // Long time limits for a machine that is busy with other tests: the result does not depend on
    // time.
    let text = format!(
        "remote://{}?policy={policy}&timeout=5000&hedge=5000&witness={}",
        places.join(","),
        directory.display()
    );
    let address = text.parse().unwrap();
    Fixture { servers, places, address, directory }
}

fn fill(medium: &RemoteMedium, from: u64, count: u64, number: u8) {
    for block in from..from + count {
        let bytes: Vec<u8> = (0..4096_u64).map(|at| (at * 7 + block) as u8 ^ number).collect();
        medium.write(block * 4096, &bytes).unwrap();
    }
    medium.flush().unwrap();
}

fn right(medium: &RemoteMedium, from: u64, count: u64, number: u8) {
    let mut found = vec![0; count as usize * 4096];
    medium.read(from * 4096, &mut found).unwrap();
    for (index, bytes) in found.chunks(4096).enumerate() {
        let block = from + index as u64;
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == (at as u64 * 7 + block) as u8 ^ number),
            "block {block}"
        );
    }
}

/// The servers have closed idle connections: the next write must not cost a member.
#[test]
fn idle_connections_that_break_cost_nobody() {
    let mut fixture = fixture("idle", "parity", 3);
    let pools: Vec<Arc<MemoryPool>> = (0..3).map(|_| Arc::new(memory())).collect();
    for (server, pool) in pools.iter().enumerate() {
        fixture.servers[server] = None;
        fixture.servers[server] = Some(serve_from(&fixture.places[server], pool));
    }
    let medium = RemoteMedium::create(&fixture.address, [7; 16]).unwrap();
    for turn in 1..=4 {
        let bytes: Vec<u8> = (0..256_u64 * 4096).map(|at| (at % 251) as u8 ^ turn).collect();
        medium.write(0, &bytes).unwrap();
        medium.flush().unwrap();
        let server = turn as usize % 3;
        fixture.servers[server] = None;
        fixture.servers[server] = Some(serve_from(&fixture.places[server], &pools[server]));
        // Longer than the time after which idle connections are checked.
        std::thread::sleep(Duration::from_millis(150));
        let mut found = vec![0; bytes.len()];
        medium.read(0, &mut found).unwrap();
        assert!(found == bytes, "turn {turn}");
        std::thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(medium.status().0.losses, 0);
}

#[test]
fn servers_die_and_are_rebuilt_while_the_medium_is_used() {
    for (policy, count) in [("mirror", 2), ("parity", 3), ("ec=2+2", 4)] {
        let mut fixture = fixture(&policy.replace(['=', '+'], "-"), policy, count);
        let medium = RemoteMedium::create(&fixture.address, [7; 16]).unwrap();
        assert!(matches!(RemoteMedium::open(&fixture.address), Err(RemoteError::InUse)));
        fill(&medium, 0, 300, 1);
        // One server stops; the array stays usable.
        fixture.servers[1] = None;
        right(&medium, 0, 300, 1);
        fill(&medium, 100, 100, 2);
        right(&medium, 100, 100, 2);
        // It restarts empty at the same address, and is rebuilt automatically.
        fixture.servers[1] = Some(serve(&fixture.places[1]));
        let deadline = Instant::now() + Duration::from_secs(60);
        while medium.status().0.members[1].0 != State::Good {
            assert!(Instant::now() < deadline, "{policy}: {:?}", medium.status());
            fill(&medium, 200, 10, 3);
            std::thread::sleep(Duration::from_millis(20));
        }
        // So another one may stop.
        fixture.servers[0] = None;
        right(&medium, 0, 100, 1);
        right(&medium, 100, 100, 2);
        right(&medium, 200, 10, 3);
        fill(&medium, 0, 10, 4);
        drop(medium);
        // The client reopens the array and rebuilds its map from the servers.
        let medium = RemoteMedium::open(&fixture.address).unwrap();
        right(&medium, 0, 10, 4);
        right(&medium, 10, 90, 1);
        right(&medium, 100, 100, 2);
        right(&medium, 200, 10, 3);
        assert_eq!(medium.status().0.members[0].0, State::Lost);
    }
}

#[test]
fn many_callers_at_once() {
    for policy in ["parity", "mirror"] {
        let fixture = fixture(&format!("callers-{policy}"), policy, 3);
        let medium = RemoteMedium::create(&fixture.address, [8; 16]).unwrap();
        std::thread::scope(|scope| {
            for caller in 0..8_u64 {
                let medium = &medium;
                scope.spawn(move || {
                    for round in 0..20 {
                        fill(medium, caller * 40, 40, round);
                        right(medium, caller * 40, 40, round);
                    }
                });
            }
        });
        drop(medium);
        let medium = RemoteMedium::open(&fixture.address).unwrap();
        right(&medium, 0, 320, 19);
        assert_eq!(medium.status().0.policy.to_string(), policy);
    }
}

/// A hook runs before a short read waits for servers, but not before a long read.
#[test]
fn a_short_read_that_waits_says_so_before() {
    let fixture = fixture("waits", "mirror", 2);
    let medium = RemoteMedium::create(&fixture.address, [4; 16]).unwrap();
    fill(&medium, 0, 64, 1);
    let waits = Arc::new(AtomicUsize::new(0));
    let count = waits.clone();
    medium.before_waits(Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    right(&medium, 3, 1, 1);
    assert_eq!(waits.load(Ordering::Relaxed), 1);
    right(&medium, 0, 64, 1);
    assert_eq!(waits.load(Ordering::Relaxed), 1);
}

#[test]
fn memory_goes_back_to_the_servers_when_files_are_deleted() {
    let lend = 256 << 20;
    let lent = || {
        let options = PoolOptions {
            limit: lend,
            quota: lend,
            lease: None,
            names_max: 1,
            granules: GranuleSize::Small,
        };
        let pool = Arc::new(MemoryPool::new(options));
        let place = "127.0.0.1:0".parse().unwrap();
        let server =
            Server::start(place, Arc::clone(&pool) as Arc<dyn Catalogue>, ServerOptions::default());
        (pool, server.unwrap())
    };
    let servers = [lent(), lent(), lent()];
    let places: Vec<String> =
        servers.iter().map(|(_, server)| server.address().to_string()).collect();
    let directory =
        std::env::temp_dir().join(format!("steadfast-array-delete-{}", std::process::id()));
    let words = format!("policy=parity&timeout=60000&witness={}", directory.display());
    let address: Address = format!("remote://{}?{words}", places.join(",")).parse().unwrap();
    let medium = RemoteMedium::create(&address, [9; 16]).unwrap();
    // Only superblocks: unused memory is not touched.
    assert!(servers.iter().all(|(pool, _)| pool.used() <= 64 << 10));
    let platform = HostPlatform::new();
    Volume::format(&medium, &FormatOptions::default(), &platform).unwrap();
    let volume = Volume::open(medium, OpenOptions::default(), platform).unwrap();
    let held = || servers.iter().map(|(pool, _)| pool.used()).max().unwrap();
    let all = FileOptions::new().read(true).write(true).create(true);
    let file = volume.open_file("large", &all).unwrap();
    let piece = vec![7; 1 << 20];
    (0..48).for_each(|at| file.write_at(at << 20, &piece).unwrap());
    file.close().unwrap();
    volume.transact().unwrap();
    let full = held();
    assert!(full > 24 << 20, "{full}");
    volume.remove_all("large").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    // Discarded blocks that share a segment with needed blocks stay.
    while held() > full * 2 / 3 {
        assert!(Instant::now() < deadline, "{} of {full} bytes are still held", held());
        // Space is free after a checkpoint. The medium is told after another checkpoint that
        // changes something.
        while volume.background().unwrap() {}
        volume.open_file("small", &all).unwrap().write_at(0, &piece[..100]).unwrap();
        volume.checkpoint().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(volume);
    let _ = std::fs::remove_dir_all(directory);
}

#[test]
fn large_writes_over_and_over_take_no_more_and_more_memory() {
    const LENT: u64 = 64 << 20;
    let pool = Arc::new(MemoryPool::new(PoolOptions {
        limit: LENT,
        quota: LENT,
        lease: None,
        names_max: 1,
        granules: GranuleSize::Small,
    }));
    let server =
        Server::start("127.0.0.1:0".parse().unwrap(), pool.clone(), ServerOptions::default())
            .unwrap();
    let place =
        Endpoint { address: server.address().to_string(), export: "array".to_owned(), tls: None };
    let fleet = TcpFleet::new(vec![place], FleetOptions::default());
    let options = ArrayOptions { patience_ms: 60_000, hedge_ms: 60_000, ..ArrayOptions::default() };
    let create = CreateOptions { policy: Policy::None, uuid: [1; 16], spares: 0 };
    let array = Array::create(fleet, &create, options).unwrap();
    let mut found = vec![0; 4 << 20];
    // The array has no tender, and still there is always room: 40 MiB of 64.
    for round in 1..=10 {
        let bytes = vec![round; found.len()];
        array.write(0, &bytes).unwrap();
        array.flush().unwrap();
        array.read(0, &mut found).unwrap();
        assert!(found == bytes, "round {round}");
    }
    // The current blocks, the ones before them, and the front of each segment.
    assert!(pool.used() < 24 << 20, "{} bytes are taken", pool.used());
}

/// A new volume on an array that held one before, with the same uuid. The client is gone soon after
/// its first transaction points, as in a power cut.
#[test]
fn nothing_of_an_earlier_volume_comes_back() {
    for policy in ["mirror", "parity"] {
        let fixture = fixture(&format!("earlier-{policy}"), policy, 3);
        let platform = HostPlatform::new();
        let options = FormatOptions {
            uuid: [7; 16],
            mask: TransactionMask::MANUAL,
            ..FormatOptions::default()
        };
        let all = FileOptions::new().read(true).write(true).create(true);
        let open = || {
            let medium = RemoteMedium::open(&fixture.address).unwrap();
            Volume::open(medium, OpenOptions::default(), HostPlatform::new()).unwrap()
        };
        // Each transaction is a record of the log.
        let write = |prefix: &str, count: u32| {
            let volume = open();
            assert_eq!(volume.info().replayed_records, 0, "{policy}: {prefix}");
            for number in 0..count {
                let file = volume.open_file(format!("{prefix}{number}"), &all).unwrap();
                file.write_at(0, &[1; 5000]).unwrap();
                file.close().unwrap();
                volume.transact().unwrap();
            }
        };
        drop(RemoteMedium::create(&fixture.address, [9; 16]).unwrap());
        for prefix in ["old", "new"] {
            let medium = RemoteMedium::open(&fixture.address).unwrap();
            Volume::format(&medium, &options, &platform).unwrap();
            drop(medium);
            write(prefix, if prefix == "old" { 20 } else { 3 });
        }
        let volume = open();
        let found = |name: String| volume.open_file(&name, &FileOptions::new().read(true)).is_ok();
        for number in 0..20 {
            assert!(!found(format!("old{number}")), "{policy}: old{number} is back");
            assert_eq!(found(format!("new{number}")), number < 3, "{policy}: new{number}");
        }
    }
}
