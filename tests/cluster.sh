#!/usr/bin/env bash
# A volume with one owner among several nodes, with a real etcd: the others stand by, and take over
# when the owner is killed, stopped, evicted or asked to. What was synced is there each time. The
# medium is an image file, so a command fences. tests/rados.sh has the same with fencing by Ceph.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=cluster
plain && skip_all "this is about volumes of a cluster"
need etcd
start cluster
source "$REPO/scripts/services.sh"

# kept_out WORDS: a mount of node b stands by, and its last line has these words.
kept_out() {
    mkdir -p "$WORK/b"
    if timeout 60 "$STEADFAST" mount "$VOLUME?node=b" "$WORK/b" >"$WORK/said" 2>&1; then
        die "node b mounts"
    fi
    tail -n 1 "$WORK/said" | says -F -- "$1" || die "'$1' is not in: $(cat "$WORK/said")"
}

NODES="a b"
source "$TESTS/helpers/nodes.sh"

start_etcd
VOLUME=cluster://127.0.0.1:$ETCD_PORT/home
"$STEADFAST" mkfs --quiet --size 256M "$IMAGE"
mkdir "$WORK/copies"

refused "etcd does not answer" "$STEADFAST" cluster status cluster://127.0.0.1:1/home
refused "the name of the volume is missing" "$STEADFAST" cluster status cluster://127.0.0.1
refused "etcd knows no volume 'home'" "$STEADFAST" mount "$VOLUME" "$MNT"
refused "does not refuse the requests of an earlier owner" "$STEADFAST" cluster create "$VOLUME" \
    "$IMAGE"
refused "no such image" "$STEADFAST" cluster create --fence true "$VOLUME" "$WORK/none"
# The command ends the process of a node, and waits until it is gone.
FENCE='kill -9 "$STEADFAST_PROCESS" 2>/dev/null
    while [ -e "/proc/$STEADFAST_PROCESS/exe" ]; do sleep 0.02; done
    echo "$STEADFAST_NODE" >>'"$WORK/fenced"
"$STEADFAST" cluster create --standby --fence "$FENCE" "$VOLUME" "$IMAGE" >/dev/null
refused "there is a volume 'home' in the cluster already" "$STEADFAST" cluster create --fence true \
    "$VOLUME" "$IMAGE"
refused "can only be mounted" "$STEADFAST" info "$VOLUME"
refused "cannot be mounted read-only" "$STEADFAST" mount -o ro "$VOLUME" "$MNT"
refused "no node owns the volume" "$STEADFAST" cluster handover "$VOLUME"
ok "what cannot be is said in one line"

# The first node owns the volume, the second stands by. The owner is killed.
"$STEADFAST" mount "$IMAGE" "$MNT" && touch "$MNT/probe" && "$STEADFAST" umount "$MNT"
node_start a
owns a
node_start b
stands_by b
[ "$(status "d['owner']['name'], d['serves'], d['beats'], d['epoch']")" = "a True True 1" ] ||
    die "the status is wrong: $("$STEADFAST" cluster status "$VOLUME")"
kept_out "a node 'b' takes part already"
refused "node a (process" "$STEADFAST" cluster remove "$VOLUME"
for number in $(seq 20); do synced a "$number"; done
kill -9 "${PIDS[a]}"
owns b
ends a
all_there b "a killed owner"
[ "$(cat "$WORK/fenced")" = a ] || die "the killed owner was not fenced"
ok "a killed owner: the other node serves after $TOOK ms"

# A stopped owner is fenced before the next one reads anything.
node_start a
stands_by a
synced b 21
kill -STOP "${PIDS[b]}"
owns a
all_there a "a stopped owner"
ends b
ok "a stopped owner: the other node serves after $TOOK ms"

# A handover loses nothing, synced or not.
node_start b
stands_by b
synced a 22
echo kept >"$WORK/a/accepted"
refused "no node 'c' stands by" "$STEADFAST" cluster handover --to c "$VOLUME"
"$STEADFAST" cluster handover --to b "$VOLUME" >/dev/null
owns b
all_there b "a handover"
[ "$(cat "$WORK/b/accepted")" = kept ] || die "a handover lost what was accepted"
ends a
[ "$STATUS" -eq 0 ] || die "the old owner ends with $STATUS: $(tail -n 3 "$WORK/a.log")"
[ "$(wc -l <"$WORK/fenced")" -eq 2 ] || die "a handover fenced: $(cat "$WORK/fenced")"
ok "a handover: the other node serves after $TOOK ms"

# Without etcd the owner serves on, and nothing takes over when etcd is back.
node_start a
stands_by a
epoch=$(status "d['epoch']")
kill_etcd
for number in $(seq 30 40); do
    synced b "$number"
    sleep 0.2
