#!/usr/bin/env bash
# Mounts with a limit on the number of threads (the pids controller of a cgroup). Each mount either
# fails with one line and leaves no mount behind, or works with the minimum of threads and ends at a
# signal. A mount that fails changes nothing: the timer of the volume stays.
source "$(dirname "$0")/lib.sh"
plain && skip_all "nothing to do with $TARGET_DIR"
for parent in /sys/fs/cgroup/pids /sys/fs/cgroup; do
    group=$parent/steadfast-threads-$$
    mkdir "$group" 2>/dev/null || continue
    # On a machine with a single hierarchy the controller may not be available to this script.
    [ -w "$group/pids.max" ] && break
    rmdir "$group"
    group=
done
[ -n "$group" ] && [ -d "$group" ] ||
    skip_all "no cgroup with a limit of processes here: run it as root"
start threads
trap 'status=$?; set +e; end_daemon; rmdir "$group"; (exit "$status"); cleanup' EXIT
end_daemon() {
    [ -n "$DAEMON" ] || return 0
    kill -9 "$DAEMON" 2>/dev/null
    gone "$DAEMON" 10
}

make_volume 64M
refused=0 served=0
timer() { "$STEADFAST" mask get "$IMAGE" | sed -n 's/^timer *//p'; }
for most in 3 5 6 7 8 9 10 12 40; do
    echo "$most" >"$group/pids.max"
    "$STEADFAST" mask set --timer 5s "$IMAGE"
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec "$STEADFAST" mount --foreground -o timer=7s "$IMAGE" "$MNT"
    ) >"$WORK/daemon.log" 2>&1 &
    DAEMON=$!
    own "$DAEMON"
    deadline=$(($(date +%s) + 30))
    until grep -q "mounted $IMAGE" "$WORK/daemon.log" || gone "$DAEMON" 0; do
        [ "$(date +%s)" -lt "$deadline" ] || die "neither mounted nor refused with $most"
        sleep 0.05
    done
    if mountpoint -q "$MNT" && [ -d "/proc/$DAEMON" ]; then
        served=$((served + 1))
        threads=$(cat "/proc/$DAEMON"/task/*/comm)
        for thread in steadfast-bg signals steadfast-0 steadfast-1; do
            grep -qx "$thread" <<<"$threads" ||
                die "no thread $thread with $most: $(tr '\n' ' ' <<<"$threads")"
        done
        timeout 20 dd if=/dev/zero of="$MNT/file" bs=64k count=16 conv=fsync status=none ||
            die "no write with $most"
        kill -TERM "$DAEMON"
        gone "$DAEMON" 20 || die "a signal does not end the mount with $most"
        [ "$(timer)" = "7 s" ] || die "the timer is $(timer) after a mount with $most"
    else
        refused=$((refused + 1))
        grep -q "too few threads" "$WORK/daemon.log" ||
            die "refused without saying why: $(cat "$WORK/daemon.log")"
        [ "$(timer)" = "5 s" ] || die "a refused mount with $most left the timer $(timer)"
    fi
    DAEMON=
    ! grep -q " $MNT " /proc/self/mounts || die "a mount is left behind with $most"
done
[ "$refused" -gt 0 ] && [ "$served" -gt 0 ] ||
    die "$refused refused, $served served: the limit was not there"
ok "$refused mounts refused and none left behind, $served served"
check_volume "after all of them"
finish
