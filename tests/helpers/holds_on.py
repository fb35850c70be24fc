"""A program of a cluster's node that goes on through a takeover.

usage: holds_on.py PLACE NODE OTHER SIGNS

It opens, locks and removes files below PLACE, where node NODE has the volume, and makes
SIGNS/NODE-holds. A child makes SIGNS/NODE-waits, and waits for a lock of node OTHER. Once
SIGNS/taken-over is there the program works on with all its files, finds the locks of OTHER, and
makes SIGNS/NODE-went-on. It holds its locks until SIGNS/enough is there.
"""

import errno
import fcntl
import mmap
import os
import sys
import time

place, node, other, signs = sys.argv[1:]


def wait_for(sign):
    end = time.monotonic() + 120
    while not os.path.exists(f"{signs}/{sign}"):
        assert time.monotonic() < end, f"no {sign}"
        time.sleep(0.02)


def spliced(fd, length):
    reader, writer = os.pipe()
    try:
        return os.read(reader, os.splice(fd, writer, length, offset_src=0))
    finally:
        os.close(reader)
        os.close(writer)


def is_held(take):
    try:
        take()
        return False
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return True


root = os.open(place, os.O_RDONLY)
fd = os.open(f"{place}/open-{node}", os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"before,")
os.rename(f"{place}/open-{node}", f"{place}/renamed-{node}")
assert spliced(fd, 7) == b"before,"

appends = os.open(f"{place}/appended", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(appends, f"{node} before\n".encode())

removed = os.open(f"{place}/removed-{node}", os.O_RDWR | os.O_CREAT, 0o600)
os.write(removed, b"no name")
os.unlink(f"{place}/removed-{node}")

os.mkdir(f"{place}/here-{node}")
os.chdir(f"{place}/here-{node}")
for number in range(400):
    open(f"entry-{number:03}", "w").close()
entries = os.scandir(".")
seen = {next(entries).name for _ in range(7)}

mapped = os.open(f"{place}/mapped-{node}", os.O_RDWR | os.O_CREAT, 0o644)
os.truncate(mapped, 8192)
memory = mmap.mmap(mapped, 8192)
memory[0:6] = b"before"
memory.flush()

whole = os.open(f"{place}/flock-{node}", os.O_RDWR | os.O_CREAT, 0o644)
fcntl.flock(whole, fcntl.LOCK_EX)
ranges = os.open(f"{place}/ranges-{node}", os.O_RDWR | os.O_CREAT, 0o644)
fcntl.lockf(ranges, fcntl.LOCK_EX, 10, 0)
fcntl.lockf(ranges, fcntl.LOCK_SH, 10, 20)

open(f"{signs}/{node}-holds", "w").close()
waits = os.fork()
if waits == 0:
    wait_for(f"{other}-holds")
    os.close(whole)
    wanted = os.open(f"{place}/flock-{other}", os.O_RDWR)
    open(f"{signs}/{node}-waits", "w").close()
    fcntl.flock(wanted, fcntl.LOCK_EX)
    open(f"{signs}/{node}-got-it", "w").close()
    os._exit(0)
wait_for("taken-over")

os.write(fd, b"after")
os.fsync(fd)
os.fsync(root)
assert os.pread(fd, 100, 0) == b"before,after", os.pread(fd, 100, 0)
assert spliced(fd, 12) == b"before,after", "a page of before"
with open(f"{place}/renamed-{node}", "rb") as file:
    assert file.read() == b"before,after"
    assert os.fstat(file.fileno()).st_ino == os.fstat(fd).st_ino

os.write(appends, f"{node} after\n".encode())

assert os.fstat(removed).st_nlink == 0
assert os.pread(removed, 100, 0) == b"no name", "a removed file that is open"
os.pwrite(removed, b"still", 0)
assert os.pread(removed, 100, 0) == b"stillme"

seen |= {entry.name for entry in entries}
assert len(seen) == 400, f"{len(seen)} entries of an open directory"
open("relative", "w").close()
assert os.path.exists(f"{place}/here-{node}/relative"), "the working directory"

memory[4096:4101] = b"after"
memory.flush()
assert os.pread(mapped, 5, 4096) == b"after" and memory[0:6] == b"before"

theirs = os.open(f"{place}/flock-{other}", os.O_RDWR)
assert is_held(lambda: fcntl.flock(theirs, fcntl.LOCK_SH | fcntl.LOCK_NB)), "flock"
theirs = os.open(f"{place}/ranges-{other}", os.O_RDWR)
assert is_held(lambda: fcntl.lockf(theirs, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 9)), "a write lock"
assert is_held(lambda: fcntl.lockf(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 29)), "a read lock"
assert not is_held(lambda: fcntl.lockf(theirs, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 29))
assert not is_held(lambda: fcntl.lockf(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 12))
assert not os.path.exists(f"{signs}/{node}-got-it"), "its child has a lock that another node holds"

open(f"{signs}/{node}-went-on", "w").close()
wait_for("enough")
fcntl.lockf(ranges, fcntl.LOCK_UN, 10, 0)
os.close(whole)
assert os.waitpid(waits, 0)[1] == 0, "its child waits for a lock that no program holds"
