#!/usr/bin/env bash
# The resident memory of the daemon stays bounded under all loads: many files created, listed and
# removed, and much data written and read, with --cache 32MiB.
source "$(dirname "$0")/lib.sh"
start memory
need python3
plain && skip_all "there is no daemon to look at"
export PYTHONDONTWRITEBYTECODE=1

files=$(bounded 20000 1000000)
megabytes=$(bounded 512 10240)
limit_mib=${LIMIT_MIB:-128}

make_volume 64G
mount_volume --cache 32MiB

# Peak resident size in KiB.
peak() { awk '/^VmHWM/ {print $2}' "/proc/$DAEMON/status"; }
now() { awk '/^VmRSS/ {print $2}' "/proc/$DAEMON/status"; }
report() { printf '%s: %-44s %7d KiB resident, %7d KiB at most\n' "$NAME" "$1" "$(now)" "$(peak)"; }

report "mounted"
python3 "$TESTS/helpers/make_files.py" "$MNT/many" "$files" 100 || die "making $files files"
report "$files files made"
[ "$(find "$MNT/many" -type f | wc -l)" = "$files" ] || die "not all files are there"
find "$MNT/many" -type f -printf '%s %T@\n' >/dev/null
report "listed with attributes"
dd if=/dev/urandom of="$MNT/large" bs=1M count="$((megabytes / 10 + 1))" status=none ||
    die "writing"
report "$((megabytes / 10 + 1)) MiB written"
for _ in $(seq 10); do
    # Direct I/O, so that every byte comes from the daemon and not from the kernel's cache.
    dd if="$MNT/large" of=/dev/null bs=1M iflag=direct status=none || die "reading"
done
report "$megabytes MiB read"
for i in 1 2 3 4; do dd if="$MNT/large" of=/dev/null bs=128k status=none & own $!; done
wait
report "read by four at once"
python3 - "$MNT/sparse" <<'PY'
import os, sys
descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
for number in range(20000):
    os.pwrite(descriptor, b"x" * 100, number * 1_000_003 % (1 << 36))
os.fsync(descriptor)
PY
report "20,000 scattered writes"
rm -rf "$MNT/many" "$MNT/sparse" "$MNT/large"
report "all removed"

kib=$(peak)
[ "$kib" -le $((limit_mib * 1024)) ] ||
    die "$((kib / 1024)) MiB resident at most, the limit is $limit_mib MiB"
ok "$((kib / 1024)) MiB resident at most, cache 32 MiB, limit $limit_mib MiB"
umount_volume
check_volume
finish
