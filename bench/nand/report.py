"""Tables and JSON of bench/nand.sh, from what its guests have printed.

Usage: report.py DIRECTORY SYSTEM...

It reads DIRECTORY/SYSTEM.{work,after}.log, and writes DIRECTORY/nand.json and
DIRECTORY/result.json. The latter is as a result of the lab, for `steadfast lab show` and its
reports.
"""

import json
import os
import pathlib
import platform
import re
import sys
import time

NAMES = {"jffs2": "JFFS2", "ubifs": "UBI + UBIFS", "steadfast": "Steadfast (FUSE)"}
MODES = ("asynchronous", "background", "synchronous")
FILE_OPERATIONS = ("mkdir", "create", "write", "open", "access", "stat", "chmod", "link", "rename",
                   "symlink", "unlink", "rmdir")
OVERWRITES, RANDOM = 200, 4000


def results(path):
    """The values of one log. Lines of the load belong to the measurement that ends after them."""
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
        elif (len(words) == 2 and re.fullmatch(r"[a-z_0-9]+", words[0])
              and re.fullmatch(r"-?[0-9.]+", words[1])):
            pending[words[0]] = float(words[1])
    values.update(pending)
    return values


def tests():
    """What the lab shows: (name, title, parameters, unit, better, the value in a guest's results,
    divided by)."""
    for name, condition in (("mount_empty", "empty"), ("mount_full", "completely full"),
                            ("mount_after_cut", "completely full, after a power cut")):
        where = {"condition": condition}
        yield "mount", "mount, modelled", where, "seconds", "lower", f"{name}.model_ms", 1e3
        yield "mount-reads", "page reads of a mount", where, "ratio", "lower", f"{name}.reads", 1
    for mode in MODES:
        for scope in ("write", "read"):
            for what in (scope, f"re{scope}"):
                yield (what, what, {"mode": mode}, "bytes-per-second", "higher",
                       f"{mode}.{scope}.{what}_kib_s", 1 / 1024)
        for what in FILE_OPERATIONS:
            yield (what, what, {"mode": mode}, "seconds-per-operation", "lower",
                   f"{mode}.fileops.fileops_{what}_ms", 1e3)
        for scope in ("write", "read", "fileops"):
            yield (f"load-{scope}", "processor load", {"mode": mode, "during": scope}, "ratio",
                   "lower", f"{mode}.{scope}.cpu_percent", 100)
        for scope in ("write", "fileops"):
            yield (f"programs-{scope}", "page programs", {"mode": mode, "during": scope}, "ratio",
                   "lower", f"{mode}.{scope}.programs", 1)
    yield "fill", "files of 64 KiB until full", {}, "ratio", "higher", "fill.fill_files", 1
    for scope, title, count in (("overwrites", "overwrite 4 KiB + fsync, 90 % full", OVERWRITES),
                                ("random", "the same at random, steady state", RANDOM)):
        yield (f"{scope}-programs", f"page programs for each {title}", {}, "ratio", "lower",
               f"{scope}.programs", count)
        yield (f"{scope}-erases", f"erasures for each {title}", {}, "ratio", "lower",
               f"{scope}.erases", count)
        yield (f"{scope}-model", title + ", modelled", {}, "seconds-per-operation", "lower",
               f"{scope}.model_ms", 1e3 * count)


