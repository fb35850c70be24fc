//! Memory runs out at the n-th allocation of the core, for every n of every kind of operation.
//!
//! The allocator of this program refuses one allocation of the thread that has armed it, or that
//! allocation and all later ones. The medium's own memory is not the core's and does not count. An
//! allocation whose failure the core cannot report ends the process, so the test runs itself as a
//! child. The child tries one n after the other until it ends. The parent counts that and starts
//! the next child after it.
//!
//! Rules for each n, compared with the same run with unlimited memory:
//! - the operation fails with `OutOfMemory`, or succeeds all the same;
//! - a failed operation has changed nothing, or it is an operation that works in steps and has done
//!   some of them;
//! - a power cut at that moment leaves the last acknowledged transaction point, or the one that was
//!   in flight;
//! - a repeated operation succeeds, and the volume is as if it had never failed; `check` is clean,
//!   also after a remount;
//! - the volume stays writable. The exception is a rollback that fails in the middle of the tree:
//!   then nothing is shown, the volume reports why, and another rollback succeeds.
//!
//! With `STEADFAST_OOM_WHERE=1` the test reports where the core was when a process ended or a
//! volume became read-only.

mod allocator;
mod operations;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;

use allocator::{Chip, Refuse, scarce};
use operations::{Kind, OPERATIONS, idle};
use steadfast::check::{CheckOptions, check};
use steadfast::testing::TestPlatform;
use steadfast::{Error, FormatOptions, OpenOptions, Volume};
use steadfast_media::MemoryMedium;

/// Start of a child: operation and allocation.
const FROM: &str = "STEADFAST_OOM_FROM";
/// Distance between refused allocations.
const STRIDE: &str = "STEADFAST_OOM_STRIDE";
/// Report the place in the core.
const WHERE: &str = "STEADFAST_OOM_WHERE";

type Device<'a> = Volume<&'a Chip, TestPlatform>;

/// Everything that can be seen, except times.
type Picture = BTreeMap<String, Vec<u8>>;

fn picture(volume: &Device<'_>) -> Picture {
    let mut picture = Picture::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for entry in volume.directory_entries(format!("{directory}/")).expect("readdir") {
            let path = format!("{directory}/{}", String::from_utf8_lossy(&entry.name));
            let found = volume.resolve(&path, false).expect("resolve");
            let mut text =
                format!("{:o} {} {} {}", found.mode(), found.links, found.size, found.allocated)
                    .into_bytes();
            if found.mode() & 0o170_000 == 0o040_000 {
                directories.push(path.clone());
            } else if found.mode() & 0o170_000 == 0o100_000 {
                text.extend(volume.file_read_all(&path).expect("read"));
            }
            for name in volume.list_xattrs(found.inode).expect("attributes") {
                text.extend(volume.xattr(found.inode, &name).expect("attribute"));
                text.extend(name);
            }
            picture.insert(path, text);
        }
    }
    for snapshot in volume.snapshots().expect("snapshots") {
        picture.insert(snapshot.name, Vec::new());
    }
    picture
}

fn open_options() -> OpenOptions {
    OpenOptions { cache_size: 24 << 10, ..OpenOptions::default() }
}

fn open(chip: &Chip) -> Device<'_> {
    Volume::open(chip, open_options(), TestPlatform::new()).expect("open")
}

/// The state that a power cut now leaves.
fn after_a_cut(chip: &Chip) -> Picture {
    picture(&open(&Chip(chip.0.clone())))
}

/// Four directories with a few dozen files of all sizes: a tree of several levels.
fn filled() -> Chip {
    let chip = Chip(MemoryMedium::new(512 << 10, 512).expect("geometry"));
    let options =
        FormatOptions { block_size: 512, log_size: Some(16 << 10), ..FormatOptions::default() };
    Volume::format(&&chip, &options, &TestPlatform::new()).expect("format");
    let volume = open(&chip);
    for directory in 0..4 {
        volume.create_directory_all(format!("/d{directory}")).expect("mkdir");
    }
    for file in 0..28_usize {
        let data = vec![file as u8; file * 7919 % 6000];
        volume.file_write_all(format!("/d{}/f{file}", file % 4), &data).expect("write");
    }
    idle(&volume).expect("background");
    volume.close().expect("close");
    drop(volume);
    chip
}

