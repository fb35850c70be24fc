"""The tree, the structures and the intent log of a volume; a part of format_reader.py."""
import os
import struct

from format_encoding import (
    EXTENT, NONE, SHARED, SNAPSHOT, UNLOGGED, Damaged, Record, Snapshot, Unknown, crc32c, digest,
    power, unpack)


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
            length, count = volume.try_(unpack, "<II", value,
                                        "shared extent at %d" % start) or (0, 2)
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
            if (block in self.blocks) != again \
                    or self.blocks.setdefault(block, birth) != birth or again and not written:
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
        """`lost(text)` is told of what cannot be read from either copy; it may raise. Everything
        else that is not as it should be goes to `problems`."""
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
        (_, _, incompatible, blocks, bs, ns, copies, group, log_start, log_blocks, inline_max, _,
         reserve, _) = struct.unpack_from("<QQQQIIIIQQIIQ16s", raw, 32)
        if (version, algorithm) != (1, 1) or incompatible:
            raise Unknown("version %d, checksum algorithm %d, incompatible features %#x: not known"
                          % (version, algorithm, incompatible))
        cell = max(bs, 512)
        if not (power(bs, 128, 65536) and power(ns, max(512, bs), 65536) and copies in (1, 2)
                and power(group, 64, 2**31) and group // 8 + 1 <= ns - 69 and inline_max <= ns - 69
                and reserve <= blocks
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
                block_size, = struct.unpack_from("<I", raw, 64)
                if struct.unpack_from("<Q", raw, 56)[0] * block_size == where + cell \
                        and max(block_size, 512) == cell:
                    self.problems.append("superblock, copy A: " + first)
                    break
            else:
                raise Damaged("not a Steadfast volume: %s, and no second copy at the end" % first)
        self.uuid = raw[16:32]
        self.features, = struct.unpack_from("<Q", raw, 40)
        self.label, given = raw[128:160].rstrip(b"\0"), raw[172:188]
        self.known_uuid = given if any(given) else self.uuid
        (self.blocks, self.block_size, self.node_size, self.copies, self.group_blocks,
         self.log_start, self.log_blocks, self.inline_max, _, _,
         self.hash_key) = struct.unpack_from("<QIIIIQQIIQ16s", raw, 56)
        self.cell = max(self.block_size, 512)
        self.size = self.blocks * self.block_size
        self.free_from = self.log_start + self.log_blocks
        self.free_to = (self.size - 3 * self.cell) // self.block_size
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
                if raw[:24] == b"SFMETART" + self.uuid and digest(raw[:496]) == raw[496:] \
                        and generation % 2 == slot and self.possible(raw):
                    found.append((generation, raw))
                else:
                    bad.append((slot, "metaroot slot %d, copy %s: not valid" % (slot, copy)))
        if not found:
            raise Damaged("no valid metaroot")
        self.generation, raw = max(found, key=lambda copy: copy[0])
        if len({r for g, r in found if g == self.generation}) > 1:
            self.problems.append("metaroot: the copies differ")
        self.problems += [text for slot, text in bad if slot == self.generation % 2]
        (self.root, self.height, _, self.next_inode, self.inodes, self.blocks_used, self.node_count,
         self.log_lsn, self.log_at, self.log_previous,
         self.log_epoch) = struct.unpack_from("<40sIIQQQQQQ16sQ", raw, 32)
        (self.newest_snapshot, self.snapshot_keys, self.dead_blocks, self.old_nodes,
         self.shared_keys) = struct.unpack_from("<5Q", raw, 176)

    def possible(self, raw):
        """Whether the fields of a metaroot are within their bounds."""
        generation, = struct.unpack_from("<Q", raw, 24)
        (height, _, next_inode, _, used, _, lsn, at, _,
         epoch) = struct.unpack_from("<IIQQQQQQ16sQ", raw, 72)
        newest, _, dead = struct.unpack_from("<3Q", raw, 176)
        return max(generation, next_inode, lsn, epoch) < 2**63 - 1 and 1 <= height <= 64 \
            and dead <= used <= self.free_to - self.free_from \
            and (at < self.log_blocks or at == 0) \
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
        (magic, at, _, n, stamped, uuid, address, heap, total,
         _) = struct.unpack_from("<4sBBHQ8sQIIQ", good)
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
            # A branch's first key is no bound for its first child, so it need not be above the
            # lower bound itself.
            check = keys if level == 0 else keys[1:]
            if any(a >= b for a, b in zip(keys, keys[1:])) \
                    or check and (check[0] < low or check[-1] >= high):
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
            self.walk(tree, value, height, level - 1, key if i else low,
                      keys[i + 1] if i + 1 < len(keys) else high, generation)

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
        if flags > 1 or flags and count > 16384 or count == 0 or start + count > self.free_to \
                or start < self.free_from or len(value) != 21 + 4 * granules:
            raise Damaged("%s: impossible" % what)
        sums = struct.unpack_from("<%dI" % granules, value, 21)
        return what, start, count, not flags & 1, birth, sums

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
        """The list of (key, value or None, new in its group), or None if the payload is not well
        formed."""
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
                payload += inode.to_bytes(8, "big") + bytes([kind]) + varint().to_bytes(8, "big")
                payload += bytes([tag & 3])
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
        (magic, flags, uuid, number, its_epoch, before, length, index,
         own) = struct.unpack("<4sI8sQQ16sII16s", header)
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
        at, lsn, previous, epoch = self.log_at, self.log_lsn, self.log_previous, self.log_epoch
        total = 0
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
                    raise Damaged("the last record of the log lacks its data, and the one before "
                                  "it is damaged")
        records = [group[-1] for group in groups if group]
        self.records, self.state = sum(record.index + 1 for record in records), dict(self.tree)
        for record in records:
            for key, value, _ in record.changes:
                if key[8] in UNLOGGED or value is not None and len(value) > self.node_size - 69:
                    raise Damaged("a record of the log has a key that is in none, or a value that "
                                  "fits no node")
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
