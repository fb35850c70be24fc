#!/usr/bin/env bash
# A volume on the memory of three servers with parity. A server is killed during use, comes back
# empty and is rebuilt; then another one is killed. A new client checks the volume with one server
# missing.
#
# Further tests: read-only access, draining and rebuilding by command, restoring from a write-behind
# log after the loss of all servers, and TLS. Also the memory of nbdkit and of qemu-storage-daemon,
# if they are installed.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=remote
plain && skip_all "this is about remote memory"
start remote
PIDS=()
PORTS=()
LEND=()
# lend INDEX [PORT]: starts a server, on a free port by default.
lend() {
    local out=$WORK/server$1.out try
    : >"$out"
    "$STEADFAST" serve memory --size 64M --listen "127.0.0.1:${2:-0}" "${LEND[@]}" >"$out" 2>&1 &
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
states() {
    timeout 60 "$STEADFAST" remote status --json "$IMAGE" | sed '/^  "live"/,$d' |
        grep -c '"state": "good"' || true
}
# epoch: the newest epoch.
epoch() {
    timeout 60 "$STEADFAST" remote status "$IMAGE" | sed -n 's/^array.*, epoch \([0-9]*\).*/\1/p'
}
# listens PORT: whether a server answers there.
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
# on_port LOG COMMAND...: starts a server and sets PORT, which replaces the word PORT in COMMAND.
# The port is below those that the kernel gives to other connections. If it is taken, the server
# ends, and the next port is tried.
on_port() {
    local log=$1 try pid
    shift
    for try in $(seq 20); do
        PORT=$((20000 + RANDOM % 10000))
        ! listens $PORT || continue
        "${@//PORT/$PORT}" >"$log" 2>&1 &
        pid=$!
        own $pid
        while kill -0 $pid 2>/dev/null; do
            ! listens $PORT || return 0
            sleep 0.05
        done
    done
    die "no server starts in $try attempts: $(cat "$log")"
}

for index in 0 1 2; do lend $index; done
servers=remote://127.0.0.1:${PORTS[0]},127.0.0.1:${PORTS[1]},127.0.0.1:${PORTS[2]}
words="witness=$WORK/witness&timeout=5000"
timeout 60 "$STEADFAST" mkfs "$servers?policy=parity&$words" >"$WORK/mkfs.log" 2>&1 ||
    die "mkfs: $(cat "$WORK/mkfs.log")"
timeout 60 "$STEADFAST" mkfs "$servers?policy=parity&$words" >/dev/null 2>&1 &&
    die "a volume was overwritten"
IMAGE="$servers?$words"
mount_volume
cp -r "$TESTS" "$MNT/a"
timeout 60 "$STEADFAST" transact "$MNT" || die "transact"
timeout 60 "$STEADFAST" remote rebuild "$IMAGE" 2>/dev/null && die "two owners"
timeout 60 "$STEADFAST" remote status "$IMAGE" >"$WORK/status" || die "status"
grep -q '^open on this machine: whole' "$WORK/status" && grep -q '^flushes .*p99' "$WORK/status" ||
    die "no live numbers: $(cat "$WORK/status")"
timeout 60 "$STEADFAST" top --json "$MNT" | says '"degraded": false' ||
    die "top --json says nothing of the array"
timeout 60 "$STEADFAST" check "$IMAGE" >/dev/null 2>&1 &&
    die "looked at by another process while it is mounted"
ok "a volume on three servers, and its live numbers"

lose 1
cp -r "$TESTS" "$MNT/b"
timeout 60 "$STEADFAST" transact "$MNT" || die "transact with a server lost"
diff -r "$TESTS" "$MNT/a" && diff -r "$TESTS" "$MNT/b" || die "files differ with a server lost"
[ "$(states)" = 2 ] || die "two of three should be good"
timeout 60 "$STEADFAST" remote status "$IMAGE" | says '^open on this machine: degraded' ||
    die "it is not degraded"
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
diff -r "$TESTS" "$MNT/a" && [ "$(cat "$MNT/c")" = "after another" ] ||
    die "the new client finds something else"
umount_volume
ok "the client is killed, too"
lose 1
timeout 60 "$STEADFAST" ls "$IMAGE" / >/dev/null 2>"$WORK/refused" &&
    die "opened with two of three lost"
grep -q 'more servers are lost' "$WORK/refused" ||
    die "the refusal says why: $(cat "$WORK/refused")"
ok "beyond what parity survives it refuses"

# Commands: one member is emptied and a spare takes its place; a member that was lost in the
# meantime is rebuilt.
for index in 3 4 5 6; do lend $index; done
place() { echo "127.0.0.1:${PORTS[$1]}"; }
fresh=remote://$(place 3),$(place 4),$(place 5)
IMAGE="$fresh?spare=$(place 6)&$words"
timeout 60 "$STEADFAST" mkfs "$fresh?policy=parity&$words" >"$WORK/mkfs.log" 2>&1 ||
    die "mkfs: $(cat "$WORK/mkfs.log")"
timeout 60 "$STEADFAST" put -r "$IMAGE" "$TESTS" /a || die "put"
before=$(epoch)
for command in "ls IMAGE /a" "info IMAGE" "check IMAGE" "df IMAGE" "dump IMAGE superblock" \
    "image extract IMAGE $WORK/extracted"; do
    timeout 60 "$STEADFAST" ${command//IMAGE/"$IMAGE"} >"$WORK/command.log" 2>&1 ||
        die "$command: $(cat "$WORK/command.log")"
done
diff -r "$TESTS" "$WORK/extracted/a" || die "image extract brings something else"
timeout 60 "$STEADFAST" mount -o ro "$IMAGE" "$MNT" || die "mount -o ro"
diff -r "$TESTS" "$MNT/a" || die "files differ on a read-only mount"
(echo x >"$MNT/x") 2>/dev/null && die "written on a read-only mount"
timeout 60 "$STEADFAST" umount "$MNT" >/dev/null || die "umount"
[ "$(epoch)" = "$before" ] || die "looking has begun an epoch: $(epoch) after $before"
timeout 60 "$STEADFAST" image build "$IMAGE" "$TESTS" >/dev/null 2>"$WORK/refused" &&
    die "an image was built on an array"
[ "$(wc -l <"$WORK/refused")" = 1 ] || die "the refusal is one line: $(cat "$WORK/refused")"
ok "looking changes nothing"
timeout 120 "$STEADFAST" remote drain "$IMAGE" 1 2>"$WORK/drain.log" |
    says 'all 3 members are good' ||
    die "drain: $(cat "$WORK/drain.log")"
lose 4
[ "$(states)" = 3 ] || die "the spare has not taken the place of the drained server"
moved="remote://$(place 3),$(place 6),$(place 5)?$words"
IMAGE=$moved
check_volume "after the drained server has gone"
lose 5
timeout 60 "$STEADFAST" remote rebuild "$IMAGE" >/dev/null 2>"$WORK/rebuild.log" &&
    die "rebuilt without a server"
lend 5 "${PORTS[5]}"
timeout 120 "$STEADFAST" remote rebuild "$IMAGE" 2>"$WORK/rebuild.log" |
    says 'all 3 members are good' ||
    die "rebuild: $(cat "$WORK/rebuild.log")"
lose 3
check_volume "after a rebuild, with another server lost"
ok "drain and rebuild by command"

# A write-behind log: all servers are lost, and the array is restored from the log on other servers.
for index in 10 11 12; do lend $index; done
logged="log=$WORK/behind&log_behind=8&$words"
IMAGE="remote://$(place 10),$(place 11),$(place 12)?$logged"
create="$IMAGE&policy=parity"
timeout 60 "$STEADFAST" mkfs "$create" >"$WORK/mkfs.log" 2>&1 || die "mkfs: $(cat "$WORK/mkfs.log")"
timeout 60 "$STEADFAST" mkfs "$create" >/dev/null 2>&1 && die "a log was overwritten"
mount_volume
cp -r "$TESTS" "$MNT/a"
head -c 20M /dev/urandom >"$MNT/large"
timeout 60 "$STEADFAST" transact "$MNT" || die "transact"
sum=$(sha256sum <"$MNT/large")
# log_line: the log in the output of status.
log_line() { timeout 60 "$STEADFAST" remote status "$IMAGE" | grep '^write-behind log' || true; }
for try in $(seq 240); do
    ! log_line | says ': complete, flushed .*, 0 .* behind' || break
    sleep 0.25
done
log_line | says ': complete, flushed .*, 0 .* behind' ||
    die "the log is not complete ($try): $(log_line)"
timeout 60 "$STEADFAST" remote restore "$create" >/dev/null 2>"$WORK/refused" &&
    die "restored while it is open"
kill_daemon
timeout 60 "$STEADFAST" remote restore "$create" >/dev/null 2>"$WORK/refused" &&
    die "restored over servers that are there"
grep -q 'still holds the array' "$WORK/refused" ||
    die "the refusal says why: $(cat "$WORK/refused")"
check_volume "with its servers and a log"
for index in 10 11 12; do lose $index; done
timeout 60 "$STEADFAST" mount "$IMAGE" "$MNT" 2>"$WORK/refused" && die "mounted without a server"
grep -q 'remote restore' "$WORK/refused" ||
    die "the refusal names the way out: $(cat "$WORK/refused")"
for index in 13 14 15; do lend $index; done
IMAGE="remote://$(place 13),$(place 14),$(place 15)?$logged"
timeout 120 "$STEADFAST" remote restore "$IMAGE&policy=parity" >"$WORK/restore.log" 2>&1 ||
    die "restore: $(cat "$WORK/restore.log")"
check_volume "restored from the log"
mount_volume
diff -r "$TESTS" "$MNT/a" || die "files differ after the restore"
[ "$(sha256sum <"$MNT/large")" = "$sum" ] || die "the large file differs after the restore"
cp -r "$TESTS" "$MNT/b"
umount_volume
log_line | says 'can be restored' || die "the log did not go on: $(log_line)"
ok "all servers are lost, and the array is restored from the write-behind log"

# complete: waits until the log is complete.
complete() {
    for try in $(seq 240); do
        ! log_line | says ': complete, flushed .*, 0 .* behind' || return 0
        sleep 0.25
    done
    die "the log is not complete ($try): $(log_line)"
}
# made_anew INDEX INDEX INDEX: restores the array on new servers.
made_anew() {
    local index
    for index in "$@"; do lend "$index"; done
    IMAGE="remote://$(place "$1"),$(place "$2"),$(place "$3")?$logged"
    timeout 120 "$STEADFAST" remote restore "$IMAGE&policy=parity" >"$WORK/restore.log" 2>&1 ||
        die "restore: $(cat "$WORK/restore.log")"
    check_volume "restored from $1 on"
}

# An array is refused without its log, unless the address says that the log is left behind. The next
# client that names the log brings it up to date.
without="remote://$(place 13),$(place 14),$(place 15)?$words"
timeout 60 "$STEADFAST" put -r "$without" "$TESTS" /c >/dev/null 2>"$WORK/refused" &&
    die "used without its log"
grep -q 'log=none' "$WORK/refused" || die "the refusal names the way out: $(cat "$WORK/refused")"
timeout 60 "$STEADFAST" ls "$without" /a >/dev/null || die "no program can look without the log"
timeout 60 "$STEADFAST" put -r "$without&log=none" "$TESTS" /c || die "put with log=none"
mount_volume
complete
umount_volume
for index in 13 14 15; do lose $index; done
made_anew 16 17 18
timeout 60 "$STEADFAST" image extract "$IMAGE" "$WORK/restored" >"$WORK/extract.log" 2>&1 ||
    die "extract: $(cat "$WORK/extract.log")"
diff -r "$TESTS" "$WORK/restored/c" || die "what was written without the log is not restored"
for index in 16 17 18; do lose $index; done
ok "an array is not used without its log by mistake"

if [ "$(id -u)" = 0 ] && losetup --find >/dev/null 2>&1; then
    for index in 20 21 22; do lend $index; done
    on="remote://$(place 20),$(place 21),$(place 22)"
    truncate -s 8M "$WORK/small.img"
    truncate -s 256M "$WORK/log.img"
    small=$(losetup --find --show "$WORK/small.img")
    loop=$(losetup --find --show "$WORK/log.img")
    timeout 60 "$STEADFAST" mkfs "$on?policy=parity&$words&log=$small&log_behind=8" >/dev/null \
        2>"$WORK/refused" &&
        die "a log on a device that is too small"
    grep -q 'are needed' "$WORK/refused" ||
        die "the refusal says how much is needed: $(cat "$WORK/refused")"
    echo something >"$loop"
    logged="log=$loop&log_behind=8&$words"
    timeout 60 "$STEADFAST" mkfs "$on?policy=parity&$logged" --force >/dev/null 2>"$WORK/refused" &&
        die "a device that holds something was overwritten"
    grep -q 'holds no write-behind log' "$WORK/refused" ||
        die "the refusal says why: $(cat "$WORK/refused")"
    # Other data on it does no harm.
    head -c 64M /dev/urandom >"$loop"
    head -c 64K /dev/zero >"$loop"
    IMAGE="$on?$logged"
    timeout 60 "$STEADFAST" mkfs --force "$IMAGE&policy=parity" >"$WORK/mkfs.log" 2>&1 ||
        die "mkfs: $(cat "$WORK/mkfs.log")"
    mount_volume
    cp -r "$TESTS" "$MNT/a"
    head -c 20M /dev/urandom >"$MNT/large"
    timeout 60 "$STEADFAST" transact "$MNT" || die "transact"
    sum=$(sha256sum <"$MNT/large")
    rm -r "$MNT/a"
    cp -r "$TESTS" "$MNT/b"
    timeout 60 "$STEADFAST" transact "$MNT" || die "transact"
    complete
    kill_daemon
    for index in 20 21 22; do lose $index; done
    made_anew 23 24 25
    mount_volume
    diff -r "$TESTS" "$MNT/b" && [ "$(sha256sum <"$MNT/large")" = "$sum" ] ||
        die "files differ after the restore from a block device"
    umount_volume
    for index in 23 24 25; do lose $index; done
    ok "a write-behind log on a block device"

    # given_up: waits until the log is given up for want of space.
    given_up() {
        local try
        for try in $(seq 240); do
            ! log_line | says 'FAILED.*No space left' || return 0
            sleep 0.25
        done
        die "the log was not given up ($try): $(log_line)"
    }

    # full_disk WHERE INDEX: the log's disk is full. The array continues, and the log continues when
    # there is space again. Uses servers from INDEX.
    full_disk() {
        local first=$2 second=$(($2 + 3)) index
        for index in $(seq "$first" $((first + 5))); do lend "$index"; done
        logged="log=$1/behind&log_behind=8&$words"
        IMAGE="remote://$(place "$first"),$(place $((first + 1))),$(place $((first + 2)))?$logged"
        # All space except 40 MiB.
        fallocate -l $(($(df --output=avail -B1 "$1" | tail -n 1) - (40 << 20))) "$1/other"
        timeout 60 "$STEADFAST" mkfs --force "$IMAGE&policy=parity" >"$WORK/mkfs.log" 2>&1 ||
            die "mkfs: $(cat "$WORK/mkfs.log")"
        mount_volume
        cp -r "$TESTS" "$MNT/a"
        head -c 40M /dev/urandom >"$MNT/large"
        timeout 60 "$STEADFAST" transact "$MNT" || die "transact with the log's disk full"
        sum=$(sha256sum <"$MNT/large")
        given_up
        cp -r "$TESTS" "$MNT/b"
        umount_volume
        log_line | says 'FAILED.*No space left' ||
            die "the log does not say that it was given up: $(log_line)"
        check_volume "with a log whose disk is full"
        timeout 60 "$STEADFAST" remote restore \
            "remote://$(place "$second"),$(place $((second + 1)))?policy=mirror&$logged" \
            >/dev/null 2>"$WORK/refused" &&
            die "restored from a log that was given up"
        grep -q 'was given up\|never complete' "$WORK/refused" ||
            die "the refusal says why: $(cat "$WORK/refused")"
        # While the disk is full, a client that names the log gets an error if the journal has a
        # batch to apply. Otherwise the log is given up again. A client may leave the log behind.
        if timeout 60 "$STEADFAST" mount "$IMAGE" "$MNT" >"$WORK/refused" 2>&1; then
            given_up
            timeout 60 "$STEADFAST" umount "$MNT" >/dev/null ||
                die "umount with the log's disk full"
        else
            grep -q 'No space left' "$WORK/refused" ||
                die "the refusal says why: $(cat "$WORK/refused")"
        fi
        timeout 60 "$STEADFAST" put -r "${IMAGE/log=*log_behind=8/log=none}" "$TESTS" /c ||
            die "put with log=none"
        rm "$1/other"
        mount_volume
        complete
        umount_volume
        for index in $(seq "$first" $((first + 5))); do lose "$index"; done
        made_anew $((first + 6)) $((first + 7)) $((first + 8))
        mount_volume
        for index in a b c; do
            diff -r "$TESTS" "$MNT/$index" ||
                die "files differ after a full disk"
        done
        [ "$(sha256sum <"$MNT/large")" = "$sum" ] || die "the large file differs after a full disk"
        umount_volume
        for index in $(seq $((first + 6)) $((first + 8))); do lose "$index"; done
    }
    mkdir "$WORK/tmpfs" "$WORK/ext4"
    mount -t tmpfs -o size=300m none "$WORK/tmpfs"
    full_disk "$WORK/tmpfs" 30
    umount "$WORK/tmpfs"
    if command -v mkfs.ext4 >/dev/null; then
        truncate -s 300M "$WORK/ext4.img"
        # No reserve for root: this script runs as root, so a reserve would leave space on a full
        # disk.
        mkfs.ext4 -q -m 0 "$WORK/ext4.img"
        mount -o loop "$WORK/ext4.img" "$WORK/ext4"
        full_disk "$WORK/ext4" 40
        umount "$WORK/ext4"
    fi
    ok "a write-behind log on a disk that is full"
fi

# TLS from this client to this server and to nbdkit. A client without the authority cannot connect.
pki=$WORK/pki
if command -v openssl >/dev/null; then
    mkdir "$pki"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
        -subj /CN=authority -keyout "$pki/ca-key.pem" -out "$pki/ca-cert.pem" >/dev/null 2>&1
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$pki/ext"
    for who in server client; do
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$who" \
            -keyout "$pki/$who-key.pem" -out "$pki/$who.csr" >/dev/null 2>&1
        openssl x509 -req -in "$pki/$who.csr" -CA "$pki/ca-cert.pem" -CAkey "$pki/ca-key.pem" \
            -CAcreateserial -days 2 -extfile "$pki/ext" -out "$pki/$who-cert.pem" >/dev/null 2>&1
    done
    tls="tls_ca=$pki/ca-cert.pem&tls_cert=$pki/client-cert.pem&tls_key=$pki/client-key.pem"
    LEND=(--tls-cert "$pki/server-cert.pem" --tls-key "$pki/server-key.pem"
        --tls-ca "$pki/ca-cert.pem")
    for index in 7 8; do lend $index; done
    LEND=()
    secret="remote://localhost:${PORTS[7]},$(place 8)?policy=mirror&$words"
    timeout 60 "$STEADFAST" mkfs "$secret" >/dev/null 2>&1 && die "an array was made without TLS"
    IMAGE="$secret&$tls"
    timeout 60 "$STEADFAST" mkfs "$IMAGE" >"$WORK/mkfs.log" 2>&1 ||
        die "mkfs over TLS: $(cat "$WORK/mkfs.log")"
    timeout 60 "$STEADFAST" put -r "$IMAGE" "$TESTS" /a || die "put over TLS"
    check_volume "over TLS"
    if command -v nbdkit >/dev/null; then
        on_port "$WORK/nbdkit.log" nbdkit -f -i 127.0.0.1 -p PORT \
            --tls=require --tls-certificates="$pki" --tls-verify-peer memory 64M
        IMAGE="remote://localhost:$PORT?$words&$tls"
        timeout 60 "$STEADFAST" mkfs "$IMAGE" >"$WORK/mkfs.log" 2>&1 ||
            die "mkfs on nbdkit over TLS: $(cat "$WORK/mkfs.log")"
        check_volume "on nbdkit over TLS"
    fi
    ok "TLS"
fi

if command -v qemu-storage-daemon >/dev/null; then
    truncate -s 64M "$WORK/lent.img"
    addresses=()
    for index in 0 1; do
        cp "$WORK/lent.img" "$WORK/lent$index.img"
        on_port "$WORK/qemu$index.log" qemu-storage-daemon \
            --blockdev driver=file,node-name=lent,filename="$WORK/lent$index.img" \
            --nbd-server addr.type=inet,addr.host=127.0.0.1,addr.port=PORT \
            --export type=nbd,id=lent,node-name=lent,name=,writable=on
        addresses+=("127.0.0.1:$PORT")
    done
    IMAGE="remote://${addresses[0]},${addresses[1]}?policy=mirror&$words"
    timeout 60 "$STEADFAST" mkfs "$IMAGE" >"$WORK/mkfs.log" 2>&1 ||
        die "mkfs on qemu-storage-daemon: $(cat "$WORK/mkfs.log")"
    mount_volume
    cp -r "$TESTS" "$MNT/a"
    umount_volume
    check_volume "on a mirror of two qemu-storage-daemons"
    ok "what qemu-storage-daemon lends"
fi

if command -v nbdkit >/dev/null; then
    addresses=()
    for index in 0 1; do
        on_port "$WORK/nbdkit$index.log" nbdkit -f -i 127.0.0.1 -p PORT memory 64M
        addresses+=("127.0.0.1:$PORT")
    done
    IMAGE="remote://${addresses[0]},${addresses[1]}?policy=mirror&$words"
    timeout 60 "$STEADFAST" mkfs "$IMAGE" >"$WORK/mkfs.log" 2>&1 ||
        die "mkfs on nbdkit: $(cat "$WORK/mkfs.log")"
    mount_volume
    cp -r "$TESTS" "$MNT/a"
    umount_volume
    check_volume "on a mirror of two nbdkit servers"
    ok "the memory of nbdkit"
fi
finish
