#!/usr/bin/env bash
# fio with verification of every block: sequential and random, buffered, direct, mapped,
# synchronous.
source "$(dirname "$0")/lib.sh"
start fio
need fio

make_volume 8G
mount_volume
size=$(bounded 64m 1g)
engines=$(fio --enghelp)

# job NAME ENGINE OPTIONS...
job() {
    local name=$1 engine=$2
    shift 2
    grep -qw "$engine" <<<"$engines" || {
        say "skipped: $name, fio has no $engine"
        return
    }
    (cd "$WORK" &&
        timeout 1800 fio --name="$name" --directory="$MNT" --size="$size" --ioengine="$engine" \
        --verify=crc32c --verify_fatal=1 --do_verify=1 --randrepeat=1 --output="$WORK/fio.log" \
        "$@") >"$WORK/fio.out" 2>&1 ||
        die "$name: $(grep -iE 'verify|error|bad' "$WORK/fio.log" "$WORK/fio.out" | sed -n 1,20p)"
    ok "$name"
    rm -f "$MNT/$name".*
}

job sequential psync --rw=write --bs=128k
job sequential-odd-blocks psync --rw=write --bs=7k
job sequential-small-blocks psync --rw=write --bs=512 --size="$(bounded 4m 64m)"
job random psync --rw=randwrite --bs=4k
job random-mixed-blocks psync --rw=randwrite --bsrange=512-64k --bs_unaligned=1
job random-read-write psync --rw=randrw --rwmixread=40 --bs=8k
job random-fsync psync --rw=randwrite --bs=4k --fsync=32 --size="$(bounded 8m 128m)"
job random-dsync psync --rw=randwrite --bs=4k --sync=dsync --size="$(bounded 8m 64m)"
job direct-sequential psync --rw=write --bs=1m --direct=1
job direct-random libaio --rw=randwrite --bs=4k --direct=1 --iodepth=32
job direct-random-large io_uring --rw=randwrite --bs=256k --direct=1 --iodepth=8
job buffered-libaio libaio --rw=randwrite --bs=16k --iodepth=16
job mapped mmap --rw=randwrite --bs=4k
job mapped-sequential mmap --rw=write --bs=64k
job four-writers psync --rw=randwrite --bs=4k --numjobs=4 --group_reporting
job overwrite psync --rw=randwrite --bs=4k --loops=3 --size="$(bounded 16m 256m)"

# Blocks that were verified once must still be correct after the cache is dropped.
(cd "$WORK" &&
    fio --name=kept --directory="$MNT" --size="$size" --ioengine=psync --rw=randwrite --bs=16k \
    --verify=crc32c --do_verify=0 --randrepeat=1 --end_fsync=1 --output="$WORK/fio.log") ||
    die "kept: write"
remount_volume
(cd "$WORK" &&
    fio --name=kept --directory="$MNT" --size="$size" --ioengine=psync --rw=randwrite --bs=16k \
    --verify=crc32c --verify_only --verify_fatal=1 --randrepeat=1 --output="$WORK/fio.log") ||
    die "kept: $(grep -iE 'verify|error|bad' "$WORK/fio.log" | sed -n 1,20p)"
ok "verified after a remount"

umount_volume
check_volume
finish
