//! The metrics as Prometheus text, version 0.0.4. docs/OBSERVING.md lists them. Names never change
//! their meaning.

use std::fmt::{Display, Write};

use steadfast_fuse::metrics::{Histogram, Kind, Operations, Sharing};
use steadfast_fuse::watch::Readings;
use steadfast_remote::Live;

use super::Identity;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Limits of the exported buckets: 2 to these powers, nanoseconds (4 µs to 69 s). The counts at
/// these limits are exact.
const BUCKET_BITS: std::ops::RangeInclusive<u32> = 12..=36;
const NANOSECONDS: f64 = 1e9;

/// The text for the readings of one moment.
pub fn text(readings: &Readings, identity: &Identity, remote: Option<&Live>) -> String {
    let mut page = Exposition::default();
    let status = &readings.status;
    let activity = &status.activity;
    page.family("volume_info", Type::Gauge, "The volume: always 1.").sample(
        &[
            ("image", &identity.image),
            ("label", &identity.label),
            ("uuid", &identity.uuid),
            ("version", env!("CARGO_PKG_VERSION")),
        ],
        1,
    );
    page.family("uptime_seconds", Type::Gauge, "Time since the volume was mounted.")
        .sample(&[], status.uptime.as_secs_f64());
    operations(&mut page, &readings.operations);
    let mut one = |name: &str, kind, help: &str, value: u64| {
        page.family(name, kind, help).sample(&[], value);
    };
    let (counter, gauge) = (Type::Counter, Type::Gauge);
    one("read_bytes_total", counter, "Bytes read through the mount.", status.read_bytes);
    one("written_bytes_total", counter, "Bytes written through the mount.", status.written_bytes);
    let points = activity.transaction_points;
    one("transaction_points_total", counter, "Transaction points made durable.", points);
    one("checkpoints_total", counter, "Checkpoints made durable.", activity.checkpoints);
    one("rollbacks_total", counter, "Rollbacks of the live volume.", activity.rollbacks);
    one("log_size_bytes", gauge, "Size of the intent log.", activity.log_size);
    one(
        "log_used_bytes",
        gauge,
        "Bytes of the intent log in use since the last checkpoint.",
        activity.log_used,
    );
    let pending = "Bytes of the next record of the intent log.";
    one("pending_record_bytes", gauge, pending, activity.pending_bytes);
    let unflushed = "Bytes of data written to the medium and not flushed.";
    one("unflushed_bytes", gauge, unflushed, activity.unflushed_bytes);
    let dirty =
        "Bytes accepted and not durable in their place: unflushed data and unwritten tree nodes.";
    one("dirty_bytes", gauge, dirty, activity.dirty_bytes());
    one("inodes", gauge, "Inodes in use.", activity.inodes);
    one(
        "cache_hits_total",
        counter,
        "Look-ups of tree nodes answered from memory.",
        activity.cache.hits,
    );
    one(
        "cache_misses_total",
        counter,
        "Look-ups of tree nodes that read the medium.",
        activity.cache.misses,
    );
    one("cache_nodes", gauge, "Tree nodes in memory.", activity.cache.nodes as u64);
    let dirty = "Tree nodes in memory that are not written yet.";
    one("cache_dirty_nodes", gauge, dirty, activity.cache.dirty as u64);
    let capacity = "Tree nodes that the cache is meant to hold.";
    one("cache_capacity_nodes", gauge, capacity, activity.cache.capacity as u64);
    let repaired = "Metadata reads answered from the second copy.";
    one("repaired_reads_total", counter, repaired, activity.repaired_reads);
    let failed = "1 where the volume went read-only by itself after a failure.";
    one("failed", gauge, failed, u64::from(activity.poisoned));
    let family = page.family(
        "space_bytes",
        Type::Gauge,
        "The volume by what it is used for; adds up to its size.",
    );
    let space = &activity.space;
    for (state, blocks) in [
        ("data", space.data),
        ("metadata", space.metadata),
        ("snapshots", space.snapshots),
        ("almost_free", space.almost_free),
        ("reserved", space.unpublished),
        ("log", space.log),
        ("fixed", space.fixed),
        ("free", space.free),
    ] {
        family.sample(&[("state", state)], blocks.saturating_mul(u64::from(activity.block_size)));
    }
    if let Some(medium) = &status.medium {
        for (name, help, value) in [
            ("medium_reads_total", "Reads of the medium.", medium.reads),
            ("medium_read_bytes_total", "Bytes read from the medium.", medium.read_bytes),
            ("medium_writes_total", "Writes to the medium.", medium.writes),
            ("medium_written_bytes_total", "Bytes written to the medium.", medium.written_bytes),
            ("medium_flushes_total", "Flushes of the medium.", medium.flushes),
            ("medium_discards_total", "Discards on the medium.", medium.discards),
            ("medium_failures_total", "Requests that the medium failed.", medium.failures),
        ] {
            page.family(name, Type::Counter, help).sample(&[], value);
        }
    }
    if let Some(sharing) = &status.sharing {
        nodes(&mut page, sharing);
    }
    if let Some(live) = remote {
        array(&mut page, live);
    }
    page.text
}

