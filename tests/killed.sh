#!/usr/bin/env bash
# The daemon is killed at random moments under a mixed load. Data that fsync confirmed exists,
# unconfirmed changes are a prefix, and `check` finds no damage. Then the other guarantees:
# transact, the transaction mask, and rollback of uncommitted changes.
source "$(dirname "$0")/lib.sh"
start killed
need python3
export PYTHONDONTWRITEBYTECODE=1

# On a device, written data may still be in the daemon's memory when it is killed.
make_device 4G || make_volume 4G
mount_volume
seed=${SEED:-$RANDOM}
say "seed $seed (set SEED to repeat the load)"
rounds=$(bounded 5 40)
mkdir "$MNT/load"
for round in $(seq "$rounds"); do
    notes=$WORK/notes-$round
    : >"$notes"
    seconds=$((2 + (seed + round) % 3))
    python3 "$TESTS/helpers/load.py" "$MNT/load" "$notes" "$(bounded 8 20)" "$seed-$round" \
        2>"$WORK/load.log" &
    load=$!
    own "$load"
    sleep "$seconds.$((RANDOM % 1000))"
    [ -d "/proc/$load" ] || die "the load ended early: $(cat "$WORK/load.log")"
    if plain; then kill "$load"; else kill_daemon; fi
    gone "$load" 60 || die "the load does not end"
    wait "$load" 2>/dev/null || true
    [ -s "$notes" ] || die "the load was promised nothing: $(cat "$WORK/load.log")"
    # In every second round the image is checked before any repair or replay.
    [ $((round % 2)) = 0 ] && check_volume "kill $round, before the mount"
    mount_volume
    result=$(timeout 600 python3 "$TESTS/helpers/load_verify.py" "$MNT/load" "$WORK"/notes-* \
        2>&1) ||
        die "kill $round: $result (seed $seed)"
    ok "kill $round: $result"
    if [ $((round % 4)) = 0 ]; then
        remount_volume
        timeout 600 python3 "$TESTS/helpers/load_verify.py" "$MNT/load" "$WORK"/notes-* \
            >"$WORK/verify.log" 2>&1 ||
            die "after a clean remount: $(cat "$WORK/verify.log")"
    fi
done

if plain; then
    finish
    exit 0
fi

# killed_and_back: kills the daemon, as a power cut would, and mounts again.
killed_and_back() {
    kill_daemon
    mount_volume
}

# Written without fsync; only the ioctl makes it durable (its number is _IO(0xd5, 1)).
head -c 3000000 /dev/urandom >"$WORK/random"
cp "$WORK/random" "$MNT/by-ioctl"
python3 -c '
import fcntl, os, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0xd501)' "$MNT" || die "the ioctl"
killed_and_back
cmp "$WORK/random" "$MNT/by-ioctl" || die "written, ioctl, killed: the bytes are not there"
ok "write, bare ioctl, kill: the bytes are there"

# The same by command, while the file stays open and mapped.
result=$(python3 - "$MNT/mapped" "$STEADFAST" "$MNT" <<'PY'
import mmap, os, subprocess, sys
path, steadfast, mount = sys.argv[1:]
descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
os.ftruncate(descriptor, 1 << 20)
view = mmap.mmap(descriptor, 1 << 20)
view[:] = b"m" * (1 << 20)
print(subprocess.run([steadfast, "transact", mount], timeout=60).returncode)
PY
) || die "transact with a mapped file: $result"
[ "$result" = 0 ] || die "transact failed: $result"
killed_and_back
[ "$(tr -d m <"$MNT/mapped" | wc -c)" = 0 ] && [ "$(stat -c %s "$MNT/mapped")" = 1048576 ] ||
    die "stored through a map, transact, killed: the bytes are not there"
ok "store through a map, steadfast transact, kill: the bytes are there"

# A manual mask: fsync makes nothing durable, and no later change survives.
"$STEADFAST" mask set "$MNT" manual
"$STEADFAST" transact "$MNT"
mkdir "$MNT/not-committed"
echo content >"$MNT/not-committed/file"
sync "$MNT/not-committed/file"
sleep 7
killed_and_back
[ ! -e "$MNT/not-committed" ] ||
    die "mask manual: something after the last transaction point came back"
ok "mask manual: nothing after the last transaction point, fsync or not"

# Several files change together or not at all.
"$STEADFAST" mask set "$MNT" manual
for round in $(seq "$(bounded 4 20)"); do
    for i in $(seq 10); do echo "version $round" >"$MNT/together-$i"; done
    "$STEADFAST" transact "$MNT"
    for i in $(seq $((RANDOM % 10))); do
        echo "half of version $((round + 1))" >"$MNT/together-$i"
    done
    killed_and_back
    for i in $(seq 10); do
        [ "$(cat "$MNT/together-$i")" = "version $round" ] ||
            die "file $i holds '$(cat "$MNT/together-$i")', the transaction was version $round"
    done
    "$STEADFAST" mask set "$MNT" manual
done
ok "ten files change together"

"$STEADFAST" mask set "$MNT" default
echo again >"$MNT/again"
sync "$MNT/again"
killed_and_back
[ "$(cat "$MNT/again")" = again ] || die "mask default: fsync'd file is gone"
ok "mask default again: fsync counts"

umount_volume
check_volume
finish
