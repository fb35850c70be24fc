#!/usr/bin/env python3
"""An independent, read-only reader of Steadfast volumes, written from docs/FORMAT.md alone.

    format_reader.py IMAGE list [SNAPSHOT]  one line per path of the state of the volume (log replayed) or of a
                                            snapshot, sorted by path
    format_reader.py IMAGE snapshots        one line per snapshot, oldest first: name, generation, inodes, blocks
    format_reader.py IMAGE verify           every structure against every other; one line per problem and exit code 1

A line of `list`: path, type, permissions, links, uid, gid, size, modification time, details (SHA-256 of a file, target
of a symbolic link, major:minor of a device, else -), extended attributes (NAME=VALUE in hex, sorted, or -).
"""
import hashlib
import os
import struct
import sys
from collections import namedtuple

NONE = 2**64 - 1
INODE, DIRENT, XATTR, SYMLINK, INLINE, EXTENT, GROUP, ORPHAN, SHARED, DEAD, SNAPSHOT = 1, 2, 3, 4, 5, 6, 16, 17, 18, 19, 20
UNLOGGED = GROUP, SHARED, DEAD, SNAPSHOT
F_INLINE, F_TAIL_STALE, F_TRUNCATING, F_RECLAIMING, F_UNNAMED, F_ACL_ACCESS, F_ACL_DEFAULT = (1 << i for i in range(7))
TYPES = {1: "fifo", 2: "char", 4: "dir", 6: "block", 8: "file", 10: "symlink", 12: "socket"}


# Of the intent log; they sort by age.
Record = namedtuple("Record", "epoch index number flags changes digest size")


class Damaged(Exception):
    pass


class Unknown(Damaged):
    """Right digest, but unknown or impossible values: the other copy of a superblock does not count."""


def _tables():
    one = []
    for c in range(256):
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
        one.append(c)
    half = [one[c & 255] ^ c >> 8 for c in range(65536)]
    return one, [one[c & 255] ^ c >> 8 for c in half]


ONE, TWO = _tables()


