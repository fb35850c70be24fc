//! The costs of synced writes and mounts, and the wear.

use std::sync::Arc;

use steadfast::fs::{Caller, NewNode};
use steadfast::{Error, FormatOptions, InodeNumber, OpenOptions, Volume};
use steadfast_flash::ftl::{FlashError, FlashMedium, Ftl, format};
use steadfast_flash::model::{NandModel, OperationCounts};
use steadfast_flash::part::Part;
use steadfast_media::Medium;

use super::account::Account;
use crate::platform::{Clock, LabPlatform};
use crate::random::Random;

/// Figures of one part.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// Bytes that the medium offers, in percent of the part's bytes.
    pub usable_percent: f64,
    /// Most page reads of a mount after a clean stop: translation layer, block table, log replay.
    pub mount_page_reads_clean: u64,
    /// The same after a power cut.
    pub mount_page_reads_max: u64,
    /// Page programs per overwrite, all purposes included, for 200 synced overwrites of 4 KiB at 90
    /// % full.
    pub programs_per_synced_4k: f64,
    /// The same for uniform random overwrites over the whole volume, after the free blocks were
    /// used up once.
    pub programs_per_synced_4k_steady: f64,
    /// The purposes of these programs.
    pub steady: Account,
    /// Longest of these writes including its fsync, modelled milliseconds.
    pub write_ms_max: f64,
    /// Longest piece of background work, modelled milliseconds.
    pub background_ms_max: f64,
    /// Most erasures of a block minus the fewest, in percent of the rated cycles.
    pub erase_spread: f64,
    /// Most memory of the translation layer after a write, bytes per KiB of flash.
    pub memory_per_kib: f64,
}

/// Bytes that a piece of background work writes.
const BACKGROUND_STEP: u64 = 16 << 10;

/// The error is text.
pub type Result<T> = std::result::Result<T, String>;

type FlashVolume = Volume<Arc<dyn Medium>, LabPlatform>;

fn text(error: Error) -> String {
    format!("volume: {error}")
}

fn flash_text(error: FlashError) -> String {
    format!("flash: {error}")
}

/// A volume on a part whose counters the bench can read.
struct FlashBench {
    medium: Arc<FlashMedium<NandModel>>,
    volume: FlashVolume,
    clock: Clock,
}

impl FlashBench {
    fn new(part: &Part, seed: u64) -> Result<FlashBench> {
        let ftl = format(NandModel::new(part, seed), seed).map_err(flash_text)?;
        let options = super::format_options(&part.geometry);
        FlashBench::on(ftl, &options)
    }

    /// A new file system on a translation layer.
    fn on(ftl: Ftl<NandModel>, format: &FormatOptions) -> Result<FlashBench> {
        let medium = Arc::new(FlashMedium::new(ftl));
        let clock = Clock::default();
        let platform = LabPlatform::new(clock.clone());
        Volume::format(&medium, format, &platform).map_err(text)?;
        let shared: Arc<dyn Medium> = medium.clone();
        let volume = Volume::open(shared, options(), platform).map_err(text)?;
        Ok(FlashBench { medium, volume, clock })
    }

    fn counts(&self) -> OperationCounts {
        self.medium.with(|ftl| ftl.nand().counts())
    }

    /// Runs background work until there is none. Returns the longest piece, modelled nanoseconds.
    fn background(&self) -> Result<u64> {
        let mut longest = 0;
        self.clock.advance_ms(50);
        for _ in 0..1000 {
            let before = self.counts().time_ns;
            let more = self.volume.background_step(BACKGROUND_STEP).map_err(text)?;
            longest = longest.max(self.counts().time_ns - before);
            if !more {
                break;
            }
        }
        Ok(longest)
    }

    fn create(&self, name: &str, size: usize, random: &mut Random) -> Result<InodeNumber> {
        let caller = Caller { uid: 0, gid: 0, umask: 0 };
        let root = InodeNumber::ROOT;
        let file = self
            .volume
            .create(root, name.as_bytes(), NewNode::Regular, 0o644, &caller)
            .map_err(text)?;
        let data: Vec<u8> =
            (0..size.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes()).collect();
        for (at, piece) in data.chunks(64 << 10).enumerate() {
            self.volume.write(file.inode, (at << 16) as u64, piece, false).map_err(text)?;
        }
        Ok(file.inode)
    }

    /// Page reads of a mount of a copy of the part in its present state.
    fn mount_reads(&self) -> Result<u64> {
        let mut nand = self.medium.with(|ftl| ftl.nand().clone());
        nand.reset_counts();
        let ftl = Ftl::mount(nand, false).map_err(flash_text)?;
        let medium = Arc::new(FlashMedium::new(ftl));
        let (shared, platform): (Arc<dyn Medium>, _) =
            (medium.clone(), LabPlatform::new(self.clock.clone()));
        let volume = Volume::open(shared, options(), platform).map_err(text)?;
        let reads = medium.with(|ftl| ftl.nand().counts().reads);
        drop(volume);
        Ok(reads)
    }

