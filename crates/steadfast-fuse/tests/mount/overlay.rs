//! A mount as the upper layer of an overlay file system, as in containers and in writable systems
//! over read-only ones.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use steadfast::TransactionMask;
use steadfast_fuse::MountOptions;

use crate::support::{Place, QUIET, can_mount, errno, wait_for};
use crate::sys;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

fn is_whiteout(path: &Path) -> bool {
    let found = fs::symlink_metadata(path).unwrap();
    found.file_type().is_char_device() && found.rdev() == 0
}

#[test]
fn rename_leaves_a_whiteout() {
    if !can_mount() {
        return;
    }
    let place = Place::new(16 << 20, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let path = |name| mounted.path(name);
    for name in ["a", "b"] {
        fs::write(path(name), name).unwrap();
    }
    sys::rename2(&path("a"), &path("b"), RENAME_WHITEOUT).unwrap();
    assert!(is_whiteout(&path("a")));
    assert_eq!(fs::read_to_string(path("b")).unwrap(), "a");
    let refused = sys::rename2(&path("b"), &path("a"), RENAME_WHITEOUT | RENAME_NOREPLACE);
    assert_eq!(errno(refused), libc::EEXIST);
    assert_eq!(
        errno(sys::rename2(&path("b"), &path("a"), RENAME_WHITEOUT | RENAME_EXCHANGE)),
        libc::EINVAL
    );
    sys::rename2(&path("b"), &path("c"), RENAME_WHITEOUT | RENAME_NOREPLACE).unwrap();
    assert!(is_whiteout(&path("b")));
    mounted.unmount();
}

/// An overlay over a lower layer of the host, with upper layer and work directory on the mount.
struct Overlay {
    merged: PathBuf,
}

impl Overlay {
    fn mount(lower: &Path, mount_point: &Path, merged: &Path) -> Option<Overlay> {
        for name in ["upper", "work"] {
            fs::create_dir_all(mount_point.join(name)).unwrap();
        }
        fs::create_dir_all(merged).unwrap();
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            mount_point.join("upper").display(),
            mount_point.join("work").display()
        );
        let output = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(merged)
            .output();
        let refused = match output {
            Ok(output) if output.status.success() => {
                return Some(Overlay { merged: merged.to_owned() });
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        let table = fs::read_to_string("/proc/filesystems").unwrap();
        assert!(
            !table.contains("overlay"),
            "this kernel has overlays, and does not take the mount: {refused}"
        );
        eprintln!("SKIPPED: no overlays here: {refused}");
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.merged.join(name)
    }

    fn unmount(self) {
        // A process that another test has just forked may briefly hold a file.
        wait_for("the overlay to be unmounted", || {
            crate::support::unmount(&self.merged, 0).is_ok()
        });
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = crate::support::unmount(&self.merged, libc::MNT_DETACH);
    }
}

#[test]
fn a_mount_is_an_upper_layer() {
    if !can_mount() {
        return;
    }
    let layers = tempfile::tempdir().unwrap();
    let (lower, merged) = (layers.path().join("lower"), layers.path().join("merged"));
    fs::create_dir_all(lower.join("directory")).unwrap();
    for name in ["kept", "changed", "removed", "renamed", "directory/one", "directory/two"] {
        fs::write(lower.join(name), name).unwrap();
    }
    let place = Place::new(32 << 20, TransactionMask(QUIET.0 | TransactionMask::UNMOUNT.0));
    let mounted = place.mount(&MountOptions::default());
    let Some(overlay) = Overlay::mount(&lower, &place.mount_point(), &merged) else { return };
    fs::write(overlay.path("new"), "new").unwrap();
    fs::write(overlay.path("changed"), "otherwise").unwrap();
    fs::remove_file(overlay.path("removed")).unwrap();
    fs::rename(overlay.path("renamed"), overlay.path("moved")).unwrap();
    fs::remove_file(overlay.path("directory/one")).unwrap();
    fs::remove_file(overlay.path("directory/two")).unwrap();
    fs::remove_dir(overlay.path("directory")).unwrap();
    fs::create_dir(overlay.path("directory")).unwrap();
    fs::write(overlay.path("directory/three"), "three").unwrap();
    overlay.unmount();
    mounted.unmount();

    let mounted = place.mount(&MountOptions::default());
    for name in ["removed", "renamed"] {
        assert!(is_whiteout(&mounted.path("upper").join(name)), "{name}");
    }
    let overlay = Overlay::mount(&lower, &place.mount_point(), &merged).unwrap();
    let mut names: Vec<String> = fs::read_dir(&merged)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["changed", "directory", "kept", "moved", "new"]);
    for (name, content) in [
        ("kept", "kept"),
        ("changed", "otherwise"),
        ("moved", "renamed"),
        ("new", "new"),
        ("directory/three", "three"),
    ] {
        assert_eq!(fs::read_to_string(overlay.path(name)).unwrap(), content);
    }
    assert_eq!(fs::read_dir(overlay.path("directory")).unwrap().count(), 1);
    overlay.unmount();
    mounted.unmount();
}
