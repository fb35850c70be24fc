#!/usr/bin/env bash
# The kernel module in a virtual machine: every operation of the VFS, a full volume, the same image
# by turns with FUSE, power cuts under load, and a panic of the core. The machine is emulated, with
# the kernel of the distribution; nothing is loaded into this machine's own kernel.
source "$(dirname "$0")/lib.sh"
plain && { echo "kernel: a directory cannot be tested" && exit 0; }
start kernel
[ "$(uname -m)" = x86_64 ] || skip_all "the module is for x86_64 only"
need qemu-system-x86_64 cpio gcc dpkg-deb setfattr

# The stack that the core may need, of the 16 KiB that a task has.
STACK_MAX=6144
MACHINE_SECONDS=300
MACHINE_MIB=512

# The headers of the distribution, and the kernel of the same version.
headers=$(dpkg-query -W -f '${Depends}' linux-headers-amd64 2>/dev/null |
    grep -o 'linux-headers-[^ ,]*' | sed -n 1p) ||
    skip_all "no package linux-headers-amd64"
kver=${headers#linux-headers-}
cache=${CARGO_TARGET_DIR:-$REPO/target}/kernel
build=$cache/$kver
mkdir -p "$cache"
if [ ! -e "$cache/image-$kver/boot/vmlinuz-$kver" ]; then
    (cd "$WORK" && apt-get download "linux-image-$kver" >download.log 2>&1) ||
        skip_all "linux-image-$kver cannot be fetched: $(tail -n 1 "$WORK/download.log")"
    dpkg-deb -x "$WORK/linux-image-$kver"_*.deb "$cache/image-$kver"
    rm "$WORK/linux-image-$kver"_*.deb
fi
busybox=$(command -v busybox) || skip_all "no busybox"
ldd "$busybox" >/dev/null 2>&1 && skip_all "busybox is not static: install busybox-static"
(cd "$REPO" && KVER=$kver scripts/kernel.sh) >"$WORK/build.log" 2>&1 ||
    die "make kernel: $(tail -n 5 "$WORK/build.log")"
! grep -E 'warning|WARNING' "$WORK/build.log" || die "the build has warnings"
ok "the module builds for $kver, without a warning of the compiler or of objtool"

# The first part of the machine's memory disk; the second has the job.
root=$WORK/root
modules=$cache/image-$kver/lib/modules/$kver/kernel
mkdir -p "$root"/{bin,proc,sys,dev,mnt,modules}
cp "$busybox" "$root/bin/busybox"
gcc -O1 -static -I "$REPO/crates/steadfast-capi/include" -o "$root/bin/work" "$TESTS"/kernel/*.c
cp "$build/steadfast.ko" "$root/modules/"
suite_target=x86_64-unknown-linux-musl
(cd "$REPO" && { ! command -v rustup >/dev/null || rustup target add "$suite_target"; } &&
    cargo build --release -q -p steadfast-posix --target "$suite_target") >"$WORK/suite.log" 2>&1 ||
    die "the suite for the machine: $(tail -n 5 "$WORK/suite.log")"
cp "${CARGO_TARGET_DIR:-$REPO/target}/$suite_target/release/posix-suite" "$root/bin/"
drivers=(crypto/crc32c_generic lib/libcrc32c drivers/virtio/virtio_ring drivers/virtio/virtio
    drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci_legacy_dev
    drivers/virtio/virtio_pci drivers/block/virtio_blk)
cp "$modules/drivers/block/loop.ko" "$modules/fs/overlayfs/overlay.ko" "$root/modules/"
{
    printf '%s\n' '#!/bin/busybox sh' 'export PATH=/bin' '/bin/busybox --install -s /bin' \
        'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev'
    for driver in "${drivers[@]}"; do
        cp "$modules/$driver.ko" "$root/modules/"
        echo "insmod /modules/${driver##*/}.ko"
    done
    # What the kernel says of the module from here on must be nothing but what is expected.
    printf '%s\n' 'echo' '. /job' 'echo LOG; dmesg | sed "1,/taints kernel/d"; echo END' \
        'poweroff -f'
} >"$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null) >"$WORK/system.cpio"

# begin_machine JOB: starts the machine on $IMAGE, with the commands of the job.
begin_machine() {
    mkdir -p "$WORK/job"
    echo "$1" >"$WORK/job/job"
    { cat "$WORK/system.cpio" && (cd "$WORK/job" && find . | cpio -o -H newc 2>/dev/null); } \
        >"$WORK/initrd"
    timeout "$MACHINE_SECONDS" qemu-system-x86_64 -accel tcg -smp 2 -m "$MACHINE_MIB" -cpu max \
        -nographic -no-reboot -kernel "$cache/image-$kver/boot/vmlinuz-$kver" \
        -initrd "$WORK/initrd" -append "console=ttyS0 no_timer_check quiet panic=-1" \
        -drive "file=$IMAGE,format=raw,if=virtio,discard=unmap" </dev/null \
        >"$WORK/machine.log" 2>&1 &
    MACHINE=$!
    own "$MACHINE"
}