/// Writes the metrics of a volume that nodes share.
fn nodes(page: &mut Exposition, sharing: &Sharing) {
    let (counter, gauge) = (Type::Counter, Type::Gauge);
    for (name, kind, help, value) in [
        ("cluster_epoch", gauge, "Number of the owner's term.", sharing.epoch),
        ("cluster_peers", gauge, "Nodes that use the volume, without the owner.", sharing.peers),
        (
            "cluster_forwarded_total",
            counter,
            "Requests that peers have forwarded to the owner.",
            sharing.forwarded,
        ),
        (
            "cluster_delegated_total",
            counter,
            "Answers with names or attributes that a kernel may keep.",
            sharing.delegated,
        ),
        (
            "cluster_recalls_total",
            counter,
            "Times that a kernel was told to drop names or attributes.",
            sharing.recalls,
        ),
        (
            "cluster_silent_recalls_total",
            counter,
            "Of those, the ones that were not confirmed in time.",
            sharing.silent,
        ),
        (
            "cluster_direct_read_bytes_total",
            counter,
            "Bytes that peers were told to read from the medium themselves.",
            sharing.direct_bytes,
        ),
    ] {
        page.family(name, kind, help).sample(&[], value);
    }
}

/// Writes the metrics of the array of remote memory that holds the volume.
fn array(page: &mut Exposition, live: &Live) {
    let help = "Members of the array of remote memory by state.";
    let family = page.family("remote_members", Type::Gauge, help);
    for state in ["good", "rebuilding", "lost"] {
        family.sample(
            &[("state", state)],
            live.members.iter().filter(|member| member.state == state).count(),
        );
    }
    let (done, rate) = live.rebuild.map_or((1.0, 0), |rebuild| {
        (f64::from(rebuild.done) / f64::from(rebuild.segments.max(1)), rebuild.rate)
    });
    page.family(
        "remote_rebuild_done_ratio",
        Type::Gauge,
        "How far the rebuild is; 1 while there is none.",
    )
    .sample(&[], done);
    page.family(
        "remote_rebuild_bytes_per_second",
        Type::Gauge,
        "How fast the rebuild is; 0 while there is none.",
    )
    .sample(&[], rate);
    let (counter, gauge) = (Type::Counter, Type::Gauge);
    for (name, kind, help, value) in [
        (
            "remote_failed",
            gauge,
            "1 where more servers are lost than the policy survives.",
            u64::from(live.failed),
        ),
        (
            "remote_epoch",
            gauge,
            "Epoch: grows with every change of who is in which state.",
            live.epoch,
        ),
        ("remote_segments", gauge, "Segments of each server.", live.segments.into()),
        (
            "remote_segments_free",
            gauge,
            "Segments of each server that are free.",
            live.segments_free.into(),
        ),
        ("remote_records_total", counter, "Records sent to the servers.", live.records),
        ("remote_losses_total", counter, "Members lost since the array was opened.", live.losses),
        (
            "remote_hedged_reads_total",
            counter,
            "Reads that did not wait for a slow server.",
            live.hedged,
        ),
        (
            "remote_reconstructed_blocks_total",
            counter,
            "Blocks computed from other servers.",
            live.reconstructed,
        ),
        ("remote_repaired_blocks_total", counter, "Blocks put right on a server.", live.repaired),
        (
            "remote_cleaned_segments_total",
            counter,
            "Segments emptied to be used again.",
            live.cleaned,
        ),
        ("remote_moved_blocks_total", counter, "Blocks that were in emptied segments.", live.moved),
        (
            "remote_packed_blocks_total",
            counter,
            "Of those, the ones moved from memory.",
            live.packed,
        ),
        (
            "remote_held_blocks",
            gauge,
            "Blocks on the servers that are in memory as well.",
            live.held,
        ),
    ] {
        page.family(name, kind, help).sample(&[], value);
    }
    if let Some(log) = &live.log {
        for (name, help, value) in [
            (
                "remote_log_failed",
                "1 where the write-behind log was given up.",
                u64::from(log.state == "failed"),
            ),
            (
                "remote_log_complete",
                "1 where the write-behind log can be restored.",
                u64::from(log.state == "complete"),
            ),
            (
                "remote_log_behind_bytes",
                "Bytes that were flushed and are not in the write-behind log.",
                log.behind,
            ),
            ("remote_log_bound_bytes", "The most that this can be.", log.bound),
        ] {
            page.family(name, gauge, help).sample(&[], value);
        }
    }
    let help = "How long requests to the array took since it was opened, by quantile.";
    let family = page.family("remote_latency_seconds", Type::Gauge, help);
    for (operation, latency) in
        [("read", live.read_latency), ("write", live.write_latency), ("flush", live.flush_latency)]
    {
        for (quantile, micros) in
            [("0.5", latency.p50_us), ("0.99", latency.p99_us), ("1", latency.longest_us)]
        {
            family.sample(&[("op", operation), ("quantile", quantile)], micros as f64 / 1e6);
        }
    }
}

