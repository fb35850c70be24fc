#!/usr/bin/env bash
# Takeovers while all nodes work, with a real etcd: the owner is killed again and again, in the
# middle of what the others do; each second time it hands the volume over instead. Nothing that was
# answered on a node that survives may be lost, synced or not. What was not answered is executed
# once, and fails only where the next owner cannot know whether it is done. A file that is open on
# such a node stays open, and its lock stays held. The medium is an image file, so a command fences.
# ROUNDS sets the number of takeovers.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=survivors
plain && skip_all "this is about volumes of a cluster"
need etcd
start survivors
source "$REPO/scripts/services.sh"
NODES="a b c"
source "$TESTS/helpers/nodes.sh"
ROUNDS=${ROUNDS:-8}

start_etcd
VOLUME=cluster://127.0.0.1:$ETCD_PORT/home
"$STEADFAST" mkfs --quiet --size 1G "$IMAGE"
"$STEADFAST" mount "$IMAGE" "$MNT" && touch "$MNT/probe" && "$STEADFAST" umount "$MNT" >/dev/null
# At the sign "busy" another process has the image open until the node that fences has ended.
FENCE='rm "'"$WORK"'/no-fence" 2>/dev/null && exit 1
    if rm "'"$WORK"'/busy" 2>/dev/null; then
        flock "'"$IMAGE"'" sh -c "while [ -e /proc/$PPID/exe ]; do sleep 0.02; done" &
        sleep 0.1
    fi
    kill -9 "$STEADFAST_PROCESS" 2>/dev/null
    while [ -e "/proc/$STEADFAST_PROCESS/exe" ]; do sleep 0.02; done'
"$STEADFAST" cluster create --fence "$FENCE" "$VOLUME" "$IMAGE" >/dev/null
for node in $NODES; do
    node_start "$node"
    owns "$node"
done

# works NODE ROUND: files, names, a shared file, and one that stays open, until $WORK/enough exists.
# The last line of its log for each name is what was answered.
works() {
    python3 - "$WORK" "$1" "$2" >"$WORK/$1.did" 2>"$WORK/$1.err" <<'P'
import errno, fcntl, os, random, sys, time
work, node, round = sys.argv[1:]
place, draw = f"{work}/{node}", random.Random(f"{node}{round}")
shared = f"{place}/shared-{round}"
number = 0

def did(*words):
    print(*words, flush=True)

def put(path, text, flags=0):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        while text:
            text = text[os.write(fd, text):]
    finally:
        os.close(fd)

kept = os.open(f"{place}/kept-{node}-{round}", os.O_RDWR | os.O_CREAT, 0o644)
fcntl.flock(kept, fcntl.LOCK_EX)
did("begun", "-")

while not os.path.exists(f"{work}/enough"):
    number += 1
    name = f"{node}-{round}-{number}"
    text = (name + "\n").encode() * draw.choice([1, 30, 400])
    doing = name
    try:
        put(f"{place}/{name}", text)
        did("there", name, len(text))
        kind = draw.randrange(6)
        if kind == 0:
            did("unsure", name)
            os.rename(f"{place}/{name}", f"{place}/{name}-moved")
            did("gone", name)
            doing = f"{name}-moved"
            did("there", doing, len(text))
        elif kind == 1:
            did("unsure", name)
            os.unlink(f"{place}/{name}")
            did("gone", name)
        elif kind == 2:
            doing = "a-line"
            line = f"{name}\n".encode()
            put(shared, line, os.O_APPEND)
            did("line", name)
        elif kind == 3:
            doing = "a-block"
            os.pwrite(kept, name.ljust(32).encode(), 32 * number)
            did("block", name, number)
    except OSError as error:
        if error.errno == errno.ESTALE:
            sys.exit(f"{doing}: {error}")
        # The next owner does not know whether it is done.
        did("unsure", doing, error.errno)
        if error.errno != errno.EIO:
            sys.exit(f"{doing}: it was executed twice, or not at all: {error}")
        time.sleep(0.01)
P
}

