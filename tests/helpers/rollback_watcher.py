"""Watches directories and files with inotify, for rollback.sh. Commands on standard input:

    watch NAME PATH    adds a watch, answers "watched"
    events             answers the events since the last time, as NAME:EVENT[:FILE] words, or "none"
    quit
"""

import ctypes
import os
import select
import struct
import sys
import time

EVENTS = {
    0x2: "modify", 0x4: "attrib", 0x8: "close_write", 0x40: "moved_from", 0x80: "moved_to",
    0x100: "create",
    0x200: "delete", 0x400: "delete_self", 0x800: "move_self", 0x2000: "unmount", 0x8000: "ignored",
}
MASK = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800

libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def events(descriptor, names):
    """Returns the events so far.

    Most events arrive with the call that causes them; the wait is for those of the daemon.
    """
    found = []
    end = time.monotonic() + 0.3
    while select.select([descriptor], [], [], max(0, end - time.monotonic()))[0]:
        data = os.read(descriptor, 65536)
        at = 0
        while at < len(data):
            watch, mask, _, length = struct.unpack_from("iIII", data, at)
            name = data[at + 16:at + 16 + length].rstrip(b"\0").decode(errors="replace")
            at += 16 + length
            kinds = [text for bit, text in EVENTS.items() if mask & bit]
            word = ":".join([names.get(watch, "?"), "+".join(kinds)] + ([name] if name else []))
            found.append(word)
    return found


def main():
    descriptor = check(libc.inotify_init1(os.O_NONBLOCK))
    names = {}
    for line in sys.stdin:
        words = line.split()
        if words[0] == "watch":
            names[check(libc.inotify_add_watch(descriptor, os.fsencode(words[2]), MASK))] = words[1]
            print("watched", flush=True)
        elif words[0] == "events":
            print(" ".join(events(descriptor, names)) or "none", flush=True)
        else:
            return


main()
