//! A memory limit for this process and its children: a control group, version 1 or 2.
//!
//! The page cache counts for the process that touches a page first. So a file system in the kernel
//! is limited through the process that uses it. A daemon is limited if it was started inside the
//! group.
//!
//! With version 1 the new group is below the group of this process. With version 2 it is beside
//! that group, because a group with processes cannot have other groups below it. So outer limits
//! stay in force.

use std::fs;
use std::path::{Path, PathBuf};

use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// This process in a group with a limit, until it is dropped.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
    /// The original group of this process.
    home: PathBuf,
}

/// The directory of control groups.
const ROOT: &str = "/sys/fs/cgroup";

impl MemoryLimit {
    /// Limits this process, and everything that it starts from now on, to `bytes`.
    ///
    /// # Errors
    /// `Skip` if there are no control groups for memory, or no permission to make one.
    pub fn enter(bytes: u64) -> Outcome<MemoryLimit> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let root = Path::new(ROOT);
        let name = format!("steadfast-lab.{}", std::process::id());
        let (home, group, file) = match places(&own, root) {
            Some(Places::One(home)) => (home.clone(), home.join(&name), "memory.limit_in_bytes"),
            Some(Places::Two(home)) => {
                let beside = if home == root { root } else { home.parent().unwrap_or(root) };
                (home.clone(), beside.join(&name), "memory.max")
            }
            None => {
                return Err(Trouble::Skip("this system has no control groups for memory".into()));
            }
        };
        let refused = |error: std::io::Error| {
            Trouble::Skip(format!(
                "memory cannot be limited ({error}): needs root and control groups for memory"
            ))
        };
        fs::create_dir(&group).map_err(refused)?;
        // From here on the guard removes the group.
        let limit = MemoryLimit { group, home };
        fs::write(limit.group.join(file), bytes.to_string()).map_err(refused)?;
        limit.put(&limit.group).map_err(refused)?;
        Ok(limit)
    }

    fn put(&self, group: &Path) -> std::io::Result<()> {
        fs::write(group.join("cgroup.procs"), std::process::id().to_string())
    }

    /// Returns to the original group.
    ///
    /// # Errors
    /// That fails; the process then keeps the limit.
    pub fn leave(self) -> Outcome {
        self.put(&self.home).doing(|| "leave the control group".into())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = self.put(&self.home);
        // Frees the rest of the group's page cache; only version 1 has this file, and version 2
        // does not need it.
        let _ = fs::write(self.group.join("memory.force_empty"), "0");
        let _ = fs::remove_dir(&self.group);
    }
}

/// The group that limits the memory of a process, by version.
#[derive(Debug, PartialEq, Eq)]
enum Places {
    One(PathBuf),
    Two(PathBuf),
}

/// Parses `/proc/self/cgroup`; only groups that exist below `root` count.
fn places(own: &str, root: &Path) -> Option<Places> {
    let mut two = None;
    for line in own.lines() {
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (words.next(), words.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|name| name == "memory") {
            let group = root.join("memory").join(path);
            if group.join("memory.limit_in_bytes").exists() {
                return Some(Places::One(group));
            }
        } else if controllers.is_empty() {
            let group = root.join(path);
            let parent = if group == root { root } else { group.parent().unwrap_or(root) };
            let given =
                fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
            if given.split_whitespace().any(|name| name == "memory") {
                two = Some(Places::Two(group));
            }
        }
    }
    two
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found() {
        let root = tempfile::tempdir().expect("a directory");
        let text = "9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/user.slice/s";
        assert_eq!(places(text, root.path()), None);
        let two = root.path().join("user.slice/s");
        fs::create_dir_all(&two).expect("made");
        fs::write(root.path().join("user.slice/cgroup.subtree_control"), "cpu memory pids")
            .expect("written");
        assert_eq!(places(text, root.path()), Some(Places::Two(two)));
        let one = root.path().join("memory/a/b");
        fs::create_dir_all(&one).expect("made");
        fs::write(one.join("memory.limit_in_bytes"), "1").expect("written");
        assert_eq!(places(text, root.path()), Some(Places::One(one)));
    }
}
