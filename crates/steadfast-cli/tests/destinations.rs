//! Destinations of commands: files appear only when complete, objects other than files are not
//! replaced, and an interrupted command leaves nothing.

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{STEADFAST, Scratch, can_mount, failed, is_root, signal, wait_for};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use steadfast::fs::SetAttributes;
use steadfast::{OpenOptions, Volume};
use steadfast_host::{FileMedium, FileOptions, HostPlatform};

/// `disk.img` with `/file` and 3 MB in `/large`; `source` with the same.
fn sample() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("source")).unwrap();
    fs::write(scratch.path("source/file"), "contents").unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    fs::write(scratch.path("source/large"), large).unwrap();
    scratch.ok("image build --quiet disk.img source");
    scratch
}

/// Names of the unfinished files of a command.
fn unfinished(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".steadfast-")).collect()
}

/// Size of the largest unfinished file.
fn size_of_unfinished(directory: &Path) -> u64 {
    // A small one may have got its name by now.
    let size = |name: &String| fs::metadata(directory.join(name)).map_or(0, |found| found.len());
    unfinished(directory).iter().map(size).max().unwrap_or(0)
}

/// Every command that writes one file, with `DEST` for its path.
const WRITERS: [&str; 3] =
    ["image extract --tar disk.img DEST", "get disk.img /file DEST", "map --svg DEST disk.img"];

#[test]
fn a_device_is_written_into_and_stays_one() {
    let scratch = sample();
    let device = scratch.path("node");
    if mknodat(CWD, &device, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(1, 3))
        .is_err()
    {
        eprintln!("skipped: making a device needs root");
        return;
    }
    symlink("node", scratch.path("link")).unwrap();
    for writer in WRITERS {
        for name in ["node", "link"] {
            scratch.ok(&writer.replace("DEST", name));
            let metadata = fs::symlink_metadata(&device).unwrap();
            assert!(metadata.file_type().is_char_device(), "{writer}");
            assert_eq!(metadata.rdev(), makedev(1, 3), "{writer}");
            assert!(fs::symlink_metadata(scratch.path("link")).unwrap().is_symlink(), "{writer}");
        }
    }
    // An image can only be made in a file, and a name from an image never replaces a device.
    scratch.fails(2, "image build node source");
    let line = scratch.fails(2, "image build - source");
    assert!(line.contains("'./-'") && !scratch.path("-").exists(), "{line}");
    scratch.fails(2, "image build --force link source");
    fs::create_dir(scratch.path("into")).unwrap();
    let made = mknodat(
        CWD,
        scratch.path("into/file"),
        FileType::CharacterDevice,
        Mode::RUSR | Mode::WUSR,
        makedev(1, 3),
    );
    made.unwrap();
    let line = scratch.fails(1, "get -r disk.img / into");
    assert!(line.contains("a device, FIFO or socket is in the way"), "{line}");
    assert!(fs::metadata(scratch.path("into/file")).unwrap().file_type().is_char_device());
    assert_eq!(unfinished(&scratch.path("")), [""; 0]);
}

#[test]
fn a_pipe_takes_what_is_written() {
    let scratch = sample();
    let fifo = scratch.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for (writer, mark) in
        [(WRITERS[0], &b"ustar"[..]), (WRITERS[1], b"contents"), (WRITERS[2], b"<svg")]
    {
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || {
                let mut bytes = Vec::new();
                fs::File::open(fifo).unwrap().read_to_end(&mut bytes).unwrap();
                bytes
            }
        });
        scratch.ok(&writer.replace("DEST", "fifo"));
        let found = reader.join().unwrap();
        assert!(
            found.windows(mark.len()).any(|window| window == mark),
            "{writer}: {} bytes",
            found.len()
        );
        assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo(), "{writer}");
    }
    // Standard output by name, in the middle of a file that other commands write too.
    let script = "(echo before; $0 get disk.img /file /dev/stdout; echo; echo after) >out";
    let status = Command::new("sh")
        .args(["-c", script, common::STEADFAST])
        .current_dir(scratch.path(""))
        .status();
    assert!(status.unwrap().success());
    assert_eq!(fs::read_to_string(scratch.path("out")).unwrap(), "before\ncontents\nafter\n");
}

