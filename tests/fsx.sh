#!/usr/bin/env bash
# fsx: random reads, writes, maps, truncations, holes and copies of one file, compared with a model.
# In full 1,000,000 operations. FSX names the program; otherwise the one of crates.io is installed
# below target/tools.
source "$(dirname "$0")/lib.sh"
start fsx

FSX=${FSX:-$REPO/target/tools/bin/fsx}
if [ ! -x "$FSX" ]; then
    need cargo
    say "installing fsx"
    CARGO_TARGET_DIR=$WORK/fsx-build cargo install fsx --version 0.3.2 --locked --debug \
        --root "$REPO/target/tools" >"$WORK/install.log" 2>&1 ||
        skip_all "fsx cannot be installed: $(tail -n 1 "$WORK/install.log")"
fi

make_volume 1G
mount_volume

# config FILE-LENGTH LARGEST-OPERATION ALIGNMENT WEIGHT-OF-POSIX-FALLOCATE
#
# When fsx aligns posix_fallocate, it requests ranges of length zero, which are EINVAL by the
# standard.
config() {
    cat >"$WORK/fsx.toml" <<TOML
flen = $1
[opsize]
min = 1
max = $2
align = $3
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 3
fsync = 0.2
fdatasync = 0.2
posix_fallocate = $4
punch_hole = 3
sendfile = 1
posix_fadvise = 1
copy_file_range = 3
TOML
}

# The program never unmaps its maps and becomes slower with time. So long runs are split into pieces
# of this many operations.
PIECE=20000

# exercise NAME OPERATIONS SEED: piece n has the seed SEED + 100 n.
exercise() {
    local name=$1 left=$2 seed=$3 count
    mkdir -p "$WORK/artifacts"
    while [ "$left" -gt 0 ]; do
        count=$((left < PIECE ? left : PIECE))
        (cd "$WORK" && timeout 1800 "$FSX" -q -f "$WORK/fsx.toml" -N "$count" -S "$seed" \
            -P "$WORK/artifacts" "$MNT/$name") \
            >"$WORK/fsx.log" 2>&1 || die "$name, seed $seed: $(tail -n 40 "$WORK/fsx.log")"
        rm -f "$MNT/$name"
        left=$((left - count))
        seed=$((seed + 100))
    done
    ok "$name: $2 operations from seed $3 on"
}

seed=${SEED:-20261121}
config 262144 65536 1 2
exercise mixed "$(bounded 40000 1000000)" "$seed"
config 4096 1024 1 2
exercise small-file "$(bounded 15000 200000)" "$((seed + 1))"
config 8388608 1048576 1 2
exercise large-file "$(bounded 2000 50000)" "$((seed + 2))"
config 262144 65536 4096 0
exercise aligned "$(bounded 10000 200000)" "$((seed + 3))"

umount_volume
check_volume

if ! plain && make_device 1G; then
    mount_volume
    config 8388608 1048576 1 2
    exercise large-file-on-a-device "$(bounded 2000 50000)" "$((seed + 4))"
    config 262144 65536 1 2
    exercise mixed-on-a-device "$(bounded 10000 200000)" "$((seed + 5))"
    umount_volume
    check_volume "device"
elif ! plain; then
    say "no loop device to be had: nothing was tried on a device"
fi
finish
