#!/usr/bin/env bash
# A full volume. ENOSPC is returned early, before any partial change. Delete, truncate, commit and
# rollback still work, and each time all space is freed. A kill on a full volume does no damage.
source "$(dirname "$0")/lib.sh"
start full
need python3
export PYTHONDONTWRITEBYTECODE=1
plain && say "TARGET_DIR should be on a file system of about 64 MiB"

make_volume 64M
mount_volume

free_kib() { df --output=avail -k "$MNT" | tail -n 1 | tr -d ' '; }

# Freed space becomes available after the next durable checkpoint. A commit or two and some
# background work cause one.
settle() {
    local i
    for i in $(seq 100); do
        plain || timeout 60 "$STEADFAST" transact "$MNT" ||
            die "transact: it must work on a full volume"
        [ "$(free_kib)" -lt "$1" ] || return 0
        sleep 0.1
    done
    die "$2: $(free_kib) KiB are free, it was $1"
}

fill() {
    local result
    result=$(timeout 300 python3 "$TESTS/helpers/fill.py" "$MNT" "$@" 2>&1) || {
        # A store into a map that cannot get a block may also raise SIGBUS.
        if [ $? = 135 ] && [ "$1" = mapped ]; then result="SIGBUS"; else die "fill $1: $result"; fi
    }
    ok "$1: ENOSPC after $result"
}

mkdir "$MNT/kept"
for i in $(seq 20); do head -c 20000 /dev/urandom >"$MNT/kept/$i"; done
# All files except the first, which is truncated on the full volume.
(cd "$MNT/kept" && sha256sum ./* | grep -v ' ./1$') >"$WORK/rest.list"
sync "$MNT"
start_kib=$(free_kib)
say "$start_kib KiB free"
floor=$((start_kib * 9 / 10))

for method in synced files names mapped buffered; do
    fill "$method" 512
    # On the full volume:
    truncate -s 100 "$MNT/$method" 2>/dev/null || [ ! -f "$MNT/$method" ] ||
        die "truncate on a full volume"
    : >"$MNT/kept/1" || die "open with O_TRUNC on a full volume"
    rm -rf "${MNT:?}/$method" || die "rm on a full volume"
    settle "$floor" "after $method"
    head -c 20000 /dev/urandom >"$MNT/kept/1"
    (cd "$MNT/kept" && sha256sum --quiet -c "$WORK/rest.list") ||
        die "a file that had nothing to do with it changed"
    ok "$method: removed, $(free_kib) KiB free again"
done

# More than the free space in one piece: nothing changes.
before=$(free_kib)
fallocate -l 1G "$MNT/too-large" 2>/dev/null && die "1 GiB was allocated on 64 MiB"
[ "$(stat -c %s "$MNT/too-large" 2>/dev/null || echo 0)" = 0 ] ||
    die "a failed allocation changed the size"
rm -f "$MNT/too-large"
settle "$((before - 1024))" "after a refused allocation"
ok "an allocation of more than there is changes nothing"

if ! plain; then
    # Killed while the volume is full.
    fill synced 512
    kill_daemon
    check_volume "full and killed"
    mount_volume
    rm "$MNT/synced" || die "rm on a full volume after a kill"
    settle "$floor" "after a kill"
    ok "killed while full: mounts, removes, $(free_kib) KiB free again"

    # Rollback on a full volume.
    "$STEADFAST" mask set "$MNT" manual
    "$STEADFAST" transact "$MNT"
    timeout 300 python3 "$TESTS/helpers/fill.py" "$MNT" files 512 >"$WORK/fill.log" 2>&1 ||
        die "filling within a transaction: $(cat "$WORK/fill.log")"
    timeout 60 "$STEADFAST" rollback "$MNT" || die "rollback on a full volume"
    [ ! -e "$MNT/files" ] || die "rolled back, but the files are there"
    "$STEADFAST" mask set "$MNT" default
    settle "$floor" "after a rollback"
    ok "rollback on a full volume, $(free_kib) KiB free again"

    # A leak would become visible after some rounds.
    for round in $(seq "$(bounded 5 50)"); do
        fill synced 512 >/dev/null
        rm "$MNT/synced"
        settle "$floor" "round $round"
    done
    ok "no space is lost over many rounds"

    # Each command that says what is durable tells of stores into a mapping that found no space.
    python3 - "$MNT" <<'P' || die "stores into a mapping"
import errno, mmap, os, sys
size = 8 << 20
hole = os.open(f"{sys.argv[1]}/hole", os.O_RDWR | os.O_CREAT)
os.ftruncate(hole, size)
filler = os.open(f"{sys.argv[1]}/filler", os.O_WRONLY | os.O_CREAT)
for chunk in (1 << 16, 4096):
    try:
        while True:
            os.write(filler, os.urandom(chunk))
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
with mmap.mmap(hole, size) as mapped:
    for page in range(0, size, 4096):
        mapped[page] = 1
P
    refused "a transaction point is set, but" "$STEADFAST" transact "$MNT"
    "$STEADFAST" transact "$MNT" || die "transact tells of the same loss twice"
    exec 9<"$MNT/hole"
    refused "that programs had written could not be stored" "$STEADFAST" umount "$MNT"
    exec 9<&-
    refused "that programs had written could not be stored" "$STEADFAST" umount "$MNT"
    mount_volume
    rm "$MNT/hole" "$MNT/filler"
    settle "$floor" "after lost stores"
    ok "transact and umount tell what a mapping has lost"
fi

(cd "$MNT/kept" && sha256sum --quiet -c "$WORK/rest.list") ||
    die "a file that had nothing to do with it changed"
umount_volume
check_volume
finish