def crc32c(data):
    crc, two = 0xFFFFFFFF, TWO
    for word in struct.unpack_from("<%dH" % (len(data) // 2), data):
        crc = two[(crc ^ word) & 0xFFFF] ^ crc >> 16
    if len(data) % 2:
        crc = ONE[(crc ^ data[-1]) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def digest(*parts):
    return struct.pack("<I12x", crc32c(b"".join(parts)))


def siphash24(key, data):
    m64 = 2**64 - 1
    k0, k1 = struct.unpack("<QQ", key)
    a, b, c, d = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(n):
        nonlocal a, b, c, d
        for _ in range(n):
            a = (a + b) & m64
            b = (b << 13 | b >> 51) & m64 ^ a
            a = (a << 32 | a >> 32) & m64
            c = (c + d) & m64
            d = (d << 16 | d >> 48) & m64 ^ c
            a = (a + d) & m64
            d = (d << 21 | d >> 43) & m64 ^ a
            c = (c + b) & m64
            b = (b << 17 | b >> 47) & m64 ^ c
            c = (c << 32 | c >> 32) & m64

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        d ^= word
        rounds(2)
        a ^= word
    c ^= 0xFF
    rounds(4)
    return a ^ b ^ c ^ d


def unpack(layout, data, what):
    if len(data) != struct.calcsize(layout):
        raise Damaged("%s has %d bytes, not %d" % (what, len(data), struct.calcsize(layout)))
    return struct.unpack(layout, data)


def power(n, low, high):
    return low <= n <= high and n & (n - 1) == 0


def escape(raw):
    """Printable, one word, whatever the bytes are."""
    return "".join(chr(c) if 0x21 <= c <= 0x7E and c != 0x5C else "\\x%02x" % c for c in raw)


def line(path, kind, mode, links, uid, gid, size, mtime_ns, detail, xattrs):
    attributes = ",".join(sorted("%s=%s" % (n.hex(), v.hex()) for n, v in xattrs)) or "-"
    return "%s %s %04o %d %d %d %d %d.%09d %s %s" % (
        escape(path), kind, mode & 0o7777, links, uid, gid, size, *divmod(mtime_ns, 10**9), detail, attributes)


class Inode:
    def __init__(self, value, what):
        (self.mode, self.uid, self.gid, self.links, self.size, self.blocks, _, accessed, sec, nsec, _, changed,
         _, created, self.rdev, self.flags, self.parent) = unpack("<IIIIQQqIqIqIqIIIQ16x", value, what)
        self.mtime_ns, self.type, self.what = sec * 10**9 + nsec, self.mode >> 12 & 15, what
        if self.type not in TYPES or self.mode >> 16 or self.size >= 2**63 \
                or max(accessed, nsec, changed, created) >= 10**9:
            raise Damaged("%s: impossible mode, size or time" % what)


class Snapshot:
    def __init__(self, generation, value):
        (self.root, self.height, flags, _, nsec, self.inodes, self.blocks, self.nodes, self.next_inode, *self.counts, _,
         length) = unpack("<40sIIqIQQQQ5QQH", value[:142], "snapshot %d" % generation)
        self.generation, self.deleting, self.name = generation, flags & 1, value[142:]
        self.what = "snapshot %s" % escape(self.name)
        birth = struct.unpack_from("<Q", self.root, 16)[0]
        if length != len(self.name) or not 1 <= length <= 63 or b"/" in self.name or b"\0" in self.name \
                or self.name in (b".", b"..") or flags > 1 or nsec >= 10**9 or birth > generation \
                or not 1 <= self.height <= 64 or self.counts[0] >= generation:
            raise Damaged("%s: impossible values" % self.what)


class Tree:
    """What is below one root: items, the blocks in use with their births, nodes."""

    def __init__(self, volume, root, height, generation):
        self.items, self.blocks, self.nodes, self.old = {}, {}, 0, 0
        volume.walk(self, root, height, height - 1, b"", b"\xff" * 18, generation)
        references = {}
        for key, value in volume.of(self.items, EXTENT):
            volume.try_(self.extent, volume, key, value, references, generation)
        counts = {}
        for (ino, _, start), value in volume.of(self.items, SHARED):
            length, count = volume.try_(unpack, "<II", value, "shared extent at %d" % start) or (0, 2)
            for block in range(start, start + min(length, volume.blocks)):
                if ino or count < 2 or block in counts:
                    volume.problems.append("shared extent at %d: impossible or overlaps" % start)
                counts[block] = count
        for block in references.keys() | counts.keys():
            if references.get(block, 0) != counts.get(block, 1):
                volume.problems.append("block %d: %d extents name it, the count is %d" % (
                    block, references.get(block, 0), counts.get(block, 1)))
                break

    def extent(self, volume, key, value, references, generation):
        what, start, count, written, birth, _ = volume.extent(key, value)
        if birth > generation:
            volume.problems.append("%s: from a later generation" % what)
        for block in range(start, start + count):
            references[block] = references.get(block, 0) + 1
            again = references[block] > 1
            if (block in self.blocks) != again or self.blocks.setdefault(block, birth) != birth or again and not written:
                volume.problems.append("%s: block %d is in use for something else" % (what, block))

    def node(self, volume, address, count, birth, what):
        if address < volume.free_from or address + count > volume.free_to:
            raise Damaged("%s: blocks %d+%d are not in the volume" % (what, address, count))
        for block in range(address, address + count):
            if block in self.blocks:
                volume.problems.append("%s: block %d is used twice" % (what, block))
            self.blocks[block] = birth


class Volume:
    def __init__(self, path, lost):
        """`lost(text)` is told of what cannot be read from either copy; it may raise. Everything else that is not as
        it should be goes to `problems`."""
        self.fd, self.lost, self.problems = os.open(path, os.O_RDONLY), lost, []
        self.medium = os.lseek(self.fd, 0, os.SEEK_END)
        self.superblock()
        self.metaroot()
        self.live = Tree(self, self.root, self.height, self.generation)
        self.tree, self.nodes = self.live.items, self.live.nodes
        self.snapshots = [found for (_, _, generation), value in self.of(self.tree, SNAPSHOT)
                          for found in [self.try_(Snapshot, generation, value)] if found]
        self.replay()

    def read(self, offset, length):
        parts = []
        while length > 0:
            part = os.pread(self.fd, min(length, 1 << 24), offset)
            if not part:
                raise Damaged("the image ends at byte %d" % offset)
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def blocks_at(self, block, count):
        return self.read(block * self.block_size, count * self.block_size)

    def try_(self, function, *arguments):
        try:
            return function(*arguments)
        except Damaged as e:
            self.lost(str(e))

    # Superblock and metaroot

    def parse_superblock(self, offset):
        raw = self.read(offset, 512)
        if raw[:8] != b"STEADFST":
            raise Damaged("no superblock at byte %d" % offset)
        version, algorithm = struct.unpack_from("<II", raw, 8)
        if digest(raw[:496]) != raw[496:]:
            raise Damaged("wrong digest of the superblock at byte %d" % offset)
        (_, _, incompatible, blocks, bs, ns, copies, group, log_start, log_blocks, inline_max, _, reserve,
         _) = struct.unpack_from(
            "<QQQQIIIIQQIIQ16s", raw, 32)
        if (version, algorithm) != (1, 1) or incompatible:
            raise Unknown("version %d, checksum algorithm %d, incompatible features %#x: not known"
                          % (version, algorithm, incompatible))
        cell = max(bs, 512)
        if not (power(bs, 128, 65536) and power(ns, max(512, bs), 65536) and copies in (1, 2)
                and power(group, 64, 2**31) and group // 8 + 1 <= ns - 69 and inline_max <= ns - 69 and reserve <= blocks
                and blocks * bs % cell == 0 and 6 * cell + 4 * ns <= blocks * bs < 2**63
                and log_start == 3 * cell // bs and log_blocks * bs <= 2**30
                and (log_start + log_blocks) * bs <= blocks * bs - 3 * cell):
            raise Unknown("impossible values in the superblock at byte %d" % offset)
        return raw

    def superblock(self):
        try:
            raw, where = self.parse_superblock(0), 0
        except Unknown:
            raise
        except Damaged as e:
            first = str(e)
            for cell in (512 << i for i in range(8)):
                where = self.medium // cell * cell - cell
                try:
                    raw = self.parse_superblock(where)
                except (Damaged, OSError):
                    continue
                if struct.unpack_from("<QI", raw, 56)[0] * struct.unpack_from("<I", raw, 64)[0] == where + cell \
                        and max(struct.unpack_from("<I", raw, 64)[0], 512) == cell:
                    self.problems.append("superblock, copy A: " + first)
                    break
            else:
                raise Damaged("not a Steadfast volume: %s, and no second copy at the end" % first)
        self.uuid = raw[16:32]
        self.label, given = raw[128:160].rstrip(b"\0"), raw[172:188]
        self.known_uuid = given if any(given) else self.uuid
        (self.blocks, self.block_size, self.node_size, self.copies, self.group_blocks, self.log_start, self.log_blocks,
         self.inline_max, _, _, self.hash_key) = struct.unpack_from("<QIIIIQQIIQ16s", raw, 56)
        self.cell = max(self.block_size, 512)
        self.size = self.blocks * self.block_size
        self.free_from, self.free_to = self.log_start + self.log_blocks, (self.size - 3 * self.cell) // self.block_size
        if self.size > self.medium:
            raise Damaged("the volume has %d bytes, the image only %d" % (self.size, self.medium))
        if where == 0 and self.read(self.size - self.cell, 512) != raw:
            self.problems.append("superblock, copy B: differs from copy A")

    def metaroot(self):
        found, bad = [], []
        for copy, base in ("A", self.cell), ("B", self.size - 3 * self.cell):
            for slot in 0, 1:
                raw = self.read(base + slot * self.cell, 512)
                generation = struct.unpack_from("<Q", raw, 24)[0]
                if raw[:24] == b"SFMETART" + self.uuid and digest(raw[:496]) == raw[496:] and generation % 2 == slot \
                        and self.possible(raw):
                    found.append((generation, raw))
                else:
                    bad.append((slot, "metaroot slot %d, copy %s: not valid" % (slot, copy)))
        if not found:
            raise Damaged("no valid metaroot")
        self.generation, raw = max(found, key=lambda copy: copy[0])
        if len({r for g, r in found if g == self.generation}) > 1:
            self.problems.append("metaroot: the copies differ")
        self.problems += [text for slot, text in bad if slot == self.generation % 2]
        (self.root, self.height, _, self.next_inode, self.inodes, self.blocks_used, self.node_count, self.log_lsn,
         self.log_at, self.log_previous, self.log_epoch) = struct.unpack_from("<40sIIQQQQQQ16sQ", raw, 32)
        (self.newest_snapshot, self.snapshot_keys, self.dead_blocks, self.old_nodes,
         self.shared_keys) = struct.unpack_from("<5Q", raw, 176)

    def possible(self, raw):
        """Whether the fields of a metaroot are within their bounds."""
        generation, = struct.unpack_from("<Q", raw, 24)
        height, _, next_inode, _, used, _, lsn, at, _, epoch = struct.unpack_from("<IIQQQQQQ16sQ", raw, 72)
        newest, _, dead = struct.unpack_from("<3Q", raw, 176)
        return max(generation, next_inode, lsn, epoch) < 2**63 - 1 and 1 <= height <= 64 \
            and dead <= used <= self.free_to - self.free_from and (at < self.log_blocks or at == 0) \
            and (newest < generation or newest == 0)

    # Tree

    def node(self, tree, pointer, height, level, generation):
        first, second, birth, expected = struct.unpack("<QQQ16s", pointer)
        what = "node at block %d" % first
        if (second == NONE) != (self.copies == 1) or not 0 < birth <= generation:
            raise Damaged("%s: impossible pointer" % what)
        good = None
        for address in (first, second)[:self.copies]:
            tree.node(self, address, self.node_size // self.block_size, birth, what)
            raw = self.blocks_at(address, self.node_size // self.block_size)
            if digest(raw) == expected:
                good = raw
            else:
                self.problems.append("%s: wrong digest of the copy at block %d" % (what, address))
        tree.nodes += 1
        tree.old += birth <= self.newest_snapshot
        if good is None:
            raise Damaged("%s: no good copy" % what)
        magic, at, _, n, stamped, uuid, address, heap, total, _ = struct.unpack_from("<4sBBHQ8sQIIQ", good)
        slots = 48 + 21 * n
        if (magic, at, stamped, uuid, address) != (b"SFND", level, birth, self.uuid[:8], first):
            raise Damaged("%s: wrong header" % what)
        if not slots <= heap <= self.node_size or (n == 0 and height > 1):
            raise Damaged("%s: wrong number of items or heap" % what)
        if any(good[slots:heap]):
            self.problems.append("%s: not zero between slots and heap" % what)
        items = []
        for key, offset, length in struct.iter_unpack("<17sHH", good[48:slots]):
            if length and not heap <= offset <= self.node_size - length:
                raise Damaged("%s: a value lies outside the heap" % what)
            items.append((key, good[offset:offset + length] if length else b""))
        if sum(len(value) for _, value in items) != total:
            raise Damaged("%s: wrong sum of the lengths" % what)
        return what, items

    def walk(self, tree, pointer, height, level, low, high, generation):
        try:
            what, items = self.node(tree, pointer, height, level, generation)
            keys = [key for key, _ in items]
            # A branch's first key is no bound for its first child, so it need not be above the lower bound itself.
            check = keys if level == 0 else keys[1:]
            if any(a >= b for a, b in zip(keys, keys[1:])) or (check and (check[0] < low or check[-1] >= high)):
                raise Damaged("%s: keys out of order or bounds" % what)
            if level == 0:
                tree.items.update(items)
                return
            if any(len(value) != 40 for _, value in items):
                raise Damaged("%s: a pointer is not 40 bytes long" % what)
        except Damaged as e:
            self.lost(str(e))
            return
        for i, (key, value) in enumerate(items):
            self.walk(tree, value, height, level - 1, key if i else low, keys[i + 1] if i + 1 < len(keys) else high,
                      generation)

    def of(self, state, *kinds):
        return [((ino, kind, suffix), state[key]) for key in sorted(state)
                for ino, kind, suffix in [struct.unpack(">QBQ", key)] if kind in kinds]

    def extent(self, key, value):
        """First block, length, written or not, birth, checksums."""
        what = "inode %d, extent at %d" % (key[0], key[2])
        if len(value) < 21:
            raise Damaged("%s: too short" % what)
        start, count, flags, birth = struct.unpack_from("<QIBQ", value)
        granules = 0 if flags & 1 else count * self.block_size // min(self.block_size, 4096)
        if flags > 1 or flags and count > 16384 or count == 0 or start + count > self.free_to or start < self.free_from or len(value) != 21 + 4 * granules:
            raise Damaged("%s: impossible" % what)
        return what, start, count, not flags & 1, birth, struct.unpack_from("<%dI" % granules, value, 21)

    def extent_data(self, key, value):
        what, start, count, written, _, sums = self.extent(key, value)
        if not written:
            return bytes(count * self.block_size)
        data, granule = self.blocks_at(start, count), min(self.block_size, 4096)
        for i, expected in enumerate(sums):
            if crc32c(data[i * granule:(i + 1) * granule]) != expected:
                raise Damaged("%s: wrong checksum of granule %d" % (what, i))
        return data

    # Log

    def ring(self, at, length):
        start, length_of_ring = at * self.block_size, self.log_blocks * self.block_size
        first = min(length, length_of_ring - start)
        base = self.log_start * self.block_size
        return self.read(base + start, first) + self.read(base, length - first)

    def mutations(self, payload):
        """The list of (key, value or None, new in its group), or None if the payload is not well formed."""
        found, at = [], 0
        while at < len(payload):
            key, tag = payload[at:at + 17], payload[at + 17:at + 18]
            at += 18
            value = None
            if tag in (b"\1", b"\3"):
                length = int.from_bytes(payload[at:at + 2], "little")
                value = payload[at + 2:at + 2 + length]
                at += 2 + length
            if tag not in (b"\0", b"\1", b"\2", b"\3") or at > len(payload):
                return None
            if found and found[-1][0] >= key:
                return None
            found.append((key, value, tag < b"\2"))
        return found

    def unpacked(self, packed):
        """The payload that was packed, or None if it is malformed."""
        payload, at, inode, last = b"", 0, 0, {}

        def take(count):
            nonlocal at
            at += count
            if at > len(packed):
                raise ValueError
            return packed[at - count:at]

        def varint():
            number = shift = 0
            while True:
                byte = take(1)[0]
                number |= (byte & 127) << shift
                shift += 7
                if number >= 2**64 or shift > 70:
                    raise ValueError
                if byte < 128:
                    return number

        try:
            while at < len(packed):
                tag = take(1)[0]
                inode = (inode + varint()) % 2**64
                kind, put, plain = tag >> 3, tag & 1, tag & 4
                payload += inode.to_bytes(8, "big") + bytes([kind]) + varint().to_bytes(8, "big") + bytes([tag & 3])
                if plain and not put:
                    return None
                if not put:
                    continue
                length, value = varint(), b""
                if length >= 2**16:
                    return None
                if plain:
                    value = take(length)
                while len(value) < length:
                    mask, size = take(1)[0], min(8, length - len(value))
                    if mask >> size:
                        return None
                    value += b"".join(take(1) if mask >> i & 1 else b"\0" for i in range(size))
                if not plain and len(last.get(kind, b"")) == length:
                    value = bytes(a ^ b for a, b in zip(value, last[kind]))
                last[kind] = value
                payload += length.to_bytes(2, "little") + value
        except ValueError:
            return None
        return payload

    def record(self, at, room, first, previous, epoch):
        """The record at a block, if it belongs to the group that begins with number `first`."""
        header = self.ring(at, 72)
        magic, flags, uuid, number, its_epoch, before, length, index, own = struct.unpack("<4sI8sQQ16sII16s", header)
        size = -(-(72 + length) // self.block_size)
        if (magic, uuid, number - index, before) != (b"SFLR", self.uuid[:8], first, previous) \
                or not epoch <= its_epoch < 2**63 - 1 or size > room or index and size > 1:
            return None
        record = self.ring(at, 72 + length)
        if digest(record[:56], bytes(16), record[72:]) != own:
            return None
        payload = self.unpacked(record[72:]) if flags & 2 else record[72:]
        changes = None if payload is None else self.mutations(payload)
        return changes is not None and Record(its_epoch, index, number, flags, changes, own, size)

    def replay(self):
        at, lsn, previous, epoch, total = self.log_at, self.log_lsn, self.log_previous, self.log_epoch, 0
        if self.log_blocks and at >= self.log_blocks:
            raise Damaged("the metaroot names a block beyond the log")
        groups, self.wrapped = [], 0
        while total < self.log_blocks:
            one = self.record(at, self.log_blocks - total, lsn, previous, epoch)
            two = None
            if total + 2 <= self.log_blocks and not (one and one.size > 1):
                two = self.record((at + 1) % self.log_blocks, 1, lsn, previous, epoch)
            group = sorted(record for record in (one, two) if record)
            if not group:
                break
            newest = group[-1]
            size = 2 if newest.index else newest.size
            groups.append(group)
            self.wrapped += at + size > self.log_blocks
            at, total = (at + size) % self.log_blocks, total + size
            lsn, previous, epoch = newest.number + 1, newest.digest, newest.epoch
        if groups:
            last = groups[-1][-1]
            if last.flags & 1 and not self.data_arrived(last.changes):
                groups[-1].pop()
                if not groups[-1] and last.index:
                    raise Damaged("the last record of the log lacks its data, and the one before it is damaged")
        records = [group[-1] for group in groups if group]
        self.records, self.state = sum(record.index + 1 for record in records), dict(self.tree)
        for record in records:
            for key, value, _ in record.changes:
                if key[8] in UNLOGGED or value is not None and len(value) > self.node_size - 69:
                    raise Damaged("a record of the log has a key that is in none, or a value that fits no node")
                if value is None:
                    self.state.pop(key, None)
                else:
                    self.state[key] = value

    def data_arrived(self, changes):
        for key, value in self.of({k: v for k, v, new in changes if v is not None and new}, EXTENT):
            if self.extent(key, value)[4] > self.generation:
                try:
                    self.extent_data(key, value)
                except Damaged:
                    return False
        return True


class State:
    """The files of one state: of the tree alone, or with the log."""

    def __init__(self, volume, items):
        self.volume, self.inodes, self.extents, self.links, self.inline = volume, {}, {}, {}, {}
        self.orphans, self.entries, pieces, targets = set(), {}, {}, {}
        for (ino, kind, suffix), value in volume.of(items, *range(256)):
            if kind == INODE:
                self.inodes[ino] = volume.try_(Inode, value, "inode %d" % ino)
            elif kind == DIRENT:
                volume.try_(self.entry, ino, suffix, value)
            elif kind == XATTR:
                pieces.setdefault(ino, {}).setdefault(suffix >> 16, []).append((suffix & 0xFFFF, value))
            elif kind == SYMLINK:
                targets.setdefault(ino, []).append((suffix, value))
            elif kind == INLINE:
                self.inline[ino] = value
            elif kind == EXTENT:
                self.extents.setdefault(ino, []).append((suffix, value))
            elif kind == ORPHAN and ino == 0 and value == b"\0":
                self.orphans.add(suffix)
            elif kind not in UNLOGGED or ino:
                wrong = volume.lost if kind == ORPHAN or kind in UNLOGGED else volume.problems.append
                wrong("a key of inode %d of kind %d with suffix %d is unknown or wrong" % (ino, kind, suffix))
        self.inodes = {ino: inode for ino, inode in self.inodes.items() if inode}
        self.targets = {ino: volume.try_(self.join, p, "inode %d, target" % ino) for ino, p in targets.items()}
        self.xattrs = {ino: [x for slot, p in slots.items() for x in [volume.try_(self.xattr, ino, slot, p)] if x]
                       for ino, slots in pieces.items()}

    def join(self, pieces, what):
        if [number for number, _ in pieces] != list(range(len(pieces))):
            raise Damaged("%s: a piece is missing" % what)
        return b"".join(value for _, value in pieces)

    def entry(self, directory, suffix, value):
        ino, name = int.from_bytes(value[:8], "little"), value[9:]
        what = "inode %d, entry %s" % (directory, escape(name))
        if not 1 <= len(name) <= 255 or b"/" in name or b"\0" in name or name in (b".", b".."):
            raise Damaged("%s: impossible name" % what)
        if suffix >> 4 != max(siphash24(self.volume.hash_key, name) % 2**59, 1):
            raise Damaged("%s: not in a slot of its hash" % what)
        if name in self.entries.setdefault(directory, {}):
            raise Damaged("%s: found twice" % what)
        self.entries[directory][name] = ino, value[8]
        self.links.setdefault(ino, []).append((directory, value[8], what))

    def xattr(self, ino, slot, pieces):
        what = "inode %d, attribute in slot %d" % (ino, slot)
        raw = self.join(pieces, what)
        if len(raw) < 5 or len(raw) != 5 + raw[4] + int.from_bytes(raw[:4], "little") or len(pieces) > 48:
            raise Damaged("%s: wrong length" % what)
        name = raw[5:5 + raw[4]]
        if slot >> 4 != siphash24(self.volume.hash_key, name) % 2**44:
            raise Damaged("%s: not in a slot of its hash" % what)
        return name, raw[5 + raw[4]:]

    def content(self, ino, inode):
        """The file's bytes in parts. Every extent is read and verified, also what lies beyond the size."""
        at, bs = 0, self.volume.block_size
        if ino in self.inline:
            yield self.inline[ino]
            at = len(self.inline[ino])
        for index, value in self.extents.get(ino, []):
            data = self.volume.extent_data((ino, EXTENT, index), value)
            if index * bs < inode.size:
                yield from self.zeros(index * bs - at)
                yield data[:inode.size - index * bs]
                at = min(index * bs + len(data), inode.size)
        yield from self.zeros(inode.size - at)

    def zeros(self, count):
        while count > 0:
            yield bytes(min(count, 1 << 20))
            count -= 1 << 20

    def sha256(self, ino, inode):
        hashed = hashlib.sha256()
        for part in self.content(ino, inode):
            hashed.update(part)
        return hashed.hexdigest()

    def paths(self):
        found, todo, seen = [], [(b"/", 1)], set()
        while todo:
            path, ino = todo.pop()
            if ino not in self.inodes:
                raise Damaged("%s: there is no inode %d" % (escape(path), ino))
            found.append((path, ino))
            if self.inodes[ino].type == 4:
                if ino in seen:
                    raise Damaged("%s: directory %d is found twice" % (escape(path), ino))
                seen.add(ino)
                todo += [(path.rstrip(b"/") + b"/" + name, child)
                         for name, (child, _) in self.entries.get(ino, {}).items()]
        return sorted(found)

    def list(self):
        for path, ino in self.paths():
            i, detail = self.inodes[ino], "-"
            if i.type == 8:
                detail = self.sha256(ino, i)
            elif i.type == 10:
                detail = escape(self.targets.get(ino, b""))
            elif i.type in (2, 6):
                detail = "%d:%d" % (i.rdev >> 8 & 0xFFF, i.rdev & 0xFF | i.rdev >> 12 & 0xFFF00)
            yield line(path, TYPES[i.type], i.mode, i.links, i.uid, i.gid, i.size, i.mtime_ns, detail,
                       self.xattrs.get(ino, []))

    def verify(self, bad, next_inode):
        for ino in sorted(set(self.extents) | set(self.inline) | set(self.xattrs) | set(self.targets) | set(self.links)
                          | set(self.entries) | self.orphans | {1}):
            if ino not in self.inodes:
                bad("inode %d: has keys or names, but does not exist" % ino)
        for ino, i in self.inodes.items():
            names, entries = self.links.get(ino, []), self.entries.get(ino, {})
            if ino != 1 and not 16 <= ino < next_inode:
                bad("%s: number out of range" % i.what)
            if any(kind != i.type or d not in self.inodes or self.inodes[d].type != 4 for d, kind, _ in names):
                bad("%s: an entry has another type or no directory" % i.what)
            if (i.links == 0 or i.flags & F_TRUNCATING != 0) != (ino in self.orphans):
                bad("%s: orphan key does not fit links and flags" % i.what)
            if i.type == 4:
                subdirectories = sum(kind == 4 for _, kind in entries.values())
                parents = [d for d, _, _ in names] if ino != 1 else [1] * (1 - len(names))
                if i.links and (i.links != 2 + subdirectories or [i.parent] != parents):
                    bad("%s: wrong links, parent or names" % i.what)
                if i.size != len(entries):
                    bad("%s: size %d, but %d entries" % (i.what, i.size, len(entries)))
            elif i.links != len(names):
                bad("%s: %d links, but %d names" % (i.what, i.links, len(names)))
            if i.type == 10 and i.size != len(self.targets.get(ino, b"") or b"") and i.links:
                bad("%s: size is not the length of the target" % i.what)
            acls = {name for name, _ in self.xattrs.get(ino, [])}
            for flag, name in (F_ACL_ACCESS, b"system.posix_acl_access"), (F_ACL_DEFAULT, b"system.posix_acl_default"):
                if (i.flags & flag != 0) != (name in acls) and not i.flags & F_RECLAIMING:
                    bad("%s: flag and attribute %s disagree" % (i.what, name.decode()))
            if ino in self.inline and (not i.flags & F_INLINE or len(self.inline[ino]) > i.size):
                bad("%s: inline data without flag or longer than size" % i.what)
            self.volume.try_(self.verify_data, ino, i, bad)

    def verify_data(self, ino, i, bad):
        end, blocks, bs = 0, 0, self.volume.block_size
        if ino in self.extents and (i.type != 8 or i.flags & F_INLINE):
            bad("%s: has extents" % i.what)
        for index, value in self.extents.get(ino, []):
            what, start, count, written, _, _ = self.volume.extent((ino, EXTENT, index), value)
            if index < end:
                bad("%s: overlaps the one before" % what)
            end, blocks = index + count, blocks + count
            data = self.volume.extent_data((ino, EXTENT, index), value)
            stale = max(i.size - index * bs, 0)
            if index <= i.size // bs < end and i.size % bs and not i.flags & (F_TAIL_STALE | F_TRUNCATING) \
                    and any(data[stale:stale - stale % bs + bs]):
                bad("%s: bytes beyond size are not zero, without the flag" % what)
        if blocks != i.blocks:
            bad("%s: %d blocks, but %d in extents" % (i.what, i.blocks, blocks))


def verify_snapshots(volume, bad):
    """Every dead list holds just what its snapshot has and the next one has not. Returns the blocks in all lists."""
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
        expected.update({block: birth for block, birth in waiting.items() if birth <= snapshot.generation})
        found = {block: birth for block, birth in tree.blocks.items() if block not in newer}
        if found != expected:
            bad("%s: dead lists are wrong for %d blocks" % (
                snapshot.what, len({block for block, _ in found.items() ^ expected.items()})))
        inodes = len(volume.of(tree.items, INODE))
        lists_then = sum(count for _, value in volume.of(tree.items, DEAD)
                         for _, count, _ in struct.iter_unpack("<QIQ", value[:len(value) // 20 * 20]))
        if (snapshot.nodes, snapshot.inodes) != (tree.nodes, inodes) or snapshot.counts[2] != lists_then \
                or snapshot.blocks != len(tree.blocks) + lists_then:
            bad("%s: wrong counts" % snapshot.what)
        State(volume, tree.items).verify(lambda text: bad("%s: %s" % (snapshot.what, text)), snapshot.next_inode)
        newer, waiting = tree.blocks, {}
    live = [snapshot for snapshot in volume.snapshots if not snapshot.deleting]
    if len({snapshot.name for snapshot in live}) != len(live):
        bad("two snapshots have the same name")
    for name, stated, counted in (
            ("newest snapshot", volume.newest_snapshot, max((s.generation for s in live), default=0)),
            ("snapshots", volume.snapshot_keys, len(volume.snapshots)),
            ("blocks in dead lists", volume.dead_blocks, len(dead)),
            ("shared extents", volume.shared_keys, len(volume.of(volume.tree, SHARED)))):
        if stated != counted:
            bad("metaroot: %s: %d, but it is %d" % (name, stated, counted))
    if volume.old_nodes < volume.live.old:
        bad("metaroot: at most %d old nodes, but there are %d" % (volume.old_nodes, volume.live.old))
    return dead


def verify(volume):
    bad = volume.problems.append
    volume.used = {}
    for block in [*volume.live.blocks, *verify_snapshots(volume, bad)]:
        group, bit = divmod(block, volume.group_blocks)
        volume.used[group] = volume.used.get(group, 0) | 1 << bit
    groups = {suffix: value for (ino, _, suffix), value in volume.of(volume.tree, GROUP) if ino == 0}
    for group in sorted(set(groups) | set(volume.used)):
        first, value = group * volume.group_blocks, groups.get(group, b"\2")
        low, high = max(volume.free_from - first, 0), min(volume.free_to - first, volume.group_blocks)
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
    for name, stated, counted in (("blocks in use", volume.blocks_used, used), ("inodes", volume.inodes, inodes),
                                  ("nodes", volume.node_count, volume.nodes)):
        if stated != counted:
            bad("metaroot: %s: %d, but %d are found" % (name, stated, counted))
    State(volume, volume.tree).verify(lambda text: bad("durable state: " + text), volume.next_inode)
    if volume.records:
        State(volume, volume.state).verify(lambda text: bad("with the log: " + text), NONE)


def main():
    if sys.argv[2:] not in (["list"], ["list", *sys.argv[3:4]], ["verify"], ["snapshots"], ["names"]):
        print("usage: format_reader.py IMAGE list [SNAPSHOT]|snapshots|names|verify", file=sys.stderr)
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
                named = [s for s in volume.snapshots if s.name == os.fsencode(sys.argv[3]) and not s.deleting]
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
                    print("%s %d %d %d" % (escape(s.name), s.generation, s.inodes, s.blocks - s.counts[2]))
            return 0
        lost = []
        volume = Volume(sys.argv[1], lost.append)
        volume.lost = volume.problems.append
        volume.problems += lost
        verify(volume)
        print("\n".join(dict.fromkeys(volume.problems)) or
              "ok: generation %d, %d levels, %d nodes, %d inodes, %d blocks, %d records" % (
                  volume.generation, volume.height, volume.nodes, volume.inodes, volume.blocks_used, volume.records))
        return 1 if volume.problems else 0
    except (Damaged, OSError) as e:
        print("format_reader: %s: %s" % (sys.argv[1], e), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