# run_machine JOB: runs it to its end. The kernel's log must be clean.
run_machine() {
    begin_machine "$1"
    wait "$MACHINE" || die "the machine did not end: $(tail -n 5 "$WORK/machine.log")"
    tr -d '\r' <"$WORK/machine.log" >"$WORK/said"
    grep -q '^END' "$WORK/said" || die "the machine ended early: $(tail -n 20 "$WORK/said")"
    ! grep '^FAILED' "$WORK/said" || die "an operation failed in the machine"
    ! sed -n '/^LOG/,/^END/p' "$WORK/said" |
        grep -E 'BUG|WARNING|Oops|Call Trace|hung|leak|refcount' ||
        die "the kernel's log has a fault"
}

# said WORD: the machine must have said it. Else what it said without the kernel's log is shown.
said() {
    grep -q "^$1" "$WORK/said" ||
        die "the machine did not say '$1' but: $(sed -n '/^LOG/q; p' "$WORK/said" | tail -n 30)"
}

# The deepest stack of the core, of all calls of the module.
check_stack() {
    local deepest
    deepest=$(sed -n 's/.*stack of \(.*\): \([0-9]*\) bytes$/\2 \1/p' "$WORK/said" | sort -rn |
        sed -n 1p)
    [ -n "$deepest" ] || die "no stack was measured"
    [ "${deepest% *}" -le "$STACK_MAX" ] ||
        die "the core took ${deepest% *} bytes of stack in ${deepest#* }, more than $STACK_MAX"
    ok "the core took at most ${deepest% *} bytes of stack, in ${deepest#* }"
}

# Every operation, on a fresh volume; the stack of the core is measured.
make_volume 64M
run_machine 'insmod /modules/steadfast.ko stack=1
mount -t steadfast -o noatime,timer=5s /dev/vda /mnt && echo MOUNTED
grep " /mnt " /proc/mounts
work /mnt; echo "WORK $?"
mount -o remount,ro /mnt && ! touch /mnt/x 2>/dev/null &&
    mount -o remount,rw /mnt && touch /mnt/x && echo REMOUNTED
umount /mnt && echo UMOUNTED
mount -t steadfast -o ro /dev/vda /mnt && [ -e /mnt/x ] && ! touch /mnt/y 2>/dev/null &&
    work again /mnt && echo READ-ONLY
umount /mnt
# The second time the flusher is at work all the time, so it meets every search for room.
mount -t steadfast /dev/vda /mnt && work full /mnt; echo "FULL $?"
echo 1 >/proc/sys/vm/dirty_writeback_centisecs; echo 1 >/proc/sys/vm/dirty_expire_centisecs
for i in 1 2 3 4 5; do work full /mnt || echo AGAIN; done
umount /mnt && rmmod steadfast && echo UNLOADED'
for word in MOUNTED 'WORK 0' REMOUNTED UMOUNTED READ-ONLY 'FULL 0' UNLOADED; do said "$word"; done
! grep '^AGAIN' "$WORK/said" || die "a full volume fails beside the flusher"
grep -q 'steadfast rw,noatime,timer=5000ms' "$WORK/said" || die "the options are not shown"
check_volume "after every operation and a full volume"
ok "every operation, remounts and a full volume"
check_stack

# The commands of the program on a mount of the module.
make_volume 64M
mkdir -p "$WORK/commands/bin" "$WORK/job"
strip -o "$WORK/commands/bin/steadfast" "$STEADFAST"
# A static program has none, and ldd says so by failing.
for library in $(ldd "$STEADFAST" 2>/dev/null | grep -o '/[^ ]*\.so[^ ]*' || true); do
    mkdir -p "$WORK/commands$(dirname "$library")"
    cp "$library" "$WORK/commands$library"
done
cp -r "$WORK/commands/." "$WORK/job/"
run_machine 'insmod /modules/steadfast.ko
mount -t steadfast /dev/vda /mnt && steadfast mask set /mnt manual
echo one >/mnt/a; steadfast transact /mnt
echo two >/mnt/a; steadfast rollback /mnt; echo "ROLLBACK $? $(cat /mnt/a)"
steadfast atomically /mnt -- sh -c "echo three >/mnt/a; echo b >/mnt/b"
echo "COMMITTED $?" $(cat /mnt/a /mnt/b)
steadfast atomically /mnt -- sh -c "echo four >/mnt/a; exit 3"; echo "FAILURE $? $(cat /mnt/a)"
steadfast atomically /mnt -- sh -c "rm /mnt/a; touch /begun; sleep 60" &
until [ -e /begun ]; do sleep 0.1; done; kill -9 $!
for i in $(seq 50); do [ -e /mnt/a ] && break; sleep 0.1; done; echo "KILLED $(cat /mnt/a)"
steadfast snapshot create /mnt first && echo five >/mnt/a && steadfast snapshot list /mnt
steadfast snapshot rollback /mnt first; echo "SNAPSHOT $? $(cat /mnt/a)"
steadfast snapshot delete /mnt first && steadfast umount /mnt; echo "UMOUNT $?"; rmmod steadfast'
for word in 'ROLLBACK 0 one' 'COMMITTED 0 three b' 'FAILURE 3 three' 'KILLED three' \
    'SNAPSHOT 0 three' 'UMOUNT 0'; do
    said "$word"
