//! Figures that must hold on real geometries.

extern crate std;

use alloc::vec;

use crate::ftl::{Ftl, format};
use crate::model::NandModel;
use crate::part::Part;

/// Reads of a mount after a power cut, in the worst known case of journal, spill pages and scanned
/// pages.
#[test]
fn a_mount_reads_few_pages_at_any_size() {
    for (blocks, every) in [(1024, 97), (65_536, 307)] {
        let part = Part::SLC_1GBIT.with_blocks(blocks);
        let mut ftl = format(NandModel::new(&part, 1), 1).unwrap();
        let page = vec![7; 2048];
        let mut short = vec![0; 2048];
        short[..300].fill(9);
        // The newest anchor is in the middle of the ring.
        for _ in 0..ftl.layout.ring * 3 / 5 {
            ftl.journal.ring.1 = part.geometry.pages_per_block;
            ftl.write_anchor().unwrap();
        }
        let mut most = 0;
        for number in 0..3000_u32 {
            ftl.write_page(number * 7919 % ftl.layout().user_pages, &page).unwrap();
            ftl.write_page(number % 60, &short).unwrap();
            if number % 3 == 0 {
                ftl.flush().unwrap();
            }
            if number % every == 0 {
                let mut nand = ftl.nand().clone();
                nand.reset_counts();
                let mut mounted = Ftl::mount(nand, false).unwrap();
                most = most.max(mounted.nand().counts().reads);
            }
        }
        std::println!("{most} page reads at {blocks} blocks");
        assert!(most <= 40, "{most} page reads at {blocks} blocks");
    }
}

/// Writes that are flushed one by one, together with short pages: like a synced write of the file
/// system.
#[test]
fn programs_of_synced_writes() {
    let mut ftl = format(NandModel::new(&Part::SLC_1GBIT, 1), 1).unwrap();
    let page = vec![7; 2048];
    let mut short = vec![0; 2048];
    short[..300].fill(9);
    let user = ftl.layout().user_pages;
    for logical in 0..user / 10 * 9 {
        ftl.write_page(logical, &page).unwrap();
    }
    ftl.nand().reset_counts();
    let mut longest = 0;
    for number in 0..1000_u32 {
        let before = ftl.nand().counts().time_ns;
        for half in 0..2 {
            ftl.write_page(1000 + number * 2 + half, &page).unwrap();
        }
        ftl.write_page(number % 24, &short).unwrap();
        ftl.flush().unwrap();
        longest = longest.max(ftl.nand().counts().time_ns - before);
    }
    let counts = ftl.nand().counts();
    let programs = counts.programs as f64 / 1000.0;
    std::println!("{programs} {longest} {:?} {}", ftl.info(), ftl.memory_bytes());
    assert!(programs <= 3.45, "{programs} programs, {:?}", ftl.info());
    assert!(longest < 50_000_000, "{longest} ns");
    assert!(
        ftl.memory_bytes() as u64 <= ftl.geometry().bytes() / 1024,
        "{} bytes",
        ftl.memory_bytes()
    );
}
