//! Passes the commit of the build to the program, for the provenance of results. Without git, or
//! outside of a repository, it passes nothing. A value of `STEADFAST_COMMIT` in the environment is
//! used unchanged.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=STEADFAST_COMMIT");
    // The measured sources: a change in them makes the commit a modified one. Cargo compiles this
    // crate again in that case.
    for place in
        ["steadfast-lab", "steadfast", "steadfast-media", "steadfast-host", "steadfast-fuse"]
    {
        println!("cargo::rerun-if-changed=../{place}/src");
    }
    println!("cargo::rerun-if-changed=build.rs");
    // Each commit, checkout and rebase writes this file.
    if let Some(log) =
        git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists())
    {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = std::env::var("STEADFAST_COMMIT").ok().or_else(commit) {
        println!("cargo::rustc-env=STEADFAST_COMMIT={commit}");
    }
}

/// The commit, such as `d626c90f1a2b` or `d626c90f1a2b, modified`.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // Only what is built counts; a changed page of documentation changes no figure.
    let built = ["--", ":/crates", ":/Cargo.toml", ":/Cargo.lock"];
    let changes = git(&[&["status", "--porcelain", "--untracked-files=no"][..], &built].concat())?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, modified") })
}

/// The output of git, if git is installed and succeeds.
fn git(words: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
