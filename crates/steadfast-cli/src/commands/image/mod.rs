//! `steadfast image`: tools for image files that need neither root nor a mount.

mod build;
mod build_nand;
mod diff;
mod extract;
mod fill;
mod pack;
mod resize;

use crate::failure::Outcome;

/// Build, unpack, resize and compare images
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: ImageCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ImageCommand {
    Build(Box<build::Args>),
    Extract(extract::Args),
    Resize(resize::Args),
    Diff(diff::Args),
}

/// Runs the command; returns its exit code.
///
/// # Errors
/// Those of the action.
pub fn run(args: &Args) -> Outcome<u8> {
    match &args.action {
        ImageCommand::Build(args) => build::run(args).map(|()| 0),
        ImageCommand::Extract(args) => extract::run(args).map(|()| 0),
        ImageCommand::Resize(args) => resize::run(args).map(|()| 0),
        ImageCommand::Diff(args) => diff::run(args),
    }
}

/// A progress bar in bytes on standard error, hidden if that is not a terminal.
fn byte_bar(doing: &'static str, quiet: bool) -> indicatif::ProgressBar {
    if quiet {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(0);
    let template = "{prefix} {bar:30} {percent:>3} %, {bytes}, {eta} left";
    match indicatif::ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style).with_prefix(doing),
        Err(_) => bar,
    }
}