/// Number of operations that run on the same open volume before the one with the fault. So parts of
/// the state are in memory and parts in the log.
const WARM: usize = 4;

/// One operation, the state before it and the state after it.
struct Case {
    index: usize,
    /// The medium before the warm-up operations.
    image: MemoryMedium,
    before: Picture,
    after: Picture,
    /// States that a power cut leaves before and after it.
    cuts: [Picture; 2],
}

impl Case {
    /// `images`: the medium before each operation.
    fn new(images: &[MemoryMedium], index: usize) -> Case {
        let image = images[index.saturating_sub(WARM)].clone();
        let chip = Chip(image.clone());
        let volume = open(&chip);
        Self::warm_up(&volume, index);
        let before = picture(&volume);
        let cut = after_a_cut(&chip);
        (OPERATIONS[index].run)(&volume).expect(OPERATIONS[index].name);
        let after = picture(&volume);
        Case { index, image, before, after, cuts: [cut, after_a_cut(&chip)] }
    }

    fn warm_up(volume: &Device<'_>, index: usize) {
        for operation in &OPERATIONS[index.saturating_sub(WARM)..index] {
            (operation.run)(volume).expect(operation.name);
        }
    }

    /// One run with the allocation after `granted` others refused; `false` if the operation makes
    /// fewer allocations.
    fn run(&self, refuse: Refuse, granted: u64, report: &mut dyn FnMut(&str)) -> bool {
        let operation = &OPERATIONS[self.index];
        let what = format!("{}, {refuse:?}, allocation {granted}", operation.name);
        let chip = Chip(self.image.clone());
        let volume = open(&chip);
        Self::warm_up(&volume, self.index);
        let (result, refused) = scarce(granted, refuse, || (operation.run)(&volume));
        if !refused {
            result.unwrap_or_else(|error| panic!("{what}: {error}"));
            return false;
        }
        if let Some(why) = volume.info().poisoned {
            // Durable changes are safe, and opening the volume again succeeds.
            report(why);
            let cut = after_a_cut(&chip);
            assert!(self.is_point(&cut), "{what}: {why}: lost");
            clean(&chip, &what);
            assert!(operation.kind == Kind::Back, "{what}: read-only: {why}");
            volume.rollback().unwrap_or_else(|error| panic!("{what}: rolled back: {error}"));
            let now = picture(&volume);
            assert!(now == cut, "{what}: {why}: rolled back: {}", differs(&now, &cut));
            return true;
        }
        let now = picture(&volume);
        match result {
            Ok(()) => {
                assert!(now == self.after, "{what}: succeeded, but {}", differs(&now, &self.after))
            }
            Err(Error::OutOfMemory) => {
                let whole = now == self.before || now == self.after;
                let ok = whole || operation.kind != Kind::Whole;
                assert!(ok, "{what}: refused, but {}", differs(&now, &self.before));
            }
            Err(error) => panic!("{what}: {error}"),
        }
        let cut = after_a_cut(&chip);
        assert!(
            self.is_point(&cut) || cut == now,
            "{what}: after a power cut {}",
            differs(&cut, &self.cuts[0])
        );
        if result.is_err() && granted % 3 == 1 {
            let back = if volume.is_held() {
                volume.resume().and_then(|mut open| open.roll_back())
            } else {
                volume.rollback()
            };
            back.unwrap_or_else(|error| panic!("{what}: rolled back: {error}"));
            let now = picture(&volume);
            assert!(now == cut, "{what}: rolled back: {}", differs(&now, &cut));
            self.end(&chip, volume, &what);
            assert!(
                picture(&open(&chip)) == cut,
                "{what}: rolled back: another volume after a remount"
            );
            return true;
        }
        (operation.run)(&volume).unwrap_or_else(|error| panic!("{what}: again: {error}"));
        let again = picture(&volume);
        assert!(again == self.after, "{what}: again: {}", differs(&again, &self.after));
        self.end(&chip, volume, &what);
        assert!(picture(&open(&chip)) == self.after, "{what}: another volume after a remount");
        true
    }

