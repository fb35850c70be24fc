//! `steadfast top --json`: all counters since the mount.

use std::collections::BTreeMap;

use serde::Serialize;
use steadfast_fuse::metrics::{Histogram, Kind};
use steadfast_fuse::watch::Readings;

use crate::live::Live;

/// The document. Sizes are in bytes, latencies in nanoseconds. Fields are added over time and never
/// change their meaning.
#[derive(Debug, Serialize)]
pub struct TopReport {
    path: String,
    mount_point: String,
    uptime_ms: u64,
    operations: BTreeMap<&'static str, OperationReport>,
    read_bytes: u64,
    written_bytes: u64,
    transaction_points: u64,
    checkpoints: u64,
    rollbacks: u64,
    log_size: u64,
    log_used: u64,
    pending_record: u64,
    unflushed: u64,
    dirty: u64,
    inodes: u64,
    cache: CacheReport,
    space: SpaceJson,
    /// Null if the medium does not count.
    medium: Option<MediumReport>,
    /// The nodes that share the volume; null if one machine has it.
    cluster: Option<SharingReport>,
    /// The array of remote memory below; null for any other medium.
    remote: Option<steadfast_remote::Live>,
    repaired_reads: u64,
    /// The volume became read-only after a failure.
    failed: bool,
}

#[derive(Debug, Serialize)]
struct OperationReport {
    count: u64,
    errors: u64,
    sum_ns: u64,
    /// Null if there was no operation.
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: u64,
}

#[derive(Debug, Serialize)]
struct CacheReport {
    nodes: usize,
    dirty_nodes: usize,
    capacity_nodes: usize,
    hits: u64,
    misses: u64,
}

/// The sum is the size of the volume.
#[derive(Debug, Serialize)]
struct SpaceJson {
    data: u64,
    metadata: u64,
    snapshots: u64,
    almost_free: u64,
    reserved: u64,
    log: u64,
    fixed: u64,
    free: u64,
}

#[derive(Debug, Serialize)]
struct MediumReport {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    flushes: u64,
    discards: u64,
    failures: u64,
}

#[derive(Debug, Serialize)]
struct SharingReport {
    epoch: u64,
    peers: u64,
    forwarded: u64,
    delegated: u64,
    recalls: u64,
    silent_recalls: u64,
    direct_read_bytes: u64,
    /// From a request of this node's kernel until the owner has answered it; null if it has
    /// forwarded none.
    round_trip: Option<OperationReport>,
}

impl TopReport {
    /// The report on a mount.
    pub fn new(live: &Live, readings: &Readings) -> TopReport {
        let status = &readings.status;
        let activity = &status.activity;
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(activity.block_size));
        let space = &activity.space;
        TopReport {
            path: live.mount.source.display().to_string(),
            mount_point: live.directory().display().to_string(),
            uptime_ms: u64::try_from(status.uptime.as_millis()).unwrap_or(u64::MAX),
            operations: Kind::ALL
                .into_iter()
                .zip(&readings.operations)
                .map(|(kind, operations)| {
                    (kind.name(), OperationReport::new(&operations.latency, operations.errors))
                })
                .collect(),
            read_bytes: status.read_bytes,
            written_bytes: status.written_bytes,
            transaction_points: activity.transaction_points,
            checkpoints: activity.checkpoints,
            rollbacks: activity.rollbacks,
            log_size: activity.log_size,
            log_used: activity.log_used,
            pending_record: activity.pending_bytes,
            unflushed: activity.unflushed_bytes,
            dirty: activity.dirty_bytes(),
            inodes: activity.inodes,
            cache: CacheReport {
                nodes: activity.cache.nodes,
                dirty_nodes: activity.cache.dirty,
                capacity_nodes: activity.cache.capacity,
                hits: activity.cache.hits,
                misses: activity.cache.misses,
            },
            space: SpaceJson {
                data: bytes(space.data),
                metadata: bytes(space.metadata),
                snapshots: bytes(space.snapshots),
                almost_free: bytes(space.almost_free),
                reserved: bytes(space.unpublished),
                log: bytes(space.log),
                fixed: bytes(space.fixed),
                free: bytes(space.free),
            },
            medium: status.medium.map(|medium| MediumReport {
                reads: medium.reads,
                read_bytes: medium.read_bytes,
                writes: medium.writes,
                written_bytes: medium.written_bytes,
                flushes: medium.flushes,
                discards: medium.discards,
                failures: medium.failures,
            }),
            cluster: status.sharing.map(|sharing| SharingReport {
                epoch: sharing.epoch,
                peers: sharing.peers,
                forwarded: sharing.forwarded,
                delegated: sharing.delegated,
                recalls: sharing.recalls,
                silent_recalls: sharing.silent,
                direct_read_bytes: sharing.direct_bytes,
                round_trip: (readings.round_trips.count() > 0)
                    .then(|| OperationReport::new(&readings.round_trips, 0)),
            }),
            remote: crate::remote::live(&live.mount.source),
            repaired_reads: activity.repaired_reads,
            failed: activity.poisoned,
        }
    }
}

impl OperationReport {
    fn new(latency: &Histogram, errors: u64) -> OperationReport {
        OperationReport {
            count: latency.count(),
            errors,
            sum_ns: latency.nanoseconds,
            p50_ns: latency.quantile(0.5),
            p99_ns: latency.quantile(0.99),
            p999_ns: latency.quantile(0.999),
            max_ns: latency.longest,
        }
    }
}
