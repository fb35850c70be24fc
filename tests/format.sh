#!/usr/bin/env bash
# Compares the specification with the images. format_reader.py is written from docs/FORMAT.md alone,
# and must show the same files as the mounted file system. The volumes have different parameters and
# contents; some were killed with records in the log. Devices, owners and trusted attributes need
# root and are left out without it.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need python3
start format
plain && skip_all "this is about images"

cat >"$WORK/files.py" <<'PYTHON'
import ctypes, errno, os, random, socket, stat, subprocess, sys, time, hashlib
sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["TESTS"])
from format_encoding import TYPES, escape, line

def show(root):
    """What the mounted file system has, in the format of `format_reader.py list`."""
    todo, found = [b"/"], []
    while todo:
        path = todo.pop()
        full = root + path.rstrip(b"/")
        s = os.lstat(full)
        kind, detail = s.st_mode >> 12, "-"
        if stat.S_ISDIR(s.st_mode):
            todo += [path.rstrip(b"/") + b"/" + name for name in os.listdir(full)]
        elif stat.S_ISREG(s.st_mode):
            with open(full, "rb") as f:
                detail = hashlib.file_digest(f, "sha256").hexdigest()
        elif stat.S_ISLNK(s.st_mode):
            detail = escape(os.readlink(full))
        elif kind in (2, 6):
            detail = "%d:%d" % (os.major(s.st_rdev), os.minor(s.st_rdev))
        names = os.listxattr(full, follow_symlinks=False)
        xattrs = [(os.fsencode(n), os.getxattr(full, n, follow_symlinks=False)) for n in names]
        found.append((path, line(path, TYPES[kind], s.st_mode, s.st_nlink, s.st_uid, s.st_gid,
                                 s.st_size, s.st_mtime_ns, detail, xattrs)))
    print("\n".join(text for _, text in sorted(found)))

def write(path, data, at=0):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    while data:
        n = os.pwrite(fd, data, at)
        data, at = data[n:], at + n
    os.close(fd)

def simple(root, rng):
    """What `put` copies: files of all sizes, holes, directories, symbolic links, times."""
    os.makedirs(os.path.join(root, b"deep/er/and/deeper"))
    for size in (0, 1, 7, 100, 127, 128, 129, 500, 511, 513, 4095, 4096, 4097, 65535, 65537,
                 300000, 2000003):
        write(os.path.join(root, b"size%d" % size), rng.randbytes(size))
    write(os.path.join(root, b"deep/er/sparse"), b"end", 5 << 20)
    write(os.path.join(root, b"deep/er/sparse"), b"mid" * 5000, 1 << 20)
    os.symlink(b"size7", os.path.join(root, b"short link"))
    os.symlink(b"/".join([b"long"] * 600), os.path.join(root, b"deep/longlink"))
    write(os.path.join(root, b"bytes \xff\\\n"), b"name")
    write(os.path.join(root, b"n" * 255), b"long name")
    os.utime(os.path.join(root, b"size1"), ns=(1, -1234567890123456789))
    os.utime(os.path.join(root, b"size7"), ns=(1, 4102444800000000001))
    os.chmod(os.path.join(root, b"size100"), 0o6751)

