"""Table and JSON of bench/kernel.sh, from what its guest has printed.

Usage: report.py LOG DIRECTORY SYSTEM... ; writes DIRECTORY/kernel.json, and DIRECTORY/kernel.md:
the table for the documentation.
"""

import json
import os
import pathlib
import statistics
import sys

NAMES = {
    "steadfast": "module", "fuse": "FUSE", "ext4": "ext4", "ext3": "ext3", "xfs": "XFS",
    "btrfs": "Btrfs",
}
# Row of the load, title, the most of ext4's time that the goal allows.
ROWS = (
    ("create", "create 2 KiB + final sync", 0.6),
    ("mkdir", "mkdir + final sync", 0.6),
    ("rename", "rename + final sync", 0.6),
    ("link", "link + final sync", 0.6),
    ("unlink", "unlink + final sync", 0.7),
    ("rmdir", "rmdir + final sync", 0.7),
    ("stat.warm", "stat, warm", 1.0),
    ("stat.cold", "stat, cold", 0.5),
    ("read.warm", "open + read 2 KiB, warm", 1.0),
    ("read.cold", "open + read 2 KiB, cold", 0.5),
    ("list.warm", "readdir for each name, warm", 1.0),
    ("list.cold", "readdir for each name, cold", 0.5),
    ("create.fsync", "create 2 KiB + fsync", None),
    ("write.random", "4 KiB random write, buffered", 0.8),
    ("write.random+fsync", "the same with a final fsync", None),
    ("write.sequential", "sequential write + fsync, MiB", 0.8),
    ("overwrite.fdatasync", "4 KiB random overwrite + fdatasync", 2.0),
    ("read.cached", "cached read, MiB", 1.0),
    ("read.cached-4k", "cached read in 4 KiB, MiB", 1.0),
    ("read.mapped", "mapped read, MiB", 1.0),
    ("read.cold-sequential", "cold sequential read, MiB", 1.0),
    ("read.cold-overwritten", "the same after random overwrites, MiB", None),
    ("read.cold-random", "cold 4 KiB random read", None),
    ("update", "update of 100 files of 4 KiB", 0.1),
    ("mount.cut", "mount after a cut", 0.5),
)


def samples(log):
    """row -> system -> the microseconds of each round."""
    found, system = {}, None
    for line in log.read_text(errors="replace").splitlines():
        # The firmware leaves the cursor, and what moves it, in front of the first line.
        for word in ("RUN", "RESULT"):
            line = line[max(line.find(word + " "), 0):]
        words = line.split()
        if len(words) == 3 and words[0] == "RUN":
            system = words[2]
        elif len(words) == 3 and words[0] == "RESULT":
            found.setdefault(words[1], {}).setdefault(system, []).append(float(words[2]))
    return found


def misses(row):
    """Whether the goal is missed, with the ratio as the table shows it."""
    ratio, goal = row["ratio_to_ext4"], row["goal"]
    return ratio is not None and goal is not None and round(ratio, 2) > goal


def main():
    log, out, systems = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    found = samples(log)
    rows, missing = [], []
    for key, title, goal in ROWS:
        taken = found.get(key, {})
        middle = {system: statistics.median(values) for system, values in taken.items()}
        missing += [
            f"{key} of {system}" for system in systems
            if system not in middle and (key, system) != ("mount.cut", "fuse")
        ]
        both = {"steadfast", "ext4"} <= middle.keys()
        ratio = middle["steadfast"] / middle["ext4"] if both else None
        rows.append({"row": key, "title": title, "goal": goal, "ratio_to_ext4": ratio,
                     "microseconds": middle, "samples": taken})
    counts = (word.split("=") for word in os.environ["KERNEL_COUNTS"].split())
    document = {
        "kind": "steadfast-kernel-bench", "schema": 1, "kernel": os.environ["KERNEL_VERSION"],
        "counts": {key: int(value) for key, value in counts},
        "clock": "2 ns for each instruction of the guest", "device": "memory disk",
        "systems": systems, "rows": rows,
    }
    (out / "kernel.json").write_text(json.dumps(document, indent=1) + "\n")

    columns = " | ".join(NAMES[system] for system in systems)
    lines = [f"| Microseconds for each | {columns} | module / ext4 | goal |",
             "|---|" + "---|" * (len(systems) + 2)]
    for row in rows:
        middle = row["microseconds"]
        cells = [f"{middle[system]:,.1f}" if system in middle else "–" for system in systems]
        ratio, goal = row["ratio_to_ext4"], row["goal"]
        shown = "–" if ratio is None else f"{ratio:.2f}"
        if misses(row):
            shown = f"**{shown}**"
        asked = "" if goal is None else f"≤ {goal}"
        lines.append(f"| {row['title']} | {' | '.join(cells)} | {shown} | {asked} |")
    (out / "kernel.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    with_goal = [row for row in rows if None not in (row["goal"], row["ratio_to_ext4"])]
    met = sum(not misses(row) for row in with_goal)
    print(f"\n{met} of {len(with_goal)} goals met; {out / 'kernel.json'}")
    if missing:
        sys.exit("kernel: rows are missing: " + ", ".join(missing))


main()
