//! The traffic of the medium: the kernel's counters of a block device.

use std::fs;

use crate::result::MediumTraffic;

/// Bytes of a sector in the counters, whatever the device's sector size.
const SECTOR: u64 = 512;

/// The counters of a block device at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediumCounters {
    reads: u64,
    read_sectors: u64,
    writes: u64,
    written_sectors: u64,
    flushes: Option<u64>,
}

impl MediumCounters {
    /// The counters of a device such as `loop3` or `sda`; `None` if it has none.
    pub fn of(device: &str) -> Option<MediumCounters> {
        parse(&fs::read_to_string(format!("/sys/class/block/{device}/stat")).ok()?)
    }

    /// The traffic between `self` and `later`.
    pub fn until(&self, later: &MediumCounters, bytes_asked: u64) -> MediumTraffic {
        MediumTraffic {
            bytes_asked,
            bytes_written: later
                .written_sectors
                .wrapping_sub(self.written_sectors)
                .wrapping_mul(SECTOR),
            bytes_read: later.read_sectors.wrapping_sub(self.read_sectors).wrapping_mul(SECTOR),
            writes: later.writes.wrapping_sub(self.writes),
            reads: later.reads.wrapping_sub(self.reads),
            flushes: later
                .flushes
                .zip(self.flushes)
                .map(|(later, earlier)| later.wrapping_sub(earlier)),
        }
    }
}

/// The words of `stat`: reads, merged, sectors, ms, writes, merged, sectors, ms, in flight, ms, ms,
/// discards (4), flushes, ms.
fn parse(text: &str) -> Option<MediumCounters> {
    let words: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(MediumCounters {
        reads: *words.first()?,
        read_sectors: *words.get(2)?,
        writes: *words.get(4)?,
        written_sectors: *words.get(6)?,
        flushes: words.get(15).copied(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words() {
        let before = parse("10 0 80 1 20 0 160 2 0 3 4 0 0 0 0 5 6").expect("counters");
        let after = parse("11 0 88 1 22 0 176 2 0 3 4 0 0 0 0 7 6").expect("counters");
        let wanted = MediumTraffic {
            bytes_asked: 1,
            bytes_written: 8192,
            bytes_read: 4096,
            writes: 2,
            reads: 1,
            flushes: Some(2),
        };
        assert_eq!(before.until(&after, 1), wanted);
        assert_eq!(parse("1 2 3 4 5 6 7").and_then(|counters| counters.flushes), None);
        assert_eq!(parse("1 2"), None);
    }
}
