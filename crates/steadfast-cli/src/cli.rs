//! The whole command line: its grammar, its dispatch, and how failures end the program.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    atomically, cat, check, clone, cluster, completions, defrag, df, dump, extents, flash, get,
    image, info, ls, map, mask, mkfs, mount, put, rados, remote, rm, rollback, scrub, serve,
    snapshot, top, transact, tree, trim, tune, umount,
};
use crate::exit;
use crate::exit::refuse;
use crate::failure::Outcome;
use crate::mount_helper::{self, MountCall};
use crate::program::{self, Program};
use crate::{fsck, lab_program, mkfs_name};

/// Text that follows the list of commands.
const AFTER_HELP: &str = "\
A volume in a partition of a disk's image: 'disk.img?offset=1M', with &size=SIZE where others follow.
Sizes: 4096, 4K = 4KiB = 4096, 4KB = 4000, up to E. Intervals: 5s, 500ms, 2min.
Exit codes: 0 success, 1 failed, 2 wrong call, 3 not a Steadfast volume (or too new), 4 damaged,
5 in use, 6 no space, 7 no permission, 8 cannot mount here, 9 a copy is damaged but nothing is lost.";

/// A transactional, power-fail-safe file system.
#[derive(Debug, Parser)]
#[command(name = "steadfast", version, about, after_help = AFTER_HELP, max_term_width = 110)]
struct Cli {
    /// Where the newest state of an image is damaged, give it up and continue in an older one
    #[arg(long, global = true)]
    recover: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mkfs(mkfs::Args),
    Mount(mount::Args),
    #[command(visible_alias = "unmount")]
    Umount(umount::Args),
    Info(info::Args),
    Df(df::Args),
    #[command(visible_alias = "fsck")]
    Check(check::Args),
    Scrub(scrub::Args),
    Transact(transact::Args),
    Rollback(rollback::Args),
    Mask(mask::Args),
    Snapshot(snapshot::Args),
    Clone(clone::Args),
    Atomically(atomically::Args),
    Image(image::Args),
    Dump(dump::Args),
    Defrag(defrag::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Put(put::Args),
    Get(get::Args),
    Rm(rm::Args),
    Top(top::Args),
    Map(map::Args),
    Extents(extents::Args),
    Trim(trim::Args),
    Tree(tree::Args),
    Tune(tune::Args),
    /// Cut the power at every moment and judge what is left (the package steadfast-lab has it)
    Torture(lab_program::Args),
    Flash(flash::Args),
    /// Compare file systems on this machine (the package steadfast-lab has it)
    Lab(lab_program::Args),
    Serve(serve::Args),
    Remote(remote::Args),
    Rados(rados::Args),
    Cluster(cluster::Args),
    Completions(completions::Args),
}

/// Runs the program with these arguments. The first argument is the program's name.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    program::begin(Program { name: "steadfast", grammar });
    if fsck::is_called(&arguments) {
        return ExitCode::from(fsck::run(&arguments));
    }
    if mkfs_name::is_called(&arguments) {
        return run_mkfs(&arguments);
    }
    if mount_helper::is_called(&arguments, is_command) {
        return run_mount_helper(&arguments);
    }
    if let Some(Err(failure)) = lab_program::help(&arguments) {
        return exit::end(Err(failure));
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    if cli.recover {
        crate::image::recover_from_now_on();
    }
    exit::end(dispatch(&cli.command))
}

/// Runs a command. On success the exit code is 0, or the code of the program that the command ran.
fn dispatch(command: &Command) -> Outcome<u8> {
    let done: Outcome = match command {
        Command::Atomically(args) => return atomically::run(args),
        Command::Image(args) => return image::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Defrag(args) => defrag::run(args),
        Command::Mkfs(args) => mkfs::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(args),
        Command::Info(args) => info::run(args),
        Command::Df(args) => df::run(args),
        Command::Check(args) => check::run(args),
        Command::Scrub(args) => scrub::run(args),
        Command::Transact(args) => transact::run(args),
        Command::Rollback(args) => rollback::run(args),
        Command::Mask(args) => mask::run(args),
        Command::Snapshot(args) => snapshot::run(args),
        Command::Clone(args) => clone::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Cat(args) => cat::run(args),
        Command::Put(args) => put::run(args),
        Command::Get(args) => get::run(args),
        Command::Rm(args) => rm::run(args),
        Command::Top(args) => top::run(args),
        Command::Map(args) => map::run(args),
        Command::Tree(args) => tree::run(args),
        Command::Extents(args) => extents::run(args),
        Command::Trim(args) => trim::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Torture(args) => lab_program::run(&["torture"], args),
        Command::Flash(args) => flash::run(args),
        Command::Lab(args) => lab_program::run(&[], args),
        Command::Serve(args) => serve::run(args),
        Command::Remote(args) => remote::run(args),
        Command::Rados(args) => rados::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Completions(args) => completions::run(args, grammar()),
    };
    done.map(|()| 0)
}

/// The grammar of the command line, for generators of manuals and completions.
pub fn grammar() -> clap::Command {
    Cli::command()
}

/// Whether `word` is a command, so that [`mount_helper`] does not take it for an image.
fn is_command(word: &OsStr) -> bool {
    let Some(word) = word.to_str() else { return false };
    word == "help" || Cli::command().find_subcommand(word).is_some()
}

/// Runs as `mkfs.steadfast`. The exit code is 0 or 1, as mkfs(8) documents.
fn run_mkfs(arguments: &[OsString]) -> ExitCode {
    let made = match mkfs_name::MkfsCall::try_parse_from(arguments) {
        Ok(call) => mkfs_name::run(call),
        Err(error) if error.use_stderr() => {
            refuse(&error);
            return ExitCode::FAILURE;
        }
        Err(error) => return refuse(&error),
    };
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_mount_helper(arguments: &[OsString]) -> ExitCode {
    let (result, code) = match mount_helper::parse(arguments) {
        Ok(MountCall::Mount(request)) => (mount::mount(&request), mount_helper::EXIT_MOUNT_FAILED),
        Ok(MountCall::Fake) => (Ok(()), 0),
        Ok(MountCall::Unmount { target, lazy }) => {
            (umount::for_umount(&target, true, lazy), mount_helper::EXIT_MOUNT_FAILED)
        }
        Err(failure) => (Err(failure), mount_helper::EXIT_WRONG_CALL),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_are_no_images() {
        for word in ["mkfs", "mount", "umount", "unmount", "help", "check"] {
            assert!(is_command(OsStr::new(word)), "{word}");
        }
        assert!(!is_command(OsStr::new("disk.img")));
    }
}
