"""Tables and JSON of bench/nand.sh, from what its guests have printed.

Usage: report.py DIRECTORY SYSTEM... ; reads DIRECTORY/SYSTEM.{work,after}.log, writes DIRECTORY/nand.json.
"""

import json
import pathlib
import re
import sys


def results(path):
    """The values of one log. Lines of the load belong to the measurement that ends behind them."""
    values, pending, acknowledged = {}, {}, 0
    if not path.exists():
        return values
    for line in path.read_text(errors="replace").splitlines():
        # The firmware leaves the cursor, and what moves it, in front of the first line.
        words = line[max(line.find("RESULT "), 0):].strip().split()
        if len(words) == 3 and words[0] == "RESULT":
            name, value = words[1], words[2]
            values[name] = float(value)
            scope = name.rsplit(".", 1)[0]
            for key, inner in pending.items():
                values[f"{scope}.{key}"] = inner
            pending = {}
        elif len(words) == 2 and words[0] == "acknowledged":
            acknowledged += 1
        elif len(words) == 2 and re.fullmatch(r"[a-z_0-9]+", words[0]) and re.fullmatch(r"-?[0-9.]+", words[1]):
            pending[words[0]] = float(words[1])
    values.update(pending)
    return values


def table(title, columns, rows):
    """Prints rows of (name, values...), a missing value as a dash."""
    print(f"\n{title}")
    widths = [max(len(str(row[0])) for row in rows + [("",)])] + [max(len(column), 9) for column in columns]
    print("".ljust(widths[0]), *(column.rjust(width) for column, width in zip(columns, widths[1:])))
    for row in rows:
        cells = ["-" if value is None else f"{value:g}" for value in row[1:]]
        print(str(row[0]).ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:])))


def main():
    directory, systems = pathlib.Path(sys.argv[1]), sys.argv[2:]
    found = {}
    for system in systems:
        values = results(directory / f"{system}.work.log") | results(directory / f"{system}.after.log")
        if values:
            found[system] = values
    (directory / "nand.json").write_text(
        json.dumps({"kind": "steadfast-nand", "schema": 1, "part": "nandsim, 1 Gbit SLC, 2048+64 x 64 x 1024", "systems": found}, indent=1)
        + "\n"
    )
    columns = list(found)
    get = lambda name: [found[system].get(name) for system in columns]
    mounts = [("mount_empty", "empty"), ("mount_full", "full, clean"), ("mount_after_cut", "full, after a cut")]
    table(
        "Mount (attach included): NAND reads, programs, erasures; modelled and wall ms",
        columns,
        [(f"{title}: {what}", *get(f"{name}.{what}")) for name, title in mounts
         for what in ("reads", "programs", "erases", "model_ms", "wall_ms")],
    )
    for mode in ("asynchronous", "background", "synchronous"):
        rows = [(f"{what} KiB/s", *get(f"{mode}.{scope}.{what}_kib_s"))
                for scope, names in (("write", ("write", "rewrite")), ("read", ("read", "reread"))) for what in names]
        rows += [(f"processor load %, {scope}", *get(f"{mode}.{scope}.cpu_percent")) for scope in ("write", "read", "fileops")]
        rows += [(f"{what}, {scope}", *get(f"{mode}.{scope}.{what}"))
                 for scope in ("write", "fileops") for what in ("programs", "erases", "model_ms")]
        rows += [(f"{what} ms", *get(f"{mode}.fileops.fileops_{what}_ms")) for what in
                 ("mkdir", "create", "write", "open", "access", "stat", "chmod", "link", "rename", "symlink", "unlink", "rmdir")]
        table(f"Mode {mode}: records of 4 KiB, file operations (mean)", columns, rows)
    rows = [("files of 64 KiB until full", *get("fill.fill_files")), ("worst of them, wall ms", *get("fill.fill_worst_ms"))]
    rows += [(f"200 overwrites of 4 KiB + fsync at 90 %: {what}", *get(f"overwrites.{what}"))
             for what in ("programs", "reads", "erases", "model_ms")]
    rows += [("  mean, wall ms", *get("overwrites.overwrite_mean_ms")), ("  worst, wall ms", *get("overwrites.overwrite_worst_ms"))]
    table("Full volume", columns, rows)
    table(
        "After the cut",
        columns,
        [("last overwrite acknowledged before", *get("cut.acknowledged")),
         ("newest one found after", *get("verify.verify_newest")),
         ("records that nobody wrote", *get("verify.verify_wrong"))],
    )
    print(f"\n{directory / 'nand.json'}")


main()
