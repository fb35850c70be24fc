//! `steadfast image`, `dump` and `defrag` on images, without root and without a mount.

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use common::{Scratch, failed, succeeded};

/// A directory with an example of every kind of entry that needs no root.
fn sample(scratch: &Scratch, name: &str) {
    let root = scratch.path(name);
    fs::create_dir_all(root.join("etc/deep/er")).unwrap();
    fs::write(root.join("etc/small"), "small").unwrap();
    let large: Vec<u8> = (0..900_000u32).map(|at| (at / 7) as u8).collect();
    fs::write(root.join("large"), large).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(50 << 20).unwrap();
    fs::hard_link(root.join("large"), root.join("etc/another")).unwrap();
    symlink("../etc/small", root.join("etc/link")).unwrap();
    fs::write(root.join(format!("etc/{}", "n".repeat(200))), "long name").unwrap();
    fs::set_permissions(root.join("etc/small"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("etc/deep"), fs::Permissions::from_mode(0o700)).unwrap();
    for (at, path) in ["etc/small", "etc/another", "sparse", "etc/deep/er", "etc/deep", "etc", ""]
        .iter()
        .enumerate()
    {
        let status = Command::new("touch")
            .args(["-h", "-d", &format!("2020-01-0{} 03:04:05.5", at + 1)])
            .arg(root.join(path))
            .status();
        assert!(status.unwrap().success());
    }
}

fn same(a: &Path, b: &Path) {
    assert!(
        fs::read(a).unwrap() == fs::read(b).unwrap(),
        "{} and {} differ",
        a.display(),
        b.display()
    );
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let scratch = Scratch::new();
    sample(&scratch, "one");
    // The copy is made in another order, so that the host may list it in another order.
    let copied =
        Command::new("cp").args(["-a", "one", "two"]).current_dir(scratch.path("")).status();
    assert!(copied.unwrap().success());
    scratch.ok("image build a.img one");
    scratch.ok("image build b.img two");
    same(&scratch.path("a.img"), &scratch.path("b.img"));
    let said = scratch.ok("image build --seed x c.img one");
    assert!(said.contains("image of") && said.contains("entries"), "{said}");
    assert_ne!(scratch.ok("info --get uuid a.img"), scratch.ok("info --get uuid c.img"));
    // The image has its least size: the contents, metadata twice, and a little more. The sparse
    // file takes no space.
    let size = fs::metadata(scratch.path("a.img")).unwrap().len();
    assert!(size < 1_600_000, "{size}");
    assert_eq!(size.to_string(), scratch.ok("info --get size a.img").trim());
    for image in ["a.img", "c.img"] {
        scratch.ok(&format!("check --quiet {image}"));
    }
    let tree = scratch.ok("tree a.img");
    assert!(tree.contains("link -> ../etc/small"), "{tree}");
    // SOURCE_DATE_EPOCH: no time is later, and it is the time at which the image is made.
    for image in ["d.img", "e.img"] {
        fs::set_permissions(scratch.path("one/etc"), fs::Permissions::from_mode(0o755)).unwrap();
        let made = scratch
            .command(&["image", "build", image, "one"])
            .env("SOURCE_DATE_EPOCH", "1000000000")
            .output();
        succeeded(&made.unwrap(), image);
    }
    same(&scratch.path("d.img"), &scratch.path("e.img"));
    let root = scratch.ok("dump d.img inode 1");
    assert!(root.contains("mtime 1000000000.0") && root.contains("created 1000000000.0"), "{root}");
    let bad = scratch
        .command(&["image", "build", "f.img", "one"])
        .env("SOURCE_DATE_EPOCH", "soon")
        .output();
    failed(&bad.unwrap(), 2, "a bad epoch");
    assert!(!scratch.path("f.img").exists() && !scratch.path("f.img.partial").exists());
}

#[test]
fn directory_and_archive_round_trips() {
    let scratch = Scratch::new();
    sample(&scratch, "one");
    scratch.ok("image build a.img one --owner 7:8 -L sample");
    scratch.ok("image extract a.img out");
    let listing = |root: &str| {
        let found = Command::new("find")
            .args([".", "-printf", "%P %y %m %s %l %n %T@\\n"])
            .current_dir(scratch.path(root))
            .output()
            .unwrap();
        let mut lines: Vec<String> =
            String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect();
        // The sizes of directories depend on the host.
        lines.iter_mut().filter(|line| line.contains(" d ")).for_each(|line| {
            *line = line
                .split(' ')
                .enumerate()
                .filter(|(at, _)| *at != 3)
                .map(|(_, word)| word)
                .collect::<Vec<_>>()
                .join(" ");
        });
        lines.sort();
        lines
    };
    assert_eq!(listing("one"), listing("out"));
    same(&scratch.path("one/large"), &scratch.path("out/large"));
    let (a, b) =
        (fs::metadata(scratch.path("out/large")), fs::metadata(scratch.path("out/etc/another")));
    assert_eq!(a.unwrap().ino(), b.unwrap().ino());
    assert!(fs::metadata(scratch.path("out/sparse")).unwrap().blocks() < 100);
    // A round trip through an archive of `image extract`: nothing differs.
    scratch.ok("image extract --tar a.img a.tar");
    scratch.ok("image build b.img a.tar -L sample");
    assert_eq!(scratch.ok("image diff a.img b.img"), "");
    same(&scratch.path("a.img"), &scratch.path("b.img"));
    let listed = Command::new("tar")
        .args(["-tvf", "a.tar", "--numeric-owner"])
        .current_dir(scratch.path(""))
        .output()
        .unwrap();
    let listed = succeeded(&listed, "tar -t");
    assert!(
        listed.contains("7/8") && listed.contains("link to") && listed.contains(&"n".repeat(200)),
        "{listed}"
    );
    // Archives of other programs, compressed, from a pipe.
    let shell = |script: &str| {
        let status = Command::new("sh").args(["-c", script]).current_dir(scratch.path("")).status();
        assert!(status.unwrap().success(), "{script}");
    };
    shell(
        "tar -C one --owner=7 --group=8 --numeric-owner --format=pax -cf gnu.tar . && gzip -k gnu.tar",
    );
    scratch.ok("image build c.img gnu.tar.gz -L sample");
    assert_eq!(scratch.ok("image diff a.img c.img"), "");
    let piped = scratch.with_input(
        "image build d.img - -L sample",
        &fs::read(scratch.path("gnu.tar.gz")).unwrap(),
    );
    succeeded(&piped, "from a pipe");
    same(&scratch.path("c.img"), &scratch.path("d.img"));
    for (program, name) in [("zstd", "zst"), ("xz", "xz")] {
        if Command::new(program).arg("--version").output().is_ok() {
            shell(&format!("{program} -q -k -c gnu.tar >gnu.tar.{name}"));
            scratch.ok(&format!("image build {name}.img gnu.tar.{name} -L sample"));
            same(&scratch.path("c.img"), &scratch.path(&format!("{name}.img")));
        }
    }
}

#[test]
fn manifests_describe_what_the_host_cannot_have() {
    let scratch = Scratch::new();
    sample(&scratch, "one");
    scratch.write("motd.txt", b"hello\n");
    scratch.write(
        "manifest",
        b"# comment\n\n/ d 0755 0 0\n/dev/console c 0600 0 5 device=5:1\n/dev/sda b 0660 0 6 device=8:0\n\
          /etc/motd f 0644 0 0 from=motd.txt mtime=1700000000 xattr.user.note=a%20b\n/run/pipe p 0622 1 1\n\
          /bin/sh l 0777 0 0 target=busybox\n/etc/motd2 h - - - target=/etc/motd\n/etc/small = 4755 0 -\n",
    );
    scratch.ok("image build a.img one --manifest manifest --owner 7:8");
    scratch.ok("check --quiet a.img");
    let json: serde_json::Value = serde_json::from_str(&scratch.ok("tree --json a.img")).unwrap();
    let find = |name: &str| {
        json.as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["name"] == name)
            .unwrap_or_else(|| panic!("{name}"))
            .clone()
    };
    assert_eq!(
        (find("etc/small")["uid"].as_u64(), find("etc/small")["gid"].as_u64()),
        (Some(0), Some(8))
    );
    assert_eq!(find("etc/motd2")["links"].as_u64(), Some(2));
    assert_eq!(scratch.ok("cat a.img /etc/motd2"), "hello\n");
    let text = format!("{:?}", find("dev/console"));
    assert!(text.contains("5:1"), "{text}");
    // A source that is only a manifest; the archive keeps all of it.
    scratch.write("whole", b"/a/b f 0600 1 2 text=x\n/a/c f 0600 1 2 size=1M\n");
    scratch.ok("image build b.img --manifest whole --size 4M --force");
    assert_eq!(scratch.ok("cat b.img /a/b"), "x");
    failed(&scratch.line("image build c.img --manifest missing"), 1, "no manifest");
    scratch.write("bad", b"/x d 0755 0 0\n/y q 0 0 0\n");
    let line = scratch.fails(1, "image build c.img --manifest bad");
    assert!(line.contains("bad line 2") && line.contains("'q' is no type"), "{line}");
    assert!(!scratch.path("c.img").exists());
}

