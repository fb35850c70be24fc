#!/usr/bin/env bash
# Time to mount, from the command to a usable mount. The cases are empty and full, small and large,
# few files and many, after a clean unmount and after kill -9. The time must not grow with any of
# these.
source "$(dirname "$0")/lib.sh"
start mounttime
need python3
plain && skip_all "there is nothing to mount"
export PYTHONDONTWRITEBYTECODE=1

many=$(bounded 20000 1000000)
small=$(bounded 256M 1G)
worst=0
empty=

# The best of three, after a clean unmount. The host's cache of the image is left as it is, because
# reading the image again would measure the disk.
time_clean() {
    local i best=
    for i in 1 2 3; do
        umount_volume
        mount_volume
        if [ -z "$best" ] || [ "$MOUNT_MS" -lt "$best" ]; then best=$MOUNT_MS; fi
    done
    CLEAN=$best
}

# The best of three, each after a kill with some work in the intent log.
time_killed() {
    local i best=
    for i in 1 2 3; do
        for n in $(seq 200); do echo "$i" >"$MNT/unsynced-$n" 2>/dev/null || true; done
        sync "$MNT" 2>/dev/null || true
        for n in $(seq 200); do rm -f "$MNT/unsynced-$n"; done
        kill_daemon
        mount_volume
        if [ -z "$best" ] || [ "$MOUNT_MS" -lt "$best" ]; then best=$MOUNT_MS; fi
    done
    KILLED=$best
}

row() {
    time_clean
    time_killed
    printf '%s: %-44s %6s ms clean %6s ms after kill -9\n' "$NAME" "$1" "$CLEAN" "$KILLED"
    [ -n "$empty" ] || empty=$CLEAN
    [ "$CLEAN" -le "$worst" ] || worst=$CLEAN
    [ "$KILLED" -le "$worst" ] || worst=$KILLED
}

make_volume "$small"
mount_volume
row "$small, empty"
mkdir "$MNT/fill"
filled=$(timeout 900 python3 "$TESTS/helpers/fill.py" "$MNT/fill" synced 2048 2>&1) ||
    die "filling: $filled"
row "$small, full ($(df --output=pcent "$MNT" | tail -n 1 | tr -d ' '))"
umount_volume
check_volume "full volume"

make_volume 64G
mount_volume
row "64G sparse, empty"
begin=$(now_ms)
python3 "$TESTS/helpers/make_files.py" "$MNT/many" "$many" 100 || die "making $many files"
say "$many files made in $(($(now_ms) - begin)) ms"
row "64G sparse, $many files"
dd if=/dev/zero of="$MNT/large" bs=1M count="$(bounded 512 8192)" status=none ||
    die "writing a large file"
row "64G sparse, $many files and $(bounded 512M 8G) of data"
umount_volume
check_volume "$many files"

# Generous for busy machines: growth with size would amount to seconds.
limit=$((empty * 4 + 500))
[ "$worst" -le "$limit" ] || die "the slowest mount took $worst ms, an empty one $empty ms"
ok "the slowest mount took $worst ms, an empty one $empty ms"
finish
