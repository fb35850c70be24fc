#!/usr/bin/env python3
"""Reads what the programs for the boards print; writes the table, or compares with it.

    table.py write TABLE PAGE LOG...     a new table, and the page that shows it
    table.py check TABLE LOG...          fails if a figure grew by more than 5 %

The name of a log is BOARD.PROFILE.log. From BOARD.FEATURE.size only the sizes are read.
"""

import json
import pathlib
import sys

# What one operation costs; the heap and the stack are peaks, and not divided.
EACH = ["instructions", "reads", "read_bytes", "writes", "written_bytes", "flushes"]
PEAKS = ["heap", "stack"]
# Differences that never count.
# Maps are keyed by addresses, so the heap depends a little on where the linker puts things.
SLACK = {"instructions": 50, "reads": 0.05, "writes": 0.05, "flushes": 0.05, "heap": 2048}
SLACK_BYTES = 32

NAMES = {
    "format": "format",
    "mount": "mount after format",
    "create-1000": "create a file of 1,000 B",
    "point": "transaction point of these 50",
    "write-65536": "write 64 KiB, transact",
    "overwrite-4096": "overwrite 4 KiB, synced",
    "overwrite-512": "overwrite 512 B, synced",
    "append-32": "append 32 B, synced",
    "create-100": "create a file of 100 B, synced",
    "read-1000": "look up and read 1,000 B",
    "rename-4": "4 renames, one point",
    "mount-after-cut": "mount after the cut",
    "first-change-after-cut": "the first change after it, synced",
    "close": "close",
}


def fields(words):
    return {name: int(value) for name, value in zip(words[::2], words[1::2])}


def read(path):
    """The figures of one board and profile."""
    board, profile, _ = path.name.split(".")
    rows, sizes, cuts, done = [], None, None, False
    for line in path.read_text().splitlines():
        kind, *words = line.split()
        if kind == "size":
            sizes = fields(words)
        elif kind == "figure":
            cost = fields(words[1:])
            count = cost.pop("count")
            for name in EACH:
                cost[name] = cost[name] / count
            cost["instructions"] = round(cost["instructions"])
            rows.append({"operation": words[0], **{k: round(v, 2) for k, v in cost.items()}})
        elif kind == "cuts":
            cuts = fields(words)
        elif kind == "done":
            done = True
    if not (done and sizes and cuts):
        sys.exit(f"boards: {path}: the run did not end: see the file")
    if cuts["failures"]:
        sys.exit(f"boards: {path}: {cuts['failures']} cuts left a wrong state: see the file")
    return {"board": board, "profile": profile, **sizes, "cuts": cuts["number"], "rows": rows}


def read_size(path):
    """What a feature adds to the program."""
    for line in path.read_text().splitlines():
        if line.startswith("size "):
            return {"feature": path.name.split(".")[1], **fields(line.split()[1:])}
    sys.exit(f"boards: {path}: no size: see the file")


def figures(run):
    """(place, value, slack) of everything that must not grow."""
    place = f"{run['board']}, {run['profile']}"
    for name in ["code", "constants"]:
        yield f"{place}: {name}", run[name], SLACK_BYTES
    for row in run["rows"]:
        for name in EACH + PEAKS:
            yield f"{place}: {row['operation']}: {name}", row[name], SLACK.get(name, SLACK_BYTES)


def size_figures(size):
    for name in ["code", "constants"]:
        yield f"with {size['feature']}: {name}", size[name], SLACK_BYTES


def check(table, new):
    known = {}
    for run in table["runs"]:
        known.update((place, value) for place, value, _ in figures(run))
    for size in table["features"]:
        known.update((place, value) for place, value, _ in size_figures(size))
    worse = False
    for run in new["runs"]:
        print(f"{run['board']}, {run['profile']}: {run['cuts']} power cuts: ok")
    for measured in [*map(figures, new["runs"]), *map(size_figures, new["features"])]:
        for place, value, slack in measured:
            old = known.get(place)
            if old is None:
                print(f"MORE: {place}: not in the table: run 'make boards'")
                worse = True
                continue
            change = value - old
            if abs(change) <= max(slack, old / 20):
                continue
            worse |= change > 0
            print(f"{'MORE' if change > 0 else 'less'}: {place}: {old} before, {value} now")
    return not worse