#[test]
fn sizes() {
    let scratch = Scratch::new();
    sample(&scratch, "one");
    scratch.ok("image build a.img one");
    let least = fs::metadata(scratch.path("a.img")).unwrap().len();
    scratch.ok("image build free.img one --free 8M");
    let roomy = fs::metadata(scratch.path("free.img")).unwrap().len();
    assert!(roomy >= least + (8 << 20) && roomy < least + (9 << 20), "{roomy} {least}");
    scratch.ok("image build b.img one --size 16M");
    assert_eq!(scratch.ok("info --get size b.img"), "16777216\n");
    assert_eq!(scratch.ok("image diff a.img b.img"), "");
    // Smaller and larger; all contents stay the same.
    let said = scratch.ok("image resize b.img 8M");
    assert!(said.contains("it was"), "{said}");
    assert_eq!(fs::metadata(scratch.path("b.img")).unwrap().len(), 8 << 20);
    scratch.ok("image resize b.img --least");
    let small = fs::metadata(scratch.path("b.img")).unwrap().len();
    assert!(small < least + (1 << 20), "{small} {least}");
    scratch.ok("image resize b.img +20M");
    assert_eq!(fs::metadata(scratch.path("b.img")).unwrap().len(), small + (20 << 20));
    scratch.ok("check --quiet b.img");
    assert_eq!(scratch.ok("image diff a.img b.img"), "");
    let line = scratch.fails(6, &format!("image resize b.img {}", small - (64 << 10)));
    assert!(line.contains("does not fit") && line.contains("nothing was changed"), "{line}");
    scratch.fails(6, "image resize b.img 1000");
    scratch.fails(2, "image resize b.img");
    scratch.fails(2, "image resize b.img -- -100G");
    scratch.fails(2, "image resize b.img much");
    scratch.fails(1, "image resize missing.img 1M");
    scratch.ok("check --quiet b.img");
    // More does not fit, and no file is left behind.
    let line = scratch.fails(6, "image build c.img one --size 600K");
    assert!(line.contains("larger --size"), "{line}");
    assert!(!scratch.path("c.img").exists() && !scratch.path("c.img.partial").exists());
    // Blocks smaller than sectors.
    scratch.ok("image build tiny.img one -b 256 --node-size 1K");
    scratch.ok("check --quiet tiny.img");
    assert_eq!(scratch.ok("image diff a.img tiny.img"), "");
}

