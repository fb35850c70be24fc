//! fsync together with other requests.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use steadfast::{FormatOptions, TransactionMask};
use steadfast_fuse::{MountOptions, ioctl};
use steadfast_host::{FileMedium, FileOptions};
use steadfast_media::{Geometry, Medium, MediumError};

use crate::support::{Gate, Own, Place, can_mount, wait_for};

const SIZE: u64 = 64 << 20;

/// Flushes wait at the gate while it is shut.
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

/// With two workers, as on a machine with one or two processors, three callers of fsync leave one
/// worker for other requests.
#[test]
fn others_are_served_while_many_wait_for_a_flush() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let file =
        FileMedium::create(directory.path().join("image"), SIZE, &FileOptions::default()).unwrap();
    let medium = Gated { file, gate: gate.clone() };
    let format = FormatOptions { mask: TransactionMask::FSYNC, ..FormatOptions::default() };
    let own = Own::mount(medium, &format);

    let mut files: Vec<File> =
        (0..3).map(|number| File::create(own.path(&format!("f{number}"))).unwrap()).collect();
    for file in &mut files {
        file.write_all(b"text").unwrap();
    }
    let before = own.volume.activity().unwrap().transaction_points;
    gate.shut(true);
    let syncs: Vec<_> =
        files.drain(..).map(|file| thread::spawn(move || file.sync_all())).collect();
    wait_for("the first flush", || gate.waiting() == 1);
    let (done, made) = mpsc::channel();
    let directories: Vec<_> = (0..20).map(|number| own.path(&format!("d{number}"))).collect();
    let other = thread::spawn(move || {
        // Long enough for all three calls to have arrived.
        for directory in directories {
            fs::create_dir(directory).unwrap();
            thread::sleep(Duration::from_millis(10));
        }
        done.send(()).unwrap();
    });
    let served = made.recv_timeout(Duration::from_secs(20));
    let waiting = syncs.iter().all(|sync| !sync.is_finished());
    // Before any assertion can fail: a hanging mount cannot be unmounted.
    gate.shut(false);
    assert!(waiting, "nothing is durable yet");
    for sync in syncs {
        sync.join().unwrap().unwrap();
    }
    other.join().unwrap();
    served.expect("others are served while fsyncs wait");
    assert!(own.volume.activity().unwrap().transaction_points > before);
    own.unmount();
}

/// The mask has `sync-write` and not `fsync`: O_SYNC and O_DSYNC writes are durable when they
/// return, and fsync of another descriptor does nothing. A rollback shows what is durable.
#[test]
fn writes_with_o_sync_set_their_own_points() {
    if !can_mount() {
        return;
    }
    for write_back in [true, false] {
        let place = Place::new(SIZE, TransactionMask::SYNC_WRITE);
        let options = MountOptions { write_back, ..MountOptions::default() };
        let mounted = place.mount(&options);
        let path = mounted.path("file");
        fs::write(&path, [0; 20_000]).unwrap();
        ioctl::transact(&mounted.root()).unwrap();
        let mut expected = vec![0; 20_000];
        for (at, flag) in [(5, libc::O_SYNC), (9_000, libc::O_DSYNC), (12_288, libc::O_SYNC)] {
            let plain = OpenOptions::new().write(true).open(&path).unwrap();
            plain.write_all_at(b"plain", 0).unwrap();
            plain.sync_all().unwrap();
            drop(plain);
            ioctl::rollback(&mounted.root(), true).unwrap();
            assert!(fs::read(&path).unwrap() == expected, "{write_back}: fsync is not in the mask");

            let file = OpenOptions::new().write(true).custom_flags(flag).open(&path).unwrap();
            file.write_all_at(&[7; 5000], at).unwrap();
            expected[at as usize..at as usize + 5000].fill(7);
            drop(file);
            ioctl::rollback(&mounted.root(), true).unwrap();
            assert!(fs::read(&path).unwrap() == expected, "{write_back} {at}: O_SYNC is lost");
        }
        mounted.unmount();
    }
}