    /// Whether a power cut may leave this state: the last point before the operation, or one that
    /// it sets.
    fn is_point(&self, cut: &Picture) -> bool {
        self.cuts.contains(cut) || *cut == self.before || *cut == self.after
    }

    fn end(&self, chip: &Chip, volume: Device<'_>, what: &str) {
        idle(&volume).unwrap_or_else(|error| panic!("{what}: background: {error}"));
        volume.close().unwrap_or_else(|error| panic!("{what}: close: {error}"));
        drop(volume);
        clean(chip, what);
    }
}

fn clean(chip: &Chip, what: &str) {
    let report =
        check(&chip, &TestPlatform::new(), &CheckOptions::default(), &mut |_| {}).expect("check");
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
}

/// The first difference.
fn differs(found: &Picture, expected: &Picture) -> String {
    let paths = found.keys().chain(expected.keys());
    let path = paths.into_iter().find(|path| found.get(*path) != expected.get(*path));
    path.map_or("nothing differs".into(), |path| {
        let head = |picture: &Picture| {
            picture
                .get(path)
                .map(|text| String::from_utf8_lossy(&text[..text.len().min(24)]).into_owned())
        };
        format!("{path} is {:?} and not {:?}", head(found), head(expected))
    })
}

/// Opening a volume that has a log, with the allocation after `granted` others refused.
fn run_open(image: &MemoryMedium, expected: &Picture, refuse: Refuse, granted: u64) -> bool {
    let what = format!("open, {refuse:?}, allocation {granted}");
    let chip = Chip(image.clone());
    let (result, refused) =
        scarce(granted, refuse, || Volume::open(&chip, open_options(), TestPlatform::new()));
    match result {
        Ok(volume) => assert!(picture(&volume) == *expected, "{what}"),
        Err(error) => assert!(error == Error::OutOfMemory, "{what}: {error}"),
    }
    assert!(after_a_cut(&chip) == *expected, "{what}: then another volume");
    clean(&chip, &what);
    refused
}

/// Making a volume, with the allocation after `granted` others refused.
fn run_format(refuse: Refuse, granted: u64) -> bool {
    let chip = Chip(MemoryMedium::new(512 << 10, 512).expect("geometry"));
    let options = FormatOptions { block_size: 512, ..FormatOptions::default() };
    let (result, refused) =
        scarce(granted, refuse, || Volume::format(&&chip, &options, &TestPlatform::new()));
    if result.is_err() {
        assert!(
            result == Err(Error::OutOfMemory),
            "format, {refuse:?}, allocation {granted}: {result:?}"
        );
        Volume::format(&&chip, &options, &TestPlatform::new()).expect("format");
    }
    clean(&chip, "format");
    refused
}

/// Position of a run: the kind of refusal, the operation, the allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    refuse: Refuse,
    index: usize,
    granted: u64,
}

impl Place {
    fn parse(text: &str) -> Option<Place> {
        let mut numbers = text.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let refuse = if next()? == 0 { Refuse::Once } else { Refuse::FromThereOn };
        Some(Place { refuse, index: next()? as usize, granted: next()? })
    }

    fn name(&self) -> &'static str {
        let others = ["open", "format"];
        let other = || others[(self.index - OPERATIONS.len()).min(1)];
        OPERATIONS.get(self.index).map_or_else(other, |operation| operation.name)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} {}",
            u8::from(self.refuse == Refuse::FromThereOn),
            self.index,
            self.granted
        )
    }
}

