#!/usr/bin/env bash
# A Debian whose root file system is on Steadfast, in QEMU: writable; by its label and read-only at
# first; in a part of a disk, from a snapshot below an overlay in memory. It writes, powers off, and
# what it has left is looked at.
#
# Takes minutes without KVM, and 300 MB from a mirror the first time; needs root, debootstrap and
# qemu-system-x86_64. Skipped where they are not installed.
#   BOOT_ACCEL      what QEMU runs on (default tcg; kvm where the machine can)
#   BOOT_SECONDS    the most for one boot (default 300)
#   DEBIAN_MIRROR   where packages come from (default http://deb.debian.org/debian)
source "$(dirname "$0")/lib.sh"
plain && { echo "boot: skipped: nothing of this is about another file system"; exit 0; }
start boot
need debootstrap qemu-system-x86_64 chroot
[ "$(id -u)" -eq 0 ] || skip_all "debootstrap needs root"
[ "$(uname -m)" = x86_64 ] || skip_all "the kernel is one for x86_64"

target=$(realpath -m "${CARGO_TARGET_DIR:-$REPO/target}")
cache=$target/tools/debian-boot.tar
root=$WORK/root
if [ ! -e "$cache" ]; then
    timeout 600 debootstrap --variant=minbase \
        --include=fuse3,initramfs-tools,linux-image-cloud-amd64,systemd-sysv,udev,kmod \
        bookworm "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" \
        >"$WORK/debootstrap.log" 2>&1 ||
        skip_all "no Debian from a mirror: $(tail -n 1 "$WORK/debootstrap.log")"
    mkdir -p "$(dirname "$cache")"
    tar --one-file-system -C "$root" -cf "$cache.new" . && mv "$cache.new" "$cache"
    rm -rf --one-file-system "$root"
fi
mkdir "$root"
tar -C "$root" -xf "$cache"

# What the package has.
strip -o "$root/usr/bin/steadfast" "$STEADFAST"
for place in hooks scripts; do
    install -m 755 "$REPO/packaging/initramfs-tools/$place/steadfast" \
        "$root/usr/share/initramfs-tools/$place/steadfast"
done
install -D -m 755 "$REPO/packaging/systemd/steadfast.shutdown" \
    "$root/usr/lib/systemd/system-shutdown/steadfast"
echo '/dev/root / fuse.steadfast defaults 0 0' >"$root/etc/fstab"
cat >"$root/etc/systemd/system/proof.service" <<'UNIT'
[Unit]
Description=Writes a file, says what it has found, and powers off
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/proof
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../proof.service "$root/etc/systemd/system/multi-user.target.wants/proof.service"
cat >"$root/usr/local/sbin/proof" <<'PROOF'
#!/bin/sh
while read -r id parent device from directory rest; do
    [ "$directory" = / ] && echo "PROOF root $rest"
done </proc/self/mountinfo
echo "PROOF found $(cat /var/lib/proof 2>/dev/null)"
cat /proc/sys/kernel/random/boot_id >/var/lib/proof && echo "PROOF wrote $(cat /var/lib/proof)"
systemctl --no-block poweroff
PROOF
chmod 755 "$root/usr/local/sbin/proof"
kernel=$(basename "$root"/boot/vmlinuz-*)
# The host's processes are no business of what makes an initramfs.
chroot "$root" update-initramfs -u -k "${kernel#vmlinuz-}" >"$WORK/initramfs.log" 2>&1 ||
    die "update-initramfs: $(tail -n 3 "$WORK/initramfs.log")"
cp "$root/boot/$kernel" "$WORK/kernel"
cp "$root/boot/initrd.img-${kernel#vmlinuz-}" "$WORK/initrd"
ok "an initramfs with steadfast in it"

"$STEADFAST" image build --quiet --free 300M "$WORK/root.img" "$root" || die "image build"
"$STEADFAST" tune --label proof "$WORK/root.img" >/dev/null
"$STEADFAST" snapshot create "$WORK/root.img" first >/dev/null

# boot NAME DISK PARAMETER…: what the guest says is in NAME.log; its machine has to end by itself.
boot() {
    local name=$1 disk=$2
    shift 2
    timeout "${BOOT_SECONDS:-300}" qemu-system-x86_64 -machine q35,accel="${BOOT_ACCEL:-tcg}" \
        -cpu max -m 768 -nographic -no-reboot -kernel "$WORK/kernel" -initrd "$WORK/initrd" \
        -drive "file=$disk,format=raw,if=virtio" -append "console=ttyS0 panic=5 boot=steadfast $*" \
        </dev/null >"$WORK/$name.log" 2>&1 ||
            die "$name: the machine did not power off: $(tail -n 3 "$WORK/$name.log")"
}
said() { grep -a -o "PROOF $2.*" "$WORK/$1.log" | tail -n 1 | tr -d '\r' | sed "s/^PROOF $2 *//"; }

boot writable "$WORK/root.img" root=/dev/vda rw rootflags=timer=1h
grep -q 'fuse\.steadfast /dev/vda rw' <<<"$(said writable root)" ||
    die "the root is: $(said writable root)"
wrote=$(said writable wrote)
[ -n "$wrote" ] || die "nothing was written: $(tail -n 5 "$WORK/writable.log")"
"$STEADFAST" check --quiet "$WORK/root.img" || die "the volume is damaged"
[ "$("$STEADFAST" cat "$WORK/root.img" /var/lib/proof)" = "$wrote" ] ||
    die "what was written before power off is not there"
ok "root, writable: what was written last is there after power off"

boot label "$WORK/root.img" root=LABEL=proof ro
[ "$(said label found)" = "$wrote" ] || die "by label: found $(said label found)"
wrote=$(said label wrote)
[ -n "$wrote" ] && [ "$("$STEADFAST" cat "$WORK/root.img" /var/lib/proof)" = "$wrote" ] ||
    die "with ro, it has lost what was written"
ok "root by its label; ro, which is for fsck, has no effect"

size=$(stat -c %s "$WORK/root.img")
truncate -s $((size + (2 << 20))) "$WORK/disk.img"
dd if="$WORK/root.img" of="$WORK/disk.img" bs=1M seek=1 conv=notrunc,sparse status=none
sum=$(sha256sum <"$WORK/disk.img")
boot snapshot "$WORK/disk.img" root=/dev/vda steadfast.offset=1M steadfast.snapshot=first \
    steadfast.overlay=tmpfs
grep -q 'overlay overlay rw' <<<"$(said snapshot root)" || die "the root is: $(said snapshot root)"
[ -z "$(said snapshot found)" ] || die "the snapshot has what was written later"
[ -n "$(said snapshot wrote)" ] || die "the overlay cannot be written"
[ "$(sha256sum <"$WORK/disk.img")" = "$sum" ] || die "the disk was written to"
ok "root from a snapshot in a part of a disk, below an overlay: the disk is as before"
finish