fn operations(page: &mut Exposition, operations: &[Operations]) {
    let kinds = || Kind::ALL.into_iter().zip(operations);
    let help = "Time from receiving a request of the kernel to answering it.";
    let family = page.family("operation_duration_seconds", Type::Histogram, help);
    for (kind, operations) in kinds() {
        family.histogram(("op", kind.name()), &operations.latency);
    }
    let help = "Operations answered with an error of the volume or the medium (EIO, ENOSPC, EROFS, ENOMEM, EBUSY, ESTALE).";
    let family = page.family("operation_errors_total", Type::Counter, help);
    for (kind, operations) in kinds() {
        family.sample(&[("op", kind.name())], operations.errors);
    }
}

#[derive(Debug, Clone, Copy)]
enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// The page written so far, and the metric family of the samples that follow.
#[derive(Default)]
struct Exposition {
    text: String,
    name: String,
}

impl Exposition {
    fn family(&mut self, name: &str, kind: Type, help: &str) -> &mut Exposition {
        let kind = match kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        self.name = format!("steadfast_{name}");
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {0} {help}\n# TYPE {0} {kind}", self.name);
        self
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.write("", labels, value);
    }

    fn histogram(&mut self, label: (&str, &str), histogram: &Histogram) {
        for bits in BUCKET_BITS {
            let limit = (1u64 << bits) as f64 / NANOSECONDS;
            self.write("_bucket", &[label, ("le", &limit.to_string())], histogram.at_most(bits));
        }
        let count = histogram.count();
        self.write("_bucket", &[label, ("le", "+Inf")], count);
        self.write("_sum", &[label], histogram.nanoseconds as f64 / NANOSECONDS);
        self.write("_count", &[label], count);
    }

    fn write(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            let begin = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{begin}{name}=\"{value}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

#[cfg(test)]
#[path = "../../tests/common/exposition.rs"]
mod parser;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::fixture;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let identity = Identity {
            image: "/a \"b\"\\c\n.img".into(),
            label: "größe".into(),
            uuid: "6fa459ea-ee8a-3ca4-894e-db77e160355e".into(),
        };
        let readings = fixture::readings();
        let page = parser::parse(&text(&readings, &identity, Some(&fixture::live()))).unwrap();
        let read = [("op", "read")];
        assert_eq!(page.value("steadfast_operation_duration_seconds_count", &read), Some(3.0));
        assert_eq!(page.value("steadfast_operation_duration_seconds_sum", &read), Some(2.000_005));
        assert_eq!(page.value("steadfast_operation_errors_total", &[("op", "write")]), Some(1.0));
        let limit = [("op", "read"), ("le", "0.000004096")];
        assert_eq!(page.value("steadfast_operation_duration_seconds_bucket", &limit), Some(1.0));
        assert_eq!(
            page.value("steadfast_space_bytes", &[("state", "snapshots")]),
            Some(5.0 * 4096.0)
        );
        assert_eq!(page.value("steadfast_remote_members", &[("state", "lost")]), Some(1.0));
        assert_eq!(page.value("steadfast_remote_rebuild_done_ratio", &[]), Some(0.25));
        assert_eq!(page.value("steadfast_remote_log_failed", &[]), Some(1.0));
        let p99 = [("op", "flush"), ("quantile", "0.99")];
        assert_eq!(page.value("steadfast_remote_latency_seconds", &p99), Some(0.002));
        assert_eq!(page.value("steadfast_cluster_epoch", &[]), None);
        let shared = text(&fixture::shared(), &identity, None);
        let shared = parser::parse(&shared).unwrap();
        for (name, value) in [
            ("epoch", 3.0),
            ("peers", 2.0),
            ("forwarded_total", 8000.0),
            ("delegated_total", 500.0),
            ("recalls_total", 40.0),
            ("silent_recalls_total", 1.0),
            ("direct_read_bytes_total", 4096.0),
        ] {
            assert_eq!(shared.value(&format!("steadfast_cluster_{name}"), &[]), Some(value));
        }
        let info: Vec<_> = page.samples("steadfast_volume_info").collect();
        assert!(info[0].labels.contains(&("image".into(), identity.image.clone())), "{info:?}");
    }

    #[test]
    fn the_parser_refuses_what_prometheus_refuses() {
        let good = text(&fixture::readings(), &fixture::identity(), None);
        parser::parse(&good).unwrap();
        for (from, to) in [
            ("# TYPE steadfast_inodes gauge\n", ""),
            ("\nsteadfast_read_bytes_total ", "\nsteadfast_read_bytes "),
            ("le=\"+Inf\"", "le=\"9\""),
            ("\nsteadfast_inodes ", "\nsteadfast-inodes "),
            ("\nsteadfast_inodes ", "\nsteadfast_inodes x"),
            ("op=\"read\"", "op=read"),
            ("# TYPE steadfast_inodes gauge", "# TYPE steadfast_inodes counter"),
        ] {
            assert!(good.contains(from), "{from:?}");
            assert!(parser::parse(&good.replacen(from, to, 1)).is_err(), "{from:?} -> {to:?}");
        }
        assert!(parser::parse(good.trim_end()).is_err(), "the last line ends");
        assert!(parser::parse(&format!("{good}steadfast_inodes 1\n")).is_err(), "twice");
    }
}
