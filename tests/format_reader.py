#!/usr/bin/env python3
"""An independent, read-only reader of Steadfast volumes, written from docs/FORMAT.md alone.

    format_reader.py IMAGE list [SNAPSHOT]  one line per path of the state of the volume (log
                                            replayed) or of a snapshot, sorted by path
    format_reader.py IMAGE snapshots        one line per snapshot, oldest first: name, generation,
                                            inodes, blocks
    format_reader.py IMAGE verify           every structure against every other; one line per
                                            problem and exit code 1

A line of `list`: path, type, permissions, links, uid, gid, size, modification time, details
(SHA-256 of a file, target of a symbolic link, major:minor of a device, else -), extended attributes
(NAME=VALUE in hex, sorted, or -).
"""
import os
import struct
import sys

sys.dont_write_bytecode = True

from format_encoding import (
    DEAD, GROUP, INODE, NONE, SHARED, SNAPSHOT, Damaged, escape)
from format_state import State
from format_volume import Tree, Volume


def verify_snapshots(volume, bad):
    """Every dead list holds just what its snapshot has and the next one has not. Returns the blocks
    in all lists."""
    lists, dead = {}, {}
    for (ino, _, suffix), value in volume.of(volume.tree, DEAD):
        generation, what = suffix >> 24, "dead list of snapshot %d" % (suffix >> 24)
        if ino or not value or len(value) % 20:
            bad("%s: wrong length" % what)
            continue
        for start, count, birth in struct.iter_unpack("<QIQ", value):
            if birth > generation or start < volume.free_from or start + count > volume.free_to:
                bad("%s: impossible run" % what)
                continue
            for block in range(start, start + count):
                if block in dead or block in volume.live.blocks:
                    bad("%s: block %d is in another one or in use" % (what, block))
                dead[block] = birth
                lists.setdefault(generation, {})[block] = birth
    known = {snapshot.generation for snapshot in volume.snapshots}
    if set(lists) - known:
        bad("a dead list without its snapshot")
    newer, waiting = volume.live.blocks, {}
    for snapshot in reversed(volume.snapshots):
        if snapshot.deleting:
            waiting.update(lists.get(snapshot.generation, {}))
            continue
        tree = Tree(volume, snapshot.root, snapshot.height, snapshot.generation)
        expected = dict(lists.get(snapshot.generation, {}))
        expected.update({block: birth
                         for block, birth in waiting.items() if birth <= snapshot.generation})
        found = {block: birth for block, birth in tree.blocks.items() if block not in newer}
        if found != expected:
            bad("%s: dead lists are wrong for %d blocks" % (
                snapshot.what, len({block for block, _ in found.items() ^ expected.items()})))
        inodes = len(volume.of(tree.items, INODE))
        entries = [value[:len(value) // 20 * 20] for _, value in volume.of(tree.items, DEAD)]
        lists_then = sum(count for value in entries
                         for _, count, _ in struct.iter_unpack("<QIQ", value))
        if (snapshot.nodes, snapshot.inodes) != (tree.nodes, inodes) \
                or snapshot.counts[2] != lists_then \
                or snapshot.blocks != len(tree.blocks) + lists_then:
            bad("%s: wrong counts" % snapshot.what)
        State(volume, tree.items).verify(lambda text: bad("%s: %s" % (snapshot.what, text)),
                                         snapshot.next_inode)
        newer, waiting = tree.blocks, {}
    live = [snapshot for snapshot in volume.snapshots if not snapshot.deleting]
    if len({snapshot.name for snapshot in live}) != len(live):
        bad("two snapshots have the same name")
    for name, stated, counted in (
            ("newest snapshot", volume.newest_snapshot,
             max((s.generation for s in live), default=0)),
            ("snapshots", volume.snapshot_keys, len(volume.snapshots)),
            ("blocks in dead lists", volume.dead_blocks, len(dead)),
            ("shared extents", volume.shared_keys, len(volume.of(volume.tree, SHARED)))):
        if stated != counted:
            bad("metaroot: %s: %d, but it is %d" % (name, stated, counted))
    if volume.old_nodes < volume.live.old:
        bad("metaroot: at most %d old nodes, but there are %d"
            % (volume.old_nodes, volume.live.old))
    return dead


def verify(volume):
    bad = volume.problems.append
    volume.used = {}
    for block in [*volume.live.blocks, *verify_snapshots(volume, bad)]:
        group, bit = divmod(block, volume.group_blocks)
        volume.used[group] = volume.used.get(group, 0) | 1 << bit
    groups = {suffix: value
              for (ino, _, suffix), value in volume.of(volume.tree, GROUP) if ino == 0}
    for group in sorted(set(groups) | set(volume.used)):
        first, value = group * volume.group_blocks, groups.get(group, b"\2")
        low, high = max(volume.free_from - first, 0), min(volume.free_to - first,
                                                          volume.group_blocks)
        if value == b"\1":
            bitmap = (1 << max(high, low)) - (1 << low)
        elif value[:1] == b"\2" and len(value) <= 1 + volume.group_blocks // 8:
            bitmap = int.from_bytes(value[1:], "little")
        else:
            bad("group %d: not a bitmap" % group)
            continue
        wrong = bitmap ^ volume.used.get(group, 0)
        if wrong:
            bit = (wrong & -wrong).bit_length() - 1
            bad("group %d: %d blocks are wrong in the bitmap; the first, %d, is marked %s" % (
                group, bin(wrong).count("1"), first + bit, "used" if bitmap >> bit & 1 else "free"))
    used = sum(bin(mask).count("1") for mask in volume.used.values())
    inodes = len(volume.of(volume.tree, INODE))
    for name, stated, counted in (("blocks in use", volume.blocks_used, used),
                                  ("inodes", volume.inodes, inodes),
                                  ("nodes", volume.node_count, volume.nodes)):
        if stated != counted:
            bad("metaroot: %s: %d, but %d are found" % (name, stated, counted))
    State(volume, volume.tree).verify(lambda text: bad("checkpointed state: " + text),
                                      volume.next_inode)
    if volume.records:
        State(volume, volume.state).verify(lambda text: bad("with the log: " + text), NONE)


def main():
    if sys.argv[2:] not in (["list"], ["list", *sys.argv[3:4]], ["verify"], ["snapshots"],
                            ["names"]):
        print("usage: format_reader.py IMAGE list [SNAPSHOT]|snapshots|names|verify",
              file=sys.stderr)
        return 2

    def fatal(text):
        raise Damaged(text)

    try:
        if sys.argv[2] == "list":
            volume = Volume(sys.argv[1], fatal)
            for text in volume.problems:
                print("format_reader: " + text, file=sys.stderr)
            state = volume.state
            if len(sys.argv) > 3:
                named = [s for s in volume.snapshots if s.name == os.fsencode(sys.argv[3])
                         and not s.deleting]
                if not named:
                    raise Damaged("there is no such snapshot")
                state = Tree(volume, named[0].root, named[0].height, named[0].generation).items
            print("\n".join(State(volume, state).list()))
            return 0
        if sys.argv[2] == "names":
            volume = Volume(sys.argv[1], fatal)
            print("%s %s" % (volume.known_uuid.hex(), escape(volume.label)))
            return 0
        if sys.argv[2] == "snapshots":
            for s in Volume(sys.argv[1], fatal).snapshots:
                if not s.deleting:
                    print("%s %d %d %d" % (escape(s.name), s.generation, s.inodes,
                                           s.blocks - s.counts[2]))
            return 0
        lost = []
        volume = Volume(sys.argv[1], lost.append)
        volume.lost = volume.problems.append
        volume.problems += lost
        verify(volume)
        print("\n".join(dict.fromkeys(volume.problems)) or
              "ok: generation %d, %d levels, %d nodes, %d inodes, %d blocks, %d records" % (
                  volume.generation, volume.height, volume.nodes, volume.inodes, volume.blocks_used,
                  volume.records))
        return 1 if volume.problems else 0
    except (Damaged, OSError) as e:
        print("format_reader: %s: %s" % (sys.argv[1], e), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
