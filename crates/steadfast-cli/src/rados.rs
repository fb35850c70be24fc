//! Images in RADOS (`rados://POOL/NAME`) in place of an image file or block device.

use std::path::Path;
use std::sync::Arc;

use steadfast_media::{FailureModel, Geometry, Medium};
use steadfast_rados::{Location, Owner, RadosError, RadosMedium, is_location};

use crate::failure::{Exit, Failure, Outcome};
use crate::medium::{Contents, Created, HostMedium};

/// Whether the path is the address of an image in RADOS.
pub fn is_rados(path: &Path) -> bool {
    path.to_str().is_some_and(is_location)
}

/// Reads an address.
///
/// # Errors
/// What is wrong with it.
pub fn location(path: &Path) -> Outcome<Location> {
    path.to_str().unwrap_or_default().parse().map_err(|error| failure(&error, path))
}

/// Opens the image.
///
/// # Errors
/// [`failure`].
pub fn open(path: &Path, read_only: bool) -> Outcome<HostMedium> {
    let medium = RadosMedium::open(&location(path)?, read_only);
    Ok(Arc::new(medium.map_err(|error| failure(&error, path))?))
}

/// Makes the image with `size`, or removes all data of one that exists if `contents` allows it.
/// Without a size an image keeps its own.
///
/// # Errors
/// [`failure`]; a new image has no size; an image exists that another process has made meanwhile.
pub fn create(path: &Path, size: Option<u64>, contents: Contents) -> Outcome<Created> {
    let at_path = |error| failure(&error, path);
    let location = location(path)?;
    let created = match size {
        Some(size) => RadosMedium::create(&location, size),
        None => Err(RadosError::Exists(location.name.clone())),
    };
    match created {
        Err(RadosError::Exists(_)) if contents == Contents::Overwrite => {
            let medium = RadosMedium::open(&location, false).map_err(at_path)?;
            medium.clear(size.unwrap_or(medium.geometry().size)).map_err(at_path)?;
            Ok(Created { medium: Arc::new(medium), new: false })
        }
        created => Ok(Created { medium: Arc::new(created.map_err(at_path)?), new: true }),
    }
}

/// What [`create`] would make.
///
/// # Errors
/// [`failure`].
pub fn geometry_when_created(path: &Path, size: Option<u64>) -> Outcome<Geometry> {
    let found = match RadosMedium::open(&location(path)?, true) {
        Err(RadosError::NoImage(_)) => None,
        found => Some(found.map_err(|error| failure(&error, path))?.geometry()),
    };
    Ok(Geometry {
        size: size.or(found.map(|found| found.size)).unwrap_or(0),
        atomic_unit: steadfast_rados::UNIT,
        failure_model: FailureModel::PowerSafe,
    })
}

/// Removes the image.
///
/// # Errors
/// [`failure`].
pub fn remove(path: &Path) -> Outcome {
    RadosMedium::remove(&location(path)?).map_err(|error| failure(&error, path))
}

/// Whether there is an image.
///
/// # Errors
/// [`failure`].
pub fn exists(path: &Path) -> Outcome<bool> {
    match RadosMedium::status(&location(path)?) {
        Ok(_) => Ok(true),
        Err(RadosError::NoImage(_)) => Ok(false),
        Err(error) => Err(failure(&error, path)),
    }
}

/// The process that has the image open for writing, if it may still run.
fn owner(path: &Path) -> Option<Owner> {
    let status = RadosMedium::status(&location(path).ok()?).ok()?;
    status.owner.filter(|owner| !owner.is_gone(&Owner::this_process()))
}

/// Whether a process of this machine has the image open for writing.
pub fn is_locked(path: &Path) -> bool {
    let here = Owner::this_process();
    owner(path).is_some_and(|owner| owner.host == here.host)
}

/// Whether another process of this machine, with this number, has the image open for writing.
pub fn is_open_here(path: &Path, process: u32) -> bool {
    let here = Owner::this_process();
    owner(path).is_some_and(|owner| {
        owner.process == process && process != here.process && owner.host == here.host
    })
}

/// The failure to make, open or use an image.
pub fn failure(error: &RadosError, path: &Path) -> Failure {
    let (exit, advice) = match error {
        RadosError::Address(_) => (
            Exit::Usage,
            "write rados://POOL/NAME, with ?user=NAME and &conf=PATH if needed".into(),
        ),
        RadosError::NoLibrary(_) => (
            Exit::Failed,
            "install librados2 of Ceph 15 or newer; a static program cannot load it".into(),
        ),
        RadosError::Configuration(_) => {
            (Exit::Failed, "check /etc/ceph/ceph.conf, or name another with ?conf=PATH".into())
        }
        RadosError::Key(..) => {
            (Exit::NoPermission, "check the keyring, or name another user with ?user=NAME".into())
        }
        RadosError::Unreachable(_) => {
            (Exit::Failed, "check that Ceph runs, its address in ceph.conf, and the network".into())
        }
        RadosError::NoPool(pool) => {
            (Exit::Failed, format!("check the name, or make it with 'ceph osd pool create {pool}'"))
        }
        RadosError::Forbidden(..) => (
            Exit::NoPermission,
            "see 'Ceph' in docs/RADOS.md for the capabilities of a user".into(),
        ),
        RadosError::NoImage(_) => (
            Exit::NotAVolume,
            "check the name, or make it with 'steadfast mkfs --size SIZE'".into(),
        ),
        RadosError::Exists(_) => (Exit::Busy, "use another name".into()),
        RadosError::Header(_) => {
            (Exit::NotAVolume, "use another name, or a newer version of this program".into())
        }
        RadosError::InUse(_) => (
            Exit::Busy,
            "unmount it there; if that machine is gone, 'steadfast rados evict' ends it from here"
                .into(),
        ),
        RadosError::Failed(..) => (Exit::Failed, "see 'ceph health detail', then try again".into()),
    };
    Failure::new(exit, error.to_string(), path.display(), advice)
}