done
rm -r "$WORK/job"
check_volume "after the commands"
ok "rollback, atomically and snapshot on a mount of the module"

# Free space goes back to the device: removed data becomes holes of the image.
make_volume 256M
run_machine 'insmod /modules/steadfast.ko stack=1
mount -t steadfast /dev/vda /mnt
head -c 9000000 /dev/urandom >/mnt/kept; md5sum /mnt/kept >/mnt/sum
head -c 90000000 /dev/urandom >/mnt/gone; sync; rm /mnt/gone; sleep 2
fstrim -v /mnt; echo "FSTRIM $?"
mount -o remount,ro /mnt; fstrim /mnt 2>/dev/null || echo READ-ONLY; umount /mnt
mount -t steadfast /dev/vda /mnt; md5sum -c /mnt/sum >/dev/null && echo KEPT
umount /mnt; rmmod steadfast && echo UNLOADED'
for word in 'FSTRIM 0' READ-ONLY KEPT UNLOADED; do said "$word"; done
taken=$(du -k "$IMAGE" | cut -f 1)
[ "$taken" -lt 30000 ] || die "after fstrim the image still takes $taken KiB"
check_volume "after fstrim"
ok "fstrim leaves $taken KiB of the image"
check_stack

# A mount of a snapshot, and of the volume beside it.
make_volume 64M
mkdir -p "$WORK/job"
cp -r "$WORK/commands/." "$WORK/job/"
run_machine 'insmod /modules/steadfast.ko stack=1
mkdir /other
mount -t steadfast /dev/vda /mnt && echo one >/mnt/a && mkdir /mnt/d &&
    head -c 300000 /dev/urandom >/mnt/d/b
sum=$(md5sum </mnt/d/b); steadfast snapshot create /mnt first
echo two >/mnt/a; rm -r /mnt/d; steadfast snapshot create /mnt second; echo three >/mnt/a
mount -t steadfast -o snapshot=first /dev/vda /other 2>/dev/null || echo "BESIDE $(ls /other)"
umount /mnt; mount -t steadfast -o snapshot=first /dev/vda /mnt
echo "FIRST $(cat /mnt/a) $([ "$sum" = "$(md5sum </mnt/d/b)" ] && echo same)" \
    $(grep -c " /mnt steadfast ro,.*snapshot=first" /proc/mounts)
touch /mnt/a 2>/dev/null || echo READ-ONLY; mount -o remount,rw /mnt 2>/dev/null || echo STAYS
for state in ro ro,snapshot=second; do
    mount -t steadfast -o $state /dev/vda /other 2>/dev/null || echo REFUSED
done
mount -t steadfast -o snapshot=first /dev/vda /other && echo "TWICE $(cat /other/a)"
umount /other; umount /mnt
mount -t steadfast -o snapshot=second /dev/vda /mnt; echo "SECOND $(ls /mnt) $(cat /mnt/a)"
umount /mnt
mount -t steadfast -o snapshot=third /dev/vda /mnt 2>/dev/null || echo NONE
mount -t steadfast /dev/vda /mnt; echo "LIVE $(cat /mnt/a)"; umount /mnt; rmmod steadfast'
for word in 'BESIDE $' 'FIRST one same 1' READ-ONLY STAYS 'TWICE one' 'SECOND a two' NONE \
    'LIVE three'; do
    said "$word"
done
[ "$(grep -c '^REFUSED' "$WORK/said")" = 2 ] || die "two states of a device are mounted at a time"
grep -q "there is no snapshot 'third'" "$WORK/said" || die "the log does not name the snapshot"
grep -q 'a snapshot is read-only' "$WORK/said" ||
    die "the log does not say why a snapshot stays read-only"
rm -r "$WORK/job"
check_volume "after mounts of snapshots"
ok "mounts of snapshots"
check_stack

