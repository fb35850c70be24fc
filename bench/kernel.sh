#!/usr/bin/env bash
# The kernel module beside ext4, ext3, XFS, btrfs and the FUSE mount, in one guest with Debian's
# kernel and a memory disk. The guest's time is a count of instructions (2 ns each), so the figures
# do not depend on this machine or its load. They say what the processor does: a memory disk has no
# flush to wait for, and instructions are not cycles.
#
#   bench/kernel.sh [steadfast|fuse|ext4|ext3|xfs|btrfs ...]      default: all
#
# Prints a table of medians and writes OUT/kernel.json and OUT/kernel.md (KERNEL_OUT, default
# target/bench-kernel). ROUNDS (3): the file systems take turns in each. QUICK=1: one short round.
# KERNEL_LIMIT: most seconds for the guest (3600). STEADFAST: a program that is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

systems=("$@")
[ ${#systems[@]} -gt 0 ] || systems=(steadfast ext4 xfs btrfs ext3 fuse)
for system in "${systems[@]}"; do
    case $system in
    steadfast | fuse | ext4 | ext3 | xfs | btrfs) ;;
    *) die "unknown file system: $system: choose from steadfast, fuse, ext4, ext3, xfs, btrfs" ;;
    esac
done
if [ -n "${QUICK:-}" ]; then
    rounds=${ROUNDS:-1} files=200 mib=8 random=400 synced=50
else
    rounds=${ROUNDS:-3} files=2000 mib=32 random=4000 synced=300
fi
limit=${KERNEL_LIMIT:-3600}
disk_mib=512

need_packages qemu-system-x86 cpio gcc busybox-static e2fsprogs xfsprogs btrfs-progs
target=$(realpath -m "$(target_directory)")
out=${KERNEL_OUT:-$target/bench-kernel}
mkdir -p "$out" "$target/kernel"
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/steadfast-kernel.XXXXXX")
qemu=
cleanup() {
    [ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true
    rm -rf --one-file-system "$scratch"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# The headers of the distribution, and the kernel of the same version.
headers=$(apt-cache depends linux-headers-amd64 2>/dev/null \
    | grep -o 'linux-headers-6[^ ]*-amd64' | sed -n 1p) || true
[ -n "$headers" ] \
    || die "no Debian kernel: apt-cache depends linux-headers-amd64: run 'apt-get update'"
kver=${headers#linux-headers-}
image=$target/kernel/image-$kver
if [ ! -e "$image/boot/vmlinuz-$kver" ]; then
    (cd "$scratch" && apt-get download -qq "linux-image-$kver" >/dev/null 2>&1) \
        || die "package cannot be fetched: linux-image-$kver: see 'apt-get download'"
    dpkg-deb -x "$scratch/linux-image-$kver"_*.deb "$image"
    rm "$scratch/linux-image-$kver"_*.deb
fi
KVER=$kver scripts/kernel.sh >"$scratch/build.log" 2>&1 \
    || die "make kernel: $(tail -n 5 "$scratch/build.log")"
if [ -z "${STEADFAST:-}" ]; then
    "${CARGO:-cargo}" build --release --locked --quiet -p steadfast-cli
    STEADFAST=$target/release/steadfast
fi

root=$scratch/root
mkdir -p "$root"/{bin,sbin,proc,sys,dev,lib,lib64,etc}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$target/kernel/$kver/steadfast.ko" "$root/"
strip -o "$root/bin/steadfast" "$STEADFAST"
gcc -O2 -static -o "$root/bin/load" bench/kernel/*.c
for program in mkfs.ext4 mkfs.xfs mkfs.btrfs; do
    cp -L "$(PATH=$PATH:/sbin:/usr/sbin command -v $program)" "$root/sbin/$program"
done
ln -s mkfs.ext4 "$root/sbin/mkfs.ext3"
cp /etc/mke2fs.conf "$root/etc/"
# A static program has none, and ldd says so by failing.
for library in $(ldd "$root"/sbin/mkfs.* "$root/bin/steadfast" 2>/dev/null \
    | grep -o '/[^ ]*\.so[^ ]*' | sort -u); do
    mkdir -p "$root$(dirname "$library")"
    cp "$library" "$root$library"
done
(cd "$image" && find "lib/modules/$kver/kernel" \( -path '*/fs/ext4/*' -o -path '*/fs/jbd2/*' \
    -o -path '*/fs/xfs/*' -o -path '*/fs/btrfs/*' -o -path '*/fs/fuse/*' -o -path '*/fs/mbcache*' \
    -o -path '*/crypto/*' -o -path '*/lib/*' \
    -o -name 'brd.ko' \) -name '*.ko' -exec cp --parents -t "$root" {} +)
"$root/bin/busybox" depmod -b "$root" "$kver"
install -m 755 bench/kernel/init.sh "$root/init"
printf '%s\n' "SYSTEMS='${systems[*]}'" "ROUNDS=$rounds" "FILES=$files" "MIB=$mib" \
    "RANDOM_COUNT=$random" "SYNCED=$synced" "DISK_MIB=$disk_mib" >"$root/settings"
(cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) >"$scratch/initrd"

# A copied byte must not count as an instruction, as it does with the string instructions that the
# kernel takes where the processor says they are fast. Then 8 bytes do.
timeout --foreground --kill-after=5 "$limit" qemu-system-x86_64 \
    -accel tcg,thread=single -smp 1 -icount shift=1,sleep=off \
    -cpu max,-erms,-fsrm -m 2560 -nographic -no-reboot -net none \
    -kernel "$image/boot/vmlinuz-$kver" -initrd "$scratch/initrd" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check" </dev/null >"$out/guest.log" 2>&1 &
qemu=$!
wait "$qemu" || true
qemu=
tr -d '\r' <"$out/guest.log" >"$scratch/said"
grep -q '^DONE' "$scratch/said" \
    || die "the guest has not finished: $out/guest.log: $(tail -n 5 "$scratch/said")"
counts="files=$files mib=$mib random=$random synced=$synced disk_mib=$disk_mib"
KERNEL_VERSION=$kver KERNEL_COUNTS=$counts \
    python3 bench/kernel/report.py "$scratch/said" "$out" "${systems[@]}"
