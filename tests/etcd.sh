#!/usr/bin/env bash
# Remote memory with a real etcd. Servers enter its list and leave it, and arrays claim their
# memory. One client at a time writes, and a later client fences the earlier one. Another server of
# the list replaces a lost one. etcd itself stops and starts again, and an array is released. Then
# the same over TLS.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=etcd
plain && skip_all "this is about remote memory"
need etcd openssl
start etcd

source "$REPO/scripts/services.sh"
etcd_answers() { servers; }

CERTS=()
servers() {
    timeout 60 "$STEADFAST" remote servers --etcd "127.0.0.1:$ETCD_PORT" "${CERTS[@]}" "$@"
}
# until_true WHAT COMMAND...: waits until the command succeeds.
until_true() {
    local what=$1 try
    shift
    for try in $(seq 300); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.2
    done
    die "$what ($try): $(servers 2>&1)"
}
listed() { servers >"$WORK/listing" && grep -q "^$1 .* in use" "$WORK/listing"; }
unlisted() { servers >"$WORK/listing" && ! grep -q "^$1 .* in use" "$WORK/listing"; }
# member NUMBER ARRAY: the server that holds this member.
member() {
    servers | sed -n "s/^array $2: .*, on \(.*\), epoch .*/\1/p" | tr -d ' ' | cut -d, -f$(($1 + 1))
}

declare -A PIDS
# lend NAME: starts a server in the list, with room for two arrays.
lend() {
    "$STEADFAST" serve memory --size 64M --quota 32M --listen 127.0.0.1:0 \
        --etcd "127.0.0.1:$ETCD_PORT" "${CERTS[@]}" --name "$1" >"$WORK/server-$1" 2>&1 &
    PIDS[$1]=$!
    own $!
}
lose() {
    kill -9 "${PIDS[$1]}"
    gone "${PIDS[$1]}" 30 || die "server $1 does not die"
    wait "${PIDS[$1]}" 2>/dev/null || true
}
# A client with its own directory is a different machine, as far as it knows.
place() { echo "remote+etcd://127.0.0.1:$ETCD_PORT/$1?timeout=5000&witness=$WORK/$2"; }
run() { timeout 60 "$STEADFAST" "$@" >"$WORK/run.log" 2>&1 || die "$*: $(cat "$WORK/run.log")"; }
states() {
    timeout 60 "$STEADFAST" remote status --json "$IMAGE" | sed '/^  "live"/,$d' |
        grep -c '"state": "good"' || true
}
good() { [ "$(states)" = "$1" ]; }

start_etcd
for name in s0 s1 s2 s3; do lend $name; done
for name in s0 s1 s2 s3; do until_true "$name is not listed" listed $name; done
lose s3
until_true "s3 is still listed" unlisted s3
kill "${PIDS[s2]}"
gone "${PIDS[s2]}" 30 || die "s2 does not end"
until_true "s2 is still listed" unlisted s2
lend s2
until_true "s2 is not listed" listed s2
ok "servers come and go"

# The log of a released array may be its only remaining copy.
kept="$(place kept one)&policy=mirror&log=$WORK/kept"
run mkfs "$kept"
run remote release "$kept" --force
refused "overwrite the array with --force" "$STEADFAST" mkfs "$kept"
run mkfs "$kept" --force

# An array that another machine has used without the log is not restored from that log, even if all
# old servers are gone.
log="log=$WORK/kept"
complete() {
    timeout 60 "$STEADFAST" remote status "$IMAGE" |
        says '^write-behind log.*: complete, flushed .*, 0 .* behind'
}
# logged MACHINE DIRECTORY: the files of this directory are in the volume and in the log.
logged() {
    IMAGE="$(place kept "$1")&$log"
    mount_volume
    cp -r "$TESTS" "$MNT/$2"
    run transact "$MNT"
    until_true "the log is not complete" complete
    umount_volume
}
logged one a
refused "log=none" "$STEADFAST" put -r "$(place kept two)" "$TESTS" /b
run put -r "$(place kept two)&log=none" "$TESTS" /b
run remote release "$(place kept two)" --force
refused "was not used when the array was opened last" "$STEADFAST" remote restore "$kept"
run remote restore "$kept" --force
IMAGE="$(place kept one)&$log"
check_volume "restored from an older log"
logged one c
# Such an array is restored if a third machine that has the log has brought it up to date.
run put -r "$(place kept two)&log=none" "$TESTS" /d
logged three e
run remote release "$(place kept two)" --force
run remote restore "$kept"
run image extract "$IMAGE" "$WORK/kept.files"
for index in a c d e; do
    diff -r "$TESTS" "$WORK/kept.files/$index" ||
        die "$index is not restored"