# `.snapshots` by the module and by FUSE: the same trees of one image, of snapshots that either has
# made. A file of the volume with this name hides them until it is removed.
make_volume 64M
mount_volume
mkdir -m 750 "$MNT/d" "$MNT/d/e" && head -c 300000 /dev/urandom >"$MNT/d/b" && echo small >"$MNT/s"
ln "$MNT/s" "$MNT/d/hard" && ln -s b "$MNT/d/soft" && mkfifo -m 600 "$MNT/pipe"
truncate -s 1M "$MNT/d/hole" && setfattr -n user.a -v one "$MNT/d/b" && chown 7:8 "$MNT/s"
for i in $(seq 200); do echo "$i" >"$MNT/d/e/file-$i"; done
"$STEADFAST" snapshot create "$MNT" fuse >/dev/null
rm -r "$MNT/d/e" "$MNT/s" && setfattr -n user.a -v two "$MNT/d/b" && chmod 600 "$MNT/d/b"
umount_volume
mkdir -p "$WORK/job"
cp -r "$WORK/commands/." "$WORK/job/"
run_machine 'insmod /modules/steadfast.ko stack=1
mount -t steadfast /dev/vda /mnt && echo new >/mnt/d/new && truncate -s 100000 /mnt/d/b
steadfast snapshot create /mnt module && rm /mnt/d/new && steadfast transact /mnt
steadfast snapshot diff /mnt fuse module; echo "DIFF $?"; steadfast snapshot diff /mnt module
work tree /mnt/.snapshots; echo "SHOWN $?"; ls -a /mnt | grep -c snapshots
umount /mnt && echo UMOUNTED; rmmod steadfast && echo UNLOADED'
for word in 'DIFF 0' 'SHOWN 0' 0 UMOUNTED UNLOADED; do said "$word"; done
grep '^TREE' "$WORK/said" >"$WORK/by-module"
check_stack
mount_volume
"$root/bin/work" tree "$MNT/.snapshots" >"$WORK/by-fuse" || die "FUSE does not show the snapshots"
umount_volume
diff "$WORK/by-fuse" "$WORK/by-module" || die "FUSE and the module show other trees"
[ "$(wc -l <"$WORK/by-module")" -gt 215 ] || die "the trees of the snapshots are not whole"
echo own >"$WORK/own"
"$STEADFAST" put "$IMAGE" "$WORK/own" /.snapshots
run_machine 'insmod /modules/steadfast.ko
mount -t steadfast /dev/vda /mnt; echo "FILE $(cat /mnt/.snapshots)"
rm /mnt/.snapshots; echo "NAMES" $(ls /mnt/.snapshots)
mount -o remount,ro /mnt; echo "READ-ONLY $(cat /mnt/.snapshots/module/d/new)"
umount /mnt; mount -t steadfast -o snapshot=module /dev/vda /mnt
echo "EARLIER" $(ls /mnt/.snapshots); umount /mnt; rmmod steadfast && echo UNLOADED'
for word in 'FILE own' 'NAMES fuse module' 'READ-ONLY new' 'EARLIER fuse' UNLOADED; do
    said "$word"
done
rm -r "$WORK/job"
check_volume "after .snapshots"
ok "$(wc -l <"$WORK/by-module") files below .snapshots, as FUSE shows them"

# From read-only to writable, with a log to replay, beside readers. What a new mount refuses, the
# remount refuses too.
make_volume 64M
run_machine 'insmod /modules/steadfast.ko
mount -t steadfast /dev/vda /mnt && head -c 3000000 /dev/urandom >/mnt/a &&
    md5sum /mnt/a >/mnt/sum && sync
mkdir /mnt/d && echo late >/mnt/d/b && sync; echo LEFT'
said LEFT
cp --sparse=always "$IMAGE" "$WORK/before"
run_machine 'insmod /modules/steadfast.ko
mount -t steadfast -o ro /dev/vda /mnt && work reconfigure /mnt && echo RECONFIGURED
sleep 1; umount /mnt && rmmod steadfast && echo UNLOADED'
for word in RECONFIGURED UNLOADED; do said "$word"; done
cmp "$IMAGE" "$WORK/before" || die "a change of no option has made a read-only volume writable"
rm "$WORK/before"
run_machine 'insmod /modules/steadfast.ko stack=1
mount -t steadfast -o ro,timer=3s /dev/vda /mnt && cat /mnt/d/b &&
    md5sum -c /mnt/sum >/dev/null && echo REPLAYED
for i in 1 2 3; do
    while [ ! -e /stop ]; do md5sum -c /mnt/sum >/dev/null || echo "FAILED reader $i"; done &
