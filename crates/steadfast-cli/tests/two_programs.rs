//! The commands that belong to the program `steadfast-lab`: how it is found, and what is said where
//! it is not installed.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{STEADFAST, Scratch, failed};

/// Puts a program into `directory` that prints its name and its arguments.
fn stand_in(scratch: &Scratch, directory: &str) {
    fs::create_dir_all(scratch.path(directory)).unwrap();
    let script = format!("#!/bin/sh\necho \"{directory} $*\"\nexit 7\n");
    let program = scratch.write(&format!("{directory}/steadfast-lab"), script.as_bytes());
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a copy of the program that has nothing beside it but what a test has put there.
fn alone(scratch: &Scratch, path: &str, line: &str) -> Output {
    let program = scratch.path("own/steadfast");
    if !program.exists() {
        fs::create_dir_all(scratch.path("own")).unwrap();
        fs::hard_link(STEADFAST, &program)
            .or_else(|_| fs::copy(STEADFAST, &program).map(drop))
            .unwrap();
    }
    let mut command = Command::new(program);
    command.args(line.split_whitespace()).env("PATH", path).stdin(Stdio::null());
    command.current_dir(scratch.path("")).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

const LINES: [(&str, &str); 9] = [
    ("lab run --suite b1 --out x", "run --suite b1 --out x"),
    ("lab --help", "--help"),
    ("lab", ""),
    ("torture --for 5s -- -x", "torture --for 5s -- -x"),
    ("torture --self-test", "torture --self-test"),
    ("flash torture --cuts 3", "flash-torture --cuts 3"),
    ("help lab show", "help show"),
    ("help torture", "help torture"),
    ("flash help torture", "help flash-torture"),
];

#[test]
fn the_program_beside_it_comes_first_and_then_the_path() {
    let scratch = Scratch::new();
    stand_in(&scratch, "elsewhere");
    let path = scratch.path("elsewhere").to_str().unwrap().to_owned();
    for (line, told) in LINES {
        let output = alone(&scratch, &path, line);
        let said = text(&output);
        assert_eq!(
            (output.status.code(), said.trim_end()),
            (Some(7), format!("elsewhere {told}").trim_end())
        );
    }
    stand_in(&scratch, "own");
    for (line, told) in LINES {
        let output = alone(&scratch, &path, line);
        let said = text(&output);
        assert_eq!(
            (output.status.code(), said.trim_end()),
            (Some(7), format!("own {told}").trim_end())
        );
    }
    // What cannot be run is not the program.
    let own = scratch.path("own/steadfast-lab");
    fs::set_permissions(own, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(text(&alone(&scratch, &path, "lab show")), "elsewhere show\n");
}

#[test]
fn without_it_one_line_says_what_to_install() {
    let scratch = Scratch::new();
    for (line, _) in LINES {
        let output = alone(&scratch, "/nowhere", line);
        let said = failed(&output, 1, line);
        assert!(said.contains("package steadfast-lab") && output.stdout.is_empty(), "{said}");
    }
    // A directory in which the program was started is no place to look.
    stand_in(&scratch, ".");
    assert!(Path::new(&scratch.path("steadfast-lab")).exists());
    failed(&alone(&scratch, "", "lab show"), 1, "lab show");
    // The help of the program says that there are more commands.
    let help = text(&alone(&scratch, "/nowhere", "--help"));
    assert!(help.contains("torture") && help.contains("package steadfast-lab"), "{help}");
}