#[test]
fn differences() {
    let scratch = Scratch::new();
    sample(&scratch, "one");
    scratch.ok("image build a.img one --free 1M");
    fs::copy(scratch.path("a.img"), scratch.path("b.img")).unwrap();
    scratch.ok("rm b.img /sparse");
    let put = scratch.with_input("put b.img - /new", b"x");
    succeeded(&put, "put");
    let put = scratch.with_input("put b.img - /etc/small", b"SMALL");
    succeeded(&put, "put");
    let found = scratch.ok("image diff --no-times a.img b.img");
    assert_eq!(found, "* /etc/small  (data)\n+ /new\n- /sparse\n");
    let with_times = scratch.line("image diff --exit-code a.img b.img");
    assert_eq!(with_times.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&with_times.stdout).contains("* /  (mtime)"));
    let json: serde_json::Value =
        serde_json::from_str(&scratch.ok("image diff --json --no-times a.img b.img")).unwrap();
    assert_eq!(json[0]["what"][0], "data");
    assert_eq!(scratch.line("image diff --exit-code a.img a.img").status.code(), Some(0));
    scratch.fails(1, "image diff a.img missing.img");
}

#[test]
fn refusals() {
    let scratch = Scratch::new();
    sample(&scratch, "one");
    scratch.ok("image build a.img one");
    let line = scratch.fails(5, "image build a.img one");
    assert!(line.contains("--force"), "{line}");
    scratch.ok("image build --force a.img one");
    scratch.fails(2, "image build b.img");
    scratch.fails(1, "image build b.img no-such-source");
    scratch.fails(2, "image build one one");
    scratch.write("no.tar", &[7; 2000]);
    let line = scratch.fails(1, "image build b.img no.tar");
    assert!(line.contains("not a readable tar archive"), "{line}");
    scratch.write("no.tar.gz", &[0x1f, 0x8b, 1, 2, 3, 4, 5]);
    assert!(scratch.fails(1, "image build b.img no.tar.gz").contains("cannot unpack"));
    let evil = Command::new("tar")
        .args(["-cf", "evil.tar", "--transform", "s,^,../,", "-P", "one/etc/small"])
        .current_dir(scratch.path(""))
        .status();
    assert!(evil.unwrap().success());
    assert!(scratch.fails(1, "image build b.img evil.tar").contains("cannot be a path"));
    scratch.fails(1, "image extract a.img one");
    scratch.fails(3, "image extract one/large out");
    scratch.fails(1, "image extract --tar a.img missing/out.tar");
    assert!(!scratch.path("b.img").exists());
}

