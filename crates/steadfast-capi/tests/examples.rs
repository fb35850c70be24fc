//! Compiles the examples from the documentation as a reader would, and runs them under the address
//! sanitizer. Also runs a program that misuses every function.

mod toolchain;

use std::process::Command;

use toolchain::{Toolchain, libraries, repository, run};

/// Compiles `source` below the repository and runs it with the arguments.
fn compile_and_run(source: &str, arguments: &[&str], directory: &tempfile::TempDir) -> String {
    let binary = Toolchain::find().compile(&repository().join(source), directory.path());
    let mut command = Command::new(binary);
    command.args(arguments).current_dir(directory.path());
    run(command)
}

#[test]
fn logger_over_block_callbacks() {
    let directory = tempfile::tempdir().unwrap();
    let output = compile_and_run("examples/c/logger.c", &[], &directory);
    assert!(output.contains("running: 100 samples, the newest is 100\n"), "{output}");
    assert!(output.contains("after the power cut: 100 samples, the newest is 100\n"), "{output}");
}

#[test]
fn atomic_update_of_several_files() {
    let directory = tempfile::tempdir().unwrap();
    let output = compile_and_run("examples/c/atomic-update.c", &["disk.img"], &directory);
    let releases = |line: &str| {
        let mut names: Vec<_> = line.split("releases: ").nth(1).unwrap().split(' ').collect();
        names.sort_unstable();
        names.join(" ")
    };
    let lines: Vec<_> = output.lines().collect();
    assert!(lines[0].starts_with("version 1.0, current -> releases/1.0"), "{output}");
    assert_eq!(lines[1], "1.1: rolled back");
    assert_eq!(lines[2], lines[0]);
    assert!(lines[3].starts_with("version 1.2, current -> releases/1.2"), "{output}");
    assert_eq!((releases(lines[0]).as_str(), releases(lines[3]).as_str()), ("1.0", "1.0 1.2"));
}

#[test]
fn wrong_calls_are_errors_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        compile_and_run("crates/steadfast-capi/tests/c/abuse.c", &["disk.img"], &directory);
    assert_eq!(output.lines().last(), Some("ok"), "{output}");
}

#[test]
fn snapshots_clones_and_transactions() {
    let directory = tempfile::tempdir().unwrap();
    let output = compile_and_run("crates/steadfast-capi/tests/c/snapshots.c", &[], &directory);
    assert_eq!(output, "ok\n");
}

#[test]
fn the_header_is_cplusplus_too() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("all.cpp");
    std::fs::write(
        &source,
        "#include <steadfast.h>\n#include <steadfast-port.h>\n#include <steadfast-ioctl.h>\n",
    )
    .unwrap();
    let mut command = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".into()));
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
    command.arg(repository().join("crates/steadfast-capi/include")).arg(source);
    run(command);
}

#[test]
fn python_with_ctypes() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    command
        .arg(repository().join("examples/python/notes.py"))
        .arg("notes.img")
        .current_dir(directory.path());
    command.env("STEADFAST_LIBRARY", libraries().join("libsteadfast.so"));
    let output = run(command);
    let expected = "rolled back: out of ideas\n\
        as it should be: [Errno 2] sf_read_file: no such file or directory\n\
        monday: buy milk\n\
        tuesday: café at five\n";
    assert_eq!(output, expected);
}
