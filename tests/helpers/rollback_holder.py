"""Holds files of a mount open in several ways during a rollback, and reports what it observes.

Usage: rollback_holder.py DIRECTORY; commands on standard input, one answer line each:

  open       opens what the test needs: `extended`, `truncated`, `mapped`, `reader`
  change     extends, truncates, stores through the map, creates `new`
  close      closes the files that are open for writing, keeps the read-only descriptor
  map        reports the effect of reads and stores through the map after the rollback, in children
  stale      reports the results of old descriptors after the rollback
  quit
"""

import errno
import mmap
import os
import signal
import sys


class Holder:
    def __init__(self, directory):
        self.directory = directory
        self.held = {}
        self.map = None

    def path(self, name):
        return f"{self.directory}/{name}"

    def open(self):
        for name in ("extended", "truncated", "mapped"):
            self.held[name] = os.open(self.path(name), os.O_RDWR)
        self.held["reader"] = os.open(self.path("extended"), os.O_RDONLY)
        size = os.fstat(self.held["mapped"]).st_size
        self.map = mmap.mmap(self.held["mapped"], size)
        return "opened"

    def change(self):
        os.pwrite(self.held["extended"], b"E" * 100_000, 5000)
        os.ftruncate(self.held["truncated"], 10)
        self.map[0:10_000] = b"M" * 10_000
        with open(self.path("new"), "w") as file:
            file.write("new")
        os.rename(self.path("other"), self.path("renamed"))
        return "changed"

    def touch(self, action):
        """Returns how a child process ends that uses the map."""
        child = os.fork()
        if child == 0:
            try:
                action()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "fine"

    def use_map(self):
        def store():
            self.map[20_000:20_010] = b"S" * 10

        return f"read {self.touch(lambda: self.map[0:10])} store {self.touch(store)}"

    def close(self):
        if self.map is not None:
            self.map.close()
            self.map = None
        for name in ("extended", "truncated", "mapped"):
            descriptor = self.held.pop(name, None)
            if descriptor is not None:
                try:
                    os.close(descriptor)
                except OSError as error:
                    return f"close {name}: {errno.errorcode[error.errno]}"
        return "closed"

    def stale(self):
        answers = []
        for name, descriptor in sorted(self.held.items()):
            try:
                os.pread(descriptor, 10, 0)
                answers.append(f"{name} read")
            except OSError as error:
                answers.append(f"{name} {errno.errorcode[error.errno]}")
            if name != "reader":
                try:
                    os.pwrite(descriptor, b"late", 0)
                    os.fsync(descriptor)
                    answers.append(f"{name} wrote")
                except OSError as error:
                    answers.append(f"{name} {errno.errorcode[error.errno]}")
        return ", ".join(answers)


def main():
    holder = Holder(sys.argv[1])
    commands = {
        "open": holder.open,
        "change": holder.change,
        "close": holder.close,
        "map": holder.use_map,
        "stale": holder.stale,
    }
    for line in sys.stdin:
        word = line.strip()
        if word == "quit":
            # Maps and descriptors end with the process, as in any program.
            os._exit(0)
        try:
            answer = commands[word]()
        except OSError as error:
            answer = f"error {errno.errorcode.get(error.errno, error.errno)}"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
