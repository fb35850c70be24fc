#!/usr/bin/env bash
# What the nodes of a shared volume reach, beside a mount of one machine and beside RADOS itself, in
# one run. etcd, Ceph (a monitor and an OSD) and four nodes run on this machine. Rounds are
# interleaved; figures are medians. `bench/cluster/measure.py` has the rows.
#
#   ROUNDS      rounds (default 5)
#   NODE_MOUNT  options of the nodes' mounts (default allow_other,suid,dev,delegations)
#   MEDIUM      rados or file: what the volumes are on (default rados)
#   IOZONE      0 leaves out suite b2 of the lab on the mounts
#   TAKEOVERS   rounds of bench/failover.sh at the end; 0 leaves it out (default 10)
NODE_MOUNT=${NODE_MOUNT:-allow_other,suid,dev,delegations}
source "$(dirname "${BASH_SOURCE[0]}")/../tests/lib.sh"
NAME=bench-cluster
MEDIUM=${MEDIUM:-rados}
need etcd python3
start bench-cluster
source "$REPO/scripts/services.sh"
NODES="owner peer third fourth"
source "$TESTS/helpers/nodes.sh"

start_etcd
VOLUME=cluster://127.0.0.1:$ETCD_PORT/home
case $MEDIUM in
rados)
    need ceph-mon ceph-osd ceph ceph-authtool monmaptool rados
    start_ceph
    shared=rados://pool/shared local=rados://pool/local
    fence=()
    ;;
file)
    shared=$WORK/shared.img local=$WORK/local.img
    kill='kill -9 "$STEADFAST_PROCESS" 2>/dev/null'
    fence=(--fence "$kill"'; while [ -e "/proc/$STEADFAST_PROCESS/exe" ]; do sleep 0.02; done')
    ;;
*) die "MEDIUM is rados or file, not $MEDIUM" ;;
esac
for image in "$shared" "$local"; do
    "$STEADFAST" mkfs --quiet --size 1G "$image"
    "$STEADFAST" mount "$image" "$MNT" && touch "$MNT/probe" &&
        "$STEADFAST" umount "$MNT" >/dev/null
done
"$STEADFAST" cluster create "${fence[@]}" "$VOLUME" "$shared" >/dev/null
for node in $NODES; do node_start "$node" && owns "$node"; done
"$STEADFAST" mount "$local" "$MNT"

pool=()
[ "$MEDIUM" = file ] || pool=(--pool pool)
python3 "$REPO/bench/cluster/measure.py" --rounds "${ROUNDS:-5}" "${pool[@]}" --local "$MNT" \
    "$WORK/owner" "$WORK/peer" "$WORK/third" "$WORK/fourth"

if [ "${IOZONE:-1}" != 0 ]; then
    mkdir "$MNT/iozone" "$WORK/owner/iozone-owner" "$WORK/owner/iozone-peer"
    "$STEADFAST" lab run --suite b2 --quick --quiet --rounds 3 --out "$WORK/b2" \
        --dir "$MNT/iozone" --dir "$WORK/owner/iozone-owner" --dir "$WORK/peer/iozone-peer"
    "$STEADFAST" lab show "$WORK/b2/result.json"
fi
"$STEADFAST" umount "$MNT" >/dev/null
[ "${TAKEOVERS:-10}" = 0 ] || ROUNDS=${TAKEOVERS:-10} "$REPO/bench/failover.sh"
finish
