#!/usr/bin/env bash
# Remote memory over loopback: creating and deleting small files (the test of the network RAM disks) and sequential
# and random I/O by policy, beside a local image, a RAM file system, and the floor: nbdkit's memory under fio's nbd engine.
# FILES (16384) of 2 KB; needs root, /dev/fuse, python3; fio and nbdkit for the floor. Prints one table.
set -euo pipefail
cd "$(dirname "$0")/.."
STEADFAST=$(realpath "${STEADFAST:-target/release/steadfast}")
FILES=${FILES:-16384}
WORK=$(mktemp -d "${TEST_DIR:-/tmp}/steadfast-bench-remote.XXXXXX")
PIDS=()
cleanup() {
    trap - EXIT
    "$STEADFAST" umount "$WORK/mnt" >/dev/null 2>&1 || true
    umount "$WORK/ram" 2>/dev/null || true
    for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf --one-file-system "$WORK"
}
trap cleanup EXIT
mkdir "$WORK/mnt" "$WORK/ram"

cat >"$WORK/small.py" <<'PY'
import os, sys, time
directory, count = sys.argv[1], int(sys.argv[2])
data = b"x" * 2048
os.mkdir(directory)
start = time.monotonic()
for index in range(count):
    fd = os.open(f"{directory}/{index}", os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(fd, data)
    os.close(fd)
fd = os.open(directory, os.O_RDONLY); os.fsync(fd); os.close(fd)
made = time.monotonic()
for index in range(count):
    os.unlink(f"{directory}/{index}")
fd = os.open(directory, os.O_RDONLY); os.fsync(fd); os.close(fd)
gone = time.monotonic()
name = directory + ".big"
block = os.urandom(1 << 20)
fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o644)
begin = time.monotonic()
for _ in range(64):
    os.write(fd, block)
os.fsync(fd)
written = time.monotonic()
synced = 0
while time.monotonic() - written < 2:
    os.pwrite(fd, block[:4096], (synced * 7919 % 16384) * 4096)
    os.fdatasync(fd)
    synced += 1
over = time.monotonic()
print(f"{count / (made - start):8.0f} {count / (gone - made):8.0f} {64 / (written - begin):8.0f} {synced / (over - written):8.0f}")
PY
row() { printf '%-28s %s\n' "$1" "$(python3 "$WORK/small.py" "$2" "$FILES")"; }

printf '%-28s %8s %8s %8s %8s\n' "$(nproc) CPUs, loopback" create/s delete/s MB/s 4Ksync/s
mount -t tmpfs none "$WORK/ram"
row "RAM file system" "$WORK/ram/d"
"$STEADFAST" mkfs --size 1G "$WORK/local.img" >/dev/null
"$STEADFAST" mount "$WORK/local.img" "$WORK/mnt"
row "Steadfast, local image" "$WORK/mnt/d"
"$STEADFAST" umount "$WORK/mnt" >/dev/null

for policy in none mirror parity ec=2+2; do
    case $policy in none | mirror) count=2 ;; parity) count=3 ;; *) count=4 ;; esac
    servers=()
    for ((index = 0; index < count; index++)); do
        "$STEADFAST" serve memory --size 512M --listen 127.0.0.1:0 >"$WORK/out" &
        PIDS+=($!)
        until grep -q '^serving' "$WORK/out"; do sleep 0.05; done
        servers+=("$(sed -n 's/^serving .* on //p' "$WORK/out")")
    done
    address="remote://$(IFS=,; echo "${servers[*]}")?timeout=5000&witness=$WORK/witness"
    "$STEADFAST" mkfs "$address&policy=$policy" >/dev/null
    "$STEADFAST" mount "$address" "$WORK/mnt"
    row "Steadfast, $policy on $count" "$WORK/mnt/d"
    "$STEADFAST" umount "$WORK/mnt" >/dev/null
done

if command -v nbdkit >/dev/null && fio --enghelp 2>/dev/null | grep -q nbd; then
    nbdkit -f -U "$WORK/floor.sock" memory 512M &
    PIDS+=($!)
    "$STEADFAST" serve memory --size 512M --listen 127.0.0.1:0 >"$WORK/out" &
    PIDS+=($!)
    until grep -q '^serving' "$WORK/out" && [ -S "$WORK/floor.sock" ]; do sleep 0.05; done
    ours=nbd://$(sed -n 's/^serving .* on //p' "$WORK/out")
    for target in "nbdkit nbd+unix:///?socket=$WORK/floor.sock" "ours(tcp) $ours"; do
        for job in "randread 4k 1" "randread 4k 32" "write 256k 4"; do
            read -r mode size depth <<<"$job"
            result=$(fio --name=floor --ioengine=nbd --uri="${target#* }" --rw="$mode" --bs="$size" --iodepth="$depth" \
                --size=256M --runtime=3 --time_based --output-format=terse 2>/dev/null | tail -1)
            if [ "$mode" = write ]; then field=49; else field=8; fi
            printf 'fio %-10s %-9s %4s depth %2s: %s IOPS\n' "${target%% *}" "$mode" "$size" "$depth" \
                "$(cut -d';' -f$field <<<"$result")"
        done
    done
fi
