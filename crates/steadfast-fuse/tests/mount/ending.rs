//! How a mount ends, and which events it survives.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast::{
    FormatOptions, OpenOptions as VolumeOptions, Platform, Timestamp, TransactionMask, Volume,
};
use steadfast_fuse::{MountOptions, mount};
use steadfast_host::{FileMedium, FileOptions, HostPlatform};

use steadfast_media::Medium;

use crate::support::{Place, QUIET, UnmountAtEnd, can_mount, errno, unmount, wait_for};

const SIZE: u64 = 64 << 20;

#[test]
fn umount_by_somebody_else_ends_the_session() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, TransactionMask::DEFAULT);
    let mounted = place.mount(&MountOptions::default());
    fs::write(mounted.path("file"), "text").unwrap();
    unmount(&place.mount_point(), 0).unwrap();
    mounted.wait();
    let mounted = place.mount(&MountOptions::default());
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "text");
    mounted.unmount();
}

#[test]
fn unmount_with_open_files_serves_them_and_the_second_call_ends_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, TransactionMask::DEFAULT);
    // The file is closed in time, so the mount ends by itself.
    let mounted = place.mount(&MountOptions::default());
    let mut file = File::create(mounted.path("file")).unwrap();
    mounted.handle().unmount().unwrap();
    assert!(!place.is_mounted());
    file.write_all(b"still served").unwrap();
    drop(file);
    mounted.wait();
    // The file is not closed: it is cut off, and no earlier write is lost.
    let mounted = place.mount(&MountOptions::default());
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "still served");
    let mut file = OpenOptions::new().write(true).open(mounted.path("file")).unwrap();
    file.write_all(b"saved at the").unwrap();
    let handle = mounted.handle();
    handle.unmount().unwrap();
    handle.unmount().unwrap();
    mounted.wait();
    assert!(file.write_all(b"x").and_then(|()| file.sync_all()).is_err());
    drop(file);
    handle.unmount().unwrap();
    let mounted = place.mount(&MountOptions::default());
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "saved at the");
    mounted.unmount();
}

#[test]
fn bad_mount_points_and_options() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET.union(TransactionMask::WRITE));
    let refused = place.try_mount(&MountOptions::default());
    assert!(refused.is_err_and(|error| error.to_string().contains("write-through")));
    place.mount(&MountOptions { write_back: false, ..MountOptions::default() }).unmount();

    let through = MountOptions { write_back: false, ..MountOptions::default() };
    let strange = MountOptions { extra: vec!["nonsense=1".into()], ..through.clone() };
    assert_eq!(errno(place.try_mount(&strange)), libc::EINVAL);
    fs::remove_dir(place.mount_point()).unwrap();
    assert_eq!(errno(place.try_mount(&through)), libc::ENOENT);
    fs::write(place.mount_point(), "").unwrap();
    assert_eq!(errno(place.try_mount(&through)), libc::ENOTDIR);
    fs::remove_file(place.mount_point()).unwrap();
    fs::create_dir(place.mount_point()).unwrap();
    place.mount(&through).unmount();
}

/// Panics on demand during an operation of the core.
#[derive(Clone)]
struct Fragile {
    host: HostPlatform,
    panics: Arc<AtomicBool>,
}

impl Platform for Fragile {
    type Mutex = <HostPlatform as Platform>::Mutex;
    type RwLock = <HostPlatform as Platform>::RwLock;

    fn now(&self) -> Timestamp {
        assert!(!self.panics.load(Ordering::Relaxed), "planted");
        self.host.now()
    }

    fn monotonic_ms(&self) -> u64 {
        self.host.monotonic_ms()
    }
}

#[test]
fn a_panic_in_an_operation_is_eio_and_the_mount_goes_on() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file =
        FileMedium::create(directory.path().join("image"), SIZE, &FileOptions::default()).unwrap();
    let medium: Arc<dyn Medium> = Arc::new(file);
    let panics = Arc::new(AtomicBool::new(false));
    let platform = Fragile { host: HostPlatform::new(), panics: panics.clone() };
    Volume::format(&medium, &FormatOptions { mask: QUIET, ..FormatOptions::default() }, &platform)
        .unwrap();
    let volume = Arc::new(Volume::open(medium, VolumeOptions::default(), platform).unwrap());
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let session = mount(volume.clone(), &point, &MountOptions::default()).unwrap();
    let end = session.unmount_handle();
    let _at_end = UnmountAtEnd(end.clone());
    let thread = std::thread::spawn(move || session.run());

    fs::write(point.join("before"), "before").unwrap();
    panics.store(true, Ordering::Relaxed);
    for number in 0..20 {
        assert_eq!(errno(fs::create_dir(point.join(format!("d{number}")))), libc::EIO);
    }
    panics.store(false, Ordering::Relaxed);
    fs::create_dir(point.join("after")).unwrap();
    assert_eq!(fs::read_to_string(point.join("before")).unwrap(), "before");
    assert_eq!(fs::read_dir(&point).unwrap().count(), 2);

    end.unmount().unwrap();
    wait_for("the session to end", || thread.is_finished());
    thread.join().unwrap().unwrap();
    volume.close().unwrap();
}
