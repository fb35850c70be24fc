//! Writes the table as a page for people, docs/COUNTS.md.

use std::fmt::Write;

use crate::drive::STEADFAST;
use crate::operations::{OPERATIONS, Operation};
use crate::table::{Row, Table};

/// The volume that goals and details are about.
pub const GOAL_FILES: u64 = 10_000;
/// The volumes: files, and whether they are aged.
pub const VOLUMES: [(u64, bool); 6] = [
    (100, false),
    (GOAL_FILES, false),
    (1_000_000, false),
    (100, true),
    (GOAL_FILES, true),
    (1_000_000, true),
];
/// Most stack that any operation should need, bytes.
const STACK_GOAL: u64 = 4096;

/// A number with separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A mean that is usually small.
fn small(number: f64) -> String {
    if number >= 100.0 {
        return grouped(number.round() as u64);
    }
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "–".into(), text)
}

/// Instructions that a goal speaks of.
fn judged(operation: &Operation, row: &Row) -> u64 {
    let apart = if operation.checksum_apart { row.checksum } else { 0 };
    row.instructions - apart
}

fn goal(operation: &Operation, row: Option<&Row>) -> String {
    let Some(goal) = operation.goal else { return String::new() };
    let sum = if operation.checksum_apart { " + checksum" } else { "" };
    match row {
        Some(row) if judged(operation, row) <= goal => format!("≤ {}{sum}: met", grouped(goal)),
        Some(row) => {
            let times = judged(operation, row) as f64 / goal as f64;
            format!("≤ {}{sum}: {times:.1} ×", grouped(goal))
        }
        None => format!("≤ {}{sum}", grouped(goal)),
    }
}

const HEAD: &str = "# Counts

<!-- `make count` writes this page from counts.json; its text is in crates/steadfast-count. -->

What one operation of the core costs, on a medium in memory, in one process, without FUSE. A count
is the same on a busy machine and on an idle one, so a change of a few percent shows.

```sh
make count         # measure everything, write counts.json and this page (an hour; the largest volumes need 15 GB)
make count-check   # measure the smaller volumes, and fail if a count grew by more than 5 %
```

`tests/count.sh` runs the check with the other tests. A change that makes an operation dearer on
purpose commits the new table.

";

const METHOD: &str = "
## How it is counted

- A worker process loads a prepared volume, warms up, and repeats one operation, 400 times for most.
  callgrind (valgrind) collects inside the function that runs a repetition, and nowhere else.
  Figures are means.
- All nodes of volumes of 100 and 10,000 files are cached before the first repetition. The cache of
  32 MiB does not hold those of 1,000,000 files, so operations on random files read some.
- A tenth of the files have a block of 4 KiB. The others have 100 to 299 bytes, in the tree.
  Directories have 100 files. Aged volumes have had 10 random removals, creations and overwrites for
  each file; their larger files have up to 16 KiB.
- The mask is `manual`. Checkpoints and other background work run outside the counted region, except
  in the rows that name them.
- Seeds, clock, addresses, environment and command line are fixed. Three runs of one program in
  three directories gave the same counts to the instruction. A program that was linked again
  differed by less than 0.5 %.
- *Instructions* are those of user space, as valgrind's processor (x86-64 with AVX2) executes them.
  Checksums are those of the host, in hardware, but without AVX-512, which valgrind does not have.
  The C library copies with wide moves: string instructions, which valgrind counts byte by byte, are
  switched off. Another version of the compiler, of valgrind or of the C library changes counts.
- *Allocations* include reallocations. The counting allocator adds about five instructions to each.
- *Bytes copied* are those of calls of memcpy and memmove, those of the medium included (valgrind's
  DHAT). Copies that the compiler writes in place are not seen.
- *Misses* are those of a model: 32 KiB of data in the first level, 8 MiB in the last.
- *Stack* is the deepest that a repetition overwrote of a painted stack.
- Transaction points of a group share log blocks, so their cost depends on how full the group is.
";

const MISSING: &str = "
A dash in the first table was not measured. Ageing a volume of 1,000,000 files takes more than ten
minutes of processor time; `make count` without options does it.
";

fn instructions(page: &mut String, table: &Table) {
    let heads = VOLUMES
        .map(|(files, aged)| format!("{}{}", grouped(files), if aged { " aged" } else { "" }));
    let _ = writeln!(page, "## Instructions\n\nBy the files of the volume:\n");
    let _ = writeln!(page, "| Operation | {} | Goal at 10,000 |", heads.join(" | "));
    let _ = writeln!(page, "|---|{}---|", "---:|".repeat(VOLUMES.len()));
    for operation in OPERATIONS {
        let row = |(files, aged)| table.row(STEADFAST, operation.name, files, aged);
        let cells = VOLUMES.map(|volume| or_dash(row(volume), |row| grouped(row.instructions)));
        let goal = goal(operation, row((GOAL_FILES, false)));
        let _ = writeln!(page, "| {} | {} | {goal} |", operation.what, cells.join(" | "));
    }
}