def rich(root, rng):
    """What only a mount can make."""
    os.mkdir(root)
    at = lambda name: os.path.join(root, name)
    simple(at(b"simple"), rng)
    os.mkdir(at(b"many"))
    for i in range(1500):
        write(at(b"many/file%d" % i), rng.randbytes(rng.choice((0, 10, 60, 300))))
    for i in range(0, 1500, 3):
        os.unlink(at(b"many/file%d" % i))
    os.link(at(b"many/file1"), at(b"hard"))
    os.link(at(b"hard"), at(b"many/harder"))
    os.rename(at(b"many/file2"), at(b"renamed"))
    os.rename(at(b"many/file4"), at(b"many/file5"))
    os.mkfifo(at(b"fifo"), 0o600)
    socket.socket(socket.AF_UNIX).bind(os.fsdecode(at(b"socket")))
    if os.geteuid() == 0:
        os.mknod(at(b"char"), stat.S_IFCHR | 0o620, os.makedev(4, 64))
        os.mknod(at(b"block"), stat.S_IFBLK | 0o660, os.makedev(3000, 777777))
        os.chown(at(b"char"), 70000, 4000000000)
        os.setxattr(at(b"hard"), "trusted.test", b"root")
        os.setxattr(at(b"simple/short link"), "trusted.link", b"l", follow_symlinks=False)
    for i in range(40):
        os.setxattr(at(b"hard"), "user.%d" % i, rng.randbytes(i * 5))
    for i in range(0, 40, 2):
        os.removexattr(at(b"hard"), "user.%d" % i)
    for size in (0, 3000, 10000):
        try:
            os.setxattr(at(b"many"), "user." + "x" * 200 + str(size), rng.randbytes(size))
        except OSError as e:  # nodes of 512 bytes limit the size
            assert e.errno in (errno.ENOSPC, errno.E2BIG, errno.EOPNOTSUPP), e
    write(at(b"inner"), rng.randbytes(500000))            # shrunk, overwritten, grown again
    os.truncate(at(b"inner"), 100001)
    write(at(b"inner"), rng.randbytes(30000), 20000)
    os.truncate(at(b"inner"), 400000)
    write(at(b"tail"), rng.randbytes(150))
    os.truncate(at(b"tail"), 33)
    os.truncate(at(b"tail"), 133)
    write(at(b"size-only"), b"")
    os.truncate(at(b"size-only"), 7 << 20)
    for i in range(200):                                   # many extents
        write(at(b"holes"), rng.randbytes(200), i * 70001)
    fd = os.open(at(b"reserved"), os.O_RDWR | os.O_CREAT, 0o644)
    os.posix_fallocate(fd, 0, 1 << 20)
    os.pwrite(fd, rng.randbytes(1000), 333333)
    fallocate = lambda mode, offset, length: ctypes.CDLL(None).fallocate(
        fd, mode, ctypes.c_long(offset), ctypes.c_long(length))
    fallocate(1, 2 << 20, 1 << 20)                         # beyond the size
    os.pwrite(fd, rng.randbytes(300000), 1 << 19)
    fallocate(3, (1 << 19) + 100, 200000)                  # a hole
    os.close(fd)
    write(at(b"acl"), b"acl")
    os.mkdir(at(b"acl.d"))
    for options, path in ((["-m", "u:1000:r,g:2000:rw"], at(b"acl")),
                          (["-d", "-m", "u:1000:rx"], at(b"acl.d"))):
        subprocess.run(["setfacl", *options, path], check=True)
    write(at(b"acl.d/heir"), b"inherits")
    subprocess.run(["chattr", "+dA", at(b"hard"), at(b"many")], check=True)
    settle(root)