done
run remote release "$kept" --force
ok "a log that was left behind is noticed on every machine"

run mkfs "$(place vol one)&policy=parity"
refused "already holds a Steadfast volume" "$STEADFAST" mkfs "$(place vol one)&policy=parity"
run mkfs "$(place other one)&policy=parity"
refused "unclaimed memory" "$STEADFAST" mkfs "$(place third one)&policy=mirror"
[ "$(servers | grep -c ' 0 B unclaimed.*other/.*vol/')" = 3 ] || die "not claimed: $(servers)"
refused "knows no array" "$STEADFAST" ls "$(place third one)" /
ok "arrays claim memory that no other array has"

IMAGE=$(place vol one)
mount_volume
cp -r "$TESTS" "$MNT/a"
run transact "$MNT"
refused "is open on" "$STEADFAST" put -r "$(place vol two)" "$TESTS" /b
timeout 60 "$STEADFAST" ls "$(place vol two)" / | says '^.*a' || die "another machine cannot look"
refused "is open on" "$STEADFAST" remote release "$IMAGE" --force
ok "one client writes, others look"
run put -r "$(place vol two)&takeover=yes" "$TESTS" /b
echo late >"$MNT/c" || true
timeout 60 "$STEADFAST" transact "$MNT" >"$WORK/late" 2>&1 && die "a client that is fenced goes on"
timeout 60 "$STEADFAST" remote status "$IMAGE" | says '^open on this machine: FENCED' ||
    die "it does not say that it is fenced"
kill_daemon
IMAGE=$(place vol two)
mount_volume
diff -r "$TESTS" "$MNT/a" && diff -r "$TESTS" "$MNT/b" || die "files differ after the takeover"
[ ! -e "$MNT/c" ] || die "what the older client wrote late is there"
umount_volume
ok "a later client fences the earlier one"

lend s4
until_true "s4 is not listed" listed s4
IMAGE="$(place vol one)&spare_after=1000"
mount_volume
victim=$(member 0 vol)
lose "$victim"
cp -r "$TESTS" "$MNT/d"
run transact "$MNT"
until_true "no spare was found" good 3
[ "$(member 0 vol)" = s4 ] || die "the spare is not in the list: $(servers)"
servers >"$WORK/listing"
grep "^$victim " "$WORK/listing" | says vol/ && die "the lost server is still claimed: $(servers)"
until_true "$victim is still listed" unlisted "$victim"
lend "$victim"
until_true "$victim is not listed again" listed "$victim"
diff -r "$TESTS" "$MNT/a" && diff -r "$TESTS" "$MNT/d" || die "files differ after the rebuild"
ok "a lost server's place is taken by one from the list"

kill_etcd
cp -r "$TESTS" "$MNT/e"
run transact "$MNT"
lose s4
echo waits >"$MNT/f"
timeout 120 "$STEADFAST" transact "$MNT" >"$WORK/waits" 2>&1 &
waits=$!
own $waits
sleep 1
[ -d "/proc/$waits" ] || die "it does not wait for etcd: $(cat "$WORK/waits")"
restart_etcd
wait $waits || die "it does not go on with etcd: $(cat "$WORK/waits")"
diff -r "$TESTS" "$MNT/e" && [ "$(cat "$MNT/f")" = waits ] || die "files differ after etcd was away"
until_true "no spare was found after etcd was away" good 3
umount_volume
check_volume "after etcd was away"
lend s5
until_true "s5 is not listed" listed s5
IMAGE="$(place vol one)&spare_after=1000&etcd_wait=1000"
mount_volume
kill_etcd
lose "$(sed -n 's/^array vol: .*, on \([^,]*\),.*/\1/p' "$WORK/listing")"
# Nothing is acknowledged without etcd. The create fails where it has to read from the lost server,
# otherwise the transaction point fails.
if bash -c 'echo fails >"$1"' - "$MNT/g" 2>"$WORK/fails"; then
    timeout 120 "$STEADFAST" transact "$MNT" >"$WORK/fails" 2>&1 &&
        die "an epoch begins without etcd"
