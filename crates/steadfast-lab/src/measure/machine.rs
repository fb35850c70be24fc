//! The description of the machine in a result.

use std::fs;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use crate::result::{BackingDescription, Provenance};
use crate::target::mount_of;

/// The description of this machine, for volumes below `backing`. Unknown facts are empty.
pub fn provenance(backing: &Path) -> Provenance {
    let kernel = rustix::system::uname();
    let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    Provenance {
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        version: env!("CARGO_PKG_VERSION").into(),
        commit: option_env!("STEADFAST_COMMIT").map(str::to_owned),
        profile: if cfg!(debug_assertions) { "debug" } else { "release" }.into(),
        started: now,
        updated: now,
        seed: 0,
        effort: String::new(),
        host: word(kernel.nodename()),
        kernel: format!(
            "{} {} {}",
            word(kernel.sysname()),
            word(kernel.release()),
            word(kernel.machine())
        ),
        system: system(),
        cpu: after(&text("/proc/cpuinfo"), "model name")
            .or_else(|| after(&text("/proc/cpuinfo"), "Model"))
            .unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        virtualisation: virtualisation(),
        memory: memory("MemTotal"),
        memory_available: memory_available(),
        backing: describe(backing),
    }
}

/// Main memory that is free for use, bytes.
pub fn memory_available() -> u64 {
    memory("MemAvailable")
}

fn memory(key: &str) -> u64 {
    let value = after(&text("/proc/meminfo"), key).unwrap_or_default();
    value.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn system() -> String {
    let release = text("/etc/os-release");
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or_default().trim_matches('"').to_owned()
}

fn virtualisation() -> Option<String> {
    if !text("/proc/cpuinfo").contains(" hypervisor") {
        return None;
    }
    Some(line("/sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "a hypervisor".into()))
}

fn describe(path: &Path) -> BackingDescription {
    let whole = is_device(path);
    let file_system = mount_of(path).filter(|_| !whole).map(|(_, kind)| kind).unwrap_or_default();
    let device = device_of(path);
    let queue = |what: &str| {
        device.as_ref().and_then(|name| line(&format!("/sys/class/block/{name}/{what}")))
    };
    let available = if whole {
        let mut device = fs::File::open(path).ok();
        device.as_mut().and_then(|device| device.seek(SeekFrom::End(0)).ok()).unwrap_or(0)
    } else {
        rustix::fs::statvfs(path).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
    };
    BackingDescription {
        path: path.display().to_string(),
        file_system,
        device: device.as_ref().map_or_else(String::new, |name| format!("/dev/{name}")),
        model: queue("device/model"),
        rotational: queue("queue/rotational").map(|text| text == "1"),
        write_cache: queue("queue/write_cache"),
        available,
    }
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// The whole disk that holds a path, or that the path names: `nvme0n1`.
fn device_of(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path).ok()?;
    let device = if is_device(path) { found.rdev() } else { found.dev() };
    let link =
        format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let place = fs::canonicalize(link).ok()?;
    // A partition is a directory inside the directory of its disk.
    let disk = if place.join("partition").exists() { place.parent()?.to_owned() } else { place };
    Some(disk.file_name()?.to_str()?.to_owned())
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The value after `KEY :`.
fn after(text: &str, key: &str) -> Option<String> {
    let value =
        text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_is_known() {
        let found = super::provenance(std::path::Path::new("/tmp"));
        assert!(
            found.kernel.starts_with("Linux ")
                && found.cpus > 0
                && found.memory > found.memory_available / 2
        );
        assert!(!found.backing.file_system.is_empty() && found.backing.available > 0);
    }
}
