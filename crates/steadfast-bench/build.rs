//! Tells the program from which commit it is built, for the provenance of results. Without git, or
//! outside of a repository, nothing is told; `STEADFAST_COMMIT` in the environment is taken as it
//! is.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=STEADFAST_COMMIT");
    // What is measured: a change there makes the commit a modified one. Cargo compiles this crate
    // again then anyway.
    for place in
        ["steadfast-bench", "steadfast", "steadfast-media", "steadfast-host", "steadfast-fuse"]
    {
        println!("cargo::rerun-if-changed=../{place}/src");
    }
    println!("cargo::rerun-if-changed=build.rs");
    // Written by each commit, checkout and rebase.
    if let Some(log) =
        git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists())
    {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = std::env::var("STEADFAST_COMMIT").ok().or_else(commit) {
        println!("cargo::rustc-env=STEADFAST_COMMIT={commit}");
    }
}

/// `d626c90f1a2b`, or `d626c90f1a2b, modified`.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // What is built; a changed page of documentation changes no figure.
    let built = ["--", ":/crates", ":/Cargo.toml", ":/Cargo.lock"];
    let changes = git(&[&["status", "--porcelain", "--untracked-files=no"][..], &built].concat())?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, modified") })
}

/// What git prints, if it is there and agrees.
fn git(words: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