#[test]
fn a_link_stays_one_and_what_is_replaced_keeps_owner_and_permissions() {
    let scratch = sample();
    symlink("target", scratch.path("link")).unwrap();
    let writers = ["image build --quiet --force DEST source", WRITERS[0], WRITERS[1], WRITERS[2]];
    for writer in writers {
        for mode in [None, Some(0o640), Some(0o604)] {
            let target = scratch.path("target");
            match mode {
                // The destination does not exist.
                None => drop(fs::remove_file(&target)),
                Some(mode) => {
                    fs::set_permissions(&target, fs::Permissions::from_mode(mode)).unwrap();
                    if is_root() {
                        chown(&target, Some(77), Some(78)).unwrap();
                    }
                }
            }
            scratch.ok(&writer.replace("DEST", "link"));
            assert!(fs::symlink_metadata(scratch.path("link")).unwrap().is_symlink(), "{writer}");
            let metadata = fs::symlink_metadata(&target).unwrap();
            assert!(metadata.is_file() && metadata.len() > 0, "{writer}");
            if let Some(mode) = mode {
                assert_eq!(metadata.mode() & 0o7777, mode, "{writer}");
                assert!(!is_root() || (metadata.uid(), metadata.gid()) == (77, 78), "{writer}");
            }
        }
    }
    assert_eq!(unfinished(&scratch.path("")), [""; 0]);
}

/// A mounted image keeps its name: what is written to the mount later is in the image.
#[test]
fn a_mounted_image_is_not_replaced() {
    if !can_mount() {
        return;
    }
    let scratch = sample();
    fs::create_dir(scratch.path("images")).unwrap();
    scratch.ok("mkfs --size 16M images/file");
    fs::create_dir(scratch.path("mnt")).unwrap();
    symlink("images/file", scratch.path("link")).unwrap();
    // A volume with a link of the image's name.
    fs::create_dir(scratch.path("links")).unwrap();
    symlink("elsewhere", scratch.path("links/file")).unwrap();
    scratch.ok("image build --quiet links.img links");
    let mut writers = Vec::from_iter(WRITERS.map(|writer| writer.replace("DEST", "images/file")));
    writers.push(WRITERS[1].replace("DEST", "link"));
    writers.push("image build --quiet --force images/file source".to_owned());
    writers.push("get -r disk.img / images".to_owned());
    writers.push("get -r links.img / images".to_owned());
    let inode = fs::metadata(scratch.path("images/file")).unwrap().ino();
    for options in ["", "-o ro "] {
        scratch.ok(&format!("mount {options}images/file mnt"));
        for writer in &writers {
            let line = scratch.fails(5, writer);
            assert!(line.contains("the image is in use by process"), "{writer}: {line}");
        }
        if options.is_empty() {
            fs::write(scratch.path("mnt/kept"), "kept").unwrap();
        }
        scratch.ok("umount mnt");
        scratch.ok("get images/file /kept kept");
    }
    assert_eq!(fs::read_to_string(scratch.path("kept")).unwrap(), "kept");
    assert_eq!(fs::metadata(scratch.path("images/file")).unwrap().ino(), inode);
    assert_eq!(unfinished(&scratch.path("")), [""; 0]);
    assert_eq!(unfinished(&scratch.path("images")), [""; 0]);
    for writer in &writers {
        scratch.ok(writer);
    }
}

