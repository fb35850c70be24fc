//! fsync beside other work.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use steadfast::{FormatOptions, OpenOptions as VolumeOptions, TransactionMask, Volume};
use steadfast_fuse::{IoUring, MountOptions, mount};
use steadfast_host::{FileMedium, FileOptions, HostPlatform};
use steadfast_media::{Geometry, Medium, MediumError};

use crate::support::{UnmountAtEnd, can_mount, wait_for};

const SIZE: u64 = 64 << 20;

/// Flushes wait while it is shut.
#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn shut(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut shut = self.shut.lock().unwrap();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while *shut {
            shut = self.opened.wait(shut).unwrap();
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Gated {
    file: FileMedium,
    gate: Arc<Gate>,
}

impl Medium for Gated {
    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.file.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.file.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.gate.pass();
        self.file.flush()
    }
}

/// With two workers, as on a machine with one or two processors, three callers of fsync leave one for everybody else.
#[test]
fn others_are_served_while_many_wait_for_a_flush() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let file = FileMedium::create(directory.path().join("image"), SIZE, &FileOptions::default()).unwrap();
    let medium = Gated { file, gate: gate.clone() };
    let platform = HostPlatform::new();
    let format = FormatOptions { mask: TransactionMask::FSYNC, ..FormatOptions::default() };
    Volume::format(&medium, &format, &platform).unwrap();
    let volume = Arc::new(Volume::open(medium, VolumeOptions::default(), platform).unwrap());
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let options = MountOptions { threads: 2, io_uring: IoUring::Off, ..MountOptions::default() };
    let session = mount(volume.clone(), &point, &options).unwrap();
    let end = session.unmount_handle();
    let _at_end = UnmountAtEnd(end.clone());
    let serving = thread::spawn(move || session.run());

    let mut files: Vec<File> =
        (0..3).map(|number| File::create(point.join(format!("f{number}"))).unwrap()).collect();
    for file in &mut files {
        file.write_all(b"text").unwrap();
    }
    let before = volume.activity().unwrap().transaction_points;
    gate.shut(true);
    let syncs: Vec<_> = files.drain(..).map(|file| thread::spawn(move || file.sync_all())).collect();
    wait_for("the first flush", || gate.waiting.load(Ordering::SeqCst) == 1);
    let (done, made) = mpsc::channel();
    let place = point.clone();
    let other = thread::spawn(move || {
        // Long enough for all three to have arrived.
        for number in 0..20 {
            fs::create_dir(place.join(format!("d{number}"))).unwrap();
            thread::sleep(Duration::from_millis(10));
        }
        done.send(()).unwrap();
    });
    let served = made.recv_timeout(Duration::from_secs(20));
    let waiting = syncs.iter().all(|sync| !sync.is_finished());
    // Before anything can fail: what hangs could not be unmounted.
    gate.shut(false);
    assert!(waiting, "nothing is durable yet");
    for sync in syncs {
        sync.join().unwrap().unwrap();
    }
    other.join().unwrap();
    served.expect("others are served while fsyncs wait");
    assert!(volume.activity().unwrap().transaction_points > before);

    end.unmount().unwrap();
    wait_for("the session to end", || serving.is_finished());
    serving.join().unwrap().unwrap();
    volume.close().unwrap();
}
