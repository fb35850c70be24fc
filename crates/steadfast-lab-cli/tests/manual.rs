//! The manual pages of both programs, which `steadfast-lab` writes when packages are built.

#[path = "../../steadfast-cli/tests/common/mod.rs"]
mod common;
mod programs;

use std::fs;

use common::Scratch;

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    lines.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help").collect()
}

/// Checks the page of a command and those of the commands below it.
fn check(scratch: &Scratch, words: &str) -> usize {
    let call = words.strip_prefix("steadfast").unwrap().trim();
    let name = words.replace(' ', "-");
    let page = fs::read_to_string(scratch.path(&format!("man/{name}.1"))).expect("a page");
    assert!(page.contains(".SH SYNOPSIS") && page.contains(words), "{page}");
    let help = scratch.ok(&format!("{call} --help"));
    let below = commands(&help).into_iter().filter(|word| {
        // These are commands of the other program.
        !matches!((words, *word), ("steadfast", "lab" | "torture") | ("steadfast flash", "torture"))
    });
    1 + below.map(|word| check(scratch, &format!("{words} {word}"))).sum::<usize>()
}

#[test]
fn every_command_has_its_page() {
    programs::built();
    let scratch = Scratch::new();
    scratch.ok("lab manpages man");
    assert!(check(&scratch, "steadfast") > 50);
    for name in ["steadfast-lab", "steadfast-lab-run", "steadfast-lab-torture"] {
        let page = fs::read_to_string(scratch.path(&format!("man/{name}.1"))).expect("a page");
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let page = fs::read_to_string(scratch.path("man/mkfs.steadfast.8")).expect("a page");
    assert!(page.contains("mkfs.steadfast"), "{page}");
    let page = fs::read_to_string(scratch.path("man/steadfast.1")).expect("a page");
    assert!(page.contains("Exit codes"), "{page}");
}
