#!/usr/bin/env python3
"""The test vectors of docs/FORMAT.md against the independent reader.

    format_vectors.py PAGE IMAGE   checks every vector; writes the volume of the page to IMAGE
"""
import os
import re
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import format_encoding as encoding
import format_reader as reader


def fail(text):
    raise reader.Damaged(text)


def blocks(page, kind):
    """The fenced blocks of one kind, as lines without comments."""
    found = re.findall(r"^```%s\n(.*?)^```$" % kind, page, re.M | re.S)
    assert found, "the page has no block of the kind " + kind
    return [line for block in found
            for line in block.splitlines() if line and not line.startswith("#")]


def volume(lines):
    """The image: lines of 32 bytes, `*` for repeated ones, copies B after them."""
    image, row, at, repeats = bytearray(32768), b"", 0, False
    for line in lines:
        if line == "*":
            repeats = True
            continue
        offset, data = line.split(None, 1)
        offset = int(offset, 16)
        while repeats and at < offset:
            image[at:at + 32], at = row, at + 32
        row, repeats = bytes.fromhex(data), False
        assert len(row) == 32, line
        image[offset:offset + 32], at = row, offset + 32
    image[0x7A00:0x7E00] = image[0x200:0x600]
    image[0x7E00:] = image[:0x200]
    return bytes(image)


def computed(image, name, words):
    """What the reader makes of the input of a vector, as the page writes it."""
    data = [bytes.fromhex(word) for word in words] if name != "key" else []
    if name == "crc32c":
        return "%08x" % encoding.crc32c(data[0])
    if name == "digest":
        return encoding.digest(data[0]).hex()
    if name == "siphash":
        return "%016x" % encoding.siphash24(*data)
    if name == "key":
        return struct.pack(">QBQ", *map(int, words)).hex()
    if name == "packed":
        unpacked = image.unpacked(data[0])
        return "malformed" if unpacked is None else unpacked.hex()
    if name == "payload":
        changes = image.mutations(data[0])
        if changes is None:
            return "malformed"
        return "; ".join("%s %s %s" % (key.hex(), "new" if new else "settled",
                                       "-" if value is None else value.hex())
                         for key, value, new in changes)
    assert name == "extent", name
    try:
        _, start, count, written, birth, sums = image.extent((17, 6, 0), data[0])
    except reader.Damaged:
        return "malformed"
    return " ".join(map(str, [start, count, "written" if written else "unwritten", birth,
                              *("%08x" % s for s in sums)]))


def paths(image, path):
    """The paths of an image, or None where the reader refuses it."""
    with open(path, "wb") as file:
        file.write(image)
    try:
        found = reader.Volume(path, fail)
        return [name for name, _ in reader.State(found, found.state).paths()]
    except reader.Damaged:
        return None


def main():
    page, path = open(sys.argv[1], encoding="utf-8").read(), sys.argv[2]
    good = volume(blocks(page, "volume"))
    every = paths(good, path)
    assert every is not None, "the reader refuses the volume of the page"
    image = reader.Volume(path, fail)
    listed = list(reader.State(image, image.state).list())
    assert listed == blocks(page, "listing"), "the reader lists:\n" + "\n".join(listed)
    reader.verify(image)
    assert not image.problems, image.problems
    count = 0
    for line in blocks(page, "vectors"):
        words, expected = line.split(" = ")
        name, *words = words.split()
        found = computed(image, name, words)
        assert found == expected, "%s: the reader says %s" % (line, found)
        count += 1

    def damaged(*offsets):
        data = bytearray(good)
        for offset in offsets:
            data[offset] ^= 1
        return paths(data, path)

    # Table "What a reader rejects": a bad copy, all copies, and the records of the log.
    one, two, first_record, second_record = [0x30], [0x30, 0x7E30], [0x850], [0xA50]
    assert damaged(*one) == every and damaged(*two) is None
    assert damaged(0x430) == every and damaged(0x230, 0x430, 0x7A30, 0x7C30) is None
    assert damaged(*second_record) == [b"/", b"/a", b"/b", b"/c"]
    assert damaged(*first_record) == every
    assert damaged(*first_record, *second_record) == [b"/", b"/a", b"/b"]
    assert damaged(0x1C50) is None and damaged(0x2000) == every

    def changed(cell, change, copies):
        """The paths where `change` is made to a structure and its digest is right again."""
        data = bytearray(good)
        for copy in (cell, *copies):
            change(data, copy)
            data[copy + 496:copy + 512] = encoding.digest(bytes(data[copy:copy + 496]))
        return paths(data, path)

    def put(offset, layout, value):
        return lambda data, cell: struct.pack_into(layout, data, cell + offset, value)

    # A superblock with the right digest and a broken bound: copy B does not help.
    for offset, layout, value in ((8, "<I", 2), (12, "<I", 2), (48, "<Q", 1), (64, "<I", 96),
                                  (76, "<I", 4096),
                                  (96, "<I", 444), (104, "<Q", 65), (88, "<Q", 60)):
        assert changed(0, put(offset, layout, value), []) is None, offset
    # A metaroot with the right digest and a broken bound: generation 2 counts, or none.
    for offset, layout, value in ((24, "<Q", 2**63 - 1), (72, "<I", 65), (96, "<Q", 51),
                                  (120, "<Q", 8),
                                  (176, "<Q", 3), (192, "<Q", 7), (144, "<Q", 2**63 - 1)):
        assert changed(0x400, put(offset, layout, value), [0x7C00]) == every, offset
        assert changed(0x400, put(offset, layout, value), []) == every, offset
    print("%d vectors and a volume of %d paths" % (count, len(every)))
    with open(path, "wb") as file:
        file.write(good)


if __name__ == "__main__":
    main()
