//! Reads what callgrind wrote: the costs of each function inside the region.
//!
//! The format is that of the manual of callgrind, without compressed names and positions. A line
//! `calls=` is followed by one line with the inclusive cost of these calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Result;

/// Costs of one function, by event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Function {
    /// Costs of its own code, inlined functions included.
    pub own: Vec<u64>,
    /// Instructions of the functions that it called. Counts a recursive call several times.
    pub called: u64,
}

/// A whole profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    events: Vec<String>,
    total: Vec<u64>,
    functions: BTreeMap<String, Function>,
}

fn numbers(words: &str) -> Option<Vec<u64>> {
    words.split_whitespace().map(|word| word.parse().ok()).collect()
}

impl Profile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no profile.
    pub fn read(path: &Path) -> Result<Profile> {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Profile::parse(&text).map_err(|problem| format!("{}: {problem}", path.display()))
    }

    fn parse(text: &str) -> Result<Profile> {
        let mut profile = Profile::default();
        let (mut function, mut call) = (String::new(), false);
        for line in text.lines() {
            if let Some(events) = line.strip_prefix("events: ") {
                profile.events = events.split_whitespace().map(str::to_owned).collect();
            } else if let Some(totals) = line.strip_prefix("totals: ") {
                profile.total = numbers(totals).ok_or_else(|| format!("not a total: {line}"))?;
            } else if let Some(name) = line.strip_prefix("fn=") {
                name.clone_into(&mut function);
            } else if line.starts_with("calls=") {
                call = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit()) {
                let costs = numbers(line).ok_or_else(|| format!("not a cost: {line}"))?;
                let entry = profile.functions.entry(function.clone()).or_default();
                // The first number is the line of the source.
                let costs = costs.get(1..).unwrap_or_default();
                if std::mem::take(&mut call) {
                    entry.called += costs.first().copied().unwrap_or(0);
                } else {
                    entry.own.resize(entry.own.len().max(costs.len()), 0);
                    entry.own.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
                }
            }
        }
        if profile.events.is_empty() || profile.total.is_empty() {
            return Err("not a profile of callgrind".into());
        }
        Ok(profile)
    }

    /// Sum of all events whose name is one of these; `None` if the profile has none of them.
    pub fn total(&self, events: &[&str]) -> Option<u64> {
        let counted = self.events.iter().zip(&self.total);
        let of_these = counted.filter(|(event, _)| events.contains(&event.as_str()));
        of_these.map(|(_, total)| *total).reduce(|sum, total| sum + total)
    }

    /// Instructions of functions whose name ends so, with those that they call.
    pub fn inclusive(&self, name: &str) -> u64 {
        let found = self.functions.iter().filter(|(function, _)| function.ends_with(name));
        found.map(|(_, costs)| costs.own.first().copied().unwrap_or(0) + costs.called).sum()
    }

    /// Instructions of the code of functions that `belongs` accepts.
    pub fn own(&self, belongs: impl Fn(&str) -> bool) -> u64 {
        let found = self.functions.iter().filter(|(function, _)| belongs(function));
        found.map(|(_, costs)| costs.own.first().copied().unwrap_or(0)).sum()
    }

    /// Functions by the instructions of their own code, most first.
    pub fn top(&self) -> Vec<(&str, u64)> {
        let all = self.functions.iter();
        let own = all.map(|(name, costs)| (name.as_str(), costs.own.first().copied().unwrap_or(0)));
        let mut own: Vec<_> = own.filter(|(_, instructions)| *instructions > 0).collect();
        own.sort_by_key(|(name, instructions)| (u64::MAX - instructions, *name));
        own
    }
}

/// Whether a function of the C library copies bytes.
pub fn copies(function: &str) -> bool {
    let name = function.trim_start_matches('_');
    name.starts_with("memcpy") || name.starts_with("memmove")
}

/// Whether a function of the C library manages memory.
pub fn allocates(function: &str) -> bool {
    let name = function.trim_start_matches('_');
    let names = [
        "malloc",
        "calloc",
        "realloc",
        "free",
        "int_malloc",
        "int_free",
        "int_realloc",
        "memalign",
        "int_memalign",
        "unlink_chunk",
        "malloc_consolidate",
        "sysmalloc",
        "systrim",
        "posix_memalign",
    ];
    names.iter().any(|known| name == *known || name.starts_with(&format!("{known}.")))
}

/// What DHAT writes in its copy mode, as far as it is used here.
#[derive(Deserialize)]
struct Copies {
    /// Places that copy.
    pps: Vec<Place>,
    /// Names of frames.
    ftbl: Vec<String>,
}

#[derive(Deserialize)]
struct Place {
    /// Bytes in all.
    tb: u64,
    /// Frames, as places in `ftbl`.
    fs: Vec<usize>,
}

/// Bytes that were copied inside the region, from a file of DHAT.
///
/// # Errors
/// If it cannot be read, or is not of DHAT.
pub fn copied_bytes(path: &Path) -> Result<u64> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    copied_in(&text).map_err(|problem| format!("{}: {problem}", path.display()))
}

fn copied_in(text: &str) -> Result<u64> {
    let copies: Copies = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let inside =
        |frame: &usize| copies.ftbl.get(*frame).is_some_and(|name| name.contains("counted_region"));
    let places = copies.pps.iter().filter(|place| place.fs.iter().any(inside));
    Ok(places.map(|place| place.tb).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_outside_the_region_do_not_count() {
        let text = r#"{"mode":"copy","pps":[{"tb":7,"tbk":1,"fs":[1,2]},{"tb":100,"tbk":1,"fs":[1,3]}],
            "ftbl":["[root]","0x1: memcpy","0x2: steadfast_count::region::counted_region","0x3: main"]}"#;
        assert_eq!(copied_in(text), Ok(7));
        assert!(copied_in("{}").is_err());
    }

    const SAMPLE: &str = "version: 1\npositions: line\nevents: Ir D1mr\nsummary: 30 2\n\nfl=a.rs\n\
        fn=one\n10 5 1\n11 1\ncfi=b.rs\ncfn=two\ncalls=3 20\n12 20 1\nfi=c.rs\n0 4\n\nfl=b.rs\nfn=two\n20 20 1\n\n\
        totals: 30 2\n";

    #[test]
    fn own_and_called_costs() {
        let profile = Profile::parse(SAMPLE).expect("a profile");
        assert_eq!(profile.total(&["Ir"]), Some(30));
        assert_eq!(profile.total(&["D1mr", "D1mw"]), Some(2));
        assert_eq!(profile.total(&["ILmr"]), None);
        assert_eq!((profile.inclusive("one"), profile.inclusive("two")), (30, 20));
        assert_eq!(profile.own(|name| name == "one"), 10);
        assert_eq!(profile.top(), [("two", 20), ("one", 10)]);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Profile::parse("").is_err());
        assert!(Profile::parse("events: Ir\nfn=a\n1 x\n").is_err());
    }

    #[test]
    fn functions_of_the_c_library() {
        assert!(copies("__memcpy_avx_unaligned_erms") && !copies("memcmp"));
        assert!(allocates("_int_free") && allocates("free") && !allocates("freeze"));
    }
}
