//! For the tests: a C compiler, the library as C programs link it, and running the resulting
//! binaries.
#![allow(dead_code)] // Each test uses only some of these functions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Runs a program to its end and returns its output.
///
/// # Panics
/// If the program fails; the message has its whole output.
pub fn run(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}

/// The compiler.
pub struct Toolchain {
    cc: String,
}

impl Toolchain {
    /// `$CC`, or `cc`, which every Rust installation needs for linking.
    pub fn find() -> Toolchain {
        Toolchain { cc: std::env::var("CC").unwrap_or_else(|_| "cc".into()) }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.cc);
        command.args([
            "-std=c99",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-g",
        ]);
        command.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
        command
    }

    /// Compiles a program that uses headers only.
    pub fn compile_plain(&self, source: &Path, directory: &Path) -> PathBuf {
        let binary = directory.join(source.file_stem().expect("a name"));
        let mut command = self.command();
        command.arg(source).arg("-o").arg(&binary);
        run(command);
        binary
    }

    /// Compiles a program with the address sanitizer and the static library.
    pub fn compile(&self, source: &Path, directory: &Path) -> PathBuf {
        let binary = directory.join(source.file_stem().expect("a name"));
        let mut command = self.command();
        command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        command.arg(source).arg(libraries().join("libsteadfast.a")).args([
            "-lpthread",
            "-ldl",
            "-lm",
        ]);
        command.arg("-o").arg(&binary);
        run(command);
        binary
    }
}

/// The directory with libsteadfast.a and libsteadfast.so, as `cargo build` makes them. Cargo does
/// not build them for a test by itself, because no Rust code links to them.
pub fn libraries() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let mut command = Command::new(env!("CARGO"));
        // The same profile as the tests, so artifacts that exist are not built again.
        command.args([
            "build",
            "--quiet",
            "--offline",
            "--profile",
            "test",
            "-p",
            "steadfast-capi",
            "--lib",
        ]);
        command.current_dir(repository());
        run(command);
        let executable = std::env::current_exe().expect("this test");
        // target/debug/deps/examples-…
        executable.parent().and_then(Path::parent).expect("the directory of the build").to_owned()
    })
}
