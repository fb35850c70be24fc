//! Facts about a volume for users and scripts: the document behind `info` and `df`.

use serde::Serialize;
use steadfast::VolumeInfo;
use steadfast::fs::Statistics;
use steadfast::tools::Identity;

use crate::failure::Outcome;
use crate::output::Output;
use crate::{interval, mask_text, size, stat_text};

/// `steadfast info --json`. Sizes are in bytes. Fields are added over time and never change their
/// meaning.
#[derive(Debug, Serialize)]
pub struct InfoReport {
    path: String,
    mount_point: Option<String>,
    /// The process that serves the mount; null if there is none or it is unknown.
    daemon_pid: Option<u32>,
    format_version: u32,
    uuid: String,
    label: String,
    size: u64,
    block_size: u32,
    node_size: u32,
    metadata_copies: u8,
    log_size: u64,
    log_used: u64,
    features_compatible: u64,
    features_read_only: u64,
    features_incompatible: u64,
    generation: u64,
    transaction_points: u64,
    /// Number of changes that a power cut now would lose.
    uncommitted: u64,
    replayed_records: u64,
    repaired_reads: u64,
    superblock_damaged: bool,
    mask: Vec<&'static str>,
    timer_ms: u32,
    read_only: bool,
    poisoned: Option<&'static str>,
    incarnation: u64,
    /// What the superblock says besides; null where it could not be looked at, as that of remote
    /// memory that is mounted.
    #[serde(flatten)]
    parameters: Parameters,
    /// What is used now; null where it was not asked for.
    #[serde(flatten)]
    counts: Counts,
}

/// Parameters from the superblock, which a mounted volume does not tell.
#[derive(Debug, Default, Serialize)]
struct Parameters {
    /// Seconds since 1970, UTC.
    created: Option<i64>,
    /// The same for people.
    created_utc: Option<String>,
    blocks: Option<u64>,
    group_blocks: Option<u32>,
    inline_max: Option<u32>,
    reserve_blocks: Option<u64>,
}

/// How much is used, in blocks and inodes.
#[derive(Debug, Default, Serialize)]
struct Counts {
    blocks_free: Option<u64>,
    blocks_available: Option<u64>,
    inodes: Option<u64>,
}

impl InfoReport {
    /// The report on the volume at `path`, and on its mount point if it is mounted.
    pub fn new(info: &VolumeInfo, path: String, mount_point: Option<String>) -> InfoReport {
        InfoReport {
            path,
            mount_point,
            daemon_pid: None,
            format_version: info.version,
            uuid: uuid_text(&info.uuid),
            label: info.label.clone(),
            size: info.size,
            block_size: info.block_size,
            node_size: info.node_size,
            metadata_copies: info.metadata_copies,
            log_size: info.log_size,
            log_used: info.log_used,
            features_compatible: info.features_compatible,
            features_read_only: info.features_read_only,
            features_incompatible: info.features_incompatible,
            generation: info.generation,
            transaction_points: info.transaction_points,
            uncommitted: info.uncommitted,
            replayed_records: info.replayed_records,
            repaired_reads: info.repaired_reads,
            superblock_damaged: info.superblock_damaged,
            mask: mask_text::names(info.mask),
            timer_ms: info.timer_ms,
            read_only: info.read_only,
            poisoned: info.poisoned,
            incarnation: info.incarnation,
            parameters: Parameters::default(),
            counts: Counts::default(),
        }
    }

    /// The same with what only the superblock tells.
    pub fn with_identity(self, identity: &Identity) -> InfoReport {
        let created = identity.created;
        let parameters = Parameters {
            created: Some(created.seconds),
            created_utc: Some(stat_text::time(created, true)),
            blocks: Some(identity.blocks),
            group_blocks: Some(identity.group_blocks),
            inline_max: Some(identity.inline_max),
            reserve_blocks: Some(identity.reserve_blocks),
        };
        InfoReport { parameters, ..self }
    }

    /// The same with what is used.
    pub fn with_statistics(self, statistics: &Statistics) -> InfoReport {
        let counts = Counts {
            blocks_free: Some(statistics.blocks_free),
            blocks_available: Some(statistics.blocks_available),
            inodes: Some(statistics.inodes),
        };
        InfoReport { counts, ..self }
    }

    /// The same with the process that serves the mount.
    pub fn with_daemon(self, daemon_pid: Option<u32>) -> InfoReport {
        InfoReport { daemon_pid, ..self }
    }

