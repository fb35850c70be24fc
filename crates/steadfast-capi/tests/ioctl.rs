//! `steadfast-ioctl.h` agrees with the mount: a C compiler evaluates the header, and the header
//! contains every command number of the mount.

mod toolchain;

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};

use steadfast_fuse::ioctl::{self, InfoArgument, MaskArgument, RollbackArgument, info_flag};
use steadfast_fuse::scrub::{self, ScrubStatusArgument};
use toolchain::{Toolchain, repository};

/// Every `pub const NAME: u32 = number(…)` of the mount. A command that is added there must also be
/// added to the header.
fn commands_of_the_mount() -> Vec<String> {
    let read = |name: &str| {
        std::fs::read_to_string(repository().join("crates/steadfast-fuse/src").join(name)).unwrap()
    };
    let names = |source: String, prefix: &str| -> Vec<String> {
        let names = source.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("pub const ")?.split_once(": u32 = ")?;
            value.starts_with("number(").then(|| format!("{prefix}{name}"))
        });
        names.collect()
    };
    let mut all = names(read("ioctl.rs") + &read("ioctl/snapshot.rs"), "");
    all.extend(names(read("scrub.rs"), "SCRUB_"));
    all
}

#[test]
fn the_numbers_are_those_of_the_mount() {
    let names = commands_of_the_mount();
    assert!(names.len() >= 6, "ioctl.rs is not written as this test expects");
    let mut program = String::from(
        "#include \"steadfast-ioctl.h\"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for name in &names {
        program += &format!("    printf(\"{name} %lu\\n\", (unsigned long)SF_IOC_{name});\n");
    }
    let expressions = [
        ("size rollback", "sizeof(struct sf_ioc_rollback)", size_of::<RollbackArgument>()),
        ("size mask", "sizeof(struct sf_ioc_mask)", size_of::<MaskArgument>()),
        ("size info", "sizeof(struct sf_ioc_info)", size_of::<InfoArgument>()),
        ("label", "offsetof(struct sf_ioc_info, label)", offset_of!(InfoArgument, label)),
        ("size", "offsetof(struct sf_ioc_info, size)", offset_of!(InfoArgument, size)),
        (
            "uncommitted",
            "offsetof(struct sf_ioc_info, uncommitted)",
            offset_of!(InfoArgument, uncommitted),
        ),
        (
            "incarnation",
            "offsetof(struct sf_ioc_info, incarnation)",
            offset_of!(InfoArgument, incarnation),
        ),
        ("flags", "offsetof(struct sf_ioc_info, flags)", offset_of!(InfoArgument, flags)),
        ("poisoned", "offsetof(struct sf_ioc_info, poisoned)", offset_of!(InfoArgument, poisoned)),
        ("bad", "offsetof(struct sf_ioc_scrub_status, bad)", offset_of!(ScrubStatusArgument, bad)),
        (
            "text",
            "offsetof(struct sf_ioc_scrub_status, text)",
            offset_of!(ScrubStatusArgument, text),
        ),
        ("timer", "offsetof(struct sf_ioc_mask, timer_ms)", offset_of!(MaskArgument, timer_ms)),
        ("damaged", "SF_IOC_INFO_SUPERBLOCK_DAMAGED", info_flag::SUPERBLOCK_DAMAGED as usize),
        ("read only", "SF_IOC_INFO_READ_ONLY", info_flag::READ_ONLY as usize),
        ("poisoned flag", "SF_IOC_INFO_POISONED", info_flag::POISONED as usize),
    ];
    for (name, expression, _) in &expressions {
        program += &format!("    printf(\"{name} %lu\\n\", (unsigned long)({expression}));\n");
    }
    program += "    return 0;\n}\n";

    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("numbers.c");
    std::fs::write(&source, program).unwrap();
    let binary = Toolchain::find().compile_plain(&source, directory.path());
    let output = toolchain::run(std::process::Command::new(binary));
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for line in output.lines() {
        let (name, value) = line.rsplit_once(' ').unwrap();
        found.insert(name, value.parse().unwrap());
    }
    let known = [
        ("TRANSACT", ioctl::TRANSACT),
        ("ROLLBACK", ioctl::ROLLBACK),
        ("MASK_GET", ioctl::MASK_GET),
        ("MASK_SET", ioctl::MASK_SET),
        ("INFO", ioctl::INFO),
        ("CHECKPOINT", ioctl::CHECKPOINT),
        ("ATOMIC_BEGIN", ioctl::ATOMIC_BEGIN),
        ("ATOMIC_COMMIT", ioctl::ATOMIC_COMMIT),
        ("ATOMIC_ABORT", ioctl::ATOMIC_ABORT),
        ("ATOMIC_STATUS", ioctl::ATOMIC_STATUS),
        ("GROW", ioctl::GROW),
        ("DEFRAGMENT", ioctl::DEFRAGMENT),
        ("FRAGMENTATION", ioctl::FRAGMENTATION),
        ("LOST_WRITES", ioctl::LOST_WRITES),
        ("LOST_WRITES_NEW", ioctl::LOST_WRITES_NEW),
        ("ACCESS_TIMES", ioctl::ACCESS_TIMES),
        ("SNAPSHOT_CREATE", ioctl::SNAPSHOT_CREATE),
        ("SNAPSHOT_DELETE", ioctl::SNAPSHOT_DELETE),
        ("SNAPSHOT_ROLLBACK", ioctl::SNAPSHOT_ROLLBACK),
        ("SNAPSHOT_LIST", ioctl::SNAPSHOT_LIST),
        ("SNAPSHOT_DIFF", ioctl::SNAPSHOT_DIFF),
        ("SCRUB_START", scrub::START),
        ("SCRUB_STOP", scrub::STOP),
        ("SCRUB_STATUS", scrub::STATUS),
    ];
    for name in &names {
        let value = known.iter().find(|(known, _)| known == name);
        let (_, value) = value.unwrap_or_else(|| panic!("{name} is new: compare it here, too"));
        assert_eq!(found.get(name.as_str()), Some(&(*value as usize)), "{name}");
    }
    for (name, _, value) in expressions {
        assert_eq!(found.get(name), Some(&value), "{name}");
    }
}