#[test]
fn what_holds_the_files_of_all_users_is_for_its_owner() {
    let scratch = sample();
    scratch.ok("mkfs --size 1M new.img");
    scratch.ok("image extract --tar disk.img out.tar");
    scratch.ok("image build --quiet --nand slc-1gbit nand.bin source");
    for name in ["disk.img", "new.img", "out.tar", "nand.bin"] {
        let mode = fs::metadata(scratch.path(name)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
}

#[test]
fn links_in_the_way_of_a_tree_are_replaced_and_not_followed() {
    let scratch = sample();
    scratch.write("precious", b"precious");
    fs::create_dir(scratch.path("into")).unwrap();
    symlink("../precious", scratch.path("into/file")).unwrap();
    scratch.ok("get -r disk.img / into");
    assert_eq!(fs::read(scratch.path("precious")).unwrap(), b"precious");
    assert_eq!(fs::read(scratch.path("into/file")).unwrap(), b"contents");
}

/// A small file system that is soon full.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: &Path, size: &str) -> Option<Small> {
        fs::create_dir(at).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "steadfast-test"]).arg(at);
        let mounted = command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then(|| Small(at.to_owned()))
    }

    fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        let status = Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_leaves_nothing_and_the_same_command_works_later() {
    let scratch = sample();
    let Some(small) = Small::mount(&scratch.path("small"), "1M") else {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    };
    let commands = [
        "image build --quiet small/disk.img source",
        "image extract --tar disk.img small/out.tar",
        "image extract disk.img small/out",
        "get disk.img /large small/large",
    ];
    for command in commands {
        let line = failed(&scratch.line(command), 6, command);
        assert!(line.contains("make room on the host's file system"), "{command}: {line}");
        assert!(line.contains("small/") && !line.contains(".steadfast-"), "{command}: {line}");
        assert_eq!(fs::read_dir(&small.0).unwrap().count(), 0, "{command}");
    }
    small.grow("64M");
    for command in commands {
        scratch.ok(command);
    }
    scratch.ok("check --quiet small/disk.img");
    assert_eq!(
        fs::read(scratch.path("small/out/large")).unwrap(),
        fs::read(scratch.path("small/large")).unwrap()
    );
    assert_eq!(unfinished(&small.0), [""; 0]);
}

/// A command that takes long; killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(scratch: &Scratch, line: &str) -> Running {
        // A test in the background of a shell inherits an ignored SIGINT, and so would the command.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,TERM", STEADFAST]).args(line.split(' '));
        command.current_dir(scratch.path("")).stdin(Stdio::null());
        Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Ends it with Ctrl-C or SIGTERM; returns the one line that it says.
    fn end(mut self, name: &str) -> String {
        let (short, number) = if name == "Ctrl-C" { ("INT", 2) } else { ("TERM", 15) };
        signal(short, self.0.id());
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(self.0.wait().unwrap().signal(), Some(number), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupted_command_leaves_nothing_and_says_so() {
    let scratch = sample();
    // Reading this hole takes long.
    fs::File::create(scratch.path("source/hole")).unwrap().set_len(1 << 40).unwrap();
    scratch.ok("mkfs --size 16M big.img");
    {
        let medium = FileMedium::open(scratch.path("big.img"), &FileOptions::default()).unwrap();
        let volume = Volume::open(medium, OpenOptions::default(), HostPlatform::new()).unwrap();
        volume.file_write_all("/hole", b"x").unwrap();
        let inode = volume.resolve("/hole", true).unwrap().inode;
        let size = SetAttributes { size: Some(1 << 40), ..SetAttributes::default() };
        volume.set_attributes(inode, &size).unwrap();
        volume.close().unwrap();
    }
    // Making so many files takes long.
    fs::create_dir(scratch.path("many")).unwrap();
    for number in 0..4000 {
        fs::write(scratch.path(&format!("many/{number}")), "").unwrap();
    }
    scratch.ok("image build --quiet many.img many");
    let before = fs::read_dir(scratch.path("")).unwrap().count();
    for (line, name) in [
        ("image extract many.img out", "Ctrl-C"),
        ("image build disk2.img source --size 16M", "Ctrl-C"),
        ("image extract --tar big.img out.tar", "Ctrl-C"),
        ("image extract --tar big.img out.tar", "SIGTERM"),
    ] {
        let command = Running::start(&scratch, line);
        let out = scratch.path("out");
        wait_for("something unfinished", || {
            !unfinished(&scratch.path("")).is_empty()
                || out.exists() && !unfinished(&out).is_empty()
        });
        let said = command.end(name);
        assert!(
            said.contains(&format!("interrupted by {name}, nothing is left half done")),
            "{line}: {said}"
        );
        assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), before, "{line}");
    }
    // The same command, which now runs to its end.
    fs::remove_file(scratch.path("source/hole")).unwrap();
    scratch.ok("image build --quiet disk2.img source");
    scratch.ok("check --quiet disk2.img");
}

