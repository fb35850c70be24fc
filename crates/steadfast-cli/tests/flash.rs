//! `steadfast flash format|info|map|rebuild|scrub|top` on images of parts, whole and in partitions,
//! and the errors that they report.

mod common;

use std::fs;
use std::path::Path;

use common::{Scratch, can_mount};
use serde_json::Value;
use steadfast_flash::nand::{BlockNumber, Nand};
use steadfast_flash::part::Part;
use steadfast_host::nand::NandImage;

/// Erase blocks of the small part in these tests.
const BLOCKS: u32 = 96;

fn part() -> Part {
    Part::SLC_1GBIT.with_blocks(BLOCKS)
}

/// The image of an erased part with these bad blocks.
fn erased(path: &Path, bad: &[u32]) {
    let mut nand = NandImage::create(path, &part()).unwrap();
    bad.iter().for_each(|block| nand.mark_bad(BlockNumber(*block)).unwrap());
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_part_is_formatted_looked_at_and_drawn() {
    let scratch = Scratch::new();
    erased(&scratch.path("nand.bin"), &[7, 50]);
    let made = scratch.ok("flash format --part slc-1gbit nand.bin");
    assert!(made.contains("2 bad blocks, erase counts begun"), "{made}");
    scratch.ok("mkfs --force nand.bin");
    scratch.put_in("nand.bin", "/file", &vec![7; 300_000]);
    assert_eq!(scratch.ok("get nand.bin /file copy"), "");
    assert_eq!(fs::read(scratch.path("copy")).unwrap(), vec![7; 300_000]);

    let info = json(&scratch.ok("flash info --json nand.bin"));
    assert_eq!((&info["erase_blocks"], &info["part"]), (&BLOCKS.into(), &"slc-1gbit".into()));
    assert_eq!(info["bad_blocks"], serde_json::json!([7, 50]));
    assert_eq!((&info["clean"], &info["in_use"]), (&true.into(), &false.into()));
    assert!(info["mount_page_reads"].as_u64().unwrap() <= 50, "{info}");
    let states = info["blocks"].as_object().unwrap();
    let sum: u64 = states.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!((sum, &states["bad"]), (u64::from(BLOCKS), &2.into()));
    let text = scratch.ok("flash info nand.bin");
    assert!(
        text.contains("bad blocks    7, 50\n") && text.contains("closed in good order"),
        "{text}"
    );

    let map = scratch.ok("flash map nand.bin");
    assert_eq!(
        map.lines().skip(3).take(2).map(|row| row.matches('×').count()).sum::<usize>(),
        2,
        "{map}"
    );
    let blocks = json(&scratch.ok("flash map --json nand.bin"));
    let of = |state: &str| {
        blocks.as_array().unwrap().iter().filter(|block| block["state"] == state).count() as u64
    };
    for (state, count) in states {
        assert_eq!(of(state), count.as_u64().unwrap(), "{state}");
    }
    assert_eq!(blocks[7]["state"], "bad");
    assert_eq!(scratch.ok("flash map --svg map.svg nand.bin"), "");
    let picture = fs::read_to_string(scratch.path("map.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains("nand.bin (slc-1gbit)"));

    let top = json(&scratch.ok("flash top --json nand.bin"));
    let bars = top["histogram"].as_array().unwrap();
    let good: u64 = bars.iter().map(|bar| bar["blocks"].as_u64().unwrap()).sum();
    assert_eq!((good, &top["wear"]), (u64::from(BLOCKS) - 2, &info["wear"]));
    let frame = scratch.ok("flash top --once --interval 100ms nand.bin");
    assert!(
        frame.contains("blocks by erasures") && frame.contains("erased since start"),
        "{frame}"
    );
    scratch.ok("flash top --svg wear.svg nand.bin");
    assert!(fs::read_to_string(scratch.path("wear.svg")).unwrap().contains("Wear of nand.bin"));

    // The patrol reads all pages in use and moves failing ones. With --dry-run it writes nothing.
    let before = fs::read(scratch.path("nand.bin")).unwrap();
    let seen = json(&scratch.ok("flash scrub --dry-run --json nand.bin"));
    assert!(fs::read(scratch.path("nand.bin")).unwrap() == before);
    assert_eq!((&seen["complete"], &seen["corrected_pages"]), (&true.into(), &0.into()));
    let pages = seen["pages_read"].as_u64().unwrap();
    assert!(pages > 150, "{seen}");
    let mut bytes = before;
    let place = bytes.windows(64).position(|bytes| bytes == [7; 64]).unwrap();
    bytes[place + 9] ^= 4;
    fs::write(scratch.path("nand.bin"), &bytes).unwrap();
    let whole = json(&scratch.ok("flash scrub --json nand.bin"));
    assert_eq!(
        (&whole["complete"], &whole["blocks_waiting"]),
        (&true.into(), &0.into()),
        "{whole}"
    );
    assert!(whole["bits_max"] == 1 && whole["corrected_pages"] == 1, "{whole}");
    let part = json(&scratch.ok("flash scrub --budget 10 --json nand.bin"));
    assert_eq!((&part["complete"], &part["pages_read"]), (&false.into(), &10.into()));
    scratch.fails(2, "flash scrub --budget 0 nand.bin");
    let info = json(&scratch.ok("flash info --json nand.bin"));

    // Formatting again keeps the erase counts.
    let line = scratch.fails(5, "flash format nand.bin");
    assert!(line.contains("already holds a flash volume") && line.contains("--force"), "{line}");
    let again = json(&scratch.ok("flash format --force --json nand.bin"));
    assert_eq!(again["erase_counts_kept"], true);
    assert!(
        again["wear"]["erases_total"].as_u64() > info["wear"]["erases_total"].as_u64(),
        "{again} {info}"
    );
    assert_ne!(again["volume"], info["volume"]);
    scratch.fails(3, "ls nand.bin");
}

#[test]
fn a_part_that_does_not_open_is_rebuilt() {
    let scratch = Scratch::new();
    erased(&scratch.path("nand.bin"), &[7]);
    scratch.ok("flash format --part slc-1gbit nand.bin");
    scratch.ok("mkfs --force nand.bin");
    let contents: Vec<u8> =
        (0..300_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8 | 1).collect();
    scratch.put_in("nand.bin", "/file", &contents);
    let whole = fs::read(scratch.path("nand.bin")).unwrap();

    // A part that opens is rebuilt only with --force, and that changes no file.
    let line = scratch.fails(5, "flash rebuild nand.bin");
    assert!(line.contains("the flash volume opens") && line.contains("--force"), "{line}");
    assert!(
        fs::read(scratch.path("nand.bin")).unwrap() == whole,
        "a refused rebuilding has written"
    );
    let found = json(&scratch.ok("flash rebuild --force --json nand.bin"));
    assert!(found["data_pages"].as_u64().unwrap() >= 146 && found["spills_lost"] == 0, "{found}");
    scratch.ok("check nand.bin");

    // The part does not open without its anchors.
    let mut bytes = whole;
    bytes[..4 * 64 * 2112].fill(0xff);
    fs::write(scratch.path("nand.bin"), &bytes).unwrap();
    scratch.fails(3, "flash info --part slc-1gbit nand.bin");
    let line = scratch.ok("flash rebuild --part slc-1gbit nand.bin");
    assert!(line.contains("made anew from ") && line.contains(" 0 spill pages lost"), "{line}");
    scratch.ok("check nand.bin");
    scratch.ok("get nand.bin /file copy");
    assert!(fs::read(scratch.path("copy")).unwrap() == contents);
    assert_eq!(json(&scratch.ok("flash info --json nand.bin"))["clean"], true);

    // A part without any volume.
    erased(&scratch.path("empty.bin"), &[]);
    let before = fs::read(scratch.path("empty.bin")).unwrap();
    let line = scratch.fails(3, "flash rebuild --force --part slc-1gbit empty.bin");
    assert!(line.contains("no flash volume found"), "{line}");
    assert!(fs::read(scratch.path("empty.bin")).unwrap() == before);
}

#[test]
fn an_image_of_an_erased_part_is_made() {
    let scratch = Scratch::new();
    let line = scratch.fails(1, "flash format nand.bin");
    assert!(line.contains("no such file"), "{line}");
    let made = json(&scratch.ok("flash format --part spi-1gbit --json nand.bin"));
    assert_eq!((&made["part"], &made["erase_counts_kept"]), (&"spi-1gbit".into(), &false.into()));
    assert_eq!(json(&scratch.ok("flash info --json nand.bin"))["volume"], made["volume"]);
    // A range outside the part leaves no file behind.
    scratch.fails(2, "flash format --part spi-1gbit other.bin@5..2000");
    assert!(!scratch.path("other.bin").exists());
}

#[test]
fn partitions_are_volumes_of_their_own() {
    let scratch = Scratch::new();
    erased(&scratch.path("nand.bin"), &[]);
    let whole = fs::read(scratch.path("nand.bin")).unwrap();
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    scratch.ok("flash format --part slc-1gbit nand.bin@48..96");
    scratch.ok("mkfs --force nand.bin@48..96");
    scratch.put_in("nand.bin@48..96", "/second", b"second");
    let bytes = fs::read(scratch.path("nand.bin")).unwrap();
    assert!(half(&bytes) == half(&whole) && bytes != whole, "the first half is not touched");

    scratch.ok("flash format --part slc-1gbit nand.bin@0..48");
    scratch.ok("mkfs --force nand.bin@0..48");
    scratch.put_in("nand.bin@0..48", "/first", b"first");
    assert_eq!(scratch.ok("cat nand.bin@0..48 /first"), "first");
    assert_eq!(scratch.ok("cat nand.bin@48..96 /second"), "second");
    scratch.fails(1, "cat nand.bin@48..96 /first");
    let info = json(&scratch.ok("flash info --json nand.bin@48..96"));
    assert_eq!(
        (&info["partition"], &info["erase_blocks"]),
        (&serde_json::json!([48, 96]), &48.into())
    );

    for (exit, range) in [(2, "48..97"), (2, "40..40"), (3, "10..60")] {
        let line = scratch.fails(exit, &format!("flash info --part slc-1gbit nand.bin@{range}"));
        assert!(line.contains("nand.bin"), "{line}");
    }
    scratch.fails(1, "flash info nand.bin@x..y");
}

#[test]
fn what_cannot_be_used_is_one_clear_line_and_nothing_is_written() {
    let scratch = Scratch::new();
    let refuses = |exit: i32, name: &str, line: &str| {
        let before = fs::read(scratch.path(name)).unwrap();
        let said = scratch.fails(exit, line);
        assert!(fs::read(scratch.path(name)).unwrap() == before, "{line} has written");
        said
    };
    // Files that are not NAND.
    scratch.write("text", b"text");
    fs::create_dir(scratch.path("directory")).unwrap();
    for command in ["info", "map", "scrub", "rebuild", "top --json", "format"] {
        let line = refuses(3, "text", &format!("flash {command} text"));
        assert!(line.contains("neither an MTD device nor an image"), "{line}");
        scratch.fails(3, &format!("flash {command} directory"));
        scratch.fails(3, &format!("flash {command} /dev/null"));
        scratch.fails(1, &format!("flash {command} missing"));
    }
    let line = refuses(3, "text", "flash format --part slc-1gbit text");
    assert!(line.contains("4 bytes are no image of slc-1gbit"), "{line}");
    let line = scratch.fails(2, "flash info --part core text");
    assert!(line.contains("slc-1gbit, spi-1gbit"), "{line}");

    // Data of another system.
    erased(&scratch.path("foreign.bin"), &[]);
    let mut bytes = fs::read(scratch.path("foreign.bin")).unwrap();
    bytes[2112 * 64 * 5..][..4].copy_from_slice(b"UBI#");
    fs::write(scratch.path("foreign.bin"), &bytes).unwrap();
    let line = refuses(5, "foreign.bin", "flash format --part slc-1gbit foreign.bin");
    assert!(line.contains("not of Steadfast") && line.contains("--force"), "{line}");
    let line = refuses(3, "foreign.bin", "flash info --part slc-1gbit foreign.bin");
    assert!(line.contains("no flash volume found"), "{line}");
    scratch.ok("flash format --force --part slc-1gbit foreign.bin");

    // More bad blocks than spares; a part that is too small; another geometry.
    erased(&scratch.path("bad.bin"), &[3, 9, 10, 80]);
    let line = refuses(6, "bad.bin", "flash format --part slc-1gbit bad.bin");
    assert!(line.contains("92 good erase blocks; at least 94"), "{line}");
    erased(&scratch.path("small.bin"), &[]);
    let line = refuses(6, "small.bin", "flash format --part slc-1gbit small.bin@0..16");
    assert!(line.contains("16 good erase blocks"), "{line}");
    scratch.ok("flash format --part slc-1gbit small.bin");
    let whole = fs::read(scratch.path("small.bin")).unwrap();
    fs::write(scratch.path("short.bin"), &whole[..64 * 64 * 2112]).unwrap();
    let line = refuses(3, "short.bin", "flash info --part slc-1gbit short.bin");
    assert!(line.contains("was made for 96 erase blocks"), "{line}");
    refuses(3, "short.bin", "flash map short.bin");
    scratch.fails(2, "flash top --interval 1ms small.bin");
    scratch.fails(2, "flash top small.bin");
    scratch.fails(1, "flash map --svg no/such/directory.svg small.bin");

    // A part in use can be inspected, but not formatted.
    let holder = fs::File::open(scratch.path("small.bin")).unwrap();
    holder.lock().unwrap();
    let line = refuses(5, "small.bin", "flash format --force small.bin");
    assert!(line.contains("in use by process"), "{line}");
    refuses(5, "small.bin", "flash scrub small.bin");
    assert_eq!(json(&scratch.ok("flash info --json small.bin"))["in_use"], true);
}

#[test]
fn a_mounted_part_is_watched_from_outside() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    erased(&scratch.path("disk.img"), &[20]);
    scratch.ok("flash format --part slc-1gbit disk.img");
    scratch.ok("mkfs --force disk.img");
    let total = |target: &str| {
        let top = json(&scratch.ok(&format!("flash top --json {target}")));
        assert_eq!(top["in_use"], true);
        top["wear"]["erases_total"].as_u64().unwrap()
    };
    let mnt = scratch.mounted("");
    let before = total("mnt");
    for round in 0..20_u8 {
        fs::write(mnt.join("file"), vec![round | 1; 400_000]).unwrap();
        fs::File::open(mnt.join("file")).unwrap().sync_all().unwrap();
        // The target is named by its mount point and by its own path while it is written.
        let now = total(if round % 2 == 0 { "mnt" } else { "disk.img" });
        assert!(now >= before);
    }
    assert!(total("mnt") > before, "what was written is seen");
    let frame = scratch.ok("flash top --once --interval 100ms mnt");
    assert!(frame.lines().next().unwrap().contains("in use"), "{frame}");
    scratch.fails(5, "flash format --force disk.img");
    scratch.ok("umount mnt");
    assert_eq!(json(&scratch.ok("flash info --json disk.img"))["clean"], true);
    scratch.ok("get disk.img /file copy");
    assert_eq!(fs::read(scratch.path("copy")).unwrap(), vec![19; 400_000]);
}
