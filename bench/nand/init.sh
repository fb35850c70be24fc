#!/bin/busybox sh
# What runs as process 1 in the guest of bench/nand.sh. The kernel's command line says what to do
# (nand.do=..., nand.fs=...). Results are lines `RESULT name value` on the serial console; the last
# line is `DONE` or `FAILED why`.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tracefs trace /sys/kernel/tracing
mkdir -p /mnt /tmp /out
mount -t tmpfs tmp /tmp
mount -t tmpfs out /out
exec </dev/console >/dev/console 2>&1
# The kernel's own lines would be in the middle of ours.
dmesg -n 1

option() { tr ' ' '\n' </proc/cmdline | sed -n "s/^nand\\.$1=//p"; }
what=$(option do)
fs=$(option fs)
blocks=$(option blocks)

fail() {
    dmesg | tail -n 5
    echo "FAILED $*"
    poweroff -f
}
result() { echo "RESULT $*"; }

# The order matters: a module that needs a symbol comes after the one that has it.
modules() {
    for module in "$@"; do
        modprobe "$module" || fail "no kernel module $module"
    done
}

# Counts page reads, programs, erasures and the bytes moved in both directions at the functions of
# the kernel's NAND layer that every file system goes through.
probe_start() {
    cd /sys/kernel/tracing || fail "no tracefs"
    {
        echo 'p:read nand_read_page_op'
        echo 'p:program nand_prog_page_op'
        echo 'p:program_end nand_prog_page_end_op'
        echo 'p:erase nand_erase_op'
        echo 'p:data_in nand_read_data_op length=%dx:u32'
        echo 'p:read_length nand_read_page_op length=%r8:u32'
    } >kprobe_events || fail "no kprobes on the NAND layer"
    for event in data_in read_length; do
        echo 'hist:keys=length' >events/kprobes/$event/trigger || fail "no histograms"
    done
    echo 1 >events/kprobes/enable
    cd /
}
# reads programs erasures bytes read, since the boot
probe() {
    awk '{ n[$1] = $2 }
        END { printf "%d %d %d ", n["read"], n["program"] + n["program_end"], n["erase"] }' \
        /sys/kernel/tracing/kprobe_profile
    cat /sys/kernel/tracing/events/kprobes/data_in/hist \
        /sys/kernel/tracing/events/kprobes/read_length/hist |
        awk '/length:/ {
                 gsub(/[{},:]/, " ")
                 for (i = 1; i <= NF; i++) {
                     if ($i == "length") l = $(i + 1)
                     if ($i == "hitcount") c = $(i + 1)
                 }
                 sum += l * c
             }
             END { printf "%d\n", sum }'
}
busy() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8, $5 + $6 }' /proc/stat; }
now() { awk '{ print $1 * 1000 }' /proc/uptime; }

# measure NAME COMMAND...: wall time, what reached the NAND, and the load of the processor while the
# command ran.
measure() {
    local name=$1 before after start cpu
    shift
    before=$(probe)
    cpu=$(busy)
    start=$(now)
    "$@" || fail "$name: $*"
    echo "$before $(probe) $start $(now) $cpu $(busy)" | awk -v name="$name" '{
        reads = $5 - $1; programs = $6 - $2; erases = $7 - $3; bytes = $8 - $4
        busy = $13 - $11; idle = $14 - $12
        model = reads * 25 + bytes * 0.03 + programs * (200 + 2112 * 0.03) + erases * 2000
        load = busy + idle ? 100 * busy / (busy + idle) : 0
        printf "RESULT %s.reads %d\n", name, reads
        printf "RESULT %s.programs %d\n", name, programs
        printf "RESULT %s.erases %d\n", name, erases
        printf "RESULT %s.model_ms %.1f\n", name, model / 1000
        printf "RESULT %s.wall_ms %.0f\n", name, $10 - $9
        printf "RESULT %s.cpu_percent %.0f\n", name, load
    }'
}

format() {
    case $fs in
    jffs2) : ;; # an erased part is an empty volume
    ubifs)
        ubiformat -q -y /dev/mtd0 && ubiattach -p /dev/mtd0 >/dev/null &&
            ubimkvol /dev/ubi0 -N v -m >/dev/null && ubidetach -p /dev/mtd0
        ;;
    steadfast) steadfast mkfs --force /dev/mtd0 ;;
    esac
}
# attach_and_mount [OPTIONS]
attach_and_mount() {
    case $fs in
    jffs2) mount -t jffs2 ${1:+-o "$1"} mtd0 /mnt ;;
    ubifs) ubiattach -p /dev/mtd0 >/dev/null && mount -t ubifs ${1:+-o "$1"} ubi0:v /mnt ;;
    steadfast) steadfast mount ${1:+-o "$1"} /dev/mtd0 /mnt ;;
    esac
}
detach() {
    case $fs in
    steadfast) steadfast umount /mnt ;;
    ubifs) umount /mnt && ubidetach -p /dev/mtd0 ;;
    *) umount /mnt ;;
    esac
}
# The options that make each of B4's behaviours, where the file system has it: name=options.
modes() {
    case $fs in
    jffs2) echo "background= synchronous=sync" ;; # writes through always
    ubifs) echo "asynchronous= synchronous=sync" ;;
    steadfast) echo "asynchronous=asynchronous background=background synchronous=synchronous" ;;
    esac
}
cold() { sync; echo 3 >/proc/sys/vm/drop_caches; }

