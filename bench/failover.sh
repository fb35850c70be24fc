#!/usr/bin/env bash
# How long a volume in RADOS is away when its owner is killed or stopped, with etcd and Ceph (one
# monitor, one OSD) on this machine. Two nodes own it in turn. Each round the owner makes files,
# each one durable, until it is gone; the time runs from then until the other node shows the last
# one. A file that was synced and is not there ends the script with a failure.
#
#   ROUNDS   takeovers; every second one is a stop instead of a kill (default 20)
source "$(dirname "${BASH_SOURCE[0]}")/../tests/lib.sh"
NAME=failover
need etcd ceph-mon ceph-osd ceph ceph-authtool monmaptool rados
start failover
source "$REPO/scripts/services.sh"
trap 'status=$?
    set +e
    kill -9 $(jobs -p) 2>/dev/null
    umount -l "$WORK/a" "$WORK/b" 2>/dev/null
    (exit "$status")
    cleanup' EXIT

rounds=${ROUNDS:-20}
start_ceph
start_etcd
volume=cluster://127.0.0.1:$ETCD_PORT/home
"$STEADFAST" mkfs --quiet --size 512M rados://pool/disk
"$STEADFAST" cluster create --standby "$volume" rados://pool/disk >/dev/null
mkdir "$WORK/a" "$WORK/b"

# node NAME: mounts or stands by, as a machine of its own. PID is its process.
node() {
    unshare --uts sh -c 'hostname "$1" && shift && exec "$@"' sh "$1" \
        "$STEADFAST" mount -f "$volume?node=$1" "$WORK/$1" >>"$WORK/$1.log" 2>&1 &
    PID=$!
    own $!
}
wait_for() { # WHAT COMMAND...
    local what=$1 try
    shift
    for try in $(seq 3000); do
        ! "$@" || return 0
        sleep 0.01
    done
    die "waited in vain for $what ($try): $(tail -n 3 "$WORK"/?.log)"
}
stands_by() {
    "$STEADFAST" cluster status --json "$volume" | grep -A 1 '"nodes"' -A 20 |
        says "\"name\": \"$1\""
}

owner=a other=b
node "$owner"
owner_pid=$PID
wait_for "the first mount" mountpoint -q "$WORK/$owner"
times=()
for round in $(seq "$rounds"); do
    node "$other"
    other_pid=$PID
    wait_for "node $other to stand by" stands_by "$other"
    : >"$WORK/synced"
    (
        for number in $(seq 1000000); do
            echo "$round.$number" >"$WORK/$owner/f" && sync "$WORK/$owner/f" || exit 0
            mv "$WORK/$owner/f" "$WORK/$owner/last" && sync "$WORK/$owner" &&
                echo "$round.$number" >"$WORK/synced"
        done
    ) 2>/dev/null &
    writer=$!
    wait_for "the first synced file" test -s "$WORK/synced"
    sleep "0.$((RANDOM % 8 + 2))"
    begin=$(now_ms)
    if [ $((round % 2)) -eq 0 ]; then kill -STOP "$owner_pid"; else kill -9 "$owner_pid"; fi
    wait_for "node $other" test -e "$WORK/$other/last"
    times+=($(($(now_ms) - begin)))
    kill -9 "$owner_pid" "$writer" 2>/dev/null || true
    wait "$owner_pid" "$writer" 2>/dev/null || true
    # Not before the writer has ended, which would go on in the directory below.
    umount -l "$WORK/$owner" 2>/dev/null || true
    synced=$(cat "$WORK/synced") found=$(cat "$WORK/$other/last")
    if [ -n "$synced" ] &&
        { [ "${found%.*}" != "$round" ] || [ "${found#*.}" -lt "${synced#*.}" ]; }; then
        die "round $round: $synced was synced, $found is there"
    fi
    owner=$other owner_pid=$other_pid
    if [ "$owner" = a ]; then other=b; else other=a; fi
done
timeout 60 "$STEADFAST" umount "$WORK/$owner" >/dev/null
"$STEADFAST" check rados://pool/disk >/dev/null || die "check finds something"
mapfile -t sorted < <(printf '%s\n' "${times[@]}" | sort -n)
echo "takeovers: $rounds, of a killed and a stopped owner in turn; nothing that was synced is lost"
echo "away, ms: least ${sorted[0]}, median ${sorted[$((rounds / 2))]}, longest ${sorted[-1]}"
