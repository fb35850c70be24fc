# Networks on this machine, for scripts that use lib.sh and run in a network namespace of their own
# (`unshare --net`): each machine has one, behind a bridge in that of the script. They end with the
# processes that hold them.

declare -A HOLDERS ADDRESSES
PARTS=()
CUTS=()

# network NAME...: machines, each with an address.
network() {
    local name number=0
    ip link set lo up
    ip link add hub type bridge
    ip addr add 10.99.0.254/24 dev hub
    ip link set hub up
    PARTS=("$@")
    for name in "$@"; do
        number=$((number + 1))
        ADDRESSES[$name]=10.99.0.$number
        unshare --net sleep infinity &
        HOLDERS[$name]=$!
        own $!
        for _ in $(seq 500); do
            [ "$(readlink /proc/self/ns/net)" = "$(readlink "/proc/${HOLDERS[$name]}/ns/net")" ] ||
                break
            sleep 0.01
        done
        ip link add name "to-$name" type veth peer name eth0 netns "${HOLDERS[$name]}"
        ip link set "to-$name" master hub up
        inside "$name" ip addr add "${ADDRESSES[$name]}/24" dev eth0
        inside "$name" ip link set lo up
        inside "$name" ip link set eth0 up
    done
}
address() { echo "${ADDRESSES[$1]}"; }
# inside NAME COMMAND...: runs in the network of that machine.
inside() {
    local holder=${HOLDERS[$1]}
    shift
    exec_or_run nsenter "--net=/proc/$holder/ns/net" "$@"
}
# In a background job the process shall be that of the command.
exec_or_run() { if [ "$BASHPID" = $$ ]; then "$@"; else exec "$@"; fi; }

# cut_off NAME: no machine reaches it; join NAME undoes that. CUT_AT says when that was.
cut_off() { CUT_AT=$(now_ms) && ip link set "to-$1" down; }
join() { ip link set "to-$1" up; }
# cut A B: what A sends to B goes nowhere. heal undoes all cuts.
cut() {
    [ "$1" != "$2" ] || return 0
    (inside "$1" ip neigh replace "${ADDRESSES[$2]}" lladdr 02:00:00:00:00:01 dev eth0 \
        nud permanent)
    CUTS+=("$1 $2")
    CUT_AT=$(now_ms)
}
heal() {
    local one other
    for pair in "${CUTS[@]}"; do
        read -r one other <<<"$pair"
        (inside "$one" ip neigh del "${ADDRESSES[$other]}" dev eth0 2>/dev/null) || true
    done
    CUTS=()
}
