#!/usr/bin/env bash
# A shared volume on a network that fails: three nodes and three members of etcd, each in a network
# of its own behind a bridge. Machines are cut off, from all or from some, in one direction or in
# both. Nothing that was synced is lost, nothing is done twice, and no node shows an old state.

# A network without the machine's own devices. It ends with its processes.
[ -n "${IN_NETWORK:-}" ] || [ "$(id -u)" -ne 0 ] || ! command -v unshare >/dev/null ||
    exec unshare --net env IN_NETWORK=1 bash "$0" "$@"
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=partitions
plain && skip_all "this is about volumes in a cluster"
need etcd ip nsenter openssl python3
[ -n "${IN_NETWORK:-}" ] || skip_all "networks need root"
start partitions
NODES="a b c"
source "$TESTS/helpers/nodes.sh"
source "$TESTS/helpers/network.sh"

# Names and attributes that nodes keep are dropped, or end with their time.
NODE_MOUNT+=,delegations
network a b c e1 e2 e3
members="" endpoints=""
for member in e1 e2 e3; do
    members+="${members:+,}$member=http://$(address $member):2380"
    endpoints+="${endpoints:+,}$(address $member):2379"
done
declare -A ETCD
etcd_start() { # MEMBER
    local at
    at=$(address "$1")
    inside "$1" etcd --name "$1" --data-dir "$WORK/$1.etcd" --log-level warn --unsafe-no-fsync \
        --heartbeat-interval 50 --election-timeout 300 \
        --listen-client-urls "http://$at:2379" --advertise-client-urls "http://$at:2379" \
        --listen-peer-urls "http://$at:2380" --initial-advertise-peer-urls "http://$at:2380" \
        --initial-cluster "$members" --initial-cluster-state "${2:-new}" >>"$WORK/$1.log" 2>&1 &
    ETCD[$1]=$!
    own $!
}
for member in e1 e2 e3; do etcd_start $member; done
VOLUME=cluster://$endpoints/home
answers() {
    { timeout 20 "$STEADFAST" cluster status "$VOLUME" 2>&1 || true; } | says "etcd knows no volume"
}
for _ in $(seq 100); do ! answers || break; sleep 0.1; done
answers || die "etcd does not answer: $("$STEADFAST" cluster status "$VOLUME" 2>&1);" \
    "$(tail -n 3 "$WORK/e1.log")"

# Certificates, as these nodes are not on one address.
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$WORK/ca.key" -out "$WORK/ca.pem" \
    -subj /CN=test -days 2 2>/dev/null
for node in $NODES; do
    openssl req -newkey rsa:2048 -nodes -keyout "$WORK/$node.key" -out "$WORK/$node.csr" \
        -subj "/CN=$node" 2>/dev/null
    printf 'subjectAltName=IP:%s\n' "$(address "$node")" >"$WORK/ext"
    openssl x509 -req -in "$WORK/$node.csr" -CA "$WORK/ca.pem" -CAkey "$WORK/ca.key" \
        -CAcreateserial -days 2 -extfile "$WORK/ext" -out "$WORK/$node.pem" 2>/dev/null
