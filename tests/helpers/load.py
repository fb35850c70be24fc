"""A mixed load that records the file system's promises until the file system is gone.

Usage: load.py DIRECTORY NOTES SECONDS SEED

DIRECTORY is on the file system under test, NOTES on another one. A line is written to NOTES only
after the call that it describes has returned, so every line is a promise. Lines (fields separated
by tabs):

  file NAME SHA256       a file was written once, fsync'd together with its directory, and is never
                         changed again
  slot NAME VERSION      all pages of the file NAME held VERSION when fsync returned; later versions
                         only grow
  gone NAME              the file was removed and its directory fsync'd; the name is never used
                         again
  moved OLD NEW SHA256   the file was renamed and its directory fsync'd
  order N                the N-th empty file of `order` was created (not synced: after a power cut,
                         a prefix remains)

load_verify.py lists the conditions that must hold afterwards.
"""

import hashlib
import os
import random
import sys
import threading
import time

PAGE = 4096


class Notes:
    """Appends lines, each with one write, so that lines of several threads stay whole."""

    def __init__(self, path):
        self.file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def add(self, *fields):
        os.write(self.file, ("\t".join(str(field) for field in fields) + "\n").encode())


def sync_directory(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor, data, offset=0):
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count


def write_synced(path, data):
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def page(version):
    """A page in which every part contains the version."""
    return f"{version:015d}\n".encode() * (PAGE // 16)


def files(directory, notes, rng, run, end):
    """Creates files, renames some, removes some."""
    place = f"{directory}/files-{run}"
    os.mkdir(place)
    kept = []
    number = 0
    while time.monotonic() < end:
        number += 1
        name = f"files-{run}/{number}"
        size = rng.choice([0, 1, 100, 3000, 4096, 20_000, 300_000, rng.randrange(2_000_000)])
        data = rng.randbytes(size)
        write_synced(f"{directory}/{name}", data)
        sync_directory(place)
        digest = hashlib.sha256(data).hexdigest()
        choice = rng.random()
        if choice < 0.2:
            new = f"{name}-renamed"
            os.rename(f"{directory}/{name}", f"{directory}/{new}")
            sync_directory(place)
            notes.add("moved", name, new, digest)
        elif choice < 0.4:
            os.unlink(f"{directory}/{name}")
            sync_directory(place)
            notes.add("gone", name)
        else:
            notes.add("file", name, digest)
            kept.append(name)


def slot(directory, notes, rng, run, end, number):
    """Overwrites one file with increasing versions."""
    name = f"slot-{run}-{number}"
    pages = rng.choice([1, 3, 16, 200])
    descriptor = os.open(f"{directory}/{name}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    sync_directory(directory)
    version = 0
    while time.monotonic() < end:
        version += 1
        if version % 7 == 0:
            # With each version the size also shrinks and grows again.
            os.ftruncate(descriptor, PAGE)
        write_all(descriptor, page(version) * pages)
        if version % 3 == 0:
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)
        notes.add("slot", name, version)


def order(directory, notes, rng, run, end):
    """Creates empty files in strict order, without sync."""
    place = f"{directory}/order-{run}"
    os.mkdir(place)
    number = 0
    while time.monotonic() < end:
        number += 1
        os.close(os.open(f"{place}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        if number % 50 == 0:
            time.sleep(0.01)


def noise(directory, notes, rng, run, end):
    """Other operations without promises: trees, attributes, links, holes."""
    place = f"{directory}/noise-{run}"
    os.mkdir(place)
    number = 0
    while time.monotonic() < end:
        number += 1
        base = f"{place}/{number % 20}"
        if os.path.isdir(base):
            for entry in os.listdir(base):
                os.unlink(f"{base}/{entry}")
            os.rmdir(base)
        os.mkdir(base)
        with open(f"{base}/data", "wb") as file:
            file.write(rng.randbytes(rng.randrange(100_000)))
            file.truncate(rng.randrange(200_000))
        os.link(f"{base}/data", f"{base}/link")
        os.symlink("data", f"{base}/symlink")
        os.setxattr(f"{base}/data", "user.note", rng.randbytes(rng.randrange(2000)))
        os.chmod(f"{base}/data", rng.randrange(0o1000) | 0o600)
        os.utime(f"{base}/data", ns=(number, number))


def main():
    directory, path, seconds, seed = sys.argv[1:]
    end = time.monotonic() + float(seconds)
    run = seed
    notes = Notes(path)
    work = [(files, ()), (order, ()), (noise, ())] + [(slot, (number,)) for number in range(3)]
    problems = []

    def guarded(function, index, extra):
        rng = random.Random(f"{seed} {index}")
        try:
            function(directory, notes, rng, run, end, *extra)
        except OSError as error:
            # The file system is gone; the caller knows whether that was intended.
            problems.append(str(error))

    threads = [
        threading.Thread(target=guarded, args=(function, index, extra))
        for index, (function, extra) in enumerate(work)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        sys.exit(f"load ends: {problems[0]}")


if __name__ == "__main__":
    main()
