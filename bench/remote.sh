#!/usr/bin/env bash
# Remote memory: lat_fs (creating and deleting FILES of 2 KB, the test of the network RAM disks),
# writing and reading 64 MiB, and synced writes of 4 KiB, by policy; on loopback, and on servers
# with added latency. Beside a RAM file system, a local image, ext4 on a local image, and ext4 on
# the same kind of server (nbdfuse and a loop device: no nbd module is needed). Then lat_fs by
# policy beside `none`, all mounted at once and in turn; random reads, and what a server that dies
# or stops costs; and the floor: our server beside nbdkit's memory under fio's nbd engine, and
# arrays beside raw requests without a mount (cargo). Prints Markdown.
#
# Root, /dev/fuse, python3. FILES (16384), ROUNDS (3; the median is told), TURNS (9, of lat_fs
# beside none), LATENCY (1ms, whole milliseconds), STEADFAST, TEST_DIR (/tmp). nbdkit, nbdfuse,
# losetup, fio with its nbd engine: what is missing is left out, and said. About ten minutes on two
# idle processors.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
STEADFAST=$(realpath "${STEADFAST:-target/release/steadfast}")
[ -x "$STEADFAST" ] ||
    { echo "bench/remote.sh: no binary at $STEADFAST: cargo build --release" >&2; exit 1; }