    /// Makes one synced overwrite of 4 KiB; returns its modelled nanoseconds.
    fn overwrite(&self, file: InodeNumber, at: u64, random: &mut Random) -> Result<u64> {
        self.overwrite_and(file, at, random, || ())
    }

    /// As [`overwrite`](Self::overwrite), with an action between the write and its fsync.
    fn overwrite_and(
        &self,
        file: InodeNumber,
        at: u64,
        random: &mut Random,
        between: impl FnOnce(),
    ) -> Result<u64> {
        let before = self.counts().time_ns;
        let data: Vec<u8> = (0..512).flat_map(|_| random.bits().to_le_bytes()).collect();
        self.volume.write(file, at << 12, &data, false).map_err(text)?;
        between();
        self.volume.fsync().map_err(text)?;
        Ok(self.counts().time_ns - before)
    }
}

fn options() -> OpenOptions {
    OpenOptions {
        read_only: false,
        cache_size: 2 << 20,
        access_times: false,
        ..OpenOptions::default()
    }
}

/// Measures a part: 200 synced overwrites, then `steady` synced random overwrites.
///
/// # Errors
/// What went wrong, as text.
pub fn figures(part: &Part, steady: u64, seed: u64) -> Result<Figures> {
    let bench = FlashBench::new(part, seed)?;
    let mut random = Random::new(seed);
    let mut found = Figures::default();
    let layout = bench.medium.with(|ftl| ftl.layout());
    found.usable_percent = 100.0 * f64::from(layout.user_pages) / f64::from(part.geometry.pages());
    // Files of 64 KiB fill the volume to 90 %. 20 of them are overwritten in turn, as in
    // bench/nand.
    let mut files = Vec::new();
    loop {
        let statistics = bench.volume.statistics().map_err(text)?;
        if statistics.blocks_free * 10 <= statistics.blocks {
            break;
        }
        files.push(bench.create(&format!("file-{}", files.len()), 64 << 10, &mut random)?);
        bench.background()?;
    }
    bench.volume.checkpoint().map_err(text)?;
    bench.background()?;
    let before = bench.counts().programs;
    let mut longest = 0;
    let mut background = 0;
    let rounds = 200_u64;
    let mut reads = 0;
    let mut memory = 0;
    for round in 0..rounds {
        let file = files.get(1 + 10 * (round % 20) as usize).copied().unwrap_or(InodeNumber::ROOT);
        longest = longest.max(bench.overwrite(file, round / 20 % 16, &mut random)?);
        if round % 5 == 0 {
            reads = reads.max(bench.mount_reads()?);
        }
        memory = memory.max(bench.medium.with(|ftl| ftl.memory_bytes()));
        background = background.max(bench.background()?);
    }
    found.programs_per_synced_4k = (bench.counts().programs - before) as f64 / rounds as f64;
    let spent = || bench.medium.with(|ftl| (ftl.nand().counts(), ftl.info()));
    let mut before = spent();
    let skipped = steady / 2;
    for round in 0..steady {
        if round == skipped {
            before = spent();
        }
        let file = files
            .get(random.below(files.len() as u64) as usize)
            .copied()
            .unwrap_or(InodeNumber::ROOT);
        longest = longest.max(bench.overwrite(file, random.below(16), &mut random)?);
        if round % 97 == 0 {
            reads = reads.max(bench.mount_reads()?);
        }
        memory = memory.max(bench.medium.with(|ftl| ftl.memory_bytes()));
        background = background.max(bench.background()?);
    }
    if steady > 0 {
        let after = spent();
        let rounds = (steady - skipped) as f64;
        found.programs_per_synced_4k_steady =
            (after.0.programs - before.0.programs) as f64 / rounds;
        let blocks = bench.medium.with(Ftl::blocks).map_err(flash_text)?;
        found.steady =
            Account::new(&before, &after, rounds, &blocks, part.geometry.pages_per_block);
    }
    found.mount_page_reads_max = reads;
    found.write_ms_max = longest as f64 / 1e6;
    found.background_ms_max = background as f64 / 1e6;
    let (least, most, _) = bench.medium.with(|ftl| ftl.nand().wear());
    found.erase_spread = 100.0 * f64::from(most - least) / f64::from(part.geometry.cycles);
    found.memory_per_kib = memory as f64 / (part.geometry.bytes() / 1024) as f64;
    bench.volume.close().map_err(text)?;
    bench.medium.close().map_err(flash_text)?;
    found.mount_page_reads_clean = bench.mount_reads()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_hold() {
        let found = figures(&Part::SLC_1GBIT, 0, 1).unwrap();
        println!("{found:?}");
        assert!(found.usable_percent >= 92.0, "{found:?}");
        assert!(
            found.mount_page_reads_clean <= 50 && found.mount_page_reads_max <= 50,
            "{found:?}"
        );
        // JFFS2 takes 4.7, UBIFS 6.7.
        assert!(found.programs_per_synced_4k <= 3.5, "{found:?}");
        assert!(found.write_ms_max <= 50.0 && found.background_ms_max <= 50.0, "{found:?}");
        assert!(found.erase_spread <= 1.0 && found.memory_per_kib <= 1.0, "{found:?}");
    }

    /// After this many random overwrites, garbage collection has as much work as it will ever have.
    #[test]
    fn the_figures_hold_in_the_long_run() {
        let steady = std::env::var("FLASH_OVERWRITES").ok().and_then(|count| count.parse().ok());
        let found = figures(&Part::SLC_1GBIT, steady.unwrap_or(20_000), 1).unwrap();
        println!("{found:?}");
        assert!(
            found.mount_page_reads_clean <= 50 && found.mount_page_reads_max <= 50,
            "{found:?}"
        );
        assert!(found.write_ms_max <= 50.0 && found.background_ms_max <= 50.0, "{found:?}");
        assert!(
            found.programs_per_synced_4k_steady <= 12.5 && found.memory_per_kib <= 1.0,
            "{found:?}"
        );
    }

    /// The highest costs of random overwrites.
    #[derive(Debug, Default)]
    struct Most {
        mount_reads: u64,
        write_ms: f64,
        background_ms: f64,
        /// Programs per overwrite in the second half.
        programs: f64,
    }

    /// Page reads of a mount after a power cut during 4,000 random overwrites of 400 files, and the
    /// cost of the overwrites.
    fn most_mount_reads(bench: &FlashBench, background: bool) -> Most {
        let mut random = Random::new(1);
        let mut files = Vec::new();
        for number in 0..400 {
            files.push(bench.create(&format!("file-{number}"), 64 << 10, &mut random).unwrap());
            bench.background().unwrap();
        }
        let (mut most, rounds, mut programs) = (Most::default(), 4000, 0);
        for round in 0..rounds {
            if 2 * round == rounds {
                programs = bench.counts().programs;
            }
            let file = files[random.below(files.len() as u64) as usize];
            let mut look = || most.mount_reads = most.mount_reads.max(bench.mount_reads().unwrap());
            let page = random.below(16);
            let between = || {
                if round % 37 == 10 {
                    look()
                }
            };
            let took = bench.overwrite_and(file, page, &mut random, between).unwrap();
            if round % 37 == 0 {
                look();
            }
            most.write_ms = most.write_ms.max(took as f64 / 1e6);
            if background {
                if round % 7 == 0 && bench.volume.background_step(BACKGROUND_STEP).unwrap() {
                    most.mount_reads = most.mount_reads.max(bench.mount_reads().unwrap());
                }
                most.background_ms =
                    most.background_ms.max(bench.background().unwrap() as f64 / 1e6);
            }
        }
        most.programs = 2.0 * (bench.counts().programs - programs) as f64 / rounds as f64;
        most
    }

    /// A volume on 65,536 blocks.
    fn large() -> FlashBench {
        let mut ftl = format(NandModel::new(&Part::SLC_1GBIT.with_blocks(65_536), 1), 1).unwrap();
        // Each recovery continues in the next block of the ring, so the newest anchor is not among
        // the first blocks.
        for _ in 0..150 {
            ftl = Ftl::mount(ftl.into_nand(), false).unwrap();
            assert!(ftl.info().recovered);
        }
        let options = crate::flash::format_options(&ftl.geometry());
        FlashBench::on(ftl, &options).unwrap()
    }

    /// The whole file system after power cuts on 8 GiB of flash: the reads of a mount do not grow
    /// with the part.
    #[test]
    fn a_mount_of_65_536_blocks_reads_53_pages() {
        let found = most_mount_reads(&large(), true);
        println!("65,536 blocks: {found:?}");
        assert!(
            found.mount_reads <= 53 && found.write_ms <= 50.0 && found.background_ms <= 50.0,
            "{found:?}"
        );
    }

    /// On a board without background work, operations write the checkpoints early enough for the
    /// bound on a mount.
    #[test]
    fn a_mount_reads_53_pages_where_there_is_no_background() {
        for bench in [FlashBench::new(&Part::SLC_1GBIT, 1).unwrap(), large()] {
            let found = most_mount_reads(&bench, false);
            println!("without background: {found:?}");
            assert!(found.mount_reads <= 53 && found.write_ms <= 50.0, "{found:?}");
        }
    }

    /// The bound on one write with its fsync, on small parts of every kind with the kind's pages
    /// per block.
    #[test]
    fn no_write_takes_50_ms_on_any_part() {
        for part in Part::ALL {
            let pages = part.geometry.pages_per_block * part.geometry.page_size / 2048;
            let found = figures(&part.with_blocks(65_536 / pages), 600, 1).unwrap();
            println!("{} {found:?}", part.name);
            assert!(
                found.write_ms_max <= 50.0 && found.background_ms_max <= 50.0,
                "{}: {found:?}",
                part.name
            );
        }
    }
}