fn shares(page: &mut String, table: &Table) {
    let _ = writeln!(
        page,
        "\n## Where they are\n\n10,000 files. Copying and allocating are those of the C library; \
         copying includes the\nmedium's.\n\n\
         | Operation | Instructions | Checksums | Medium | Copying | Allocating | D1 misses | LL misses |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|"
    );
    for operation in OPERATIONS {
        let Some(row) = table.row(STEADFAST, operation.name, GOAL_FILES, false) else { continue };
        let parts = [row.instructions, row.checksum, row.medium, row.copying, row.allocator];
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            operation.what,
            parts.map(grouped).join(" | "),
            or_dash(row.first_level_misses, small),
            or_dash(row.last_level_misses, small),
        );
    }
}

fn others(page: &mut String, table: &Table) {
    let _ = writeln!(
        page,
        "\n## Memory and device\n\n10,000 files. Goals: no allocation for reads of data and attributes, \
         at most 2 for a change, at\nmost {} bytes of stack. A star marks a count above its goal.\n\n\
         | Operation | Allocations | Bytes allocated | Bytes copied | Stack | Reads | Bytes read | Writes \
         | Bytes written | Flushes |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        grouped(STACK_GOAL)
    );
    for operation in OPERATIONS {
        let Some(row) = table.row(STEADFAST, operation.name, GOAL_FILES, false) else { continue };
        let star = |above: bool| if above { "*" } else { "" };
        let cells = [
            small(row.allocations) + star(row.allocations > operation.allocations_goal as f64),
            grouped(row.allocated_bytes),
            or_dash(row.copied_bytes, grouped),
            or_dash(row.stack, |stack| grouped(stack) + star(stack > STACK_GOAL)),
            small(row.reads),
            grouped(row.read_bytes),
            small(row.writes),
            grouped(row.written_bytes),
            small(row.flushes),
        ];
        let _ = writeln!(page, "| {} | {} |", operation.what, cells.join(" | "));
    }
}

/// Systems beside Steadfast that the table has, in its order.
fn peers(table: &Table) -> Vec<&str> {
    let mut peers: Vec<&str> = Vec::new();
    for row in &table.rows {
        if row.system != STEADFAST && !peers.contains(&row.system.as_str()) {
            peers.push(&row.system);
        }
    }
    peers
}

const PEERS: &str = "
## Beside other systems

Instructions of each, in one process on memory, with the same 10,000 files or values (`make count`;
`bench/count-peers`). They are not the same work:

- Steadfast's operations get inode numbers, as from FUSE. FAT (`fatfs`) and littlefs resolve a path
  of two names and open the file each time.
- *Transact* is a transaction point on Steadfast, and the sync of one file on FAT and littlefs.
- Of these file systems only Steadfast sums data. FAT is not safe at a power cut.
- The crate `fatfs` has no cache. Its requests go to the memory directly.
- The stores redb and SQLite (WAL, synchronous FULL, prepared statements) update and read one value
  of 100 B. Their files are on the disk; system calls are not counted.

";

fn beside(page: &mut String, table: &Table) {
    let peers = peers(table);
    if peers.is_empty() {
        return;
    }
    page.push_str(PEERS);
    let _ = writeln!(page, "| Operation | Steadfast | {} |", peers.join(" | "));
    let _ = writeln!(page, "|---|{}", "---:|".repeat(peers.len() + 1));
    for operation in OPERATIONS {
        let count = |system: &&str| {
            let row = table.row(system, operation.name, GOAL_FILES, false);
            row.map(|row| grouped(row.instructions))
        };
        let others: Vec<_> = peers.iter().map(count).collect();
        if others.iter().any(Option::is_some) {
            let others: Vec<_> =
                others.into_iter().map(|cell| or_dash(cell, |cell| cell)).collect();
            let own = or_dash(count(&STEADFAST), |cell| cell);
            let _ = writeln!(page, "| {} | {own} | {} |", operation.what, others.join(" | "));
        }
    }
}

/// The whole page.
pub fn page(table: &Table) -> String {
    let mut page = String::from(HEAD);
    instructions(&mut page, table);
    shares(&mut page, table);
    others(&mut page, table);
    beside(&mut page, table);
    page.push_str(METHOD);
    let missing = |(files, aged): &(u64, bool)| {
        OPERATIONS.iter().any(|row| table.row(STEADFAST, row.name, *files, *aged).is_none())
    };
    if VOLUMES.iter().any(missing) {
        page.push_str(MISSING);
    }
    let _ = writeln!(
        page,
        "\nThis table: {}, {}, {}.",
        table.compiler, table.valgrind, table.c_library
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(
            (small(2.0), small(0.25), small(1234.4)),
            ("2".into(), "0.2".into(), "1,234".into())
        );
    }
}
