//! A given directory: any file system on any machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cleanup::Guard;
use super::kernel::options_of;
use super::system::SystemFiles;
use super::{Files, Target};
use crate::result::{self, Access, Status};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// A directory. All work is done in a subdirectory that is removed afterwards.
pub struct DirectoryTarget {
    id: String,
    parent: PathBuf,
    inside: Option<(Guard, SystemFiles)>,
}

impl DirectoryTarget {
    /// A target without a subdirectory yet.
    pub fn new(parent: &Path) -> DirectoryTarget {
        DirectoryTarget {
            id: format!("dir:{}", parent.display()),
            parent: parent.to_owned(),
            inside: None,
        }
    }
}

impl Target for DirectoryTarget {
    fn id(&self) -> &str {
        &self.id
    }

    fn describe(&self) -> result::TargetDescription {
        let (mount, kind) = mount_of(&self.parent).unwrap_or_default();
        result::TargetDescription {
            id: self.id.clone(),
            name: self.parent.display().to_string(),
            access: Access::Directory,
            status: Status::Ok,
            volume_size: None,
            format: String::new(),
            mount_options: options_of(&mount),
            version: kind,
            remarks: vec!["as it was found: not freshly made, not unmounted between tests".into()],
        }
    }

    fn make(&mut self) -> Outcome {
        self.inside = None;
        let guard = super::scratch(&self.parent)?;
        let files = SystemFiles::new(guard.path());
        self.inside = Some((guard, files));
        Ok(())
    }

    fn unmount(&mut self) -> Outcome {
        self.files()?.sync().doing(|| format!("sync {}", self.parent.display()))
    }

    fn mount(&mut self) -> Outcome<Duration> {
        Err(Trouble::Skip("a directory that was given is not unmounted".into()))
    }

    fn files(&self) -> Outcome<&dyn Files> {
        let inside = self.inside.as_ref().map(|(_, files)| files as &dyn Files);
        inside.ok_or_else(|| Trouble::Skip("nothing was made in the directory".into()))
    }
}

/// Mount point and file system of a path.
pub fn mount_of(path: &Path) -> Option<(PathBuf, String)> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mut best: Option<(PathBuf, String)> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(directory), Some(kind)) = (words.next(), words.next()) else { continue };
        let deeper =
            best.as_ref().is_none_or(|(found, _)| directory.len() >= found.as_os_str().len());
        if path.starts_with(directory) && deeper {
            best = Some((PathBuf::from(directory), kind.to_owned()));
        }
    }
    best
}
