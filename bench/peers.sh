#!/usr/bin/env bash
# What an operation costs on the nodes of a shared volume, beside a mount of one machine, in one run:
# microseconds, the median over ROUNDS interleaved rounds. etcd and three nodes run on this machine,
# and the medium is a file. `stat` is of files that the node has just made; `stat again` of files that
# it has looked at for a while, and `by another` of such files right after another node changed them.
#
#   ROUNDS      rounds (default 9)
#   NODE_MOUNT  options of the nodes' mounts, such as allow_other,suid,dev,delegations
source "$(dirname "${BASH_SOURCE[0]}")/../tests/lib.sh"
NAME=bench-peers
need etcd python3
start bench-peers
source "$REPO/scripts/services.sh"
NODES="owner peer idle"
source "$TESTS/helpers/nodes.sh"

start_etcd
VOLUME=cluster://127.0.0.1:$ETCD_PORT/home
FENCE='kill -9 "$STEADFAST_PROCESS" 2>/dev/null; while [ -e "/proc/$STEADFAST_PROCESS/exe" ]; do sleep 0.02; done'
for image in "$WORK/shared.img" "$WORK/local.img"; do
    "$STEADFAST" mkfs --quiet --size 512M "$image"
    "$STEADFAST" mount "$image" "$MNT" && touch "$MNT/probe" && "$STEADFAST" umount "$MNT" >/dev/null
done
"$STEADFAST" cluster create --fence "$FENCE" "$VOLUME" "$WORK/shared.img" >/dev/null
for node in $NODES; do node_start "$node" && owns "$node"; done
"$STEADFAST" mount "$WORK/local.img" "$MNT"
python3 - "${ROUNDS:-9}" "local=$MNT" "owner=$WORK/owner" "peer=$WORK/peer" <<'P'
import os, statistics, sys, time
rounds, places = int(sys.argv[1]), dict(pair.split("=", 1) for pair in sys.argv[2:])
COUNT = 200
def each(act):
    begin = time.perf_counter()
    for number in range(COUNT):
        act(number)
    return (time.perf_counter() - begin) / COUNT * 1e6
def kinds(place, other, round):
    base = f"{place}/r{round}-"
    block = os.urandom(4096)
    make = lambda n: os.close(os.open(f"{base}{n}", os.O_CREAT | os.O_EXCL | os.O_RDWR))
    yield "create", each(make)
    yield "stat", each(lambda n: os.stat(f"{base}{n}"))
    few = [f"{base}{n}" for n in range(20)]
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        for name in few:
            os.stat(name)
    yield "stat again", each(lambda n: os.stat(few[n % len(few)]))
    if other:
        def changed(n):
            os.utime(f"{other}/r{round}-{n}", (n, n))
        took = 0
        for n in range(len(few)):
            changed(n)
            begin = time.perf_counter()
            found = os.stat(few[n])
            took += time.perf_counter() - begin
            assert found.st_mtime == n, "an old time"
        yield "stat, changed by another", took / len(few) * 1e6
    fd = os.open(f"{base}0", os.O_RDWR)
    yield "write 4 KiB", each(lambda n: os.pwrite(fd, block, n * 4096))
    yield "read 4 KiB", each(lambda n: os.pread(fd, 4096, n * 4096))
    def durable(n):
        os.pwrite(fd, block, n * 4096)
        os.fsync(fd)
    yield "write + fsync", each(durable)
    os.close(fd)
    yield "unlink", each(lambda n: os.unlink(f"{base}{n}"))
found = {}
for round in range(rounds):
    for name, place in places.items():
        other = {"owner": places["peer"], "peer": places["owner"]}.get(name)
        for kind, took in kinds(place, other, round):
            found.setdefault(kind, {}).setdefault(name, []).append(took)
print(f"{'µs':26}" + "".join(f"{name:>10}" for name in places) + f"{'peer/local':>12}")
for kind, by_place in found.items():
    medians = {name: statistics.median(times) for name, times in by_place.items()}
    row = "".join(f"{medians.get(name, float('nan')):10.1f}" for name in places)
    print(f"{kind:26}{row}{medians['peer'] / medians.get('local', float('nan')):12.2f}")
P
"$STEADFAST" umount "$MNT" >/dev/null
finish
