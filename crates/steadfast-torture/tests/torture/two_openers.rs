//! Two writers of one shared volume, interleaved at every request of the first, then a power cut.
//!
//! No second passes, so only the check around every commit record and metaroot can find the other
//! writer.

use std::sync::{Arc, Mutex};

use steadfast::check::{CheckOptions, check};
use steadfast::fs::{Caller, NewNode};
use steadfast::sabotage::{Sabotage, plant};
use steadfast::testing::TestPlatform;
use steadfast::{FormatOptions, InodeNumber, OpenOptions, TransactionMask, Volume};
use steadfast_media::{Geometry, Medium, MediumError, SimMedium, SimOptions};

type Hook = Box<dyn FnOnce() + Send>;

/// One machine's way to the disk. Before a chosen write or flush it lets the other machine run.
#[derive(Clone)]
struct Path {
    disk: Arc<SimMedium>,
    hook: Arc<Mutex<Option<(usize, Hook)>>>,
}

impl Path {
    fn to(disk: &Arc<SimMedium>) -> Path {
        Path { disk: disk.clone(), hook: Arc::default() }
    }

    fn before_request(&self) {
        let mut hook = self.hook.lock().unwrap();
        let due = match hook.take() {
            Some((0, run)) => Some(run),
            Some((left, run)) => {
                *hook = Some((left - 1, run));
                None
            }
            None => None,
        };
        drop(hook);
        if let Some(run) = due {
            run();
        }
    }
}

impl Medium for Path {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.disk.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.before_request();
        self.disk.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.before_request();
        self.disk.flush()
    }

    fn may_be_shared(&self) -> bool {
        true
    }
}

struct Writer {
    name: &'static str,
    volume: Volume<Path, TestPlatform>,
    acknowledged: Mutex<Vec<String>>,
}

impl Writer {
    fn on(path: Path, name: &'static str) -> Writer {
        let options = OpenOptions { shared: true, ..OpenOptions::default() };
        let volume = Volume::open(path, options, TestPlatform::new()).unwrap();
        Writer { name, volume, acknowledged: Mutex::default() }
    }

    /// Creates a file and sets a transaction point.
    fn change(&self, turn: usize) {
        let name = format!("{}-{turn}", self.name);
        let (root, caller) = (InodeNumber::ROOT, Caller::default());
        let made = self.volume.create(root, name.as_bytes(), NewNode::Regular, 0o644, &caller);
        if made.and_then(|_| self.volume.transact()).is_ok() {
            self.acknowledged.lock().unwrap().push(name);
        }
    }

    fn has_stopped(&self) -> bool {
        self.volume.info().poisoned.is_some()
    }
}

/// Lets the second writer run before request number `request` of the first. Says whether that
/// request came, or what went wrong.
fn interleaved_at(request: usize) -> Result<bool, String> {
    let disk = Arc::new(SimMedium::new(SimOptions::disk(8 << 20)));
    let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
    Volume::format(&Path::to(&disk), &options, &TestPlatform::new()).unwrap();
    let path = Path::to(&disk);
    let one = Writer::on(path.clone(), "one");
    let two = Arc::new(Writer::on(Path::to(&disk), "two"));
    let second = two.clone();
    *path.hook.lock().unwrap() = Some((request, Box::new(move || second.change(0))));
    for turn in 1..4 {
        one.change(turn);
    }
    let came = path.hook.lock().unwrap().is_none();
    for turn in 4..8 {
        two.change(turn);
        one.change(turn);
    }
    let going_on: Vec<&Writer> =
        [&one, &*two].into_iter().filter(|writer| !writer.has_stopped()).collect();
    for seed in 0..4 {
        let image = disk.power_cut(seed);
        let report =
            check(&image, &TestPlatform::new(), &CheckOptions::default(), &mut |_| {}).unwrap();
        if !report.is_clean() {
            return Err(format!("not clean: {report:?}"));
        }
        let found = Volume::open(image, OpenOptions::default(), TestPlatform::new()).unwrap();
        for name in going_on.iter().flat_map(|writer| writer.acknowledged.lock().unwrap().clone()) {
            if found.lookup(InodeNumber::ROOT, name.as_bytes()).is_err() {
                return Err(format!("{name} is lost"));
            }
        }
    }
    match going_on.len() {
        0 => Err("both stop".into()),
        1 => Ok(came),
        _ => Err("both go on".into()),
    }
}

/// Interleaves at each request in turn, up to the last one.
fn interleaved_at_every_request() -> Result<usize, String> {
    for request in 0.. {
        if !interleaved_at(request).map_err(|why| format!("request {request}: {why}"))? {
            return Ok(request);
        }
    }
    unreachable!("the first writer makes a bounded number of requests")
}

#[test]
fn one_of_two_wins_and_keeps_what_it_acknowledged() {
    let requests = interleaved_at_every_request().unwrap();
    assert!(requests >= 6, "three points make {requests} requests");
}

#[test]
fn a_check_that_holds_for_a_second_is_found() {
    plant(Some(Sabotage::TrustForASecond));
    let found = interleaved_at_every_request();
    plant(None);
    let why = found.expect_err("it shows nothing");
    assert!(why.contains("is lost"), "{why}");
}
