#!/usr/bin/env bash
# An image in RADOS with a real Ceph: one monitor and one OSD on this machine, with keys. What keeps
# a client out is said in one line. Killed mounts, a second machine, an eviction of a stopped mount,
# and an OSD that does not answer lose nothing that was made durable.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=rados
plain && skip_all "this is about images in RADOS"
need ceph-mon ceph-osd ceph ceph-authtool monmaptool rados
start rados

source "$REPO/scripts/services.sh"

# In front of a command: as if it ran on another machine.
ELSEWHERE=(unshare --uts sh -c 'hostname elsewhere && exec "$@"' sh)

objects() { rados -p pool ls 2>/dev/null | grep -c '^disk\.[0-9a-f]*$' || true; }

start_ceph
ok "a monitor and an OSD answer"
IMAGE=rados://pool/disk

# What keeps a client out.
refused "there is no image 'disk'" "$STEADFAST" info $IMAGE
refused "the image does not exist" "$STEADFAST" mkfs $IMAGE
refused "volume too small" "$STEADFAST" mkfs --size 8K $IMAGE
refused "there is no pool 'none'" "$STEADFAST" mkfs --size 64M rados://none/disk
refused "the name of the image is missing" "$STEADFAST" mkfs --size 64M rados://pool
refused "configuration of Ceph cannot be read" "$STEADFAST" info "$IMAGE?conf=/no/such"
refused "the key of client.stranger" "$STEADFAST" info "$IMAGE?user=stranger"
sed "s/:$CEPH_PORT\]/:1]/" "$CONF" >"$WORK/deaf.conf"
refused "monitors of Ceph cannot be reached" "$STEADFAST" info \
    "$IMAGE?conf=$WORK/deaf.conf&timeout=2"
ceph auth get-or-create client.reader mon 'allow r' osd 'allow r pool=pool' >>"$WORK/keyring"
ceph auth get-or-create client.writer mon 'profile rbd' osd 'profile rbd pool=pool' \
    >>"$WORK/keyring"
refused "client.reader may not" "$STEADFAST" mkfs --size 64M "$IMAGE?user=reader"
library=$(ldconfig -p | awk '/librados\.so\.2/ && !seen++ { print $NF }')
refused "librados cannot be loaded" unshare --mount sh -c \
    'mount --bind /dev/null "$1" && shift && exec "$@"' sh "$library" "$STEADFAST" info $IMAGE
[ "$(rados -p pool ls | wc -l)" -eq 0 ] ||
    die "a refused command left objects behind: $(rados -p pool ls)"
ok "what keeps a client out is said in one line"

# Everything below runs with the rights that the page asks for.
IMAGE='rados://pool/disk?user=writer&timeout=10'
# Of several that make the image at once, one does. The others leave that one alone.
made=()
makers=()
for uuid in 1 2 3 4; do
    "$STEADFAST" mkfs --json --size 512M --uuid "00000000-0000-4000-8000-00000000000$uuid" \
        "$IMAGE" >"$WORK/made.$uuid" 2>"$WORK/refused.$uuid" &
    makers+=("$!")
done
for maker in "${makers[@]}"; do wait "$maker" || true; done
for uuid in 1 2 3 4; do
    if [ -s "$WORK/made.$uuid" ]; then made+=("$uuid"); fi
done
[ "${#made[@]}" -eq 1 ] || die "${#made[@]} of 4 made the image: $(cat "$WORK"/refused.*)"
"$STEADFAST" info "$IMAGE" | says "00000000-0000-4000-8000-00000000000${made[0]}" ||
    die "the image is not the one that was made: $("$STEADFAST" info "$IMAGE")"
refused "already holds" "$STEADFAST" mkfs --size 64M "$IMAGE"
mount_volume
refused "in use" "${ELSEWHERE[@]}" "$STEADFAST" put "$IMAGE" "$CONF" /conf
refused "in use" "${ELSEWHERE[@]}" "$STEADFAST" rados remove --force "$IMAGE"
"$STEADFAST" rados status "$IMAGE" | says "process $DAEMON on $(hostname)" ||
    die "status names no owner"
fio --name=v --directory="$MNT" --size=40M --bs=4k --rw=randwrite --fsync=64 --verify=crc32c \
    --verify_state_save=0 --randseed=7 --output="$WORK/fio.log" >/dev/null 2>&1 ||
    die "fio: $(tail -n 5 "$WORK/fio.log")"
