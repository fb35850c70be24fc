"""Verifies the promises that load.py recorded, after the file system is back.

Usage: load_verify.py DIRECTORY NOTES...

Every promise in NOTES holds. Pages of slots are whole and no older than promised. Of the files in
each `order` directory a prefix exists.
"""

import glob
import hashlib
import os
import sys

from load import PAGE


def lines(paths):
    for path in paths:
        with open(path) as notes:
            for line in notes:
                # The last line may be cut short.
                if line.endswith("\n"):
                    yield line.rstrip("\n").split("\t")


def fail(text):
    sys.exit(f"promise broken: {text}")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def verify_slot(path, least):
    with open(path, "rb") as file:
        content = file.read()
    if len(content) % PAGE != 0 or not content:
        fail(f"{path}: size {len(content)}")
    for start in range(0, len(content), PAGE):
        parts = {content[at : at + 16] for at in range(start, start + PAGE, 16)}
        if len(parts) != 1:
            fail(f"{path}: page {start // PAGE} is torn: {sorted(parts)[:3]}")
        version = int(parts.pop() or b"0")
        if version < least:
            fail(f"{path}: page {start // PAGE} has version {version}, {least} was synced")


def main():
    directory, notes = sys.argv[1], sys.argv[2:]
    counts = {}
    slots = {}
    for kind, *fields in lines(notes):
        counts[kind] = counts.get(kind, 0) + 1
        path = f"{directory}/{fields[0]}"
        if kind == "file":
            if not os.path.exists(path):
                fail(f"{path} was synced and is missing")
            if digest(path) != fields[1]:
                fail(f"{path} has other content than was synced ({os.path.getsize(path)} bytes)")
        elif kind == "gone":
            if os.path.lexists(path):
                fail(f"{path} was removed and is back")
        elif kind == "moved":
            if os.path.lexists(path):
                fail(f"{path} was renamed and is back")
            if digest(f"{directory}/{fields[1]}") != fields[2]:
                fail(f"{fields[1]} has other content than was synced")
        elif kind == "slot":
            slots[path] = max(slots.get(path, 0), int(fields[1]))
    for path, version in slots.items():
        verify_slot(path, version)
    prefixes = []
    for place in glob.glob(f"{directory}/order-*"):
        found = sorted(int(name) for name in os.listdir(place))
        if found != list(range(1, len(found) + 1)):
            missing = next(n for n in range(1, len(found) + 2) if n not in set(found))
            fail(f"{place}: {len(found)} files up to {found[-1]}, but {missing} is missing: "
                 "not a prefix")
        prefixes.append(len(found))
    total = sum(counts.values())
    each = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
    print(f"{total} promises kept ({each})")


if __name__ == "__main__":
    main()
