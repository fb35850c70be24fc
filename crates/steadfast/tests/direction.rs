//! Layers and crates use only what is below them. The tables of docs/ARCHITECTURE.md, from the top,
//! are the order. The `use` lines are checked against it. No files of a crate use each other in a
//! circle. No two types of a crate share a name.
//!
//! Unit tests may use what they like, so they are left out, and so is the fixture `testing.rs`. A
//! `mod.rs` that declares its files and passes on their items is no circle with them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files below all layers, which these may use.
const BASE: &[&str] = &[
    "error", "types", "mask", "options", "platform", "checksum", "newer", "sabotage", "sort",
    "profile",
];

/// The name that the options of each command have in the programs: one meaning in many files.
const OPTIONS: &str = "Args";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// First cells of the table after the line that begins so, from the top.
fn table(page: &str, heading: &str) -> Vec<String> {
    let after = page.split(heading).nth(1).unwrap_or_else(|| panic!("no line {heading:?}"));
    let rows = after.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.split('`').nth(1).expect("a name in the first cell").to_owned()).collect()
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("directory") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The path of a file as a module: `engine/commit/mod.rs` is `engine::commit`.
fn module_of(path: &Path) -> Vec<String> {
    let parts = path.with_extension("");
    let mut parts: Vec<_> =
        parts.iter().map(|part| part.to_str().expect("UTF-8").to_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

/// Code without comments and without the unit tests at its end.
fn code_of(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    code.split("\nmod tests {").next().expect("code").to_owned()
}

/// Paths that begin with `crate` or `super`, as lists of names from the root of the crate. Items in
/// braces are paths of their own.
fn paths_of(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for keyword in ["crate::", "super::"] {
        for (at, _) in code.match_indices(keyword) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut root = Vec::new();
            let mut rest = &code[at..];
            if let Some(after) = rest.strip_prefix("crate::") {
                rest = after;
            } else {
                root = module.to_vec();
                while let Some(after) = rest.strip_prefix("super::") {
                    root.pop();
                    rest = after;
                }
            }
            spread(&root, rest, &mut found);
        }
    }
    found
}

fn spread(root: &[String], rest: &str, found: &mut Vec<Vec<String>>) {
    if let Some(inside) = rest.strip_prefix('{') {
        let (mut depth, mut from) = (0, 0);
        for (at, c) in inside.char_indices() {
            let ends = depth == 0 && (c == ',' || c == '}');
            if ends && !inside[from..at].trim().is_empty() {
                spread(root, inside[from..at].trim_start(), found);
            }
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => return,
                '}' => depth -= 1,
                _ => {}
            }
            if ends {
                from = at + 1;
            }
        }
        return;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let mut path = root.to_vec();
    path.push(rest[..end].to_owned());
    match rest[end..].strip_prefix("::") {
        Some(after) => spread(&path, after, found),
        None => found.push(path),
    }
}

/// Which file uses which, by module.
fn uses(source: &Path) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let mut files = Vec::new();
    rust_files(source, &mut files);
    let modules: BTreeMap<_, _> = files
        .iter()
        .map(|path| (module_of(path.strip_prefix(source).expect("inside")), path))
        .filter(|(module, _)| {
            !module.iter().any(|part| part == "tests")
                && module.first().is_some_and(|m| m != "testing")
        })
        .collect();
    let mut uses = BTreeMap::new();
    for (module, path) in &modules {
        let code = code_of(&fs::read_to_string(path).expect("file"));
        let mut used = BTreeSet::new();
        for mut path in paths_of(&code, module) {
            while !path.is_empty() && !modules.contains_key(&path) {
                path.pop();
            }
            if !path.is_empty() && path != *module {
                used.insert(path);
            }
        }
        uses.insert(module.clone(), used);
    }
    uses
}

/// Uses that go up: of a layer above, or of a layer by what is below all of them.
fn upward(uses: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>, layers: &[String]) -> Vec<String> {
    // From the bottom: base files 0, then the table's rows from its end.
    let level = |layer: &str| {
        let row = layers.iter().position(|name| name == layer);
        match row {
            Some(row) => Some(layers.len() - row),
            None => BASE.contains(&layer).then_some(0),
        }
    };
    let mut wrong = Vec::new();
    for (module, used) in uses {
        let layer = &module[0];
        let Some(own) = level(layer) else {
            wrong.push(format!("{layer} is in no table: add it to docs/ARCHITECTURE.md"));
            continue;
        };
        for other in used.iter().filter(|other| other[0] != *layer) {
            if level(&other[0]).is_some_and(|level| level > own) {
                wrong.push(format!(
                    "{} uses {}, which is above it",
                    module.join("::"),
                    other.join("::")
                ));
            }
        }
    }
    wrong
}

/// A circle among files, if there is one.
fn circle(uses: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>) -> Option<String> {
    fn visit(
        at: &Vec<String>,
        uses: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
        way: &mut Vec<Vec<String>>,
        done: &mut BTreeSet<Vec<String>>,
    ) -> Option<String> {
        if let Some(from) = way.iter().position(|seen| seen == at) {
            let names: Vec<_> = way[from..].iter().map(|module| module.join("::")).collect();
            return Some(names.join(" -> "));
        }
        if done.contains(at) {
            return None;
        }
        way.push(at.clone());
        // What a file takes from the `mod.rs` above it is an item that all its files share.
        let others = uses[at].iter().filter(|other| !at.starts_with(other));
        let found = { others }.find_map(|other| visit(other, uses, way, done));
        way.pop();
        done.insert(at.clone());
        found
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| visit(module, uses, &mut Vec::new(), &mut done))
}

