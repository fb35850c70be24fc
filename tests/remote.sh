#!/usr/bin/env bash
# A volume on the memory of three servers with parity: made, mounted, used while a server is killed, comes back empty and
# is rebuilt, and another one is killed; then checked by a new client with one server missing. And on the memory of
# nbdkit, where that is installed.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=remote
plain && skip_all "this is about remote memory"
start remote
PIDS=()
PORTS=()
# lend INDEX [PORT]: a server, on a free port where none is given.
lend() {
    local out=$WORK/server$1.out try
    : >"$out"
    "$STEADFAST" serve memory --size 64M --listen "127.0.0.1:${2:-0}" >"$out" 2>&1 &
    PIDS[$1]=$!
    own $!
    for try in $(seq 200); do
        PORTS[$1]=$(sed -n 's/^serving .*://p' "$out")
        [ -z "${PORTS[$1]}" ] || return 0
        sleep 0.05
    done
    die "server $1 does not start ($try): $(cat "$out")"
}
lose() {
    kill -9 "${PIDS[$1]}"
    gone "${PIDS[$1]}" 30 || die "server $1 does not die"
}
states() { timeout 60 "$STEADFAST" remote status --json "$servers" | grep -c '"state": "good"' || true; }

for index in 0 1 2; do lend $index; done
servers=remote://127.0.0.1:${PORTS[0]},127.0.0.1:${PORTS[1]},127.0.0.1:${PORTS[2]}
words="witness=$WORK/witness&timeout=5000"
timeout 60 "$STEADFAST" mkfs "$servers?policy=parity&$words" >"$WORK/mkfs.log" 2>&1 || die "mkfs: $(cat "$WORK/mkfs.log")"
timeout 60 "$STEADFAST" mkfs "$servers?policy=parity&$words" >/dev/null 2>&1 && die "a volume was overwritten"
IMAGE="$servers?$words"
mount_volume
cp -r "$TESTS" "$MNT/a"
timeout 60 "$STEADFAST" transact "$MNT" || die "transact"
timeout 60 "$STEADFAST" remote rebuild "$IMAGE" 2>/dev/null && die "two owners"
ok "a volume on three servers"

lose 1
cp -r "$TESTS" "$MNT/b"
timeout 60 "$STEADFAST" transact "$MNT" || die "transact with a server lost"
diff -r "$TESTS" "$MNT/a" && diff -r "$TESTS" "$MNT/b" || die "files differ with a server lost"
[ "$(states)" = 2 ] || die "two of three should be good"
lend 1 "${PORTS[1]}"
for try in $(seq 120); do
    [ "$(states)" != 3 ] || break
    sleep 0.5
done
[ "$(states)" = 3 ] || die "the server was not rebuilt ($try)"
lose 0
echo "after another" >"$MNT/c"
timeout 60 "$STEADFAST" transact "$MNT" || die "transact with another server lost"
diff -r "$TESTS" "$MNT/a" && diff -r "$TESTS" "$MNT/b" || die "files differ after the rebuild"
ok "a server dies, comes back empty and is rebuilt, another one dies: nothing is lost"

kill_daemon
check_volume "by a new client with a server missing"
mount_volume
diff -r "$TESTS" "$MNT/a" && [ "$(cat "$MNT/c")" = "after another" ] || die "the new client finds something else"
umount_volume
ok "the client is killed, too"
lose 1
timeout 60 "$STEADFAST" ls "$IMAGE" / >/dev/null 2>"$WORK/refused" && die "opened with two of three lost"
grep -q 'more servers are lost' "$WORK/refused" || die "the refusal says why: $(cat "$WORK/refused")"
ok "beyond what parity survives it refuses"

if command -v nbdkit >/dev/null; then
    addresses=()
    for index in 0 1; do
        port=$((20000 + RANDOM % 20000))
        nbdkit -f -i 127.0.0.1 -p $port memory 64M >"$WORK/nbdkit$index.log" 2>&1 &
        own $!
        for try in $(seq 100); do
            ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
            sleep 0.05
        done
        addresses+=("127.0.0.1:$port")
    done
    IMAGE="remote://${addresses[0]},${addresses[1]}?policy=mirror&$words"
    timeout 60 "$STEADFAST" mkfs "$IMAGE" >"$WORK/mkfs.log" 2>&1 || die "mkfs on nbdkit: $(cat "$WORK/mkfs.log")"
    mount_volume
    cp -r "$TESTS" "$MNT/a"
    umount_volume
    check_volume "on a mirror of two nbdkit servers"
    ok "the memory of nbdkit"
fi
finish
