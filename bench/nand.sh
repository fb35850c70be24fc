#!/usr/bin/env bash
# File systems on raw NAND side by side: JFFS2, UBI + UBIFS and Steadfast on /dev/mtd0, in a guest
# that runs Debian's kernel with nandsim (a 1 Gbit SLC part; that kernel has no fastmap). Everything
# is emulated (TCG), so wall times are for ratios only; NAND operations are counted by one probe for
# all, and priced in modelled time (25 µs a read, 200 µs a program, 2 ms an erasure, 30 ns a byte).
#
#   bench/nand.sh [jffs2|ubifs|steadfast ...]      default: all
#
# Prints tables and writes NAND_OUT/nand.json (default target/bench-nand), and the same as a result
# of the lab: 'steadfast lab show NAND_OUT', with --report DIR as a page. Nothing is installed but
# what apt has for qemu; the kernel and the flash tools are unpacked into the target directory.
# NAND_LIMIT: most seconds for one guest (1800). STEADFAST: a program that is built already; what it
# is linked with comes along. Otherwise the release build is used.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

limit=${NAND_LIMIT:-1800}
systems=("$@")
[ ${#systems[@]} -gt 0 ] || systems=(jffs2 ubifs steadfast)
for fs in "${systems[@]}"; do
    case $fs in
    jffs2 | ubifs | steadfast) ;;
    *) die "unknown file system: $fs: choose from jffs2, ubifs, steadfast" ;;
    esac
done

target=$(realpath -m "$(target_directory)")
out=${NAND_OUT:-$target/bench-nand}
guest=$target/nand-guest
musl=x86_64-unknown-linux-musl
mkdir -p "$out" "$guest/debs"
need_packages qemu-system-x86 cpio

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/steadfast-nand.XXXXXX")
qemu=
cleanup() {
    # The guest is a child of `timeout`; neither outlives this script.
    [ -z "$qemu" ] || pkill -9 -P "$qemu" || true
    rm -rf --one-file-system "$scratch"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# --- what the guest is made of

unpack() {
    [ -e "$guest/root/complete" ] && return
    rm -rf "$guest/root"
    local kernel
    kernel=$(apt-cache depends linux-image-amd64 2>/dev/null | grep -o 'linux-image-6[^ ]*-amd64' \
        | sed -n 1p) || true
    [ -n "$kernel" ] \
        || die "no Debian kernel: apt-cache depends linux-image-amd64: run 'apt-get update'"
    (cd "$guest/debs" && apt-get download -qq "$kernel" busybox-static mtd-utils >/dev/null 2>&1) \
        || die "packages cannot be fetched: $kernel busybox-static mtd-utils:" \
            "see 'apt-get download'"
    for package in "$guest"/debs/*.deb; do
        dpkg-deb -x "$package" "$guest/root"
    done
    touch "$guest/root/complete"
}

programs() {
    need_target "$musl"
    # The load is static, and of a crate that has nothing in C below it.
    "${CARGO:-cargo}" build --release --locked --quiet --target "$musl" -p steadfast-host \
        --example flash_load
    [ -n "${STEADFAST:-}" ] || "${CARGO:-cargo}" build --release --locked --quiet -p steadfast-cli
}

image() {
    local root=$scratch/root version program library
    version=$(ls "$guest/root/lib/modules")
    mkdir -p "$root"/{bin,sbin,usr/sbin,proc,sys,dev,tmp,lib,lib64}
    cp "$guest/root/bin/busybox" "$root/bin/"
    strip -o "$root/bin/steadfast" "${STEADFAST:-$target/release/steadfast}"
    strip -o "$root/bin/flash_load" "$target/$musl/release/examples/flash_load"
    for program in ubiformat ubiattach ubidetach ubimkvol nanddump nandwrite; do
        cp "$guest/root/usr/sbin/$program" "$root/usr/sbin/"
    done
    cp "$(command -v chrt)" "$root/bin/"
    # A static program has none, and ldd says so by failing.
    for library in $(ldd "$root"/usr/sbin/* "$root/bin/chrt" "$root/bin/steadfast" 2>/dev/null \
        | grep -o '/[^ ]*\.so[^ ]*' | sort -u); do
        mkdir -p "$root$(dirname "$library")"
        cp "$library" "$root$library"
    done
    (cd "$guest/root" && find "lib/modules/$version/kernel" \
        \( -path '*/mtd/*' -o -path '*/fs/ubifs/*' -o -path '*/fs/jffs2/*' \
        -o -path '*/fs/fuse/*' -o -path '*/virtio/*' -o -name 'virtio*' \
        -o -path '*/crypto/*' -o -path '*/lib/*' \) \
        -name '*.ko' -exec cp --parents -t "$root" {} +)
    "$root/bin/busybox" depmod -b "$root" "$version"
    install -m 755 bench/nand/init.sh "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) >"$scratch/initrd"
    cp "$guest"/root/boot/vmlinuz-* "$scratch/vmlinuz"
}

# --- one run of the guest: what, file system, file for its output

boot() {
    local what=$1 fs=$2 log=$3
    local append="console=ttyS0 quiet panic=-1 no_timer_check"
    # A part of 1 Gbit: pages of 2048+64 bytes, 64 of them in each of 1024 blocks.
    append+=" nandsim.id_bytes=0xec,0xf1,0x80,0x15,0x40"
    append+=" nand.do=$what nand.fs=$fs nand.blocks=1024"
    timeout --kill-after=5 "$limit" qemu-system-x86_64 -accel tcg -m 768 -smp 1 \
        -nographic -no-reboot -net none -kernel "$scratch/vmlinuz" -initrd "$scratch/initrd" \
        -drive "file=$scratch/nand,format=raw,if=virtio" \
        -append "$append" \
        </dev/null >"$log" 2>&1 &
    qemu=$!
    # How it ends is in the log; the shell need not tell.
    disown "$qemu"
    : >>"$log"
    # The power cut: the guest says what it has saved, and is gone.
    while kill -0 "$qemu" 2>/dev/null; do
        if grep -q '^CUT' "$log"; then
            # The guest; `timeout`, its parent, ends with it.
            pkill -9 -P "$qemu" 2>/dev/null || true
        fi
        sleep 0.5
    done
    qemu=
    grep -q '^\(CUT\|DONE\)' "$log" || {
        echo "steadfast: the guest has not finished ($what, $fs): $log: its last lines:" >&2
        tail -n 5 "$log" >&2
        return 1
    }
}

unpack
programs
image
failed=0
for fs in "${systems[@]}"; do
    echo "== $fs"
    truncate -s 160M "$scratch/nand"
    if boot work "$fs" "$out/$fs.work.log" && boot after "$fs" "$out/$fs.after.log"; then
        :
    else
        failed=1
    fi
    rm -f "$scratch/nand"
done
NAND_VERSION=$("${STEADFAST:-$target/release/steadfast}" --version | cut -d' ' -f2)
export NAND_VERSION
python3 bench/nand/report.py "$out" "${systems[@]}"
exit "$failed"