FILES=${FILES:-16384}
ROUNDS=${ROUNDS:-3}
TURNS=${TURNS:-9}
LATENCY=${LATENCY:-1ms}
WORK=$(mktemp -d "${TEST_DIR:-/tmp}/steadfast-bench-remote.XXXXXX")
PIDS=()
LOOPS=()
end_servers() {
    local pid
    for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
    PIDS=()
}
cleanup() {
    trap - EXIT
    set +e
    for mount in "$WORK"/mnt*; do timeout 60 "$STEADFAST" umount "$mount" >/dev/null 2>&1; done
    umount "$WORK/ram" "$WORK/ext4" 2>/dev/null
    for loop in "${LOOPS[@]}"; do losetup -d "$loop" 2>/dev/null; done
    fusermount3 -u "$WORK/nbd" 2>/dev/null || umount "$WORK/nbd" 2>/dev/null
    end_servers 2>/dev/null
    rm -rf --one-file-system "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir "$WORK/mnt" "$WORK/ram" "$WORK/ext4"

cat >"$WORK/small.py" <<'PY'
import os, statistics, sys, time
root, count, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data, block, clock = b"x" * 2048, os.urandom(1 << 20), time.perf_counter

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def p99(times):
    return sorted(times)[len(times) * 99 // 100] * 1e6

def one(number):
    directory, name = f"{root}/d{number}", f"{root}/big{number}"
    os.mkdir(directory)
    creates, start = [], clock()
    for index in range(count):
        begin = clock()
        fd = os.open(f"{directory}/{index}", os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(fd, data)
        os.close(fd)
        creates.append(clock() - begin)
    sync(directory)
    create = count / (clock() - start)
    start = clock()
    for index in range(count):
        os.unlink(f"{directory}/{index}")
    sync(directory)
    delete = count / (clock() - start)
    os.rmdir(directory)
    fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o644)
    start = clock()
    for _ in range(64):
        os.write(fd, block)
    os.fsync(fd)
    write = 64 / (clock() - start)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(fd, 0, os.SEEK_SET)
    start = clock()
    while os.read(fd, 1 << 20):
        pass
    read = 64 / (clock() - start)
    syncs, start = [], clock()
    while clock() - start < 1:
        begin = clock()
        os.pwrite(fd, block[:4096], (len(syncs) * 7919 % 16384) * 4096)
        os.fdatasync(fd)
        syncs.append(clock() - begin)
    rate = len(syncs) / (clock() - start)
    os.close(fd)
    os.unlink(name)
    sync(root)
    return create, p99(creates), delete, write, read, rate, p99(syncs)

figures = [statistics.median(column) for column in zip(*(one(number) for number in range(rounds)))]
print(" | ".join(f"{figure:,.0f}" for figure in figures))
PY

# lat_fs on several mounts in turn, the first of which is the peer: of each other the ratio to it,
# round by round, as a geometric mean with its 95 % interval (Student's t).
cat >"$WORK/turns.py" <<'PY'
import math, os, statistics, sys, time
count, rounds, mounts = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
data, clock = b"x" * 2048, time.perf_counter
T = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262,
     12: 2.201, 15: 2.145, 20: 2.093}

def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

def timed(work, directory):
    start = clock()
    for index in range(count):
        work(f"{directory}/{index}")
    sync(directory)
    return clock() - start

def create(path):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(fd, data)
    os.close(fd)

found = {mount: [] for mount in mounts}
for turn in range(rounds):
    # No mount is always first, or always after the same one.
    for mount in mounts[turn % len(mounts):] + mounts[:turn % len(mounts)]:
        directory = f"{mount}/turn{turn}"
        os.mkdir(directory)
        found[mount].append((timed(create, directory), timed(os.unlink, directory)))
        os.rmdir(directory)
        sync(mount)

def beside(mount, part):
    logs = [math.log(peer[part] / own[part]) for own, peer in zip(found[mount], found[mounts[0]])]
    mean, off = statistics.mean(logs), 0
    if rounds > 1:
        t = T[max(n for n in T if n <= rounds)]
        off = t * statistics.stdev(logs) / math.sqrt(rounds)
    return f"{math.exp(mean):.0%} | {math.exp(mean - off):.0%} – {math.exp(mean + off):.0%}"

for mount in mounts:
    rates = [count / statistics.median(times[part] for times in found[mount]) for part in (0, 1)]
    name = mount.rsplit("mnt-", 1)[1]
    print(f"| {name} | {rates[0]:,.0f} | {beside(mount, 0)} "
          f"| {rates[1]:,.0f} | {beside(mount, 1)} |")
PY

# Random reads that no cache answers, and synced writes while a server gets a signal: the longest
# before and after, ms. What was written is compared.
cat >"$WORK/loss.py" <<'PY'
import mmap, os, random, sys, time
root, process, signal = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
clock, blocks = time.perf_counter, 8192
fd = os.open(f"{root}/file", os.O_CREAT | os.O_RDWR, 0o644)
for _ in range(blocks * 4096 >> 20):
    os.write(fd, os.urandom(1 << 20))
os.fsync(fd)
direct = os.open(f"{root}/file", os.O_RDONLY | os.O_DIRECT)
page, reads, start = mmap.mmap(-1, 4096), 0, clock()
while clock() - start < 1:
    os.preadv(direct, [page], random.randrange(blocks) * 4096)
    reads += 1
rate = reads / (clock() - start)
longest, written, start = [0, 0], {}, clock()
while (now := clock() - start) < 5:
    if now > 2 and not longest[1]:
        os.kill(process, signal)
    block, data = random.randrange(blocks), os.urandom(4096)
    begin = clock()
    os.pwrite(fd, data, block * 4096)
    os.fdatasync(fd)
    written[block] = data
    part = 0 if now <= 2 else 1
    longest[part] = max(longest[part], clock() - begin)
for block, data in written.items():
    os.preadv(direct, [page], block * 4096)
    if page[:] != data:
        sys.exit(f"block {block} is lost")
print(f"{rate:,.0f} | {longest[0] * 1e3:.1f} | {longest[1] * 1e3:.1f}")
PY
row() {
    printf '| %s | %s |\n' "$1" \
        "$(timeout 300 python3 "$WORK/small.py" "$2" "$FILES" "$ROUNDS" || echo "failed")"
}
# ours: one of our servers, ADDRESS is where it is.
ours() {
    local out=$WORK/out.$RANDOM.$RANDOM
    "$STEADFAST" serve memory --size 512M --listen 127.0.0.1:0 >"$out" &
    PIDS+=($!)
    until grep -q '^serving' "$out" 2>/dev/null; do sleep 0.05; done
    ADDRESS=$(sed -n 's/^serving .* on //p' "$out")
}
# slow: nbdkit's memory with added latency.
slow() {
    local port try
    for try in $(seq 20); do
        port=$((20000 + RANDOM % 20000))
        ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || continue
        break
    done
    nbdkit -f -i 127.0.0.1 -p "$port" --filter=delay memory 512M "rdelay=$LATENCY" \
        "wdelay=$LATENCY" 2>/dev/null &
    PIDS+=($!)
    for try in $(seq 100); do
        ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
        sleep 0.05
    done
    ADDRESS=127.0.0.1:$port
}
# mount_array KIND POLICY DIRECTORY: a volume on as many servers as the policy needs; COUNT is how
# many.
mount_array() {
    local kind=$1 policy=$2 index servers=()
    case $policy in none | mirror) COUNT=2 ;; parity*) COUNT=3 ;; *) COUNT=4 ;; esac
    for ((index = 0; index < COUNT; index++)); do
        "$kind"
        servers+=("$ADDRESS")
    done
    local address="remote://$(IFS=,; echo "${servers[*]}")?timeout=5000&witness=$WORK/witness"
    timeout 60 "$STEADFAST" mkfs "$address&policy=$policy" >/dev/null
    timeout 60 "$STEADFAST" mount "$address" "$3"
}
array() {
    mount_array "$1" "$2" "$WORK/mnt"
    row "Steadfast, $2 on $COUNT$3" "$WORK/mnt"
    timeout 60 "$STEADFAST" umount "$WORK/mnt" >/dev/null
    end_servers
}
# turns POLICY...: lat_fs on all of them in turn.
turns() {
    local policy mounts=()
    for policy; do
        mkdir "$WORK/mnt-$policy"
        mounts+=("$WORK/mnt-$policy")
        mount_array ours "$policy" "$WORK/mnt-$policy"
    done
    timeout 1200 python3 "$WORK/turns.py" "$FILES" "$TURNS" "${mounts[@]}" || echo "| failed |"
    for policy in "${mounts[@]}"; do timeout 60 "$STEADFAST" umount "$policy" >/dev/null; done
    end_servers
}
# loss POLICY SIGNAL WHAT: what a server that gets a signal costs, with the patience that is the
# default.
loss() {
    local policy=$1 count index servers=()
    case $policy in mirror) count=2 ;; parity*) count=3 ;; *) count=4 ;; esac
    for ((index = 0; index < count; index++)); do
        ours
        servers+=("$ADDRESS")
    done
    local address="remote://$(IFS=,; echo "${servers[*]}")?witness=$WORK/witness"
    timeout 60 "$STEADFAST" mkfs "$address&policy=$policy" >/dev/null
    timeout 60 "$STEADFAST" mount "$address" "$WORK/mnt"
    printf '| Steadfast, %s on %s, a server %s | %s |\n' "$policy" "$count" "$3" \
        "$(timeout 120 python3 "$WORK/loss.py" "$WORK/mnt" "${PIDS[0]}" "$2" || echo failed)"
    kill -CONT "${PIDS[0]}" 2>/dev/null || true
    timeout 60 "$STEADFAST" umount "$WORK/mnt" >/dev/null
    end_servers
}
ext4_on() {
    local loop
    loop=$(losetup --find --show "$2")
    LOOPS+=("$loop")
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount "$loop" "$WORK/ext4"
    row "$1" "$WORK/ext4"
    umount "$WORK/ext4"
    losetup -d "$loop"
}