def processor():
    """Model of the processor."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
                platform.machine())


def lab_result(found):
    """The values as a result of the lab (its schema is in crates/steadfast-lab/src/result)."""
    now = int(time.time())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    measured = []
    for name, title, parameters, unit, better, key, divisor in tests():
        measurements = []
        for system, values in found.items():
            value = values.get(key)
            if value is None:
                reason = "it has no such mode, or the guest did not come so far"
                status, samples = {"is": "skipped", "reason": reason}, []
            else:
                status = {"is": "ok"}
                samples = [{"round": 0, "value": value / divisor, "seconds": 0.0, "operations": 0,
                            "bytes": 0}]
            measurements.append({"target": system, "status": status, "samples": samples})
        if any(measurement["samples"] for measurement in measurements):
            words = ",".join(f"{key}={value}" for key, value in parameters.items())
            measured.append({
                "id": f"nand/{name}/{words}", "workload": "nand", "name": name, "title": title,
                "parameters": parameters, "unit": unit, "better": better, "cache": "cold",
                "measurements": measurements,
            })
    targets = [
        {"id": system, "name": NAMES[system],
         "access": "fuse" if system == "steadfast" else "kernel", "status": {"is": "ok"},
         "volume_size": 128 << 20, "format": "", "mount_options": "", "version": "",
         "remarks": ["in a guest under emulation: wall times are for ratios only, "
                     "modelled times do not depend on the machine"]}
        for system in found
    ]
    return {
        "kind": "steadfast-lab-run", "schema": 1,
        "provenance": {
            "command": ["bench/nand.sh", *found], "version": os.environ.get("NAND_VERSION", ""),
            "commit": None, "profile": "release", "started": now, "updated": now, "seed": 0,
            "effort": "default", "host": platform.node(),
            "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
            "system": "Debian's kernel in qemu, TCG", "cpu": processor(), "cpus": os.cpu_count(),
            "governor": None, "virtualisation": "qemu, TCG", "memory": memory,
            "memory_available": memory,
            "backing": {"path": "/dev/mtd0", "file_system": "", "device": "nandsim, 1 Gbit SLC",
                        "model": None, "rotational": None, "write_cache": None,
                        "available": 128 << 20},
        },
        "noise": {"probes": [], "load": [0.0, 0.0], "stolen": 0.0, "floor": 0.02,
                  "warnings": ["one round: wall times may be anything"]},
        "targets": targets,
        "peer": next((system for system in ("ubifs", "jffs2") if system in found), None)
        if len(found) > 1 else None,
        "suites": [{"id": "nand", "title": "Raw NAND: 1 Gbit SLC in nandsim",
                    "answers": "TargetFS-LKM, JFFS2 and UBIFS: LPC3250, Linux 2.6.39, "
                               "1 Gbit SLC NAND",
                    "missing": [], "tests": measured}],
        "progress": {"complete": True, "steps": len(measured), "done": [], "seconds": 0.0,
                     "resumed": 0},
    }


def table(title, columns, rows):
    """Prints rows of (name, values...), a missing value as a dash."""
    print(f"\n{title}")
    widths = [max(len(str(row[0])) for row in rows + [("",)])]
    widths += [max(len(column), 9) for column in columns]
    print("".ljust(widths[0]), *(column.rjust(width) for column, width in zip(columns, widths[1:])))
    for row in rows:
        cells = ["-" if value is None else f"{value:g}" for value in row[1:]]
        print(str(row[0]).ljust(widths[0]),
              *(cell.rjust(width) for cell, width in zip(cells, widths[1:])))


def main():
    directory, systems = pathlib.Path(sys.argv[1]), sys.argv[2:]
    found = {}
    for system in systems:
        values = (results(directory / f"{system}.work.log")
                  | results(directory / f"{system}.after.log"))
        if values:
            found[system] = values
    (directory / "nand.json").write_text(
        json.dumps({"kind": "steadfast-nand", "schema": 1,
                    "part": "nandsim, 1 Gbit SLC, 2048+64 x 64 x 1024", "systems": found}, indent=1)
        + "\n"
    )
    (directory / "result.json").write_text(json.dumps(lab_result(found), indent=1) + "\n")
    columns = list(found)
    get = lambda name: [found[system].get(name) for system in columns]
    mounts = [("mount_empty", "empty"), ("mount_full", "full, clean"),
              ("mount_after_cut", "full, after a cut")]
    table(
        "Mount (attach included): NAND reads, programs, erasures; modelled and wall ms",
        columns,
        [(f"{title}: {what}", *get(f"{name}.{what}")) for name, title in mounts
         for what in ("reads", "programs", "erases", "model_ms", "wall_ms")],
    )
    for mode in MODES:
        rows = [(f"{what} KiB/s", *get(f"{mode}.{scope}.{what}_kib_s"))
                for scope, names in (("write", ("write", "rewrite")), ("read", ("read", "reread")))
                for what in names]
        rows += [(f"processor load %, {scope}", *get(f"{mode}.{scope}.cpu_percent"))
                 for scope in ("write", "read", "fileops")]
        rows += [(f"{what}, {scope}", *get(f"{mode}.{scope}.{what}"))
                 for scope in ("write", "fileops") for what in ("programs", "erases", "model_ms")]
        rows += [(f"{what} ms", *get(f"{mode}.fileops.fileops_{what}_ms")) for what in
                 FILE_OPERATIONS]
        table(f"Mode {mode}: records of 4 KiB, file operations (mean)", columns, rows)
    rows = [("files of 64 KiB until full", *get("fill.fill_files")),
            ("worst of them, wall ms", *get("fill.fill_worst_ms"))]
    rows += [(f"200 overwrites of 4 KiB + fsync at 90 %: {what}", *get(f"overwrites.{what}"))
             for what in ("programs", "reads", "erases", "model_ms")]
    rows += [("  mean, wall ms", *get("overwrites.overwrite_mean_ms")),
             ("  worst, wall ms", *get("overwrites.overwrite_worst_ms"))]
    per = lambda what: [value and value / RANDOM for value in get(f"random.{what}")]
    rows += [(f"at random, steady state, for each: {what}", *per(what))
             for what in ("programs", "reads", "erases", "model_ms")]
    rows += [("  worst, wall ms", *get("random.random_worst_ms"))]
    table("Full volume", columns, rows)
    table(
        "After the cut",
        columns,
        [("last overwrite acknowledged before", *get("cut.acknowledged")),
         ("newest one found after", *get("verify.verify_newest")),
         ("records that were not written", *get("verify.verify_wrong"))],
    )
    print(f"\n{directory / 'nand.json'}\nsteadfast lab show {directory}")


main()
