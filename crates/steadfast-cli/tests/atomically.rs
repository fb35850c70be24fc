//! `steadfast atomically`: all changes or none, however the command, its wrapper or the daemon
//! ends.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use common::{Scratch, can_mount, failed, process_exists, signal, wait_for};

/// A mounted volume with `d/old` on it, under the default mask; `None` if mounting is not possible.
fn start() -> Option<(Scratch, std::path::PathBuf)> {
    if !can_mount() {
        return None;
    }
    let scratch = Scratch::new();
    scratch.volume("32M");
    let mnt = scratch.mounted("");
    fs::create_dir(mnt.join("d")).unwrap();
    fs::write(mnt.join("d/old"), "old").unwrap();
    Some((scratch, mnt))
}

fn shell(scratch: &Scratch, script: &str) -> Output {
    scratch.run(&["atomically", "mnt", "--", "sh", "-c", script])
}

/// Checks that standard error is one line that contains these words.
fn says(output: &Output, code: i32, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("steadfast: ")).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    for word in words {
        assert!(lines[0].contains(word), "no '{word}': {stderr}");
    }
}

fn unchanged(mnt: &Path) {
    assert_eq!(fs::read_to_string(mnt.join("d/old")).unwrap(), "old");
    assert_eq!(fs::read_dir(mnt.join("d")).unwrap().count(), 1);
}

fn free(scratch: &Scratch) {
    wait_for("the end of the hold", || scratch.line("transact mnt").status.success());
}

const CHANGE: &str = "cd mnt/d && echo new >new && echo changed >old && mkdir sub";

#[test]
fn exit_codes_decide() {
    let Some((scratch, mnt)) = start() else { return };
    says(&shell(&scratch, &format!("{CHANGE}; exit 3")), 3, &["rolled back", "exited with 3"]);
    unchanged(&mnt);
    says(&shell(&scratch, &format!("{CHANGE}; kill -9 $$")), 137, &["rolled back", "signal 9"]);
    unchanged(&mnt);
    let missing = scratch.line("atomically --mount mnt -- no-such-program-anywhere");
    says(&missing, 127, &["cannot run", "nothing was changed"]);
    // Processes that the command leaves running are ended before the volume is rolled back.
    says(
        &shell(&scratch, "(while :; do echo x >>mnt/d/late; done) & sleep 0.1; exit 1"),
        1,
        &["rolled back"],
    );
    unchanged(&mnt);
    says(&shell(&scratch, CHANGE), 0, &["committed"]);
    scratch.kill_daemon();
    scratch.ok("umount mnt");
    scratch.mounted("");
    assert_eq!(fs::read_to_string(mnt.join("d/old")).unwrap(), "changed\n");
    assert!(mnt.join("d/new").exists() && mnt.join("d/sub").is_dir());
    let quiet = scratch.run(&["atomically", "-q", "mnt", "--", "true"]);
    assert!(quiet.status.success() && quiet.stderr.is_empty());
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
}

/// Starts a command that changes files, makes `ready` beside the mount as a signal, and then waits.
fn waiting(scratch: &Scratch) -> Child {
    let script = format!("({CHANGE}); sync; touch ready; exec sleep 60");
    let child = scratch
        .command(&["atomically", "mnt", "--", "sh", "-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the command", || scratch.path("ready").exists());
    child
}

#[test]
fn signals_roll_back() {
    let Some((scratch, mnt)) = start() else { return };
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let _ = fs::remove_file(scratch.path("ready"));
        let child = waiting(&scratch);
        signal(name, child.id());
        says(&child.wait_with_output().unwrap(), 128 + number, &["rolled back", "interrupted"]);
        unchanged(&mnt);
    }
}