fi
grep -q 'nput/output error\|ailed\|could not' "$WORK/fails" ||
    die "it fails otherwise: $(cat "$WORK/fails")"
restart_etcd
# The array continues by itself; the volume that met the error must be mounted again.
goes_on() {
    timeout 60 "$STEADFAST" remote status "$IMAGE" >"$WORK/status" &&
        grep -q '^open on this machine: [wd]' "$WORK/status" &&
        ! grep -q 'an epoch cannot begin' "$WORK/status"
}
until_true "it does not go on with etcd" goes_on
kill_daemon
IMAGE="$(place vol one)&spare_after=1000&takeover=yes"
mount_volume
diff -r "$TESTS" "$MNT/e" && [ "$(cat "$MNT/f")" = waits ] ||
    die "files differ after it failed without etcd"
until_true "no spare was found after it failed" good 3
umount_volume
ok "etcd goes away and comes back"

run remote release "$(place other one)" --force
run remote release "$(place vol one)" --force
refused "knows no array" "$STEADFAST" remote release "$(place vol one)" --force
servers >"$WORK/listing"
grep -q 'vol/\|other/\|^array' "$WORK/listing" && die "released, and still claimed: $(servers)"
free() { servers | grep "^s1 " | says ' 64.* unclaimed, 0 B in use'; }
until_true "the memory is not given back" free
ok "an array is released"

for name in "${!PIDS[@]}"; do kill -9 "${PIDS[$name]}" 2>/dev/null || true; done
kill_etcd
pki=$WORK/pki
mkdir "$pki"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
    -keyout "$pki/ca-key.pem" -out "$pki/ca-cert.pem" >/dev/null 2>&1
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$pki/ext"
for who in server client; do
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$who" \
        -keyout "$pki/$who-key.pem" -out "$pki/$who.csr" >/dev/null 2>&1
    openssl x509 -req -in "$pki/$who.csr" -CA "$pki/ca-cert.pem" -CAkey "$pki/ca-key.pem" \
        -CAcreateserial -days 2 -extfile "$pki/ext" -out "$pki/$who-cert.pem" >/dev/null 2>&1
done
ETCD_SCHEME=https
ETCD_FLAGS=(--cert-file "$pki/server-cert.pem" --key-file "$pki/server-key.pem" --client-cert-auth
    --trusted-ca-file "$pki/ca-cert.pem")
CERTS=(--etcd-ca "$pki/ca-cert.pem" --etcd-cert "$pki/client-cert.pem"
    --etcd-key "$pki/client-key.pem")
ETCD_DATA=$WORK/etcd-tls
start_etcd
for name in t0 t1; do lend $name; done
for name in t0 t1; do until_true "$name is not listed over TLS" listed $name; done
cat >"$WORK/array.toml" <<TOML
etcd = ["127.0.0.1:$ETCD_PORT"]
array = "secret"
policy = "mirror"
timeout = 5000
witness = "$WORK/one"
etcd_ca = "$pki/ca-cert.pem"
etcd_cert = "$pki/client-cert.pem"
etcd_key = "$pki/client-key.pem"
TOML
IMAGE=remote://$WORK/array.toml
run mkfs "$IMAGE"
run put -r "$IMAGE" "$TESTS" /a
check_volume "named by a file, through etcd with TLS"
refused "etcd does not answer" "$STEADFAST" ls "$(place secret one)" /
refused "etcd does not answer" "$STEADFAST" ls "$(place secret one)&etcd_ca=$pki/ca-cert.pem" /
ok "TLS to etcd"
finish