done
while [ ! -e /stop ]; do echo 3 >/proc/sys/vm/drop_caches; done &
exec 3</mnt/a; sleep 1; mount -o remount,rw /mnt && echo WRITABLE; sleep 1
for i in $(seq 200); do echo $i >/mnt/d/n$i; rm -f /mnt/d/n$((i - 9)); done; sync; touch /stop; wait
echo "OPEN $(md5sum <&3 | cut -d" " -f1)" $(cut -d" " -f1 /mnt/sum); exec 3<&-
ls /mnt/d | wc -l; grep " /mnt steadfast rw,.*timer=3000ms" /proc/mounts
mount -o remount,ro /mnt && mount -o remount,rw /mnt && echo AGAIN
umount /mnt && rmmod steadfast && echo UNLOADED'
for word in late REPLAYED WRITABLE 10 /dev/vda AGAIN UNLOADED 'OPEN \([0-9a-f]*\) \1$'; do
    said "$word"
done
check_volume "after a remount from read-only to writable"
check_stack
# Both copies of the newest metaroot are damaged: a newer state than the one that is left.
generation=$("$STEADFAST" info --json "$IMAGE" | sed -n 's/.*"generation": *\([0-9]*\).*/\1/p')
[ -n "$generation" ] || die "steadfast info does not tell the generation"
for at in $((4096 * (1 + generation % 2))) $(((64 << 20) - 4096 * (3 - generation % 2))); do
    printf 'damaged' | dd of="$IMAGE" bs=1 seek=$((at + 100)) conv=notrunc status=none
done
run_machine 'insmod /modules/steadfast.ko
mount -t steadfast /dev/vda /mnt 2>/dev/null || echo REFUSED
mount -t steadfast -o ro /dev/vda /mnt && echo MOUNTED
mount -o remount,rw /mnt 2>/dev/null || echo STAYS
touch /mnt/x 2>/dev/null || echo READ-ONLY; md5sum -c /mnt/sum >/dev/null && echo SAME
mount -o remount,rw,recover /mnt && touch /mnt/x && echo RECOVERED
umount /mnt; rmmod steadfast && echo UNLOADED'
for word in REFUSED MOUNTED STAYS READ-ONLY SAME RECOVERED UNLOADED; do said "$word"; done
check_volume "after a remount with recover"
ok "from read-only to writable by remount"

# A mount as the upper layer of an overlay file system, which wants whiteouts, trusted attributes,
# and files without names.
make_volume 64M
overlay='mount -t overlay -o lowerdir=/lower,upperdir=/mnt/upper,workdir=/mnt/work overlay /merged'
run_machine "for m in overlay steadfast; do insmod /modules/\$m.ko; done; mkdir /lower /merged
mount -t tmpfs lower /lower; mkdir -p /lower/d/e; for f in a b d/x; do echo below >/lower/\$f; done
mount -t steadfast /dev/vda /mnt; mkdir /mnt/upper /mnt/work; $overlay && echo MERGED
echo above >>/merged/a; mv /merged/a /merged/c; rm /merged/b
rm -r /merged/d; mkdir /merged/d; echo new >/merged/d/n
chmod 600 /merged/c; ln /merged/d/n /merged/d/m; ls -l /mnt/upper/b | grep -q '^c' && echo WHITEOUT
umount /merged && umount /mnt && mount -t steadfast /dev/vda /mnt && $overlay && echo AGAIN
echo \"SHOWN\" \$(cd /merged; find . | sort) \$(cat /merged/c /merged/d/m) \
    \$(stat -c %a /merged/c) \$(ls /lower /lower/d)
umount /merged; umount /mnt; rmmod steadfast && echo UNLOADED"
for word in MERGED WHITEOUT AGAIN \
    'SHOWN \. \./c \./d \./d/m \./d/n below above new 600 /lower: a b d /lower/d: e x$' \
    UNLOADED; do
    said "$word"
done
! grep -i 'overlayfs:.*\(not support\|fall\)' "$WORK/said" ||
    die "the overlay misses something of its upper layer"
check_volume "after an overlay"
ok "the upper layer of an overlay file system"

# A snapshot as the lower layer of an overlay, whose upper layer is in memory, then in the volume.
make_volume 64M
mkdir -p "$WORK/job"
cp -r "$WORK/commands/." "$WORK/job/"
run_machine 'for m in overlay steadfast; do insmod /modules/$m.ko; done; mkdir /merged /upper
mount -t tmpfs upper /upper; mount -t steadfast /dev/vda /mnt; mkdir -p /mnt/t/d/e
for f in a b d/x; do echo then >/mnt/t/$f; done; chmod 640 /mnt/t/a
steadfast snapshot create /mnt one >/dev/null; echo now >/mnt/t/a; rm -r /mnt/t/d
lower=/mnt/.snapshots/one/t
for place in /upper /mnt; do
    mkdir $place/up $place/work
    mount -t overlay -o lowerdir=$lower,upperdir=$place/up,workdir=$place/work overlay /merged
    echo "MERGED $place" $(cat /merged/a /merged/d/x)
    echo more >>/merged/a; rm /merged/b; mv /merged/d/x /merged/y
    rm -r /merged/d; mkdir /merged/d; echo new >/merged/d/n
    ls -l $place/up/b | grep -q "^c" && echo "WHITEOUT $place"
    echo "SHOWN $place" $(cd /merged; find . | sort) $(cat /merged/a /merged/y) \
        $(stat -c %a /merged/a) $(cd $lower; find . | sort) $(cat $lower/a)
    umount /merged
