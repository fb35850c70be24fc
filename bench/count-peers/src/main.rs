//! Workers that count other systems in the way of `steadfast-count`, which runs this program.
//!
//! File systems: FAT (`fatfs`) and littlefs. Key-value stores: redb and SQLite. Each is in this
//! process and on memory (SQLite on a file, whose system calls are not counted).

mod fat;
mod files;
mod little;
mod memory;
mod stores;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use steadfast_count::Result;
use steadfast_count::allocations::CountingAllocator;
use steadfast_count::region::Counts;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Print what there is to count: pairs of system and operation
    List,
    /// Make what operations are measured on
    Prepare {
        files: u64,
        image: PathBuf,
        #[arg(long)]
        system: String,
    },
    /// Measure one operation
    Work {
        operation: String,
        files: u64,
        image: PathBuf,
        #[arg(long)]
        system: String,
    },
}

fn prepare(system: &str, files: u64, image: &Path) -> Result<()> {
    match system {
        fat::SYSTEM => fat::prepare(files, image),
        little::SYSTEM => little::prepare(files, image),
        stores::REDB => stores::prepare_redb(files, image),
        stores::SQLITE => stores::prepare_sqlite(files, image),
        _ => Err(format!("{system}: no such system")),
    }
}

fn work(system: &str, operation: &str, files: u64, image: &Path) -> Result<Counts> {
    match system {
        fat::SYSTEM => fat::work(operation, files, image),
        little::SYSTEM => little::work(operation, files, image),
        stores::REDB => stores::work_redb(operation, files, image),
        stores::SQLITE => stores::work_sqlite(operation, files, image),
        _ => Err(format!("{system}: no such system")),
    }
}

fn list() -> Vec<(&'static str, &'static str)> {
    let files = [fat::SYSTEM, little::SYSTEM].into_iter();
    let stores = [stores::REDB, stores::SQLITE].into_iter();
    files
        .flat_map(|system| files::OPERATIONS.map(|operation| (system, operation)))
        .chain(stores.flat_map(|system| stores::OPERATIONS.map(|operation| (system, operation))))
        .collect()
}

fn run(task: Task) -> Result<String> {
    let text = |error: serde_json::Error| error.to_string();
    match task {
        Task::List => serde_json::to_string(&list()).map_err(text),
        Task::Prepare { files, image, system } => {
            prepare(&system, files, &image).map(|()| String::new())
        }
        Task::Work { operation, files, image, system } => {
            serde_json::to_string(&work(&system, &operation, files, &image)?).map_err(text)
        }
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("count-peers: {problem}");
            ExitCode::FAILURE
        }
    }
}
