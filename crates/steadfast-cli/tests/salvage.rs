//! `steadfast check --salvage` on badly damaged images.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use common::{Scratch, failed, succeeded};

/// Destroys `length` bytes of the image.
fn destroy(scratch: &Scratch, offset: u64, length: usize) {
    let image = File::options().write(true).open(scratch.path("disk.img")).unwrap();
    image.write_all_at(&vec![0x5a; length], offset).unwrap();
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 11) as u8 ^ seed).collect()
}

/// Makes a directory on the host with everything that a volume can hold, and puts it into
/// `disk.img`.
fn filled(scratch: &Scratch) {
    let source = scratch.path("source");
    fs::create_dir_all(source.join("etc/deep")).unwrap();
    for number in 0..30u8 {
        fs::write(
            source.join(format!("etc/deep/f{number}")),
            pattern(900 * usize::from(number), number),
        )
        .unwrap();
    }
    fs::write(source.join("etc/hosts"), b"127.0.0.1 localhost\n").unwrap();
    fs::set_permissions(source.join("etc/hosts"), PermissionsExt::from_mode(0o640)).unwrap();
    fs::write(source.join("salvage-report.txt"), b"a name that the report has, too").unwrap();
    std::os::unix::fs::symlink("hosts", source.join("etc/link")).unwrap();
    scratch.ok("mkfs --size 8M disk.img");
    scratch.ok("put -r disk.img source/etc /");
    scratch.ok("put disk.img source/salvage-report.txt /");
}

fn compare_files(source: &Path, copy: &Path) {
    for entry in fs::read_dir(source).unwrap().map(Result::unwrap) {
        let (one, other) = (entry.path(), copy.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            compare_files(&one, &other);
        } else if entry.file_type().unwrap().is_file() {
            assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{}", one.display());
        }
    }
}

#[test]
fn everything_comes_out_of_a_sound_image_and_out_of_one_without_superblocks() {
    let scratch = Scratch::new();
    filled(&scratch);
    for (round, directory) in ["one", "two"].into_iter().enumerate() {
        if round == 1 {
            destroy(&scratch, 0, 4096);
            destroy(&scratch, (8 << 20) - 4096, 4096);
            assert_eq!(scratch.line("check disk.img").status.code(), Some(3));
        }
        let before = fs::read(scratch.path("disk.img")).unwrap();
        let line = format!("check --salvage {directory} disk.img");
        let said = scratch.ok(&line);
        assert!(said.contains("all complete"), "{said}");
        assert!(fs::read(scratch.path("disk.img")).unwrap() == before, "the image was written");
        let copy = scratch.path(directory);
        compare_files(&scratch.path("source/etc"), &copy.join("etc"));
        assert_eq!(fs::read_link(copy.join("etc/link")).unwrap(), Path::new("hosts"));
        let (one, other) = (scratch.path("source/etc/hosts"), copy.join("etc/hosts"));
        let (one, other) = (fs::metadata(one).unwrap(), fs::metadata(other).unwrap());
        assert_eq!(
            (one.mode(), one.mtime(), one.mtime_nsec()),
            (other.mode(), other.mtime(), other.mtime_nsec())
        );
        // The report keeps its name; the file of that name gets another one.
        assert!(
            fs::read_to_string(copy.join("salvage-report.txt"))
                .unwrap()
                .starts_with("Salvage of disk.img")
        );
        assert_eq!(
            fs::read(copy.join("salvage-report.txt~1")).unwrap(),
            b"a name that the report has, too"
        );
        let line = failed(&scratch.line(&line), 2, &line);
        assert!(line.contains("is not empty"), "{line}");
    }
}

#[test]
fn lost_parts_are_zeros_and_listed() {
    let scratch = Scratch::new();
    scratch.ok("mkfs --size 8M disk.img");
    let data = pattern(400_000, 3);
    scratch.put("/big", &data);
    scratch.put("/other", b"all there");
    // The position of the data in the image.
    let image = fs::read(scratch.path("disk.img")).unwrap();
    let needle = &data[40_960..41_060];
    let at = image.chunks(4096).position(|block| block.starts_with(needle)).expect("the block")
        as u64
        * 4096;
    destroy(&scratch, at, 5000);
    let line = "check --salvage out --json disk.img";
    let output = scratch.line(line);
    assert_eq!(output.status.code(), Some(4));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&summary["bytes_lost"], &summary["incomplete"]),
        (&8192.into(), &1.into()),
        "{summary}"
    );
    let mut expected = data;
    expected[40_960..40_960 + 8192].fill(0);
    assert!(fs::read(scratch.path("out/big")).unwrap() == expected);
    assert_eq!(fs::read(scratch.path("out/other")).unwrap(), b"all there");
    let report = fs::read_to_string(scratch.path("out/salvage-report.txt")).unwrap();
    assert!(report.contains("/big: bytes 40960 to 49151 are lost"), "{report}");
}

#[test]
fn an_image_without_metaroots_is_searched() {
    let scratch = Scratch::new();
    filled(&scratch);
    for offset in [4096, 8192, (8 << 20) - 3 * 4096, (8 << 20) - 2 * 4096] {
        destroy(&scratch, offset, 512);
    }
    assert_eq!(scratch.line("check disk.img").status.code(), Some(4));
    let output = scratch.line("check --salvage out disk.img");
    assert_eq!(output.status.code(), Some(4), "what is found by searching may be out of date");
    compare_files(&scratch.path("source/etc"), &scratch.path("out/etc"));
    let report = fs::read_to_string(scratch.path("out/salvage-report.txt")).unwrap();
    assert!(
        report.contains("no metaroot is left") && report.contains("found by searching"),
        "{report}"
    );
}

#[test]
fn what_is_no_volume_leaves_no_directory() {
    let scratch = Scratch::new();
    scratch.write("disk.img", &[7; 1 << 20]);
    scratch.fails(3, "check --salvage out disk.img");
    scratch.fails(1, "check --salvage out no-such.img");
    assert!(!scratch.path("out").exists());
    scratch.ok("mkfs --force --size 4M disk.img");
    scratch.write("file", b"x");
    scratch.fails(1, "check --salvage file disk.img");
    succeeded(&scratch.line("check --salvage out disk.img"), "salvage of an empty volume");
}

#[test]
fn what_a_snapshot_holds_comes_out_after_everything_else_is_gone() {
    let scratch = Scratch::new();
    filled(&scratch);
    scratch.ok("snapshot create disk.img before");
    scratch.ok("rm -r disk.img /etc");
    scratch.put("/salvage-report.txt", b"newer");
    destroy(&scratch, 0, 4096);
    let image = fs::read(scratch.path("disk.img")).unwrap();
    let said = scratch.ok("check --salvage old --snapshot before disk.img");
    assert!(said.contains("all complete"), "{said}");
    compare_files(&scratch.path("source/etc"), &scratch.path("old/etc"));
    let report = fs::read_to_string(scratch.path("old/salvage-report.txt")).unwrap();
    assert!(report.starts_with("Salvage of disk.img, snapshot before, by"), "{report}");
    scratch.ok("check --salvage new disk.img");
    assert!(!scratch.path("new/etc").exists());
    assert_eq!(fs::read(scratch.path("new/salvage-report.txt~1")).unwrap(), b"newer");
    // A missing snapshot yields nothing, and no directory is made for it.
    let line = scratch.fails(1, "check --salvage none --snapshot other disk.img");
    assert!(line.contains("other"), "{line}");
    assert!(!scratch.path("none").exists());
    scratch.fails(2, "check --snapshot before disk.img");
    assert!(fs::read(scratch.path("disk.img")).unwrap() == image, "the image was written");
}