printf '%s processors, Linux %s, %s files of 2 KB, median of %s rounds\n\n' "$(nproc)" \
    "$(uname -r)" "$FILES" "$ROUNDS"
echo "| on | create/s | p99 µs | delete/s | write MB/s | read MB/s" \
    "| synced 4 KiB writes/s | p99 µs |"
echo "|---|---:|---:|---:|---:|---:|---:|---:|"
mount -t tmpfs none "$WORK/ram"
row "RAM file system" "$WORK/ram"
umount "$WORK/ram"
timeout 60 "$STEADFAST" mkfs --size 1G "$WORK/local.img" >/dev/null
timeout 60 "$STEADFAST" mount "$WORK/local.img" "$WORK/mnt"
row "Steadfast, local image" "$WORK/mnt"
timeout 60 "$STEADFAST" umount "$WORK/mnt" >/dev/null
rm "$WORK/local.img"
if command -v mkfs.ext4 >/dev/null && [ -e /dev/loop-control ]; then
    truncate -s 1G "$WORK/ext4.img"
    ext4_on "ext4, local image" "$WORK/ext4.img"
    rm "$WORK/ext4.img"
    if command -v nbdfuse >/dev/null; then
        ours
        mkdir "$WORK/nbd"
        nbdfuse "$WORK/nbd" "nbd://$ADDRESS" &
        PIDS+=($!)
        for try in $(seq 100); do [ ! -e "$WORK/nbd/nbd" ] || break; sleep 0.05; done
        ext4_on "ext4, one server (nbdfuse, loop)" "$WORK/nbd/nbd"
        fusermount3 -u "$WORK/nbd" 2>/dev/null || umount "$WORK/nbd"
        end_servers
    else
        echo "no nbdfuse: ext4 on a server is left out" >&2
    fi
