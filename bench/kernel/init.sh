#!/bin/busybox sh
# What runs as process 1 in the guest of bench/kernel.sh, with the settings of the file /settings.
# Lines `RUN round system` and `RESULT row microseconds` on the serial console are for the report;
# the last line is `DONE` or begins with `FAILED`.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /mnt /tmp
mount -t tmpfs tmp /tmp
exec </dev/console >/dev/console 2>&1
# The kernel's own lines would be in the middle of ours.
dmesg -n 1
. /settings
export FILES MIB RANDOM_COUNT SYNCED

fail() {
    dmesg | tail -n 20
    echo "FAILED $*"
    poweroff -f
}

format() {
    case $system in
    steadfast | fuse) steadfast mkfs --force /dev/ram0 >/dev/null ;;
    # The kernel would go on with the inode tables while the rows run.
    ext3 | ext4) mkfs.$system -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/ram0 ;;
    xfs | btrfs) mkfs.$system -q -f /dev/ram0 ;;
    esac >/tmp/format 2>&1 || { cat /tmp/format; fail "mkfs for $system"; }
}
attach() {
    if [ "$system" = fuse ]; then
        steadfast mount -o noatime /dev/ram0 /mnt
    else
        mount -t "$system" -o noatime /dev/ram0 /mnt
    fi || fail "mount for $system"
}
detach() {
    cd /
    if [ "$system" = fuse ]; then
        steadfast umount --quiet /mnt
    else
        umount /mnt
    fi || fail "umount for $system"
}
# Every cache is empty afterwards, those that drop_caches does not reach too.
again() {
    detach
    echo 3 >/proc/sys/vm/drop_caches
    attach
}
part() {
    (cd /mnt && load "$1") || fail "$system: $1"
}

# One processor: nothing else runs between the last word of the load and the copy.
cut() {
    [ "$system" = fuse ] && return
    mkdir -p /mnt/names
    part names-cut
    load cut /dev/ram0 /dev/ram1 || fail "copy for $system"
    detach
    echo 3 >/proc/sys/vm/drop_caches
    load mount /dev/ram1 "$system" "" || fail "mount after the cut for $system"
    umount /mnt || fail "umount after the cut for $system"
}

run() {
    format
    attach
    part names-create
    again
    part names-warm
    for what in stat read list; do
        again
        part names-cold-$what
    done
    part names-change
    part names-synced
    part data-write
    again
    part data-cached
    again
    part data-cold
    again
    part data-cold-random
    part data-overwrite
    part whole-prepare
    # The group of all files is Steadfast's own; the mask that makes it one ends with this mount.
    if [ "$system" = steadfast ] || [ "$system" = fuse ]; then
        part whole-together
        detach
        format
        attach
        part whole-prepare
    else
        part whole-replace
    fi
    cut || fail "cut for $system"
    [ "$system" != fuse ] || detach
}

echo -1 >/proc/sys/kernel/sched_rt_runtime_us
modprobe crc32c-intel || fail "no crc32c-intel"
modprobe brd rd_nr=2 rd_size=$((DISK_MIB * 1024)) || fail "no brd"
for module in ext4 xfs btrfs fuse libcrc32c; do
    modprobe $module || fail "no kernel module $module"
done
insmod /steadfast.ko || fail "steadfast.ko"
# The memory disk has all of its pages before anybody is measured.
for disk in ram0 ram1; do
    dd if=/dev/zero of=/dev/$disk bs=1M count="$DISK_MIB" 2>/dev/null || fail "$disk"
done
round=0
while [ $round -lt "$ROUNDS" ]; do
    for system in $SYSTEMS; do
        echo "RUN $round $system"
        run
    done
    round=$((round + 1))
done
echo DONE
poweroff -f
