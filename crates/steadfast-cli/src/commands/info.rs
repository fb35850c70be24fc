//! `steadfast info`: information about a volume.

use std::path::PathBuf;

use steadfast::tools::identify;

use crate::commands::df;
use crate::export::{self, Form};
use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::image::{Access, Image};
use crate::output::{self, Output};
use crate::report::InfoReport;
use crate::target::Target;

/// Show what a volume is: format, sizes, counts, when it was made, transaction mask, state
///
/// The format keeps no times of mounts and checks: neither needs any, and a mount that only reads
/// writes nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image, block device or mount point
    #[arg(value_name = "IMAGE|DIR")]
    target: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only one field of the JSON, such as uuid or daemon_pid
    #[arg(long, value_name = "FIELD", conflicts_with = "json")]
    get: Option<String>,
    /// Print KEY=value lines for scripts as blkid(8) does, or for udev rules; exit code 2 if there
    /// is no volume
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, require_equals = true,
        default_missing_value = "blkid", conflicts_with_all = ["json", "get"])]
    export: Option<Form>,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the target.
pub fn run(args: &Args) -> Outcome {
    if let Some(form) = args.export {
        return export::run(&args.target, form);
    }
    let report = match Target::find(&args.target)? {
        Target::Mounted(live) => {
            let directory = live.directory().display().to_string();
            let pid = host::lock_owner(&live.mount.source);
            let source = &live.mount.source;
            let report =
                InfoReport::new(&live.info()?, source.display().to_string(), Some(directory))
                    .with_daemon(pid)
                    .with_statistics(&df::statistics_live(&live)?);
            // Of a medium that only its daemon may read this much is told and no more.
            match host::identify(source) {
                Ok(identity) => report.with_identity(&identity),
                Err(_) => report,
            }
        }
        Target::Image(path) => {
            let image = Image::open(&path, Access::Read)?;
            let info = image.volume.info();
            let at_image = |error| Failure::core(error, path.display());
            let statistics = image.volume.statistics().map_err(at_image)?;
            let identity = identify(image.volume.medium(), image.volume.platform());
            let identity = identity.map_err(at_image)?;
            image.close()?;
            InfoReport::new(&info, path.display().to_string(), None)
                .with_identity(&identity)
                .with_statistics(&statistics)
        }
    };
    if args.json {
        return output::json(&report);
    }
    if let Some(field) = &args.get {
        return output::line(field_of(&report, field, args)?);
    }
    let mut output = Output::new();
    report.print(&mut output)?;
    output.finish()
}

fn field_of(report: &InfoReport, field: &str, args: &Args) -> Outcome<String> {
    let fail =
        |what: String, advice: &str| Failure::new(Exit::Usage, what, args.target.display(), advice);
    let document =
        serde_json::to_value(report).map_err(|error| fail(error.to_string(), "report it"))?;
    match document.get(field) {
        None => {
            Err(fail(format!("no field '{field}'"), "see the fields with 'steadfast info --json'"))
        }
        Some(serde_json::Value::Null) => {
            Err(fail(format!("no '{field}' here"), "it is null in the JSON"))
        }
        Some(serde_json::Value::String(text)) => Ok(text.clone()),
        Some(value) => Ok(value.to_string()),
    }
}