done
begin_node() { # NODE
    NODE_IN=(inside "$1")
    NODE_OPTIONS="&listen=$(address "$1"):7000&ca=$WORK/ca.pem&cert=$WORK/$1.pem&key=$WORK/$1.key"
    node_start "$1"
    owns "$1"
}
"$STEADFAST" mkfs --quiet --size 256M "$IMAGE"
"$STEADFAST" mount "$IMAGE" "$MNT" && touch "$MNT/probe" && "$STEADFAST" umount "$MNT" >/dev/null
FENCE='kill -9 "$STEADFAST_PROCESS" 2>/dev/null; '
FENCE+='while [ -e "/proc/$STEADFAST_PROCESS/exe" ]; do sleep 0.02; done'
"$STEADFAST" cluster create --fence "$FENCE" "$VOLUME" "$IMAGE" >/dev/null
for node in $NODES; do begin_node "$node"; done
mkdir "$WORK/copies"
roles() { # OWNER: its name; and the two PEERS
    OWNER=$(status "d['owner']['name']")
    EPOCH=$(status "d['epoch']")
    PEERS=(${NODES/$OWNER/})
}
# went_on NODE WHAT: a program on the node can make a durable file. TOOK says when.
number=0
went_on() {
    local begin
    begin=$(now_ms)
    number=$((number + 1))
    timeout 60 bash -c \
        'until echo "$1" 2>/dev/null >"$2" && sync "$2" 2>/dev/null; do sleep 0.02; done' _ \
        "$number" "$WORK/$1/went$number" ||
        die "$2: node $1 does not go on: $(last_lines "$1")"
    TOOK=$(($(now_ms) - begin))
    cp "$WORK/$1/went$number" "$WORK/copies/"
}
# followed: another node than OWNER owns the volume and serves, in the term after EPOCH. TOOK says
# when. (`cluster status` would watch the owner's silence for itself.)
followed() {
    local first=$OWNER
    for _ in $(seq 400); do
        ! grep -q "this node owns .* in epoch $((EPOCH + 1))," "$WORK"/[abc].log || break
        sleep 0.02
    done
    for OWNER in $NODES; do
        ! grep -q "this node owns .* in epoch $((EPOCH + 1))," "$WORK/$OWNER.log" || break
    done
    [ "$OWNER" != "$first" ] || die "node $first still owns the volume"
    went_on "$OWNER" "node $first is followed"
    TOOK=$(($(now_ms) - CUT_AT))
    roles
}
# again NODE: a node that was fenced is there again.
again() {
    kill -9 "${PIDS[$1]}" 2>/dev/null || true
    wait "${PIDS[$1]}" 2>/dev/null || true
    begin_node "$1"
}

# The owner is cut off from everything.
roles
synced "$OWNER" 1
synced "${PEERS[0]}" 2
cut_off "$OWNER"
first=$OWNER
followed
took=$TOOK
all_there "$OWNER" "the owner was cut off"
join "$first"
again "$first"
all_there "$first" "the owner came back"
ok "an owner that is cut off is followed after $took ms"

# The owner reaches the other nodes, but not etcd.
for member in e1 e2 e3; do cut "$OWNER" $member; done
first=$OWNER
followed
took=$TOOK
heal
again "$first"
all_there "$first" "the owner without etcd came back"
ok "an owner that etcd does not hear is followed after $took ms"

# A peer and the owner do not reach each other, in one direction or in both. Its programs wait, and
# go on in the same session. No change is lost or done twice.
roles
peer=${PEERS[0]}
touch "$WORK/$peer/log"
for way in both there back; do
    lines=$(wc -l <"$WORK/$OWNER/log")
    [ $way = back ] || cut "$peer" "$OWNER"
    [ $way = there ] || cut "$OWNER" "$peer"
    (
        for line in $(seq 5); do echo "$way $line" >>"$WORK/$peer/log"; done
        sync "$WORK/$peer/log"
        : >"$WORK/done.$way"
    ) &
    own $!
    sleep 2
    [ ! -e "$WORK/done.$way" ] || die "a peer that is cut off ($way) goes on"
    went_on "${PEERS[1]}" "a peer is cut off from the owner"
    heal
    for _ in $(seq 600); do [ ! -e "$WORK/done.$way" ] || break; sleep 0.05; done
    [ -e "$WORK/done.$way" ] || die "a peer does not go on ($way): $(last_lines "$peer")"
    [ "$(wc -l <"$WORK/$OWNER/log")" -eq $((lines + 5)) ] ||
        die "$way: lines are lost or doubled: $(cat "$WORK/$OWNER/log")"
done
[ "$(status "d['owner']['name']")" = "$OWNER" ] ||
    die "another node has the volume, and the owner was well"
ok "a peer that does not reach the owner waits, in one direction or in both"

# A peer that is cut off may keep names and attributes for a moment. A change of them waits for
# that, and then no program there sees the old ones.
for file in $(seq 20); do echo x >"$WORK/$OWNER/kept$file"; done
look() { stat -c '%a' "$WORK/$1/kept"*; }
for _ in $(seq 30); do look "$peer" >/dev/null; sleep 0.05; done
cut "$peer" "$OWNER"
cut "$OWNER" "$peer"
begin=$(now_ms)
chmod 600 "$WORK/$OWNER"/kept*
took=$(($(now_ms) - begin))
(look "$peer" >"$WORK/looked") &
looker=$!
own $looker
sleep 1
heal
wait $looker
[ "$(sort -u "$WORK/looked")" = 600 ] ||
    die "a peer shows what was changed while it was cut off: $(sort "$WORK/looked" | uniq -c)"