done
restart_etcd
sleep 2
[ "$(status "d['owner']['name'], d['epoch'], d['beats']")" = "b $epoch True" ] ||
    die "an outage of etcd made another owner: $("$STEADFAST" cluster status "$VOLUME")"
grep -q "etcd does not answer" "$WORK/b.log" || die "the owner does not say that etcd is away"
ok "an outage of etcd changes nothing"

# An evicted owner ends, and says by what.
stands_by a
"$STEADFAST" cluster evict "$VOLUME" >/dev/null
owns a
all_there a "an eviction"
ends b
[ "$STATUS" -ne 0 ] || die "an evicted owner ends with success"
ok "an evicted owner ends, and the other node serves"

# A medium that is open outside the cluster is in use, and that leaves no node to fence.
umount_here() { timeout 60 "$STEADFAST" umount "$WORK/$1"; }
umount_here a
ends a
"$STEADFAST" mount "$IMAGE" "$MNT"
kept_out "in use"
kept_out "in use"
[ "$(status "d['unfenced']")" = "[]" ] ||
    die "the list grows: $("$STEADFAST" cluster status "$VOLUME")"
timeout 60 "$STEADFAST" umount "$MNT" >/dev/null
ok "a medium that is open outside the cluster is in use"

# Without the fence there is no owner.
"$STEADFAST" cluster remove "$VOLUME" >/dev/null
"$STEADFAST" cluster create --standby --fence 'exit 3' "$VOLUME" "$IMAGE" >/dev/null
node_start a
owns a
kill -9 "${PIDS[a]}"
ends a
kept_out "cannot be fenced"
kept_out "cannot be fenced"
[ "$(status "[n['name'] for n in d['unfenced']]")" = "['a']" ] ||
    die "the list grows: $("$STEADFAST" cluster status "$VOLUME")"
"$STEADFAST" cluster evict --fenced "$VOLUME" >/dev/null
"$STEADFAST" mount --log "$WORK/daemon.log" "$VOLUME?node=b" "$MNT" >/dev/null 2>&1
all_there mnt "an administrator who fenced"
timeout 60 "$STEADFAST" umount "$MNT"
ok "an owner that cannot be fenced keeps all others out"
check_volume

# An array of remote memory: its servers refuse the token of the owner that was stopped. The second
# node has its own /var/lib/steadfast, where a machine notes which arrays it has open.
if [ "$(id -u)" -eq 0 ]; then
    for number in 1 2; do
        "$STEADFAST" serve memory --size 128M --listen 127.0.0.1:0 --etcd "127.0.0.1:$ETCD_PORT" \
            --name "s$number" >>"$WORK/servers.log" 2>&1 &
        own $!
    done
    MEDIUM=remote+etcd://127.0.0.1:$ETCD_PORT/array
    for _ in $(seq 100); do
        ! "$STEADFAST" mkfs --quiet --size 64M "$MEDIUM?policy=mirror" 2>"$WORK/said" || break
        sleep 0.1
    done
    VOLUME=cluster://127.0.0.1:$ETCD_PORT/array
    "$STEADFAST" cluster create --standby "$VOLUME" "$MEDIUM" >/dev/null
    node_start a
    for _ in $(seq 200); do ! mountpoint -q "$WORK/a" || break; sleep 0.05; done
    touch "$WORK/a/probe"
    rm "$WORK/copies"/*
    for number in $(seq 5); do synced a "$number"; done
    mkdir -p /var/lib/steadfast
    : >"$WORK/b.log"
    unshare --mount sh -c 'mount -t tmpfs none /var/lib/steadfast && exec "$@"' sh \
        "$STEADFAST" mount -f "$VOLUME?node=b" "$WORK/b" >>"$WORK/b.log" 2>&1 &
    PIDS[b]=$!
    own $!
    stands_by b
    kill -STOP "${PIDS[a]}"
    begin=$(now_ms)
    for _ in $(seq 400); do ! grep -q mounted "$WORK/b.log" || break; sleep 0.05; done
    took=$(($(now_ms) - begin))
    for number in $(seq 5); do
        nsenter --mount --target "${PIDS[b]}" cmp "$WORK/copies/f$number" "$WORK/b/f$number" ||
            die "a stopped owner of an array: f$number is lost: $(tail -n 3 "$WORK/b.log")"
    done
    kill -CONT "${PIDS[a]}"
    ends a
    [ "$STATUS" -ne 0 ] || die "a deposed owner ends with success"
    grep -q "deposed by node b" "$WORK/a.log" ||
        die "the log does not say why: $(tail -n 3 "$WORK/a.log")"
    kill "${PIDS[b]}"
    ends b
    [ "$STATUS" -eq 0 ] || die "node b ends with $STATUS: $(tail -n 3 "$WORK/b.log")"
    ok "an array: the other node serves $took ms after the owner stopped"
fi
finish