def records(root, rng):
    """Many small transaction points, the last one with everything. Then changes that no
    transaction point has."""
    started = time.time_ns() - 10**8
    for i in range(120):
        write(os.path.join(root, b"r%d" % (i % 50)), rng.randbytes(rng.choice((20, 400, 9000))),
              rng.choice((0, 5000)))
        if i % 7 == 6:
            os.unlink(os.path.join(root, b"r%d" % (i % 50)))
        sync(root, i)
    os.link(os.path.join(root, b"r1"), os.path.join(root, b"linked"))
    os.setxattr(os.path.join(root, b"linked"), "user.r", b"log")
    os.symlink(b"target" * 30, os.path.join(root, b"symlink"))
    os.mkdir(os.path.join(root, b"d"))
    write(os.path.join(root, b"d/big"), rng.randbytes(200000))
    if os.path.exists(os.path.join(root, b"m")):
        os.truncate(os.path.join(root, b"m/holes"), 100000)
        os.rename(os.path.join(root, b"m/renamed"), os.path.join(root, b"d/renamed"))
    held = open(os.path.join(root, b"held"), "wb")         # removed, but open: an orphan
    held.write(rng.randbytes(50000))
    held.flush()
    os.unlink(os.path.join(root, b"held"))
    nameless = os.open(root, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(nameless, b"nameless" * 1000)
    sync(root, 0)
    settle(root, started)
    os.fsync(nameless)
    for i in range(3):              # small ones: in the log, even if the last was too large
        os.mkdir(os.path.join(root, b"after%d" % i))
        os.fsync(nameless)
    show(root)
    sys.stdout.flush()
    os.close(1)
    write(os.path.join(root, b"lost"), rng.randbytes(100000))
    os.unlink(os.path.join(root, b"linked"))
    write(os.path.join(root, b"r1"), b"lost")
    os.read(0, 1)                                          # wait until the daemon is dead

def settle(root, since=0):
    """With a write-back cache the kernel's modification time of a file and the stored one may be
    a tick of the clock apart. This sets both."""
    for directory, _, names in os.walk(root):
        for path in (os.path.join(directory, name) for name in names):
            s = os.lstat(path)
            if stat.S_ISREG(s.st_mode) and s.st_mtime_ns >= since:
                os.utime(path, ns=(s.st_atime_ns, s.st_mtime_ns))

def sync(root, i):
    fd = os.open(os.path.join(root, b"sync"), os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(fd, b"%d" % i, 0)
    os.fsync(fd)
    os.close(fd)

if sys.argv[1] == "show":
    show(os.fsencode(sys.argv[2]))
else:
    globals()[sys.argv[1]](os.fsencode(sys.argv[2]), random.Random(sys.argv[3]))
PYTHON

export TESTS
files() { python3 "$WORK/files.py" "$@"; }

# compare WHAT FILE: compares the reader's list of the image with the given one, and verifies.
compare() {
    python3 "$TESTS/format_reader.py" "$IMAGE" list >"$WORK/list" 2>"$WORK/list.err" ||
        die "$1: list: $(cat "$WORK/list.err")"
    [ ! -s "$WORK/list.err" ] || die "$1: list warns: $(cat "$WORK/list.err")"
    diff "$2" "$WORK/list" >"$WORK/diff" ||
        die "$1: mount (<) and reader (>) differ: $(head -c 3000 "$WORK/diff")"
    python3 "$TESTS/format_reader.py" "$IMAGE" verify >"$WORK/verify" 2>&1 ||
        die "$1: verify: $(head -c 3000 "$WORK/verify")"
    ok "$1: $(wc -l <"$2") paths; $(cat "$WORK/verify")"
}

# clones FILE CLONE...: creates clones of a file of m/simple that share its blocks. The last clone
# has a part of its own.
clones() {
    local file=$1 clone
    shift
    for clone in "$@"; do
        timeout 60 "$STEADFAST" clone "$MNT/m/simple/$file" "$MNT/m/simple/$clone" \
            >"$WORK/clone.log" 2>&1 ||
            die "clone: $(cat "$WORK/clone.log")"
    done
    head -c 200000 /dev/urandom |
        dd of="$MNT/m/simple/$clone" bs=50000 seek=$(($# * 10)) conv=notrunc,fsync status=none
    for clone in "$@"; do touch -d "2026-01-02 03:04:05.6" "$MNT/m/simple/$clone"; done
}

# volume BLOCK NODE COPIES LOG
volume() {
    local what="block $1 node $2 copies $3 log $4"
    make_volume 96M --block-size "$1" --node-size "$2" --metadata-copies "$3" --log-size "$4"
    rm -rf "$WORK/source" && files simple "$WORK/source" "put $what"
    timeout 120 "$STEADFAST" put -r "$IMAGE" "$WORK/source" >"$WORK/put.log" 2>&1 ||
        die "put: $(cat "$WORK/put.log")"
    cp --sparse=always "$IMAGE" "$WORK/put.img"

    mount_volume -o timer=1h
    files show "$MNT" >"$WORK/shown"
    (IMAGE=$WORK/put.img && compare "$what, put" "$WORK/shown")
    files rich "$MNT/m" "mount $what" 2>"$WORK/rich.err" || die "filling: $(cat "$WORK/rich.err")"
    clones size2000003 "of all" "of it"
    files show "$MNT" >"$WORK/shown"
    umount_volume
    compare "$what, mount" "$WORK/shown"

    # The next steps change and remove data that snapshots contain. One snapshot is deleted before
    # them, one remains during them.
    cp "$WORK/shown" "$WORK/held"
    for name in held gone later; do
        timeout 60 "$STEADFAST" snapshot create "$IMAGE" "$name" >"$WORK/snapshot.log" 2>&1 ||
            die "snapshot create: $(cat "$WORK/snapshot.log")"
    done
    timeout 60 "$STEADFAST" snapshot delete "$IMAGE" gone >"$WORK/snapshot.log" 2>&1 ||
        die "snapshot delete: $(cat "$WORK/snapshot.log")"

    mount_volume -o timer=1h
    rm -r "$MNT/m/many"
    clones "of it" later
    rm "$MNT/m/simple/of all"
    mkfifo "$WORK/wait"
    files records "$MNT" "log $what" <"$WORK/wait" >"$WORK/shown" 2>"$WORK/records.err" &
    local filler=$!
    own "$filler"
    exec 9>"$WORK/wait"
    until [ -e "$MNT/lost" ] && [ "$(head -c 4 "$MNT/r1")" = lost ]; do
        [ -d "/proc/$filler" ] || die "filling: $(cat "$WORK/records.err")"
        sleep 0.1
    done
    kill_daemon
    exec 9>&-
    wait "$filler" || true
    rm "$WORK/wait"
    compare "$what, killed" "$WORK/shown"
    [ "$4" = 0 ] || ! grep -q ' 0 records' "$WORK/verify" ||
        die "$what: there are no records in the log"
    cp --sparse=always "$IMAGE" "$WORK/killed.img"

    mount_volume
    files show "$MNT" >"$WORK/recovered"
    umount_volume
    diff "$WORK/shown" "$WORK/recovered" >"$WORK/diff" ||
        die "$what: recovery differs: $(head -c 3000 "$WORK/diff")"
    compare "$what, recovered" "$WORK/shown"
    python3 "$TESTS/format_reader.py" "$IMAGE" snapshots | cut -d" " -f1 |
        diff - <(printf 'held\nlater\n') >"$WORK/diff" ||
        die "$what: snapshots: $(cat "$WORK/diff")"
    for name in held later; do
        python3 "$TESTS/format_reader.py" "$IMAGE" list "$name" |
            diff "$WORK/held" - >"$WORK/diff" ||
            die "$what: snapshot $name differs: $(head -c 3000 "$WORK/diff")"
    done
    ok "$what: two snapshots as they were"
    check_volume "$what"
}

need setfacl
volume 4K 4K 2 1M
volume 128 1K 1 128K
volume 512 1K 2 0
volume 512 4K 2 64K
volume 4K 64K 1 8M
volume 64K 64K 2 4M
if full; then
    volume 128 512 1 128K
    volume 128 64K 2 1M
    volume 1K 1K 1 128K
    volume 8K 16K 2 256K
    volume 32K 32K 1 0
fi

# The log is a ring. A reader beside the mount must see all durable changes after every transaction
# point.
make_volume 16M --block-size 128 --node-size 4K --log-size 32K
mount_volume -o timer=1h
timeout 300 python3 - "$IMAGE" "$MNT" <<'PYTHON' || die "a reader beside the mount"
import os, random, sys
sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["TESTS"])
from format_encoding import Damaged
from format_state import State
from format_volume import Volume
def fatal(text):
    raise Damaged(text)
(image, root), rng, model, wrapped, records = sys.argv[1:], random.Random(1), {}, 0, 0
for i in range(400):
    name, at = b"%d" % rng.randrange(9), rng.choice((0, 1000, 9000))
    data = rng.randbytes(rng.choice((50, 900, 7000)))
    fd = os.open(os.path.join(os.fsencode(root), name), os.O_WRONLY | os.O_CREAT)
    os.pwrite(fd, data, at)
    old = model.get(name, b"").ljust(at, b"\0")
    model[name] = old[:at] + data + old[at + len(data):]
    os.fsync(fd)
    os.close(fd)
    volume = Volume(image, fatal)
    state = State(volume, volume.state)
    shown = {name: b"".join(state.content(ino, state.inodes[ino]))
             for name, (ino, _) in state.entries[1].items()}
    os.close(volume.fd)
    assert not volume.problems and shown == model, "after transaction point %d" % i
    wrapped, records = wrapped + volume.wrapped, max(records, volume.records)
assert wrapped and records > 9, (wrapped, records)
PYTHON
umount_volume
ok "a reader beside the mount"

# A full volume: some groups have no free block.
make_volume 12M --block-size 128 --log-size 16K
mount_volume -o timer=1h
head -c 16M /dev/urandom >"$MNT/full" 2>"$WORK/full.err" && die "16 MiB fit into 12 MiB"
umount_volume
python3 "$TESTS/format_reader.py" "$IMAGE" verify >"$WORK/verify" 2>&1 ||
    die "full: verify: $(head -c 3000 "$WORK/verify")"
check_volume "full"

# Damage: the second copy is used, and no byte sequence causes a traceback.
make_volume 8M
"$STEADFAST" put -r "$IMAGE" "$WORK/source" >"$WORK/put.log" 2>&1 ||
    die "put: $(cat "$WORK/put.log")"
python3 - "$IMAGE" "$WORK" <<'PYTHON'
import os, random, subprocess, sys
image, work = sys.argv[1:]
good, bad = open(image, "rb").read(), work + "/bad.img"
reader = os.environ["TESTS"] + "/format_reader.py"
def run(data, command):
    with open(bad, "wb") as f:
        f.write(data)
    done = subprocess.run([sys.executable, reader, bad, command], capture_output=True, timeout=300)
    assert b"Traceback" not in done.stderr and done.returncode in (0, 1), done.stderr.decode()
    return done.returncode, done.stdout
listed = run(good, "list")
assert listed[0] == 0 and run(good, "verify")[0] == 0
cell, size = 4096, len(good)
nodes = [o for o in range(0, size, cell) if good[o:o + 4] == b"SFND"]
found = set()
for offset in [0, cell, 2 * cell, size - cell, size - 2 * cell, size - 3 * cell, *nodes]:
    data = bytearray(good)
    data[offset + 100] ^= 1
    assert run(data, "list") == listed, "a second copy did not serve for byte %d" % offset
    if run(data, "verify")[0] == 1:
        found.add(offset)
assert {0, size - cell} <= found and len(found & set(nodes)) in range(2, len(nodes) + 1, 2)
assert {cell, size - 3 * cell} <= found or {2 * cell, size - 2 * cell} <= found
rng = random.Random(1)
nonzero = [o for o in range(0, size, 512) if any(good[o:o + 512])]
for _ in range(25):
    data = bytearray(good)
    for _ in range(60):
        data[rng.choice(nonzero) + rng.randrange(512)] = rng.randrange(256)
    for command in "list", "verify":
        run(data, command)
for junk in b"", b"STEADFST", rng.randbytes(100000), good[:5000], good[:size // 2]:
    assert run(junk, "list")[0] == 1
PYTHON
ok "damage is told, second copies serve"

# The bytes that docs/FORMAT.md prints, for the reader and for the program.
python3 "$TESTS/format_vectors.py" "$REPO/docs/FORMAT.md" "$WORK/vector.img" \
    >"$WORK/vectors" 2>&1 ||
    die "test vectors: $(tail -n 3 "$WORK/vectors")"
"$STEADFAST" check "$WORK/vector.img" >"$WORK/checked" 2>&1 ||
    die "check of the vector: $(cat "$WORK/checked")"
"$STEADFAST" cat "$WORK/vector.img" /d >"$WORK/d" || die "the vector has no file d"
[ "$(cat "$WORK/d")" = hello ] || die "the file d of the vector is wrong"
ok "$(cat "$WORK/vectors")"

# A new label and uuid: the files stay, and the reader finds the names as docs/FORMAT.md specifies.
make_volume 16M --label old
for uuid in random 6fa459ea-ee8a-3ca4-894e-db77e160355e; do
    "$STEADFAST" tune --label "new name" --uuid "$uuid" "$IMAGE" >"$WORK/tuned" ||
        die "tune: $(cat "$WORK/tuned")"
    uuid=$("$STEADFAST" info --get uuid "$IMAGE")
    said=$(python3 "$TESTS/format_reader.py" "$IMAGE" names)
    [ "$said" = "${uuid//-/} new\\x20name" ] || die "the reader has other names: $said"
    python3 "$TESTS/format_reader.py" "$IMAGE" verify >"$WORK/verified" ||
        die "verify: $(cat "$WORK/verified")"
done
ok "label and uuid are where the specification says"
finish