#[test]
fn dumps() {
    let scratch = Scratch::new();
    sample(&scratch, "one");
    scratch.ok("image build a.img one --label shown");
    let text = scratch.ok("dump a.img superblock");
    assert!(text.contains("both copies") && text.contains("shown"), "{text}");
    assert!(scratch.ok("dump a.img metaroot").contains("(the checkpointed state)"));
    let tree = scratch.ok("dump a.img tree");
    let block = tree.split("blocks ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(scratch.ok(&format!("dump a.img node {block}")).contains("items"));
    assert!(scratch.ok("dump a.img inode 1").contains("Directory"));
    assert!(scratch.ok("dump a.img key 1 inode 0").starts_with("1/Inode/0x0: Directory"));
    assert!(scratch.ok("dump a.img key 0 group 0x0").contains("in use"));
    scratch.ok("dump a.img log");
    scratch.fails(1, "dump a.img node 0");
    scratch.fails(1, "dump a.img inode 99999");
    scratch.fails(1, "dump a.img key 1 inode 7");
    scratch.fails(1, "dump a.img log 99999");
    scratch.fails(2, "dump a.img key 1 nonsense 0");
    scratch.fails(2, "dump a.img");
    scratch.fails(3, "dump one/large superblock");
}

#[test]
fn defragments_an_image() {
    let scratch = Scratch::new();
    scratch.volume("32M");
    // Two files that grow in turns are fragmented.
    {
        let medium =
            steadfast_host::FileMedium::open(scratch.path("disk.img"), &Default::default())
                .unwrap();
        let volume = steadfast::Volume::open(
            medium,
            Default::default(),
            steadfast_host::HostPlatform::new(),
        )
        .unwrap();
        let files: Vec<_> = ["/a", "/b"]
            .iter()
            .map(|name| {
                volume.file_write_all(name, b"").unwrap();
                volume.resolve(name, true).unwrap().inode
            })
            .collect();
        for piece in 0..60u64 {
            for inode in &files {
                volume.write(*inode, piece * 20_000, &[piece as u8; 20_000], false).unwrap();
            }
        }
        volume.close().unwrap();
    }
    let before = (scratch.ok("cat disk.img /a"), scratch.ok("dump disk.img inode 16"));
    let json =
        |line: &str| -> serde_json::Value { serde_json::from_str(&scratch.ok(line)).unwrap() };
    let found = json("defrag --dry-run --json disk.img");
    assert!(found["runs_before"].as_u64().unwrap() > 20, "{found}");
    let done = json("defrag --json disk.img");
    assert!(done["runs_after"].as_u64().unwrap() <= 6, "{done}");
    assert_eq!(scratch.ok("cat disk.img /a"), before.0);
    scratch.ok("check --quiet disk.img");
    // Times are unchanged.
    let inode =
        |dump: &str| dump.lines().next().unwrap().split(" atime").nth(1).unwrap().to_owned();
    assert_eq!(inode(&scratch.ok("dump disk.img inode 16")), inode(&before.1));
    assert!(scratch.ok("defrag disk.img /a").contains("1 files"));
    scratch.fails(1, "defrag disk.img /missing");
}

/// Copies in both directions, images and what is unpacked from them take no room for holes.
#[test]
fn holes_stay_holes() {
    const LENGTH: u64 = 32 << 20;
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("source")).unwrap();
    let file = fs::File::create(scratch.path("source/s")).unwrap();
    file.set_len(LENGTH).unwrap();
    file.write_all_at(b"middle", LENGTH / 2 - 3).unwrap();
    let contents = fs::read(scratch.path("source/s")).unwrap();
    for line in [
        "image build --size 64M a.img source",
        "image build --size 64M again.img source",
        "image extract a.img unpacked",
        "get a.img /s got",
        "mkfs --size 64M put.img",
        "put put.img source/s /s",
        "get put.img /s put",
        "image extract --tar a.img a.tar",
        "image build --size 64M tar.img a.tar",
        "get tar.img /s from-tar",
    ] {
        scratch.ok(line);
    }
    assert!(
        fs::read(scratch.path("a.img")).unwrap() == fs::read(scratch.path("again.img")).unwrap()
    );
    for name in ["unpacked/s", "got", "put", "from-tar"] {
        assert!(fs::read(scratch.path(name)).unwrap() == contents, "{name}");
    }
    for name in ["unpacked/s", "got", "put", "from-tar", "a.img", "put.img", "tar.img"] {
        let room = fs::metadata(scratch.path(name)).unwrap().blocks() * 512;
        assert!(room < 1 << 20, "{name} takes {room} bytes");
    }
}