done
umount /mnt && rmmod steadfast && echo UNLOADED'
for place in /upper /mnt; do
    for word in "MERGED $place then then" "WHITEOUT $place" \
        "SHOWN $place \. \./a \./d \./d/n \./y then more then 640 \
\. \./a \./b \./d \./d/e \./d/x then\$"; do
        said "$word"
    done
done
said UNLOADED
rm -r "$WORK/job"
check_volume "after an overlay over a snapshot"
ok "a snapshot as the lower layer of an overlay file system"

# The core has no memory now and then: calls fail with ENOMEM, and what a program was told is there.
make_volume 64M
run_machine 'insmod /modules/steadfast.ko
mount -t steadfast -o noatime /dev/vda /mnt && echo MOUNTED
for every in 2 3 7; do
    mkdir /mnt/$every; echo $every >/sys/module/steadfast/parameters/fail_every
    for i in $(seq 150); do
        { head -c 30000 /dev/zero | tr "\\0" "$((i % 10))" >/mnt/$every/$i; } 2>/dev/null &&
            touch /acknowledged-$every-$i
        [ $((i % 5)) = 0 ] && rm /mnt/$every/$((i - 1)) 2>/dev/null &&
            rm -f /acknowledged-$every-$((i - 1))
        mv /mnt/$every/$i /mnt/$every/n$i 2>/dev/null &&
            mv /mnt/$every/n$i /mnt/$every/$i 2>/dev/null
        [ $((i % 10)) = 0 ] && sync
    done
    echo 0 >/sys/module/steadfast/parameters/fail_every
done
sync; umount /mnt; mount -t steadfast /dev/vda /mnt
echo "FAILURES $(cat /sys/module/steadfast/parameters/failed)"; good=0
for a in /acknowledged-*; do
    name=${a#/acknowledged-}; every=${name%-*}; i=${name#*-}; file=/mnt/$every/$i
    [ -e $file ] || file=/mnt/$every/n$i
    sum=$(head -c 30000 /dev/zero | tr "\\0" "$((i % 10))" | md5sum)
    [ "$sum" = "$(md5sum <$file)" ] && good=$((good + 1)) || echo "LOST $name"
done
echo "KEPT $good of $(ls -d /acknowledged-* | wc -l)"
umount /mnt && rmmod steadfast && echo UNLOADED'
said UNLOADED
[ "$(sed -n 's/^FAILURES //p' "$WORK/said")" -ge 100 ] || die "too few requests for memory failed"
! grep '^LOST' "$WORK/said" || die "a file is lost or wrong after a lack of memory"
check_volume "after a lack of memory"
kept=$(sed -n 's/^KEPT //p' "$WORK/said")
ok "memory for the core fails now and then: $kept acknowledged files are whole"

# The suite that FUSE mounts pass, with every optional operation of Linux. One check fails on every
# file system of this kernel: its BPF security module bypasses the rule that only root may set
# `security.` attributes.
make_volume 512M
run_machine 'insmod /modules/steadfast.ko stack=1
mount -t steadfast /dev/vda /mnt && mkdir -m 777 /mnt/suite
posix-suite /mnt/suite --require-all \
    --deviation=xattr/security-by-user-is-eperm-read-is-free >/suite
echo "SUITE $?"; grep -v "^ok" /suite
umount /mnt && echo UMOUNTED'
failures=$(sed -n '/^SUITE/,/^LOG/p' "$WORK/said" | grep -E '^(FAIL|skip)' || true)
[ -z "$failures" ] || die "the suite fails: $failures"
said 'SUITE 0'
said UMOUNTED
check_volume "after the suite"
ok "the POSIX suite: $(sed -n '/^SUITE/,/^UMOUNTED/p' "$WORK/said" | tail -n 2 | sed -n 1p)"
check_stack

# The caches of the core shrink: when the kernel is told to drop them, and where memory is short.
make_volume 512M
MACHINE_MIB=160
run_machine 'insmod /modules/steadfast.ko stack=1
pages=/sys/module/steadfast/parameters/given_back
mount -t steadfast -o noatime,cache=64M /dev/vda /mnt
for d in $(seq 40); do mkdir /mnt/$d; for f in $(seq 50); do echo "$d $f" >/mnt/$d/$f; done; done
umount /mnt; mount -t steadfast -o noatime,cache=64M /dev/vda /mnt
echo "FILES $(cat /mnt/*/* | sort -u | wc -l)"
before=$(cat $pages); echo 2 >/proc/sys/vm/drop_caches; echo "DROPPED $(($(cat $pages) - before))"
before=$(cat $pages); echo 2 >/proc/sys/vm/drop_caches; echo "LEFT $(($(cat $pages) - before))"
echo "FILES $(cat /mnt/*/* | sort -u | wc -l)"; before=$(cat $pages)
work memory /mnt; echo "MEMORY $?"; echo "PRESSED $(($(cat $pages) - before))"
echo "FILES $(cat /mnt/*/* | sort -u | wc -l)"; rm -r /mnt/*; echo "EMPTY $(ls /mnt)"
umount /mnt && rmmod steadfast && echo UNLOADED'
[ "$(grep -c '^FILES 2000$' "$WORK/said")" = 3 ] || die "files are missing while the caches shrink"
for word in 'MEMORY 0' 'EMPTY $' UNLOADED; do said "$word"; done
[ "$(sed -n 's/^DROPPED //p' "$WORK/said")" -ge 100 ] ||
    die "drop_caches leaves the caches of the core"
[ "$(sed -n 's/^LEFT //p' "$WORK/said")" -lt 100 ] || die "the first drop_caches has left much"
[ "$(sed -n 's/^PRESSED //p' "$WORK/said")" -ge 100 ] ||
    die "the caches do not shrink under pressure"
MACHINE_MIB=512
check_volume "after the caches have shrunk"
ok "caches shrink: $(sed -n 's/^DROPPED //p' "$WORK/said") pages at once," \
    "$(sed -n 's/^PRESSED //p' "$WORK/said") under pressure"
check_stack

# Far more data than the machine has memory, from several writers: pages are reclaimed all the time.
make_volume 512M
MACHINE_MIB=160
run_machine 'insmod /modules/steadfast.ko
mount -t steadfast /dev/vda /mnt
head -c 30000000 /dev/urandom >/mnt/a
for i in 1 2 3 4; do (cp /mnt/a /mnt/b$i; cp /mnt/b$i /mnt/c$i) & done; wait
sync; echo "SAME $(cat /mnt/* | wc -c) $(md5sum /mnt/* | cut -d" " -f1 | sort -u | wc -l)"
umount /mnt && echo UMOUNTED'
said 'SAME 270000000 1'
said UMOUNTED
MACHINE_MIB=512
check_volume "270 MB through a machine of 160 MiB"

# The same image by turns: here by FUSE, there by the module.
make_volume 64M
for round in 1 2 3; do
    mount_volume
    mkdir "$MNT/fuse-$round"
    head -c 300000 /dev/urandom >"$MNT/fuse-$round/file"
    (cd "$MNT" && md5sum */file >sums)
    umount_volume
    run_machine "insmod /modules/steadfast.ko