# What must be refused in one line that has these words, with nothing written.
refused() {
    local words=$1 said
    shift
    said=$("$@" 2>&1) && fail "was not refused: $*"
    case $said in
    *"$words"*) echo "refused: $said" ;;
    *) fail "refused with other words: $said" ;;
    esac
}
refusals() {
    refused "no flash volume found" steadfast mount /dev/mtd0 /mnt
    # A volume of UBI, while it is in use and after.
    ubiformat -q -y /dev/mtd0 && ubiattach -p /dev/mtd0 >/dev/null || fail "UBI"
    refused "in use by UBI" steadfast mkfs --force /dev/mtd0
    ubidetach -p /dev/mtd0
    refused "no flash volume found" steadfast check /dev/mtd0
    steadfast mkfs --force /dev/mtd0 || fail "mkfs --force"
    steadfast mount /dev/mtd0 /mnt || fail "mount"
    refused "in use by process" steadfast mkfs --force /dev/mtd0
    steadfast umount /mnt
    refused "already holds a Steadfast volume" steadfast mkfs /dev/mtd0
}

work() {
    [ "$fs" != steadfast ] || refusals
    format || fail "format"
    measure mount_empty attach_and_mount
    detach || fail "unmount"
    for mode in $(modes); do
        name=${mode%%=*}
        attach_and_mount "${mode#*=}" || fail "mount -o ${mode#*=}"
        measure "$name.write" flash_load write /mnt/w 4
        cold
        measure "$name.read" flash_load read /mnt/w 4
        measure "$name.fileops" flash_load fileops /mnt/o 100
        rm -rf /mnt/w /mnt/o
        detach || fail "unmount"
    done
    attach_and_mount || fail "mount"
    measure fill flash_load fill /mnt
    df -k /mnt | awk 'NR == 2 { print "RESULT full_kib " $3 }'
    detach || fail "unmount of the full volume"
    measure mount_full attach_and_mount
    measure room flash_load make-room /mnt
    cold
    measure overwrites flash_load overwrite /mnt 200
    # The steady state: garbage collection has been everywhere before it is measured.
    measure random_begin flash_load random /mnt 0 16000
    measure random flash_load random /mnt 16000 4000
    detach || fail "unmount"
    attach_and_mount || fail "mount"
    # The power fails at some moment of this.
    flash_load overwrite /mnt 100000 >/tmp/acknowledged 2>&1 &
    sleep 5
    cut
}

# What the NAND holds at one moment, to the disk of the host; the host ends the guest when it is
# told.
#
# With one processor, in real-time class and without anything to wait for, the dump is not
# interrupted by anybody, threads of the kernel included: the copy is that of one moment between two
# NAND operations.
cut() {
    echo -1 >/proc/sys/kernel/sched_rt_runtime_us
    chrt -f 99 sh -c 'sed -n "s/^acknowledged //p" /tmp/acknowledged | tail -n 1 >/tmp/last
        exec nanddump -q -n -o --bb=dumpbad -f /out/nand /dev/mtd0' || fail "nanddump"
    result "cut.acknowledged $(cat /tmp/last)"
    dd if=/out/nand of=/dev/vda bs=1M conv=fsync 2>/dev/null || fail "cannot save the NAND"
    echo CUT
    sleep 1000
}

after() {
    dd if=/dev/vda of=/out/nand bs=2112 count=$((blocks * 64)) 2>/dev/null ||
        fail "cannot read the saved NAND"
    nandwrite -q -n -o -N -k /dev/mtd0 /out/nand || fail "nandwrite"
    rm /out/nand
    measure mount_after_cut attach_and_mount
    measure verify flash_load verify /mnt
    measure first_write flash_load overwrite /mnt 1
    detach || fail "unmount"
}

modules virtio_pci virtio_blk mtd bch nandcore nand
modules nandsim crc16 zstd_compress zstd
case $fs in
jffs2) modules jffs2 ;;
ubifs) modules ubi ubifs ;;
steadfast) modules fuse ubi ;;
esac
probe_start
case $what in
work | after) $what ;;
*) fail "nand.do=$what" ;;
esac
echo DONE
poweroff -f