#[test]
fn kill_of_the_wrapper_rolls_back_when_the_last_process_has_ended() {
    let Some((scratch, mnt)) = start() else { return };
    // A grandchild keeps running: the volume is held until it has ended.
    let script = format!(
        "({CHANGE}); (while [ ! -e stop ]; do echo x >>mnt/d/late; sleep 0.05; done) & echo $! >pid; wait"
    );
    let mut child =
        scratch.command(&["atomically", "mnt", "--", "sh", "-c", &script]).spawn().unwrap();
    wait_for("the grandchild", || mnt.join("d/late").exists() && scratch.path("pid").exists());
    signal("KILL", child.id());
    child.wait().unwrap();
    let line = scratch.fails(5, "transact mnt");
    assert!(line.contains("an atomic command"), "{line}");
    fs::write(scratch.path("stop"), "").unwrap();
    free(&scratch);
    unchanged(&mnt);
    let pid: u32 = fs::read_to_string(scratch.path("pid")).unwrap().trim().parse().unwrap();
    wait_for("the grandchild's end", || !process_exists(pid));
    assert!(scratch.ok("mask get mnt").contains("fsync"), "the mask is the user's again");
}

#[test]
fn others_are_refused_and_power_may_fail() {
    let Some((scratch, mnt)) = start() else { return };
    let mut child = waiting(&scratch);
    let second = shell(&scratch, "touch mnt/d/second");
    let line = failed(&second, 5, "a second one");
    assert!(line.contains("an atomic command (process") && line.contains("is running"), "{line}");
    for line in ["transact mnt", "rollback mnt", "rollback --force mnt", "mask set mnt manual"] {
        let line = scratch.fails(5, line);
        assert!(line.contains("an atomic command"), "{line}");
    }
    assert!(!mnt.join("d/second").exists() && mnt.join("d/new").exists());
    scratch.kill_daemon();
    signal("TERM", child.id());
    assert!(!child.wait().unwrap().success());
    scratch.ok("umount mnt");
    scratch.mounted("");
    unchanged(&mnt);
    assert!(
        scratch.ok("mask get mnt").contains("fsync"),
        "the mask on the medium was never changed"
    );
    scratch.ok("umount mnt");
    scratch.ok("check --quiet disk.img");
}

#[test]
fn no_space_says_what_to_do() {
    let Some((scratch, mnt)) = start() else { return };
    let full = shell(
        &scratch,
        "rm mnt/d/old; head -c 40000000 /dev/zero | tr '\\0' x >mnt/d/big 2>/dev/null",
    );
    assert!(!full.status.success());
    says(&full, full.status.code().unwrap(), &["rolled back", "no space"]);
    unchanged(&mnt);
    scratch.ok("transact mnt");
}

#[test]
fn bad_calls() {
    let scratch = Scratch::new();
    scratch.volume("4M");
    let line = scratch.fails(8, "atomically disk.img -- true");
    assert!(line.contains("not mounted"), "{line}");
    scratch.fails(2, "atomically disk.img");
    scratch.fails(2, "atomically disk.img --mount disk.img -- true");
    let line = scratch.fails(3, "atomically -- true");
    assert!(line.contains("no Steadfast volume is mounted here"), "{line}");
}

/// A mount that is taken away leads the rest of the command elsewhere: what it did before is not
/// half of an update.
#[test]
fn an_unmount_meanwhile_rolls_back() {
    let Some((scratch, mnt)) = start() else { return };
    let program = env!("CARGO_BIN_EXE_steadfast");
    let daemon = "kill -TERM $(cat pid); while mountpoint -q mnt; do sleep 0.05; done";
    let ways =
        [format!("{program} umount -lq mnt 2>/dev/null"), "umount -l mnt".into(), daemon.into()];
    for (number, way) in ways.into_iter().enumerate() {
        fs::write(scratch.path("pid"), scratch.daemon().to_string()).unwrap();
        let script = format!("echo changed >mnt/d/old; {way}; echo below >mnt/below");
        says(&shell(&scratch, &script), 1, &["rolled back", "was unmounted while 'sh' ran"]);
        wait_for("the end of the mount", || {
            scratch.line("check --quiet disk.img").status.success()
        });
        assert!(mnt.join("below").exists(), "the command went on below the mount");
        fs::remove_file(mnt.join("below")).unwrap();
        scratch.mounted("");
        unchanged(&mnt);
        assert!(!mnt.join("below").exists(), "{number}");
    }
}
