#!/usr/bin/env bash
# Nodes whose kernels have pages of files that another node changes all the time. A node that is
# killed, and one that is unmounted, ends at any moment, whether or not the owner answers.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=lookers
need etcd python3
start lookers
source "$REPO/scripts/services.sh"
NODES="first second third"
NODE_MOUNT=allow_other,suid,dev,delegations
source "$TESTS/helpers/nodes.sh"

start_etcd
VOLUME=cluster://127.0.0.1:$ETCD_PORT/home
"$STEADFAST" mkfs --quiet --size 64M "$WORK/volume.img"
"$STEADFAST" mount "$WORK/volume.img" "$MNT" && touch "$MNT/probe"
"$STEADFAST" umount "$MNT" >/dev/null
kill='kill -9 "$STEADFAST_PROCESS" 2>/dev/null'
"$STEADFAST" cluster create \
    --fence "$kill"'; while [ -e "/proc/$STEADFAST_PROCESS/exe" ]; do sleep 0.02; done' \
    "$VOLUME" "$WORK/volume.img" >/dev/null

# uses NODE HOW: a program that reads or writes the files there, again and again. Its process is
# USER_OF[HOW].
declare -A USER_OF
uses() {
    python3 "$TESTS/helpers/again.py" "$2" "$WORK/$1" &
    own $!
    USER_OF[$2]=$!
    disown
}

for how in kill stop-and-kill unmount stop-and-unmount; do
    for node in first second third; do node_start "$node" && owns "$node"; done
    for number in $(seq 0 19); do echo 00000000 >"$WORK/first/read$number"; done
    sleep 0.8
    uses second read
    uses third write
    sleep "0.$((RANDOM % 8 + 1))"
    helper=$(pgrep -P "${PIDS[second]}" -x steadfast-pull) || die "the node has no helper"
    case $how in
    *unmount) kill -9 "${USER_OF[read]}" && gone "${USER_OF[read]}" 10 ;;
    esac
    case $how in
    stop-and-*) kill -STOP "${PIDS[first]}" && sleep 0.05 ;;
    esac
    case $how in
    *kill) kill -9 "${PIDS[second]}" ;;
    *unmount) umount "$WORK/second" ;;
    esac
    gone "${PIDS[second]}" 10 || die "$how: the node does not end: $(last_lines second)"
    gone "$helper" 10 || die "$how: its helper does not end"
    kill -9 "${USER_OF[@]}" 2>/dev/null || true
    kill -CONT "${PIDS[first]}" 2>/dev/null || true
    for node in third first; do
        kill -9 "${PIDS[$node]}" 2>/dev/null || true
        gone "${PIDS[$node]}" 10 || die "$how: node $node does not end"
        umount -l "$WORK/$node" 2>/dev/null || true
    done
    ok "$how in the middle of recalls: the node and its helper end"
done
finish
