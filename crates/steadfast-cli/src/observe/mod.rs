//! The metrics of a mount, for programs: Prometheus text ([`exposition`]) over HTTP on a socket
//! that only this machine can reach ([`server`], [`address`]).

pub mod address;
pub mod exposition;
pub mod server;

/// The labels that identify the volume in the metrics.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The image or block device.
    pub image: String,
    /// Label of the volume.
    pub label: String,
    /// UUID of the volume, in its usual form.
    pub uuid: String,
}

/// Readings for tests.
#[cfg(test)]
pub mod fixture {
    use std::time::Duration;

    use steadfast::volume::{Activity, CacheUse, SpaceUse};
    use steadfast_fuse::metrics::{Histogram, Kind, Operations, Sharing, bucket_limit};
    use steadfast_fuse::watch::{Readings, Status};
    use steadfast_media::MediumCounters;
    use steadfast_remote::{Latency, Live, LiveLog, LiveMember, LiveRebuild};

    use super::Identity;

    /// Counts the given latencies, nanoseconds.
    pub fn operations(latencies: &[u64], errors: u64) -> Operations {
        let mut operations = Operations { errors, ..Operations::default() };
        for latency in latencies {
            let bucket = (0..).find(|bucket| bucket_limit(*bucket) >= *latency).unwrap_or(0);
            operations.latency.buckets[bucket] += 1;
            operations.latency.nanoseconds += latency;
            operations.latency.longest = operations.latency.longest.max(*latency);
        }
        operations
    }

    /// A volume under load.
    pub fn readings() -> Readings {
        let mut kinds: Vec<Operations> = Kind::ALL.iter().map(|_| Operations::default()).collect();
        kinds[Kind::Read as usize] = operations(&[1000, 4000 + 1_000_000_000, 1_000_000_000], 0);
        kinds[Kind::Write as usize] = operations(&[70_000, 80_000, 3_000_000], 1);
        kinds[Kind::Sync as usize] = operations(&[12_000_000, 900_000], 0);
        let space = SpaceUse {
            fixed: 6,
            log: 1024,
            metadata: 300,
            data: 9000,
            snapshots: 5,
            almost_free: 77,
            unpublished: 2,
            free: 20_000,
        };
        Readings {
            round_trips: Histogram::default(),
            status: Status {
                uptime: Duration::from_millis(3_723_500),
                read_bytes: 12_000_000,
                written_bytes: 34_000_000,
                activity: Activity {
                    block_size: 4096,
                    node_size: 4096,
                    transaction_points: 40,
                    checkpoints: 3,
                    log_size: 4 << 20,
                    log_used: 1 << 20,
                    pending_keys: 17,
                    pending_bytes: 4000,
                    pending_overflow: false,
                    unflushed_bytes: 300_000,
                    cache: CacheUse {
                        nodes: 2000,
                        dirty: 100,
                        capacity: 7000,
                        hits: 99_000,
                        misses: 1000,
                    },
                    inodes: 1234,
                    space,
                    reserve_blocks: 64,
                    repaired_reads: 0,
                    rollbacks: 1,
                    poisoned: false,
                },
                medium: Some(MediumCounters {
                    reads: 500,
                    read_bytes: 5_000_000,
                    writes: 900,
                    written_bytes: 40_000_000,
                    flushes: 60,
                    discards: 0,
                    failures: 0,
                }),
                sharing: None,
            },
            operations: kinds,
        }
    }

    /// The same volume, shared by nodes.
    pub fn shared() -> Readings {
        let mut readings = readings();
        readings.status.sharing = Some(Sharing {
            epoch: 3,
            peers: 2,
            forwarded: 8000,
            delegated: 500,
            recalls: 40,
            silent: 1,
            direct_bytes: 4096,
        });
        readings.round_trips = operations(&[300_000, 310_000, 2_000_000], 0).latency;
        readings
    }

    /// An array of remote memory with failures.
    pub fn live() -> Live {
        let member = |state: &str| LiveMember { address: "a:10809".into(), state: state.into() };
        let latency = |p50_us, p99_us| Latency { count: 9, p50_us, p99_us, longest_us: 9000 };
        Live {
            uuid: "6fa459ea".into(),
            policy: "ec=2+2".into(),
            epoch: 7,
            members: vec![member("good"), member("rebuilding"), member("good"), member("lost")],
            degraded: true,
            failed: false,
            fenced: false,
            etcd: None,
            rebuild: Some(LiveRebuild {
                member: 1,
                done: 64,
                segments: 256,
                bytes: 1 << 24,
                rate: 1 << 26,
            }),
            log: Some(LiveLog {
                path: "/log".into(),
                state: "failed".into(),
                error: Some("no room".into()),
                behind: 0,
                bound: 64 << 20,
                copied: 9,
                blocks: 10,
                time_ms: 0,
                forced_flushes: 0,
            }),
            size: 1 << 30,
            segments: 256,
            segments_free: 99,
            reads: 500,
            read_bytes: 5_000_000,
            writes: 900,
            written_bytes: 40_000_000,
            flushes: 60,
            records: 88,
            losses: 2,
            hedged: 3,
            reconstructed: 4,
            repaired: 5,
            cleaned: 6,
            moved: 70,
            packed: 50,
            held: 30,
            read_latency: latency(80, 400),
            write_latency: latency(10, 900),
            flush_latency: latency(120, 2000),
        }
    }

    /// The identity of that volume.
    pub fn identity() -> Identity {
        Identity { image: "/srv/disk.img".into(), label: "data".into(), uuid: "6fa459ea".into() }
    }
}
