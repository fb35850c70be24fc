//! The two programs that these tests run.
//!
//! Cargo builds `steadfast-lab` for them. It builds `steadfast`, which is another package, only
//! where all tests are run; [`built`] does so where one is run alone.
#![allow(dead_code)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Once;
use std::time::SystemTime;

/// The program of this package.
pub const LAB: &str = env!("CARGO_BIN_EXE_steadfast-lab");
/// The other one, beside it.
pub const STEADFAST: &str = LAB.split_at(LAB.len() - "-lab".len()).0;

/// Builds `steadfast` where it is missing or older than its sources.
pub fn built() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if is_current(Path::new(STEADFAST)) {
            return;
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--workspace", "--locked", "--quiet", "--bin", "steadfast"]);
        // The profile of the tests, so that nothing is built twice.
        command.args(["--profile", if cfg!(debug_assertions) { "test" } else { "release" }]);
        let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(status.expect("cargo runs").success(), "steadfast does not build");
    });
}

/// Whether a program is newer than every file that it was made from, which cargo lists beside it.
fn is_current(program: &Path) -> bool {
    let written = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let newer = |than: SystemTime, path: &str| {
        written(Path::new(&path.replace('\0', " "))).is_none_or(|written| written > than)
    };
    let (Some(made), Ok(list)) =
        (written(program), fs::read_to_string(program.with_extension("d")))
    else {
        return false;
    };
    let Some((_, sources)) = list.split_once(": ") else { return false };
    !sources.replace("\\ ", "\0").split_whitespace().any(|source| newer(made, source))
}