mount -t steadfast /dev/vda /mnt && cd /mnt && md5sum -c sums >/dev/null && echo SAME
mkdir module-$round && cp fuse-$round/file module-$round/file && echo more >>module-$round/file
md5sum */file >sums; cd /; umount /mnt && echo UMOUNTED"
    said SAME
    said UMOUNTED
    mount_volume
    (cd "$MNT" && md5sum --quiet -c sums) || die "what the module wrote is not what FUSE reads"
    umount_volume
done
check_volume "module and FUSE by turns"
ok "one image by turns with FUSE, three times"

# Power cuts: what fsync acknowledged is there, and what was removed before it is not.
make_volume 64M
mount_volume && mkdir "$MNT/load" && umount_volume
first=1
for round in $(seq "$(bounded 5 40)"); do
    begin_machine "insmod /modules/steadfast.ko
mount -t steadfast /dev/vda /mnt && work write /mnt/load $first"
    for _ in $(seq 300); do
        grep -q 'ACK' "$WORK/machine.log" && break
        sleep 0.2
    done
    sleep "$((RANDOM % 3)).$((RANDOM % 1000))"
    # timeout passes only some signals on, so its child is the one to kill.
    pkill -9 -P "$MACHINE" || die "the machine ended early: $(tail -n 5 "$WORK/machine.log")"
    wait "$MACHINE" 2>/dev/null || true
    # The last line may be cut off in the middle of its number.
    last=$(tr -d '\r' <"$WORK/machine.log" | sed '$d' | sed -n 's/.*ACK \([0-9]*\)$/\1/p' |
        tail -n 1)
    [ -n "$last" ] || die "round $round: nothing was acknowledged: $(tail -n 5 "$WORK/machine.log")"
    [ $((round % 2)) = 0 ] && check_volume "cut $round, before the mount"
    mount_volume
    # The machine may be ahead of what it has said. It removes file N - 50, then makes file N and
    # waits for fsync. So if N is there, those before it are whole, and N - 50 is gone.
    newest=$(find "$MNT/load" -name 'n*' -printf '%f\n' | sed 's/n//' | sort -n | tail -n 1)
    [ "${newest:-0}" -ge "$last" ] ||
        die "cut $round: file $last was acknowledged, the newest is ${newest:-none}"
    for n in $(seq $((newest > 49 ? newest - 48 : 1)) $((last == newest ? newest : newest - 1))); do
        [ "$(sort -u "$MNT/load/n$n" 2>/dev/null | tr -d ' ')" = "$n" ] &&
            [ "$(stat -c %s "$MNT/load/n$n")" = 12000 ] ||
            die "cut $round: file $n was acknowledged and is not there, or not whole" \
                "(newest $newest)"
    done
    for n in $(seq 1 $((newest - 50))); do
        [ ! -e "$MNT/load/n$n" ] || die "cut $round: file $n is back (newest $newest)"
    done
    umount_volume
    ok "cut $round: files up to $newest as they must be, $last acknowledged"
    first=$((newest + 1))
