# Nodes of a cluster on this machine, for scripts that use lib.sh: each is a process that mounts
# $VOLUME on $WORK/NAME, with its log in $WORK/NAME.log. The script sets VOLUME, and lists the nodes
# that it uses in NODES.

declare -A PIDS
more_cleanup() { for node in $NODES; do umount -l "$WORK/$node" 2>/dev/null; done; }
trap 'status=$?
    set +e
    kill -9 "${PIDS[@]}" 2>/dev/null
    more_cleanup
    (exit "$status")
    cleanup' EXIT

# node_start NAME: a node that mounts the volume, or stands by. NODE_OPTIONS follow its address, and
# NODE_IN stands in front of the command. NODE_MOUNT are options of the mount.
NODE_IN=()
NODE_MOUNT=${NODE_MOUNT:-allow_other,suid,dev}
node_start() {
    umount -l "$WORK/$1" 2>/dev/null || true
    mkdir -p "$WORK/$1"
    # A name for each start: a test looks for lines of this one.
    [ ! -e "$WORK/$1.log" ] || cat "$WORK/$1.log" >>"$WORK/$1.old.log"
    "${NODE_IN[@]}" "$STEADFAST" mount -f -o "$NODE_MOUNT" "$VOLUME?node=$1${NODE_OPTIONS:-}" \
        "$WORK/$1" >"$WORK/$1.log" 2>&1 &
    PIDS[$1]=$!
    own $!
}
last_lines() { tail -n 3 "$WORK/$1.log"; }
# owns NAME: waits until the node's mount shows the volume. TOOK says how long that took.
owns() {
    local begin try
    begin=$(now_ms)
    for try in $(seq 600); do
        if timeout 30 mountpoint -q "$WORK/$1" && timeout 30 test -e "$WORK/$1/probe"; then
            TOOK=$(($(now_ms) - begin))
            return
        fi
        sleep 0.05
    done
    die "node $1 does not show the volume ($try): $(last_lines "$1");" \
        "$("$STEADFAST" cluster status "$VOLUME")"
}
status() {
    "$STEADFAST" cluster status --json "$VOLUME" |
        python3 -c "import json,sys; d=json.load(sys.stdin); print($1)"
}
stands_by() {
    local try
    for try in $(seq 400); do
        [ "$(status "any(n['name'] == '$1' for n in d['nodes'])")" != True ] || return 0
        sleep 0.05
    done
    die "node $1 does not stand by ($try): $(last_lines "$1")"
}
# synced NODE N: makes file N there, durable.
synced() {
    dd if=/dev/urandom of="$WORK/$1/f$2" bs=10k count=1 conv=fsync status=none
    cp "$WORK/$1/f$2" "$WORK/copies/"
}
all_there() {
    local file
    for file in "$WORK/copies"/*; do
        cmp -s "$file" "$WORK/$1/$(basename "$file")" ||
            die "$2: $(basename "$file") is not what was synced"
    done
}
# ends NAME: waits until the process of a node ends. STATUS is its exit code.
ends() {
    gone "${PIDS[$1]}" 30 || die "node $1 does not end: $(last_lines "$1")"
    STATUS=0
    wait "${PIDS[$1]}" 2>/dev/null || STATUS=$?
    umount -l "$WORK/$1" 2>/dev/null || true
}