fi
for policy in none mirror parity ec=2+2; do array ours "$policy" ""; done
if command -v nbdkit >/dev/null && nbdkit --filter=delay null --dump-plugin >/dev/null 2>&1; then
    # The kernel's netem would delay the network itself; many kernels have none. The servers wait
    # instead.
    for policy in none mirror parity; do
        array slow "$policy" ", servers that take $LATENCY more"
    done
else
    echo "no nbdkit with its delay filter: added latency is left out" >&2
fi

echo
echo "$TURNS rounds in turn, loopback: times better than none," \
    "geometric mean of the rounds and its 95 % interval"
echo
echo "| policy | create/s | beside none | 95 % | delete/s | beside none | 95 % |"
echo "|---|---:|---:|---:|---:|---:|---:|"
turns none mirror parity ec=2+2

echo
echo "| on | random 4 KiB reads/s | longest synced 4 KiB write, ms | after the signal, ms |"
echo "|---|---:|---:|---:|"
for policy in mirror parity ec=2+2; do
    loss "$policy" 9 "is killed"
    loss "$policy" 19 "is stopped"
done

if command -v nbdkit >/dev/null && [[ $(fio --enghelp 2>/dev/null) == *nbd* ]]; then
    echo
    echo "| server under fio | read 4 KiB, depth 1, /s | depth 32, /s" \
        "| write 256 KiB, depth 4, MB/s | read 256 KiB, depth 4, MB/s |"
    echo "|---|---:|---:|---:|---:|"
    nbdkit -f -U "$WORK/floor.sock" memory 512M &
    PIDS+=($!)
    until [ -S "$WORK/floor.sock" ]; do sleep 0.05; done
    port=$((20000 + RANDOM % 20000))
    nbdkit -f -i 127.0.0.1 -p "$port" memory 512M &
    PIDS+=($!)
    ours
    sleep 0.5
    for target in "nbdkit, Unix socket=nbd+unix:///?socket=$WORK/floor.sock" \
        "nbdkit, TCP=nbd://127.0.0.1:$port" "ours, TCP=nbd://$ADDRESS"; do
        figures=()
        # Written first, so that reads are of memory that is there. Fields of fio's terse form: 8
        # and 49 IOPS, 7 and 48 KiB/s.
        for job in "write 256k 4 48" "read 256k 4 7" "randread 4k 1 8" "randread 4k 32 8"; do
            read -r mode size depth field <<<"$job"
            result=$(timeout 60 fio --name=floor --ioengine=nbd --uri="${target#*=}" \
                --rw="$mode" --bs="$size" --iodepth="$depth" --size=256M --runtime=3 \
                --time_based --output-format=terse 2>/dev/null |
                tail -1 | cut -d';' -f"$field" || true)
            figures+=("${result:-0}")
        done
        printf '| %s | %s | %s | %s | %s |\n' "${target%%=*}" "${figures[2]}" "${figures[3]}" \
            $((figures[0] * 1024 / 1000000)) $((figures[1] * 1024 / 1000000))
    done
    end_servers
else
    echo "no nbdkit or no fio with its nbd engine: the floor is left out" >&2
fi
echo
if command -v cargo >/dev/null; then
    cargo run --release --quiet -p steadfast-remote --example bandwidth
else
    echo "no cargo: the bandwidth of arrays without a mount is left out" >&2
fi
