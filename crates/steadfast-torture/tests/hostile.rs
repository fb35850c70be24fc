//! Hostile images by seed, and the inputs that the fuzzer has kept. Longer:
//! `STEADFAST_HOSTILE=1000000`.
//!
//! The allocator refuses nothing, but counts: memory must stay bounded, whatever an image contains.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use steadfast_torture::hostile::{Choices, ExerciseOutcome, hostile_image, raw_image, run_stream};

/// Bytes that one image may have allocated at one time. This includes the image of at most 1 MiB
/// (twice) and a cache of 64 KiB.
const MEMORY_MAX: isize = 24 << 20;

thread_local! {
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts the allocations of this thread.
struct Watched;

fn count(change: isize) {
    let _ = IN_USE.try_with(|in_use| {
        in_use.set(in_use.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(in_use.get())));
    });
}

// SAFETY: every call goes to the system allocator with the same layout.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Number of findings after which a test ends.
const FINDINGS_MAX: usize = 8;

/// Runs inputs and collects findings: a panic, or too much memory.
#[derive(Default)]
struct BudgetMedium {
    findings: Vec<String>,
}

impl BudgetMedium {
    fn run(
        &mut self,
        name: &str,
        input: &[u8],
        target: fn(&[u8]) -> ExerciseOutcome,
    ) -> ExerciseOutcome {
        let before = IN_USE.get();
        PEAK.set(before);
        let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
        let peak = PEAK.get() - before;
        if outcome.is_err() {
            self.findings.push(format!("{name} panics, input {input:?}"));
        }
        if peak > MEMORY_MAX {
            self.findings.push(format!("{name} takes {peak} bytes, input {input:?}"));
        }
        if self.findings.len() >= FINDINGS_MAX {
            self.finish();
        }
        outcome.unwrap_or_default()
    }

    fn finish(&self) {
        assert!(self.findings.is_empty(), "{}", self.findings.join("\n"));
    }
}

fn cases(default: u64) -> u64 {
    std::env::var("STEADFAST_HOSTILE").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn by_seed(name: &str, count: u64, target: fn(&[u8]) -> ExerciseOutcome) {
    let (mut opened, mut errors, mut calls) = (0, 0, 0);
    let mut bench = BudgetMedium::default();
    for seed in 0..count {
        let input = Choices::bytes_of(seed, 4 + seed as usize % 60);
        let outcome = bench.run(&format!("{name} {seed}"), &input, target);
        opened += u64::from(outcome.opened);
        errors += outcome.errors;
        calls += outcome.calls;
    }
    bench.finish();
    println!("{name}: {count} images, {opened} opened, {calls} calls, {errors} refused");
    assert!(opened > count / 10 && errors > 0);
}

#[test]
fn images_with_right_checksums_cause_errors_at_most() {
    by_seed("image", cases(1500), hostile_image);
}

#[test]
fn images_with_rot_cause_errors_at_most() {
    by_seed("raw image", cases(500), raw_image);
}

/// The fuzzer's corpora: inputs with distinct behaviour, and every input that was ever wrong.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let Ok(entries) = std::fs::read_dir(&directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files
        .into_iter()
        .filter_map(|path| std::fs::read(&path).ok().map(|bytes| (path, bytes)))
        .collect()
}

#[test]
fn the_corpora_cause_errors_at_most() {
    for (target, entry) in
        [("image", hostile_image as fn(&[u8]) -> ExerciseOutcome), ("raw_image", raw_image)]
    {
        let files = corpus(target);
        println!("{target}: {} inputs", files.len());
        let mut bench = BudgetMedium::default();
        for (path, bytes) in files {
            bench.run(&path.display().to_string(), &bytes, entry);
        }
        bench.finish();
    }
}

#[test]
fn the_corpus_of_operations_agrees_with_the_model() {
    let mut inputs = corpus("operations");
    inputs.extend((0..cases(200).min(20_000)).map(|seed| {
        (PathBuf::from(format!("seed {seed}")), Choices::bytes_of(seed, 40 + seed as usize % 400))
    }));
    for (path, bytes) in inputs {
        if let Err(what) = run_stream(&bytes) {
            panic!("{}: {what}", path.display());
        }
    }
}