umount_volume
check_volume "random writes"
mount_volume
fio --name=v --directory="$MNT" --size=40M --bs=4k --rw=randwrite --verify=crc32c \
    --verify_state_save=0 --verify_only --randseed=7 --output="$WORK/fio.log" >/dev/null 2>&1 ||
    die "fio: $(tail -n 5 "$WORK/fio.log")"
ok "fio reads what it wrote, after a remount"

# Killed and mounted again: the lock of the dead process is taken over.
for round in $(seq "$(bounded 5 50)"); do
    (
        for file in $(seq 1000); do
            echo "$round-$file" >"$MNT/f$file" && sync "$MNT/f$file" &&
                echo "$file" >>"$WORK/acknowledged"
        done
    ) >/dev/null 2>&1 &
    writer=$!
    own $writer
    : >"$WORK/acknowledged"
    sleep "0.$((RANDOM % 6 + 2))"
    kill -9 "$DAEMON"
    # Before the mount point is that of the host again.
    kill -9 $writer 2>/dev/null || true
    wait $writer 2>/dev/null || true
    kill_daemon
    mount_volume
    while read -r file; do
        [ "$(cat "$MNT/f$file")" = "$round-$file" ] || die "round $round: file $file is lost"
    done <"$WORK/acknowledged"
    total=$((${total:-0} + $(wc -l <"$WORK/acknowledged")))
done
[ "$total" -gt 10 ] || die "only $total files were acknowledged"
umount_volume
check_volume "$round kills"
ok "$round kills lost none of $total files that were synced"

# A stopped machine is evicted. The next one mounts; what the first still holds is refused.
mount_volume
first=$DAEMON
echo kept >"$MNT/kept"
sync "$MNT/kept"
echo lost >"$MNT/lost"
kill -STOP "$first"
"${ELSEWHERE[@]}" "$STEADFAST" rados evict "$IMAGE" |
    says "process $first on $(hostname) is evicted" ||
    die "no eviction"
mkdir "$WORK/second"
"${ELSEWHERE[@]}" timeout 60 "$STEADFAST" mount --log "$WORK/second.log" "$IMAGE" "$WORK/second"
[ "$(cat "$WORK/second/kept")" = kept ] || die "what the first machine synced is lost"
for file in $(seq 50); do echo "$file" >"$WORK/second/s$file"; done
sync "$WORK/second/s50"
kill -CONT "$first"
if timeout 30 sync "$MNT/lost" 2>/dev/null; then die "the evicted machine acknowledges a sync"; fi
timeout 60 "$STEADFAST" umount "$WORK/second" >/dev/null
if timeout 60 "$STEADFAST" umount "$MNT" >"$WORK/umount.log" 2>&1; then
    die "the evicted machine says that all is durable"
fi
gone "$first" 30 || die "the evicted daemon does not end"
DAEMON=
check_volume "an eviction"
mount_volume
[ "$(cat "$MNT/kept" "$MNT/s50")" = "$(printf 'kept\n50')" ] ||
    die "the second machine's files are lost"
umount_volume
ok "an evicted mount acknowledges nothing and changes nothing"

# An OSD that does not answer.
IMAGE='rados://pool/disk?user=writer&timeout=3'
mount_volume
echo before >"$MNT/before"
sync "$MNT/before"
kill -STOP "$OSD"
begin=$(date +%s)
if { echo after >"$MNT/after" && timeout 60 sync "$MNT/after"; } 2>/dev/null; then
    die "a sync without an OSD succeeds"
fi
took=$(($(date +%s) - begin))
[ $took -lt 30 ] || die "a sync without an OSD took $took s"
kill -CONT "$OSD"
timeout 60 "$STEADFAST" umount "$MNT" >"$WORK/umount.log" 2>&1 || true
gone "$DAEMON" 30 || die "the daemon does not end"
DAEMON=
mount_volume
[ "$(cat "$MNT/before")" = before ] || die "what was synced before is lost"
umount_volume
check_volume "an OSD that stopped"
ok "a sync that the OSD does not answer fails"