# judged NODE ROUND SEEN: whether node SEEN shows what was answered on NODE.
judged() {
    python3 - "$WORK/$3" "$WORK/$1.did" "$2" "$1" <<'P'
import os, sys
place, log, round, node = sys.argv[1:]
known, lines, blocks = {}, [], {}
for line in open(log):
    what, name, *more = line.split()
    if what == "line":
        lines.append(name)
    elif what == "block":
        blocks[int(more[0])] = name
    elif what != "begun":
        known[name] = (what, int(more[0]) if more else 0)
wrong = []
for name, (what, size) in known.items():
    path = f"{place}/{name}"
    if what == "there":
        text = (name.removesuffix("-moved") + "\n").encode()
        try:
            with open(path, "rb") as file:
                found = file.read()
        except FileNotFoundError:
            found = None
        if found is None or found != text * (size // len(text)):
            wrong.append(f"{name}: {'lost' if found is None else 'other bytes'}")
    elif what == "gone" and os.path.lexists(path):
        wrong.append(f"{name}: it came back")
if lines:
    with open(f"{place}/shared-{round}") as file:
        there = file.read().split()
    wrong += [f"{name}: the line is lost" for name in lines if name not in there]
    wrong += [f"{name}: the line is there twice" for name in set(there) if there.count(name) > 1]
with open(f"{place}/kept-{node}-{round}", "rb") as file:
    found = file.read()
for number, name in blocks.items():
    if found[32 * number :][:32] != name.ljust(32).encode():
        wrong.append(f"{name}: a block of an open file is lost")
answered = len(lines) + len(blocks) + sum(what != "unsure" for what, _ in known.values())
print(answered)
if wrong:
    sys.exit(f"{len(wrong)} of {answered}: " + "; ".join(wrong[:5]))
if answered < 20:
    sys.exit(f"only {answered} answers: {open(log).read()[-500:]}")
P
}

answered=0 unsure=0
for round in $(seq "$ROUNDS"); do
    owner=$(status "d['owner']['name']")
    others=${NODES//$owner/}
    rm -f "$WORK/enough"
    declare -a workers=()
    for node in $others; do
        works "$node" "$round" &
        workers+=($!)
        own $!
    done
    sleep "0.$((RANDOM % 6 + 2))"
    for node in $others; do
        for try in $(seq 200); do ! grep -q begun "$WORK/$node.did" || break; sleep 0.05; done
    done
    if [ $((round % 2)) -eq 1 ]; then
        kill -9 "${PIDS[$owner]}"
    else
        read -r to _ <<<"$others"
        "$STEADFAST" cluster handover --to "$to" "$VOLUME" >/dev/null
    fi
    for node in $others; do owns "$node"; done
    sleep 0.3
    for node in $others; do
        for seen in $others; do
            ! flock --nonblock "$WORK/$seen/kept-$node-$round" true ||
                die "round $round: node $seen gets a lock that node $node holds"
        done
    done
    touch "$WORK/enough"
    for worker in "${workers[@]}"; do
        wait "$worker" || die "round $round: $(cat "$WORK"/*.err)"
    done
    for node in $others; do
        for seen in $others; do
            count=$(judged "$node" "$round" "$seen") ||
                die "round $round: what node $node was told is not on node $seen;" \
                    "$(grep -h "nodes were told" "$WORK"/?.log)"
        done
        answered=$((answered + count))
    done
    owner_now=$(status "d['owner']['name']")
    grep -q "has all that 2 of 2 nodes were told" "$WORK/$owner_now.log" ||
        die "round $round: $(grep "were told" "$WORK/$owner_now.log"; last_lines "$owner_now")"
    # What was told and not synced is durable by now, and no fsync says otherwise.
    for node in $others; do
        sync "$WORK/$node/shared-$round" "$WORK/$node" ||
            die "round $round: an fsync on node $node fails for what is there"
    done
    failed=$(cat "$WORK"/*.did | grep -c "^unsure [^ ]* [0-9]" || true)
    if [ $((round % 2)) -eq 1 ]; then
        unsure=$((unsure + failed))
    else
        [ "$failed" -eq 0 ] || die "round $round: $failed requests fail at a handover"
    fi
    ends "$owner"
    rm -f "$WORK"/*.did
    node_start "$owner"
    owns "$owner"
done
ok "$ROUNDS takeovers lost none of $answered answers, none of which was synced, nor a lock;" \
    "$unsure requests failed when an owner was killed, none at a handover"

# gives_up SIGN: the next owner finds SIGN and ends. The one after it has what it was told all the
# same. Only that one is left.
gives_up() {
    local owner last node number try others
    owner=$(status "d['owner']['name']")
    others=${NODES//$owner/}
    for node in $others; do
        for number in $(seq 20); do echo "$node $number" >"$WORK/$node/kept-$node-$number"; done
    done
    touch "$WORK/$1"
    kill -9 "${PIDS[$owner]}"
    for try in $(seq 200); do
        last=$(status "d['owner']['name'] if d['owner'] and d['serves'] else ''")
        [ -z "$last" ] || [ "$last" = "$owner" ] || break
        sleep 0.1
    done
    [ ! -e "$WORK/$1" ] || die "no node has come to '$1' ($try)"
    owns "$last"
    for number in $(seq 20); do
        [ "$(cat "$WORK/$last/kept-$last-$number")" = "$last $number" ] ||
            die "node $last does not have what it was told: $(last_lines "$last")"
    done
    grep -q "has all that 1 of 1 nodes were told" "$WORK/$last.log" ||
        die "node $last brought nothing: $(last_lines "$last")"
    sync "$WORK/$last" || die "an fsync on node $last fails for what is there"
    for node in $others; do
        [ "$node" = "$last" ] && continue
        ends "$node"
        says "$GIVES_UP" <"$WORK/$node.log" || die "node $node ends: $(last_lines "$node")"
    done
    ends "$owner"
    LEFT=$last
}
GIVES_UP="cannot be fenced" gives_up no-fence
ok "an owner that cannot fence takes nothing away from the next one"
for node in ${NODES//$LEFT/}; do
    node_start "$node"
    owns "$node"
done
GIVES_UP="in use" gives_up busy
ok "an owner that cannot open takes nothing away from the next one"
NODES=$LEFT

for node in $NODES; do
    "$STEADFAST" umount "$WORK/$node" >"$WORK/said" 2>&1 ||
        die "node $node does not unmount: $(cat "$WORK/said")"
    gone "${PIDS[$node]}" 30 || die "node $node does not end: $(last_lines "$node")"
done
"$STEADFAST" check "$IMAGE" >/dev/null || die "check finds something"
ok "check finds nothing"
finish