    /// Prints the report as text.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn print(&self, output: &mut Output) -> Outcome {
        let mut row = |name: &str, value: String| output.line(format_args!("{name:<20}{value}"));
        row("volume", self.path.clone())?;
        if let Some(directory) = &self.mount_point {
            row("mounted on", directory.clone())?;
        }
        if let Some(pid) = self.daemon_pid {
            row("daemon", format!("process {pid}"))?;
        }
        row("label", if self.label.is_empty() { "none".into() } else { self.label.clone() })?;
        row("uuid", self.uuid.clone())?;
        if let Some(time) = &self.parameters.created_utc {
            row("created", time.clone())?;
        }
        row("format version", self.format_version.to_string())?;
        row("size", format!("{} ({} bytes)", size::human(self.size), self.size))?;
        row("block size", size::human(self.block_size.into()))?;
        if let Some(blocks) = self.parameters.blocks {
            let free = match (self.counts.blocks_free, self.counts.blocks_available) {
                (Some(free), Some(available)) => {
                    format!(", {free} of them free, {available} for files")
                }
                _ => String::new(),
            };
            row("blocks", format!("{blocks}{free}"))?;
        }
        if let Some(blocks) = self.parameters.reserve_blocks {
            row("reserved blocks", format!("{blocks}, for deleting on a full volume"))?;
        }
        if let Some(blocks) = self.parameters.group_blocks {
            row("blocks in a group", blocks.to_string())?;
        }
        if let Some(inodes) = self.counts.inodes {
            row("inodes", format!("{inodes}, as many as there is room for"))?;
        }
        if let Some(bytes) = self.parameters.inline_max {
            row("inline", format!("files up to {}", size::human(bytes.into())))?;
        }
        row("node size", size::human(self.node_size.into()))?;
        row("metadata copies", self.metadata_copies.to_string())?;
        row(
            "intent log",
            format!("{} ({} in use)", size::human(self.log_size), size::human(self.log_used)),
        )?;
        row("generation", self.generation.to_string())?;
        row(
            "transaction mask",
            if self.mask.is_empty() { "manual".into() } else { self.mask.join(",") },
        )?;
        row("timer", interval::human_ms(self.timer_ms))?;
        let features =
            self.features_compatible | self.features_read_only | self.features_incompatible;
        let bits = format!(
            "compatible {:#x}, read-only {:#x}, incompatible {:#x}",
            self.features_compatible, self.features_read_only, self.features_incompatible
        );
        row("features", if features == 0 { "none".into() } else { bits })?;
        if self.replayed_records != 0 {
            row("log at open", format!("{} log records", self.replayed_records))?;
        }
        if self.mount_point.is_some() {
            row("transaction points", format!("{} since it was mounted", self.transaction_points))?;
            row("not yet durable", format!("{} changes", self.uncommitted))?;
            let access = match (self.read_only, self.poisoned) {
                (true, _) => "read-only",
                (false, Some(_)) => "read-only, by itself",
                (false, None) => "read-write",
            };
            row("access", access.into())?;
        }
        if self.repaired_reads != 0 {
            row("damage", format!("{} reads answered from the second copy", self.repaired_reads))?;
        }
        if self.superblock_damaged {
            row("damage", "one superblock copy is damaged; the other one was used".into())?;
        }
        if let Some(why) = self.poisoned {
            row("READ-ONLY because", why.into())?;
        }
        Ok(())
    }
}

/// `steadfast df --json`. Sizes are in bytes.
#[derive(Debug, Serialize)]
pub struct DfReport {
    path: String,
    mount_point: Option<String>,
    block_size: u32,
    size: u64,
    used: u64,
    free: u64,
    available: u64,
    /// Freed bytes that become reusable at the next checkpoint, contained in `free`; null if
    /// unknown.
    almost_free: Option<u64>,
    inodes: u64,
    name_max: u32,
}

impl DfReport {
    /// The report on the volume at `path`; `almost_free` is unknown for a mounted volume.
    pub fn new(
        statistics: &Statistics,
        path: String,
        mount_point: Option<String>,
        almost_free_known: bool,
    ) -> DfReport {
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(statistics.block_size));
        DfReport {
            path,
            mount_point,
            block_size: statistics.block_size,
            size: bytes(statistics.blocks),
            used: bytes(statistics.blocks.saturating_sub(statistics.blocks_free)),
            free: bytes(statistics.blocks_free),
            available: bytes(statistics.blocks_available),
            almost_free: almost_free_known.then(|| bytes(statistics.blocks_almost_free)),
            inodes: statistics.inodes,
            name_max: statistics.name_max,
        }
    }

    /// As df(1): the percentage of what files can use, rounded up.
    fn percent_used(&self) -> u128 {
        let usable = u128::from(self.used) + u128::from(self.available);
        (u128::from(self.used) * 100).div_ceil(usable.max(1))
    }

    /// The heading of the text table.
    pub const HEADING: &'static str =
        "      SIZE       USED      AVAIL  USE%  ALMOST FREE      INODES  VOLUME";

    /// Prints one row of the text table.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn print(&self, output: &mut Output) -> Outcome {
        let percent = self.percent_used();
        let almost_free = self.almost_free.map_or_else(|| "-".to_owned(), size::human);
        let place = match &self.mount_point {
            Some(directory) => format!("{} on {directory}", self.path),
            None => self.path.clone(),
        };
        output.line(format_args!(
            "{:>10} {:>10} {:>10} {percent:>4}% {almost_free:>12} {:>11}  {place}",
            size::human(self.size),
            size::human(self.used),
            size::human(self.available),
            self.inodes,
        ))
    }
}

/// A UUID in its usual form.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The bytes of a UUID in its usual form, with or without hyphens.
///
/// # Errors
/// A message for the user.
pub fn uuid_parse(text: &str) -> Result<[u8; 16], String> {
    let wrong =
        || format!("'{text}' is not a UUID: write 32 hexadecimal digits, with or without hyphens");
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong());
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        let text = "6fa459ea-ee8a-3ca4-894e-db77e160355e";
        let uuid = uuid_parse(text).unwrap();
        assert_eq!(uuid_text(&uuid), text);
        assert_eq!(uuid_parse(&text.replace('-', "")), Ok(uuid));
        assert!(uuid_parse("6fa459ea").is_err());
        assert!(uuid_parse(&"é".repeat(16)).is_err());
    }

    #[test]
    fn space_of_an_odd_volume_does_not_divide_by_zero() {
        let report = DfReport::new(&Statistics::default(), "x".into(), None, true);
        assert_eq!(report.used, 0);
        assert_eq!(report.percent_used(), 0);
    }
}