# Sizes and discards.
count=$(objects)
mount_volume
rm -r "${MNT:?}"/*
"$STEADFAST" trim "$MNT" >/dev/null
umount_volume
[ "$(objects)" -lt "$count" ] || die "a trim gives nothing back: $count, then $(objects) objects"
"$STEADFAST" image resize --quiet "$IMAGE" 1G
"$STEADFAST" put "$IMAGE" "$CONF" /conf
"$STEADFAST" image resize --quiet "$IMAGE" 64M
"$STEADFAST" cat "$IMAGE" /conf | cmp - "$CONF" || die "resizing lost a file"
check_volume "resizing"
"$STEADFAST" mkfs --quiet --force --size 128M "$IMAGE"
"$STEADFAST" rados status --json "$IMAGE" | says '"size": 134217728' ||
    die "mkfs --force keeps the old size"
check_volume "formatting again"
refused "no process has the image open" "$STEADFAST" rados evict "$IMAGE"
"$STEADFAST" rados remove --force "$IMAGE" >/dev/null
[ "$(rados -p pool ls | wc -l)" -eq 0 ] ||
    die "objects are left: $(rados -p pool ls | sed -n 1,10p)"
printf 'something else' | rados -p pool put disk.steadfast -
refused "not one of Steadfast" "$STEADFAST" mount "$IMAGE" "$MNT"
refused "not one of Steadfast" "$STEADFAST" mkfs --force --size 64M "$IMAGE"
ok "an image grows, shrinks, gives space back and is removed"

# Two nodes of a cluster: the owner stops and wakes up when the other one has taken over.
if command -v etcd >/dev/null; then
    start_etcd
    rados -p pool rm disk.steadfast
    "$STEADFAST" mkfs --quiet --size 128M "$IMAGE"
    VOLUME=cluster://127.0.0.1:$ETCD_PORT/home
    "$STEADFAST" cluster create --standby "$VOLUME" "$IMAGE" >/dev/null
    mkdir "$WORK/other"
    "${ELSEWHERE[@]}" "$STEADFAST" mount -f "$VOLUME?node=a" "$WORK/other" 2>"$WORK/other.log" &
    OTHER=$!
    own $!
    for _ in $(seq 200); do ! mountpoint -q "$WORK/other" || break; sleep 0.05; done
    echo synced >"$WORK/other/synced" && sync "$WORK/other/synced" ||
        die "node a: $(cat "$WORK/other.log")"
    "$STEADFAST" mount --log "$WORK/daemon.log" "$VOLUME?node=b" "$MNT" >"$WORK/mount.log" 2>&1 &
    STANDBY=$!
    sleep 1
    ! mountpoint -q "$MNT" || die "two nodes have the volume"
    # A file that the stopped owner still wants to write.
    exec 7>"$WORK/other/late"
    kill -STOP "$OTHER"
    begin=$(now_ms)
    wait "$STANDBY" || die "node b: $(cat "$WORK/mount.log")"
    took=$(($(now_ms) - begin))
    [ "$(cat "$MNT/synced")" = synced ] || die "a failover lost what was synced"
    echo new >"$MNT/new" && sync "$MNT/new"
    kill -CONT "$OTHER"
    if { echo late >&7; } 2>/dev/null && timeout 20 sync "$WORK/other/late" 2>/dev/null; then
        die "a deposed owner acknowledges"
    fi
    exec 7>&- || true
    gone "$OTHER" 30 || die "a deposed owner goes on: $(tail -n 3 "$WORK/other.log")"
    grep -q "deposed by node b" "$WORK/other.log" ||
        die "the log does not say why: $(cat "$WORK/other.log")"
    umount -l "$WORK/other" 2>/dev/null || true
    [ "$(cat "$MNT/new")" = new ] || die "the deposed owner changed something"
    # An unmount does not wait for the node elsewhere that takes over at once.
    "${ELSEWHERE[@]}" "$STEADFAST" mount -f "$VOLUME?node=a" "$WORK/other" 2>"$WORK/other.log" &
    OTHER=$!
    own $!
    for _ in $(seq 200); do
        ! grep -q "standing by: node b" "$WORK/other.log" || break; sleep 0.05
    done
    timeout 60 "$STEADFAST" umount "$MNT" >/dev/null || die "an unmount waits for another machine"
    for _ in $(seq 200); do ! mountpoint -q "$WORK/other" || break; sleep 0.05; done
    [ "$(cat "$WORK/other/new")" = new ] || die "node a did not take over: $(cat "$WORK/other.log")"
    kill "$OTHER"
    gone "$OTHER" 30 || die "node a does not end: $(cat "$WORK/other.log")"
    [ "$("$STEADFAST" ls "$IMAGE" / | grep -c late)" -eq 0 ] || die "the deposed owner wrote a file"
    check_volume "a failover"
    ok "a stopped owner is fenced: the other node serves after $took ms"

    # The same where both nodes have the volume mounted: a program of the other one waits, goes on,
    # and Ceph refuses what the stopped owner still writes.
    "$STEADFAST" cluster remove "$VOLUME" >/dev/null
    "$STEADFAST" cluster create "$VOLUME" "$IMAGE" >/dev/null
    "${ELSEWHERE[@]}" "$STEADFAST" mount -f "$VOLUME?node=a" "$WORK/other" 2>"$WORK/other.log" &
    OTHER=$!
    own $!
    for _ in $(seq 200); do ! grep -q "this node owns" "$WORK/other.log" || break; sleep 0.05; done
    timeout 60 "$STEADFAST" mount --log "$WORK/daemon.log" "$VOLUME?node=b" "$MNT" \
        >"$WORK/mount.log" 2>&1 ||
        die "a peer does not mount: $(cat "$WORK/mount.log")"
    echo shared >"$MNT/shared" && sync "$MNT/shared" &&
        [ "$(cat "$WORK/other/shared")" = shared ] ||
        die "two nodes do not share the volume: $(cat "$WORK/other.log")"
    # Data that programs read in large pieces does not pass through the owner.
    dd if=/dev/urandom of="$WORK/large" bs=1M count=8 status=none
    dd if="$WORK/large" of="$WORK/other/large" bs=1M conv=fsync status=none
    # counted KEY: a number of the owner.
    counted() {
        "$STEADFAST" top --json "$MNT" | sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" | sed -n 1p
    }
    before=$(counted read_bytes)
    dd if="$MNT/large" bs=1M status=none | cmp - "$WORK/large" ||
        die "a peer reads other bytes than the owner has written"
    direct=$(counted direct_read_bytes)
    [ "${direct:-0}" -ge $((4 << 20)) ] || die "a peer was told to read $direct bytes from RADOS"
    # What was not there is asked for and counted again.
    again=$(($(counted read_bytes) - before - (8 << 20)))
    [ "$again" -lt "$direct" ] || die "RADOS has $again bytes too little of $direct for a peer"
    ! grep "reads all data from the owner" "$WORK/daemon.log" || die "a peer cannot read RADOS"
    ok "a peer reads large files from RADOS itself"
    # A program of its own: a close waits for the owner, and so would each child of this script.
    mkfifo "$WORK/go"
    sh -c 'exec 7>"$1/late" && echo open && read -r go && echo late >&7 &&
            timeout 20 sync "$1/late" && exit 7
        exit 0' sh "$WORK/other" <"$WORK/go" >"$WORK/late.log" 2>/dev/null &
    LATE=$!
    own $!
    exec 7>"$WORK/go"
    for _ in $(seq 200); do [ ! -s "$WORK/late.log" ] || break; sleep 0.05; done
    kill -STOP "$OTHER"
    begin=$(now_ms)
    timeout 60 sh -c "echo next >'$MNT/next' && sync '$MNT/next'" ||
        die "a peer does not outlive its owner"
    took=$(($(now_ms) - begin))
    [ "$(cat "$MNT/shared")" = shared ] || die "a takeover lost what was synced"
    kill -CONT "$OTHER"
    echo go >&7
    exec 7>&-
    wait "$LATE" || die "a deposed owner acknowledges"
    gone "$OTHER" 30 || die "a deposed owner goes on: $(tail -n 3 "$WORK/other.log")"
    umount -l "$WORK/other" 2>/dev/null || true
    [ ! -s "$MNT/late" ] && [ "$(cat "$MNT/next")" = next ] ||
        die "the deposed owner changed something"
    # It may say that a point was lost: the takeover was this node's first one.
    timeout 60 "$STEADFAST" umount "$MNT" >"$WORK/said" 2>&1 ||
        grep -q "stale file handle" "$WORK/said" ||
        die "umount of the last owner: $(cat "$WORK/said")"
    check_volume "a takeover among peers"
    ok "a stopped owner of a shared volume: the other node goes on after $took ms"
fi
finish