ok "a peer that is cut off shows nothing old (a change of 20 files waited $took ms)"

# A peer that does not reach etcd works. When the owner ends meanwhile, it waits for news.
for member in e1 e2 e3; do cut "$peer" $member; done
went_on "$peer" "it does not reach etcd"
kill -9 "${PIDS[$OWNER]}"
CUT_AT=$(now_ms)
first=$OWNER
followed
took=$TOOK
heal
went_on "$peer" "it reaches etcd again"
again "$first"
all_there "$peer" "a peer without etcd"
ok "a peer that does not reach etcd learns of the next owner later"

# A member of etcd is gone: nothing happens. Two are gone: requests wait.
roles
kill -STOP "${ETCD[e1]}"
went_on "${PEERS[0]}" "a member of etcd is stopped"
one=$TOOK
kill -9 "${ETCD[e2]}"
sleep 1.5
(went_on "${PEERS[0]}" "etcd has no quorum"; : >"$WORK/went") &
waiter=$!
own $waiter
sleep 1
[ ! -e "$WORK/went" ] || die "an owner without a quorum of etcd answers"
kill -CONT "${ETCD[e1]}"
wait $waiter || die "requests do not go on with a quorum: $(last_lines "$OWNER")"
gone "${ETCD[e2]}" 30 || die "etcd does not die"
etcd_start e2
went_on "${PEERS[1]}" "etcd is whole again"
[ "$(status "d['owner']['name']")" = "$OWNER" ] || die "an outage of etcd made another owner"
ok "a stopped member of etcd costs $one ms; without a quorum requests wait"

# Cuts at random, while programs on all nodes sync files.
cat >"$WORK/load" <<'L'
# load DIRECTORY COPIES NAME: makes files until it is told to stop. What sync has taken must stay.
number=0
while [ ! -e "$2/../stop" ]; do
    number=$((number + 1))
    if echo "$3 $number" 2>/dev/null >"$1/$3-$number" && sync "$1/$3-$number" 2>/dev/null; then
        echo "$3 $number" >"$2/$3-$number"
    fi
    sleep 0.03
done
L
# Below a mount that is gone there is no such directory.
mkdir "$WORK/$OWNER/load" "$WORK/loaded"
loads=()
for node in $NODES; do
    bash "$WORK/load" "$WORK/$node/load" "$WORK/loaded" "$node" &
    loads+=($!)
    own $!
done
end=$(($(date +%s) + $(bounded 20 600))) cuts=0
while [ "$(date +%s)" -lt $end ]; do
    cuts=$((cuts + 1))
    parts=(a b c e1 e2 e3)
    one=${parts[RANDOM % 6]} other=${parts[RANDOM % 6]}
    case $((RANDOM % 4)) in
        0) cut_off "$one" ;;
        1) cut "$one" "$other" ;;
        *) cut "$one" "$other" && cut "$other" "$one" ;;
    esac
    sleep "0.$((RANDOM % 9 + 1))"
    [ $((RANDOM % 3)) -ne 0 ] || sleep 1.5
    heal
    join "$one"
    for node in $NODES; do [ -d "/proc/${PIDS[$node]}" ] || again "$node"; done
done
touch "$WORK/stop"
for load in "${loads[@]}"; do wait "$load" || true; done
for node in $NODES; do
    [ -d "/proc/${PIDS[$node]}" ] || again "$node"
    (cd "$WORK/loaded" && sha1sum -- *) >"$WORK/sums"
    (cd "$WORK/$node/load" && sha1sum --check --quiet "$WORK/sums") >"$WORK/said" 2>&1 ||
        die "node $node: not all of it is what was synced: $(sed -n 1,5p "$WORK/said")"
done
synced=$(ls "$WORK/loaded" | wc -l)
[ "$synced" -gt 20 ] || die "only $synced files were synced"
ok "$cuts cuts at random lost none of $synced files that were synced"

roles
for node in "${PEERS[@]}" "$OWNER"; do
    # It may say that a point was lost with an earlier owner.
    timeout 60 "$STEADFAST" umount "$WORK/$node" >"$WORK/said" 2>&1 ||
        grep -q "stale file handle" "$WORK/said" ||
        die "umount of node $node: $(cat "$WORK/said")"
    ends "$node"
    ! grep -q "internal error" "$WORK/$node"*.log || die "node $node has panicked"
done
check_volume
finish