#[test]
fn layers_of_the_core_use_only_what_is_below_them() {
    let page = fs::read_to_string(repository().join("docs/ARCHITECTURE.md")).expect("page");
    let layers = table(&page, "\nLayers of the core");
    let uses = uses(&repository().join("crates/steadfast/src"));
    assert!(uses.len() > 100, "{} files", uses.len());
    let wrong = upward(&uses, &layers);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let there: BTreeSet<_> = uses.keys().map(|module| module[0].clone()).collect();
    for layer in &layers {
        assert!(there.contains(layer), "docs/ARCHITECTURE.md has {layer}, the core has not");
    }
}

/// The names of types in some code.
fn types_of(code: &str) -> Vec<&str> {
    let named = code.lines().filter_map(|line| {
        let mut words = line.trim_start().split(' ').skip_while(|word| word.starts_with("pub"));
        let found = match words.next() {
            Some("struct" | "enum" | "trait") => true,
            // Those in an `impl` have a name that the trait has chosen.
            Some("type") => !line.starts_with(' '),
            _ => false,
        };
        found.then(|| words.next()).flatten()
    });
    let end = |c: char| !c.is_alphanumeric() && c != '_';
    let named = named.map(|name| &name[..name.find(end).unwrap_or(name.len())]);
    // Those of macros have none.
    named.filter(|name| !name.is_empty()).collect()
}

/// Types that share a name, each with the files that have it.
fn shared_names(files: &[(String, String)]) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, code) in files {
        let names = types_of(code).into_iter().filter(|name| *name != OPTIONS);
        names.for_each(|name| found.entry(name).or_default().push(file));
    }
    let shared = found.into_iter().filter(|(_, files)| files.len() > 1);
    shared.map(|(name, files)| format!("{name}: {}", files.join(", "))).collect()
}

#[test]
fn each_name_of_a_type_has_one_meaning_in_its_crate() {
    let mut crates = 0;
    for entry in fs::read_dir(repository().join("crates")).expect("crates") {
        let source = entry.expect("entry").path().join("src");
        let mut files = Vec::new();
        rust_files(&source, &mut files);
        let test = |part: &OsStr| part == "tests" || part.as_bytes().ends_with(b"tests.rs");
        files.retain(|path| !path.iter().any(test));
        let read = |path: &PathBuf| {
            let file = path.strip_prefix(&source).expect("inside").display().to_string();
            (file, code_of(&fs::read_to_string(path).expect("file")))
        };
        let files: Vec<_> = files.iter().map(read).collect();
        crates += u32::from(!files.is_empty());
        assert_eq!(shared_names(&files), Vec::<String>::new(), "{}", source.display());
    }
    assert!(crates > 16, "{crates} crates");
}

#[test]
fn files_use_each_other_in_no_circle() {
    let mut seen = 0;
    for entry in fs::read_dir(repository().join("crates")).expect("crates") {
        let source = entry.expect("entry").path().join("src");
        let found = uses(&source);
        seen += found.len();
        assert_eq!(circle(&found), None, "{}", source.display());
    }
    assert!(seen > 700, "{seen} files");
}

#[test]
fn crates_depend_only_on_what_is_below_them() {
    let page = fs::read_to_string(repository().join("docs/ARCHITECTURE.md")).expect("page");
    let crates = table(&page, "\nCrates, from the top");
    let mut seen = 0;
    for entry in fs::read_dir(repository().join("crates")).expect("crates") {
        let path = entry.expect("entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("name").to_owned();
        let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let row = crates.iter().position(|row| *row == name);
        let row = row.unwrap_or_else(|| panic!("{name} is in no table of docs/ARCHITECTURE.md"));
        seen += 1;
        let dependencies = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let lines = dependencies.lines().take_while(|line| !line.starts_with('['));
        for line in lines.filter(|line| line.starts_with("steadfast")) {
            let used = line.split(['.', ' ', '=']).next().expect("a name");
            let below = crates.iter().position(|row| row == used).expect("a crate of the table");
            assert!(below > row, "{name} depends on {used}, which is above it");
        }
    }
    assert_eq!(seen, crates.len());
}

/// The checks above can fail.
#[test]
fn what_goes_up_and_round_is_found() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
    let code = "use crate::fs::{tx::Tx, write};\nuse super::super::tree::Store;\n\
        fn f() { crate::log::scan(); }\n#[cfg(test)]\nmod tests { use crate::tools; }";
    let paths = paths_of(&code_of(code), &module("engine::commit"));
    let paths: BTreeSet<_> = paths.iter().map(|path| path.join("::")).collect();
    let expected = ["fs::tx::Tx", "fs::write", "log::scan", "tree::Store"].map(str::to_owned);
    assert_eq!(paths, BTreeSet::from(expected));

    let layers = ["fs", "engine", "tree"].map(str::to_owned);
    let uses = BTreeMap::from([
        (module("engine::a"), BTreeSet::from([module("fs::x"), module("tree::y")])),
        (module("fs::x"), BTreeSet::from([module("engine::a")])),
        (module("tree::y"), BTreeSet::new()),
        (module("lost"), BTreeSet::new()),
    ]);
    let wrong = upward(&uses, &layers);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert_eq!(circle(&uses).as_deref(), Some("engine::a -> fs::x"));

    let file = |name: &str, code: &str| (name.to_owned(), code.to_owned());
    let one = file("a.rs", "pub(crate) struct Place<'a> {\nenum Step {\nstruct Unit;");
    let other = file("b.rs", "    struct Place(u64);\nlet step = structure;");
    assert_eq!(shared_names(&[one, other]), ["Place: a.rs, b.rs"]);
}