done
check_volume "after the cuts"

# A panic of the core: EIO for everybody, and the machine goes on. The image has the last point.
make_volume 64M
begin_machine 'insmod /modules/steadfast.ko selftest=1
mount -t steadfast /dev/vda /mnt && echo kept >/mnt/kept && sync
work panic /mnt; echo "PANIC $?"
umount /mnt && echo UMOUNTED; rmmod steadfast && echo UNLOADED'
wait "$MACHINE" || die "the machine did not end: $(tail -n 5 "$WORK/machine.log")"
tr -d '\r' <"$WORK/machine.log" >"$WORK/said"
for word in 'PANIC 0' UMOUNTED UNLOADED END; do said "$word"; done
grep -q 'internal error, the volume is out of use' "$WORK/said" ||
    die "the log does not name the panic"
mount_volume
[ "$(cat "$MNT/kept")" = kept ] || die "after the panic the last point is lost"
umount_volume
check_volume "after a panic"
ok "a panic of the core: EIO for everybody, and the machine goes on"

# Hostile images: damaged ones, most with right checksums. They may be refused, or give errors; the
# machine goes on, and the next image is mounted. A file may seem to be endless, and a directory to
# be its own ancestor, so what walks and reads is bounded. SEED chooses other images.
count=$(bounded 60 2000)
seed=${SEED:-7611}
images=${STEADFAST_BUILT:+$STEADFAST_BUILT/examples/hostile_images}
if [ -z "$images" ]; then
    (cd "$REPO" && cargo build --release -q -p steadfast-torture --example hostile_images) ||
        die "cargo build of the hostile images"
    images=${CARGO_TARGET_DIR:-$REPO/target}/release/examples/hostile_images
fi
"$images" "$WORK" "$count" "$seed" || die "the hostile images cannot be made"
make_volume 64M
rm -f "$IMAGE"
truncate -s "${count}M" "$IMAGE"
for i in $(seq 0 $((count - 1))); do
    dd if="$WORK/hostile-$((seed + i))" of="$IMAGE" bs=1M seek="$i" conv=notrunc status=none
    rm "$WORK/hostile-$((seed + i))"
done
run_machine "for m in loop steadfast; do insmod /modules/\$m.ko; done
i=0; mounted=0
while [ \$i -lt $count ]; do
    losetup -o \$((i * 1048576)) /dev/loop0 /dev/vda
    if mount -t steadfast /dev/loop0 /mnt 2>/dev/null; then
        mounted=\$((mounted + 1))
        timeout 3 ls -lR /mnt /mnt/.snapshots/ >/dev/null 2>&1
        timeout 3 find /mnt /mnt/.snapshots/ -type f -exec head -q -c 300000 {} + >/dev/null 2>&1
        echo new >/mnt/new; mkdir /mnt/d; timeout 3 rm -rf /mnt/*; sync; umount /mnt
    fi 2>/dev/null
    losetup -d /dev/loop0
    i=\$((i + 1))
done
echo \"HOSTILE \$i \$mounted\"
rmmod steadfast && echo UNLOADED"
said "HOSTILE $count"
said UNLOADED
! grep -q 'internal error' "$WORK/said" || die "a hostile image makes the core panic (seed $seed)"
mounted=$(sed -n 's/^HOSTILE [0-9]* //p' "$WORK/said")
ok "$count hostile images (seed $seed), $mounted of them mounted"

# What is no volume is refused, and the log says why.
head -c 64M /dev/urandom >"$IMAGE"
run_machine 'insmod /modules/steadfast.ko
mount -t steadfast /dev/vda /mnt 2>&1; echo "REFUSED $?"
mount -t steadfast -o timer=never /dev/vda /mnt 2>/dev/null || echo OPTION'
said OPTION
grep -q 'not a Steadfast volume' "$WORK/said" ||
    die "the log does not say why a foreign image is refused"
ok "a foreign image and a wrong option are refused"
finish