fn stride() -> u64 {
    std::env::var(STRIDE).ok().and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

/// The child's part: everything from a position on; prints a line before each run.
fn child(from: Place) {
    let traced = std::env::var_os(WHERE).is_some();
    if traced {
        allocator::trace();
    }
    let say = |text: std::fmt::Arguments<'_>| {
        writeln!(std::io::stdout(), "{text}").expect("pipe");
    };

    // After the output that the test harness has begun.
    say(format_args!(""));

    let mut images = Vec::new();
    let chip = filled();
    for operation in OPERATIONS {
        images.push(chip.0.clone());
        let volume = open(&chip);
        (operation.run)(&volume).expect(operation.name);
        volume.close().expect("close");
    }
    // The log of the opened volume has records to replay.
    let logged = Chip(images[0].clone());
    let volume = open(&logged);
    for operation in &OPERATIONS[..13] {
        (operation.run)(&volume).expect(operation.name);
    }
    drop(volume);
    let expected = after_a_cut(&logged);

    let mut place = from;
    loop {
        while place.index < OPERATIONS.len() + 2 {
            let case = (place.index < OPERATIONS.len()).then(|| Case::new(&images, place.index));
            loop {
                say(format_args!("at {place}"));
                let more = match &case {
                    Some(case) => case.run(place.refuse, place.granted, &mut |why| {
                        say(format_args!("read-only {why}"))
                    }),
                    None if place.index == OPERATIONS.len() => {
                        run_open(&logged.0, &expected, place.refuse, place.granted)
                    }
                    None => run_format(place.refuse, place.granted),
                };
                if traced {
                    return;
                }
                if !more {
                    break;
                }
                place.granted += stride();
            }
            place = Place { index: place.index + 1, granted: 0, ..place };
        }
        if place.refuse == Refuse::FromThereOn {
            break;
        }
        place = Place { refuse: Refuse::FromThereOn, index: 0, granted: 0 };
    }
    say(format_args!("done"));
}

#[test]
fn every_allocation_may_fail() {
    if let Ok(from) = std::env::var(FROM) {
        return child(Place::parse(&from).expect("a place"));
    }
    let (mut refused, mut ended, mut read_only) = (0, 0, 0);
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut from = Place { refuse: Refuse::Once, index: 0, granted: 0 };
    loop {
        let output = run_child(from, false);
        let text = String::from_utf8_lossy(&output.stdout);
        let mut last = None;
        let mut finished = false;
        for line in text.lines() {
            if let Some(at) = line.strip_prefix("at ") {
                refused += 1;
                last = Place::parse(at);
            } else if let (Some(why), Some(at)) = (line.strip_prefix("read-only "), last) {
                read_only += 1;
                if std::env::var_os(WHERE).is_some() {
                    let trace = run_child(at, true).stderr;
                    let place = place(&String::from_utf8_lossy(&trace));
                    *places
                        .entry(format!("read-only: {}: {why}: {place}", at.name()))
                        .or_default() += 1;
                }
            } else if line == "done" {
                finished = true;
            }
        }
        if finished {
            break;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let at = last.expect("a child says where it is");
        assert!(errors.contains("memory allocation of"), "at {at}: {errors}");
        ended += 1;
        *by_name.entry(at.name()).or_default() += 1;
        *places.entry(format!("ended: {}", place(&errors))).or_default() += 1;
        from = Place { granted: at.granted + stride(), ..at };
    }
    println!(
        "{refused} allocations refused; {ended} ended the process: {by_name:?}; {read_only} made it read-only"
    );
    for (place, count) in &places {
        println!("{count:5} {place}");
    }
    assert!(refused > 1000, "the allocator was never armed: {refused}");
    assert!(ended == 0, "{ended} allocations end the process: {by_name:?}");
}

fn run_child(from: Place, traced: bool) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "every_allocation_may_fail", "--nocapture", "--test-threads=1"]);
    command.env(FROM, from.to_string()).env_remove(WHERE);
    if traced {
        command.env(WHERE, "1");
    }
    // The library's own trace, if the process ends.
    command.env("RUST_BACKTRACE", if std::env::var_os(WHERE).is_some() { "1" } else { "0" });
    command.output().expect("child")
}

/// The innermost places of the core in a trace.
fn place(trace: &str) -> String {
    let frames = trace.lines().filter_map(|line| line.trim().strip_prefix("at "));
    let ours = frames.filter_map(|frame| frame.split_once("./src/").map(|(_, place)| place));
    ours.take(3).collect::<Vec<_>>().join(" < ")
}