def number(value):
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


INTRODUCTION = """\
# Boards

<!-- `make boards` writes this page from boards.json; its text is in boards/table.py. -->

What the core costs on microcontrollers, emulated by QEMU. Instructions are counted, and are
those of the file system and the allocator without the medium. So a busy machine measures
the same.

```sh
make boards        # run everything, write boards.json and this page
make boards-check  # run everything, and fail if a figure grew by more than 5 %
```

`tests/boards.sh` runs the check with the other tests. The medium has 2 MiB of RAM and units
of 512 bytes. Blocks and nodes have 512 bytes, metadata has two copies, the log 32 KiB, and
the cache 16 nodes. The programs are built for size (`opt-level = "z"`, fat LTO), and their
code and constants include the workload itself.

The heap is the peak of what was asked for while the operation ran. The stack is its deepest
use. [EMBEDDED.md](EMBEDDED.md) says what firmware needs.

"""

CUTS = """\
an386 is a Cortex-M4, an500 a Cortex-M7, an505 a Cortex-M33, and virt a RISC-V rv32imac.

The power cuts are those of a second program. It cuts a short run at each write and each
flush, three times. What was not flushed is there, is not, or is there in every other unit.
Then it compares the volume with a model.
"""


def page(table):
    lines = [
        *INTRODUCTION.splitlines(),
        "## Size",
        "",
        "| Board | Profile | Code, B | Constants, B | Heap, B | Stack, B | Power cuts, all right |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for run in table["runs"]:
        peaks = [max(row[name] for row in run["rows"]) for name in PEAKS]
        values = [run["code"], run["constants"], *peaks, run["cuts"]]
        cells = " | ".join(number(value) for value in values)
        lines.append(f"| {run['board']} | {run['profile']} | {cells} |")
    lines += [
        "",
        *CUTS.splitlines(),
    ]
    small = next(run for run in table["runs"] if run["profile"] == "small")
    lines += [
        "",
        "The profile small has none of the features below, full has all of them. One alone adds to",
        "small, on an386:",
        "",
        "| Feature | Code, B | Constants, B |",
        "|---|---:|---:|",
    ]
    for size in table["features"]:
        more = " | ".join(number(size[name] - small[name]) for name in ["code", "constants"])
        lines.append(f"| `{size['feature']}` | {more} |")
    for run in table["runs"]:
        lines += [
            "",
            f"## {run['board']}, {run['profile']}",
            "",
            "| Operation | Instructions | Reads | Read, B | Writes | Written, B | Flushes "
            "| Heap, B | Stack, B |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for row in run["rows"]:
            cells = " | ".join(number(row[name]) for name in EACH + PEAKS)
            lines.append(f"| {NAMES[row['operation']]} | {cells} |")
    return "\n".join(lines) + "\n"


def main():
    task, table_path, *rest = sys.argv[1:]
    table_path = pathlib.Path(table_path)
    page_path = rest.pop(0) if task == "write" else None
    paths = [pathlib.Path(path) for path in rest]
    table = {
        "runs": [read(path) for path in paths if path.suffix == ".log"],
        "features": [read_size(path) for path in paths if path.suffix == ".size"],
    }
    if task == "check":
        sys.exit(0 if check(json.loads(table_path.read_text()), table) else 1)
    # A row a line, so that a change shows as the rows that it changes.
    text = json.dumps(table, separators=(",", ":"))
    for before in ['{"board"', '{"operation"', '{"feature"']:
        text = text.replace(before, "\n" + before)
    table_path.write_text(text + "\n")
    pathlib.Path(page_path).write_text(page(table))


main()
