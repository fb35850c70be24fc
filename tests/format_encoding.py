"""Encodings of docs/FORMAT.md that do not need a whole volume; a part of format_reader.py."""
import struct
from collections import namedtuple

NONE = 2**64 - 1
INODE, DIRENT, XATTR, SYMLINK, INLINE, EXTENT = 1, 2, 3, 4, 5, 6
GROUP, ORPHAN, SHARED, DEAD, SNAPSHOT = 16, 17, 18, 19, 20
UNLOGGED = GROUP, SHARED, DEAD, SNAPSHOT
(F_INLINE, F_TAIL_STALE, F_TRUNCATING, F_RECLAIMING, F_UNNAMED, F_ACL_ACCESS,
 F_ACL_DEFAULT) = (1 << i for i in range(7))
F_USER = 0b1111 << 7
FEATURE_FILE_FLAGS = 1 << 1
TYPES = {1: "fifo", 2: "char", 4: "dir", 6: "block", 8: "file", 10: "symlink", 12: "socket"}


# Of the intent log; they sort by age.
Record = namedtuple("Record", "epoch index number flags changes digest size")


class Damaged(Exception):
    pass


class Unknown(Damaged):
    """Right digest, but unknown or impossible values: the other copy of a superblock does not
    count."""


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
    a, b = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    c, d = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

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
        escape(path), kind, mode & 0o7777, links, uid, gid, size, *divmod(mtime_ns, 10**9), detail,
        attributes)


class Inode:
    def __init__(self, value, what):
        (self.mode, self.uid, self.gid, self.links, self.size, self.blocks, _, accessed, sec, nsec,
         _, changed, _, created, self.rdev, self.flags,
         self.parent) = unpack("<IIIIQQqIqIqIqIIIQ16x", value, what)
        self.mtime_ns, self.type, self.what = sec * 10**9 + nsec, self.mode >> 12 & 15, what
        if self.type not in TYPES or self.mode >> 16 or self.size >= 2**63 \
                or max(accessed, nsec, changed, created) >= 10**9:
            raise Damaged("%s: impossible mode, size or time" % what)


class Snapshot:
    def __init__(self, generation, value):
        (self.root, self.height, flags, _, nsec, self.inodes, self.blocks, self.nodes,
         self.next_inode, *self.counts, _, length) = unpack(
             "<40sIIqIQQQQ5QQH", value[:142], "snapshot %d" % generation)
        self.generation, self.deleting, self.name = generation, flags & 1, value[142:]
        self.what = "snapshot %s" % escape(self.name)
        birth = struct.unpack_from("<Q", self.root, 16)[0]
        if length != len(self.name) or not 1 <= length <= 63 or b"/" in self.name \
                or b"\0" in self.name or self.name in (b".", b"..") \
                or flags > 1 or nsec >= 10**9 or birth > generation or generation >> 40 \
                or not 1 <= self.height <= 64 or self.counts[0] >= generation:
            raise Damaged("%s: impossible values" % self.what)
