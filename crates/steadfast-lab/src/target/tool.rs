//! Programs that the lab calls: mkfs, mount, losetup, fio.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Stdio};

use crate::{Outcome, Trouble};

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// `Skip` if it is not installed, with the name of its Debian package; `Tool` with the last line of
/// its messages if it fails.
pub fn run_tool<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Outcome<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Trouble::Skip(format!("{program} is not installed{}", package(program)))
        }
        _ => Trouble::Io { doing: format!("run {program}"), error },
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let messages = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    let last = messages.lines().map(str::trim).rfind(|line| !line.is_empty());
    let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
    Err(Trouble::Tool {
        command: format!("{program} {}", words.join(" ")),
        output: last.map_or_else(|| output.status.to_string(), str::to_owned),
    })
}

/// The first line that a program prints with this option, on either output.
pub fn version_of(program: &str, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .join("\n");
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// The Debian package of a program.
fn package(program: &str) -> String {
    let name = match program {
        "mkfs.ext4" | "mke2fs" => "e2fsprogs",
        "mkfs.xfs" => "xfsprogs",
        "mkfs.btrfs" => "btrfs-progs",
        "fuse2fs" => "fuse2fs",
        "bindfs" => "bindfs",
        "gocryptfs" => "gocryptfs",
        "fio" => "fio",
        "losetup" | "mount" | "umount" => "mount",
        _ => return String::new(),
    };
    format!(": install {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_skipped_and_a_failing_one_says_why() {
        let missing = run_tool::<&str>("steadfast-no-such-tool", &[]).expect_err("missing");
        assert!(matches!(missing, Trouble::Skip(_)), "{missing}");
        let failing = run_tool("ls", &["/no/such/place"]).expect_err("failing").to_string();
        assert!(failing.starts_with("ls /no/such/place: ") && !failing.contains('\n'), "{failing}");
    }
}