#[test]
fn an_interrupted_get_leaves_whole_files_and_runs_again() {
    const MIB: u64 = 1 << 20;
    const FILES: [&str; 3] = ["a", "b", "c"];
    let scratch = Scratch::new();
    scratch.volume("64M");
    let with_volume = |change: &dyn Fn(&Volume<FileMedium, HostPlatform>)| {
        let medium = FileMedium::open(scratch.path("disk.img"), &FileOptions::default()).unwrap();
        let volume = Volume::open(medium, OpenOptions::default(), HostPlatform::new()).unwrap();
        change(&volume);
        volume.close().unwrap();
    };
    let block: Vec<u8> = (0..MIB as u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    with_volume(&|volume| {
        volume.create_directory_all("/tree").unwrap();
        for name in FILES {
            volume.file_write_all(format!("/tree/{name}"), name.as_bytes()).unwrap();
        }
        volume.file_write_all("/tree/long", &block).unwrap();
        let long = volume.resolve("/tree/long", true).unwrap().inode;
        // Copying takes long: 16 GiB that share one MiB.
        for doubled in 0..14 {
            let length = MIB << doubled;
            volume.clone_range(long, 0, long, length, length).unwrap();
        }
    });
    scratch.write("old", b"old");
    let before = fs::read_dir(scratch.path("")).unwrap().count();
    for (name, to) in [("Ctrl-C", "new"), ("Ctrl-C", "old"), ("SIGTERM", "new")] {
        let command = Running::start(&scratch, &format!("get disk.img /tree/long {to}"));
        wait_for("something unfinished", || !unfinished(&scratch.path("")).is_empty());
        let said = command.end(name);
        let expected = format!("interrupted by {name}, nothing is left half done: {to}: ");
        assert!(said.contains(&expected), "{said}");
        assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), before);
        assert_eq!(fs::read(scratch.path("old")).unwrap(), b"old");
    }
    // A directory that the command makes is one to copy into for the next command.
    fs::create_dir(scratch.path("into")).unwrap();
    let trees = [
        ("get -r disk.img /tree out", "out", "remove it and run the command again"),
        ("get -r disk.img /tree into", "into/tree", "run it again"),
    ];
    for (line, to, advice) in trees {
        let command = Running::start(&scratch, line);
        let tree = scratch.path(to);
        wait_for("the long file", || tree.exists() && size_of_unfinished(&tree) >= MIB);
        let said = command.end("Ctrl-C");
        let expected = "interrupted by Ctrl-C, what was copied so far stays, each file whole";
        assert!(said.ends_with(&format!("{expected}: {to}: {advice}\n")), "{said}");
        // Which files come before the long one depends on the volume's hash key.
        for entry in fs::read_dir(&tree).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(FILES.contains(&&*name), "{name}");
            assert_eq!(fs::read_to_string(tree.join(&name)).unwrap(), name);
        }
    }

    // The same commands, which now run to their end.
    with_volume(&|volume| {
        let long = volume.resolve("/tree/long", true).unwrap().inode;
        let size = SetAttributes { size: Some(MIB), ..SetAttributes::default() };
        volume.set_attributes(long, &size).unwrap();
    });
    scratch.ok("get disk.img /tree/long old");
    assert!(fs::read(scratch.path("old")).unwrap() == block);
    fs::remove_dir_all(scratch.path("out")).unwrap();
    for (line, to, _) in trees {
        scratch.ok(line);
        let tree = scratch.path(to);
        for name in FILES {
            assert_eq!(fs::read_to_string(tree.join(name)).unwrap(), name);
        }
        assert!(fs::read(tree.join("long")).unwrap() == block);
        assert_eq!(unfinished(&tree), [""; 0]);
    }
}
