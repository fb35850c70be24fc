"""The files of one state of a volume; a part of format_reader.py."""
import hashlib

from format_encoding import (
    DIRENT, EXTENT, F_ACL_ACCESS, F_ACL_DEFAULT, F_INLINE, F_RECLAIMING, F_TAIL_STALE,
    F_TRUNCATING, F_USER, FEATURE_FILE_FLAGS, INLINE, INODE, ORPHAN, SYMLINK, TYPES, UNLOGGED,
    XATTR, Damaged, Inode, escape, line, siphash24)


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
                slots = pieces.setdefault(ino, {})
                slots.setdefault(suffix >> 16, []).append((suffix & 0xFFFF, value))
            elif kind == SYMLINK:
                targets.setdefault(ino, []).append((suffix, value))
            elif kind == INLINE:
                self.inline[ino] = value
            elif kind == EXTENT:
                self.extents.setdefault(ino, []).append((suffix, value))
            elif kind == ORPHAN and ino == 0 and value == b"\0":
                self.orphans.add(suffix)
            elif kind not in UNLOGGED or ino:
                unread = kind == ORPHAN or kind in UNLOGGED
                wrong = volume.lost if unread else volume.problems.append
                wrong("a key of inode %d of kind %d with suffix %d is unknown or wrong"
                      % (ino, kind, suffix))
        self.inodes = {ino: inode for ino, inode in self.inodes.items() if inode}
        self.targets = {ino: volume.try_(self.join, p, "inode %d, target" % ino)
                        for ino, p in targets.items()}
        self.xattrs = {ino: [x for slot, p in slots.items()
                             for x in [volume.try_(self.xattr, ino, slot, p)] if x]
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
        if len(raw) < 5 or len(raw) != 5 + raw[4] + int.from_bytes(raw[:4], "little") \
                or len(pieces) > 48:
            raise Damaged("%s: wrong length" % what)
        name = raw[5:5 + raw[4]]
        if slot >> 4 != siphash24(self.volume.hash_key, name) % 2**44:
            raise Damaged("%s: not in a slot of its hash" % what)
        return name, raw[5 + raw[4]:]

    def content(self, ino, inode):
        """The file's bytes in parts. Every extent is read and verified, also what lies beyond the
        size."""
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
            yield line(path, TYPES[i.type], i.mode, i.links, i.uid, i.gid, i.size, i.mtime_ns,
                       detail,
                       self.xattrs.get(ino, []))

    def verify(self, bad, next_inode):
        for ino in sorted(set(self.extents) | set(self.inline) | set(self.xattrs)
                          | set(self.targets) | set(self.links)
                          | set(self.entries) | self.orphans | {1}):
            if ino not in self.inodes:
                bad("inode %d: has keys or names, but does not exist" % ino)
        for ino, i in self.inodes.items():
            names, entries = self.links.get(ino, []), self.entries.get(ino, {})
            if ino != 1 and not 16 <= ino < next_inode:
                bad("%s: number out of range" % i.what)
            if any(kind != i.type or d not in self.inodes or self.inodes[d].type != 4
                   for d, kind, _ in names):
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
            if i.flags & F_USER and (
                    i.type not in (4, 8) or not self.volume.features & FEATURE_FILE_FLAGS):
                bad("%s: flags of users without the feature, or of another type" % i.what)
            acls = {name for name, _ in self.xattrs.get(ino, [])}
            for flag, name in ((F_ACL_ACCESS, b"system.posix_acl_access"),
                               (F_ACL_DEFAULT, b"system.posix_acl_default")):
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
            if index <= i.size // bs < end and i.size % bs \
                    and not i.flags & (F_TAIL_STALE | F_TRUNCATING) \
                    and any(data[stale:stale - stale % bs + bs]):
                bad("%s: bytes beyond size are not zero, without the flag" % what)
        if blocks != i.blocks:
            bad("%s: %d blocks, but %d in extents" % (i.what, i.blocks, blocks))
