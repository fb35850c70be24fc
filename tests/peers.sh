#!/usr/bin/env bash
# One volume mounted on three nodes at once, with a real etcd. The medium is an image file, so a
# command fences. Every node sees every other one's changes at once; programs of all nodes work on
# the same files; owners and peers are killed and stopped. tests/cluster.sh has nodes that stand by.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=peers
plain && skip_all "this is about volumes of a cluster"
need etcd sqlite3 git rsync
start peers
source "$REPO/scripts/services.sh"
NODES="a b c"
source "$TESTS/helpers/nodes.sh"
if [ -z "${POSIX_SUITE:-}" ]; then
    (cd "$REPO" && cargo build --release -q -p steadfast-posix) || die "cargo build of the suite"
    POSIX_SUITE=${CARGO_TARGET_DIR:-$REPO/target}/release/posix-suite
fi

start_etcd
VOLUME=cluster://127.0.0.1:$ETCD_PORT/home
"$STEADFAST" mkfs --quiet --size 1G "$IMAGE"
"$STEADFAST" mount "$IMAGE" "$MNT" && touch "$MNT/probe" && "$STEADFAST" umount "$MNT" >/dev/null
mkdir "$WORK/copies"
FENCE='kill -9 "$STEADFAST_PROCESS" 2>/dev/null
    while [ -e "/proc/$STEADFAST_PROCESS/exe" ]; do sleep 0.02; done
    echo "$STEADFAST_NODE" >>'"$WORK/fenced"
"$STEADFAST" cluster create --fence "$FENCE" "$VOLUME" "$IMAGE" >/dev/null

# What cannot be.
refused "cannot be mounted read-only" "$STEADFAST" mount -o ro "$VOLUME" "$MNT"
refused "no certificates are given" "$STEADFAST" mount "$VOLUME?listen=192.0.2.1" "$MNT"
refused "no address of this machine" "$STEADFAST" mount "$VOLUME?listen=0.0.0.0" "$MNT"
refused "all of ca, cert and key" "$STEADFAST" mount "$VOLUME?ca=/none" "$MNT"
ok "what cannot be is said in one line"

# The first node owns the volume, the others use it through that one.
for node in a b c; do
    node_start "$node"
    owns "$node"
done
[ "$(status "d['owner']['name'], d['shared'], d['serves'], len(d['nodes'])")" = "a True True 3" ] ||
    die "the status is wrong: $("$STEADFAST" cluster status "$VOLUME")"
[ -n "$(status "d['address']")" ] || die "the owner has no address"
for number in $(seq 60); do
    nodes=(a b c)
    from=${nodes[number % 3]} to=${nodes[(number + 1) % 3]}
    echo "$number" >>"$WORK/$from/counter"
    [ "$(tail -n 1 "$WORK/$to/counter")" = "$number" ] ||
        die "node $to does not see what node $from wrote"
    [ "$(stat -c %s "$WORK/$to/counter")" = "$(stat -c %s "$WORK/$from/counter")" ] ||
        die "sizes differ"
    mv "$WORK/$to/counter" "$WORK/$to/other" && [ ! -e "$WORK/$from/counter" ] ||
        die "a name stays on node $from"
    mv "$WORK/$from/other" "$WORK/$from/counter"
done
# What a node has mounted inside the volume stays there.
mkdir "$WORK/a/inside" "$WORK/other"
mount --bind "$WORK/other" "$WORK/b/inside"
for name in one two; do
    stat "$WORK/b/inside" >/dev/null
    mkdir "$WORK/a/$name"
    rmdir "$WORK/c/$name"
done
stat "$WORK/b/inside" >/dev/null
mountpoint -q "$WORK/b/inside" ||
    die "a change of names has unmounted what was mounted inside the volume"
umount "$WORK/b/inside"
rmdir "$WORK/c/inside"
ok "a change on one node is seen on the others at once"

# Appending from all nodes loses no line, and joins none.
for node in a b c; do
    python3 - "$WORK/$node/log" "$node" <<'P' &
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
for number in range(300):
    os.write(log, f"{sys.argv[2]} {number}\n".encode())
P
    APPENDS+=($!)
done
wait "${APPENDS[@]}"
[ "$(sort "$WORK/a/log" | uniq | wc -l)" -eq 900 ] || die "lines are lost: $(wc -l <"$WORK/a/log")"
for node in a b c; do
    grep "^$node " "$WORK/b/log" | cut -d ' ' -f 2 | sort -n -c ||
        die "the lines of $node are out of order"
done
ok "O_APPEND from three nodes"

# Files that are open elsewhere, locks, and the end of a process that holds them.
python3 - "$WORK" <<'P' || die "open files or locks"
import errno, fcntl, os, signal, subprocess, sys, time
work = sys.argv[1]
a, b, c = (f"{work}/{node}" for node in "abc")
fd = os.open(f"{a}/gone", os.O_RDWR | os.O_CREAT)
os.write(fd, b"still here")
os.unlink(f"{b}/gone")
assert not os.path.exists(f"{c}/gone") and os.fstat(fd).st_nlink == 0
assert os.pread(fd, 20, 0) == b"still here"
os.close(fd)

def taken(path, kind, **how):
    file = open(path, "r+")
    try:
        lock = fcntl.flock if kind == "flock" else fcntl.lockf
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB, **how)
        return False
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return True
    finally:
        file.close()

holder = """
import fcntl, sys, time
file = open(sys.argv[1], "r+")
(fcntl.flock if sys.argv[2] == "flock" else fcntl.lockf)(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(1000)
"""
def until(what):
    for _ in range(200):
        if what():
            return True
        time.sleep(0.05)
    return False
open(f"{a}/locked", "w").write("x" * 100)
for kind in ("flock", "lockf"):
    for holds, asks in ((a, b), (b, c), (c, a)):
        process = subprocess.Popen([sys.executable, "-c", holder, f"{holds}/locked", kind],
                                   stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"held\n"
        assert taken(f"{asks}/locked", kind), (kind, holds, asks)
        other = "lockf" if kind == "flock" else "flock"
        assert not taken(f"{asks}/locked", other), "the kinds are apart"
        process.kill()
        process.wait()
        assert until(lambda: not taken(f"{asks}/locked", kind)), f"{kind} outlives its process"
# A waiting request gets the lock when the holder gives it up, and a signal ends the wait.
first = open(f"{a}/locked", "r+")
fcntl.lockf(first, fcntl.LOCK_EX)
waiter = subprocess.Popen([sys.executable, "-c", holder, f"{b}/locked", "lockf"],
                          stdout=subprocess.PIPE)
signalled = subprocess.Popen([sys.executable, "-c", holder, f"{c}/locked", "lockf"],
                             stdout=subprocess.PIPE)
time.sleep(0.3)
signalled.send_signal(signal.SIGTERM)
assert signalled.wait(20) == -signal.SIGTERM, "a signal does not end the wait for a lock"
assert waiter.poll() is None
fcntl.lockf(first, fcntl.LOCK_UN)
assert waiter.stdout.readline() == b"held\n"
waiter.kill()
waiter.wait()
# OFD locks end with their open file description.
OFD_SETLK = 37
import struct
lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 10, 0)
one, two = os.open(f"{a}/locked", os.O_RDWR), os.open(f"{b}/locked", os.O_RDWR)
fcntl.fcntl(one, OFD_SETLK, lock)
def refused():
    try:
        fcntl.fcntl(two, OFD_SETLK, lock)
        return False
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return True
assert refused()
os.close(one)
assert until(lambda: not refused()), "an OFD lock outlives its description"
P
ok "files that are open elsewhere, and locks across nodes"

# Programs.
sqlite3 "$WORK/a/db" 'create table t (node, number)'
for node in a b c; do
    (for number in $(seq 15); do
        sqlite3 -cmd '.timeout 30000' "$WORK/$node/db" "insert into t values ('$node', $number)" ||
            exit 1
    done) &
    INSERTS+=($!)
done
for pid in "${INSERTS[@]}"; do wait "$pid" || die "an insert fails"; done
[ "$(sqlite3 "$WORK/b/db" 'select count(*) from t')" = 45 ] || die "SQLite lost rows"
[ "$(sqlite3 "$WORK/c/db" 'pragma integrity_check')" = ok ] || die "SQLite finds damage"
git -c init.defaultBranch=main init -q "$WORK/a/repo"
for node in a b c a b c; do
    (cd "$WORK/$node/repo" && date +%N >"$node" && git add . &&
        git -c user.name=n -c user.email=e commit -q -m "$node") || die "git on node $node"
done
git -C "$WORK/b/repo" fsck --strict >"$WORK/said" 2>&1 || die "git: $(cat "$WORK/said")"
[ "$(git -C "$WORK/c/repo" rev-list --count main)" = 6 ] || die "git lost commits"
rsync -a "$REPO/crates/steadfast/src/" "$WORK/b/tree/"
rsync -a "$WORK/c/tree/" "$WORK/tree.out/"
diff -r "$REPO/crates/steadfast/src" "$WORK/tree.out" || die "rsync through two nodes"
python3 - "$WORK/b/mapped" "$WORK/c/mapped" <<'P' || die "mappings"
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.truncate(fd, 8192)
with mmap.mmap(fd, 8192) as one:
    one[5000:5005] = b"hello"
    one.flush()
    two = os.open(sys.argv[2], os.O_RDONLY)
    assert os.pread(two, 5, 5000) == b"hello"
    with mmap.mmap(two, 8192, prot=mmap.PROT_READ) as other:
        assert other[5000:5005] == b"hello"
P
ok "SQLite, git, rsync and mappings on several nodes"

# Commands mean the whole volume. An update of several files made on several nodes is one.
"$STEADFAST" snapshot create "$WORK/b" before >/dev/null
"$STEADFAST" atomically "$WORK/b" -- sh -c \
    "echo 1 >'$WORK/a/one' && echo 2 >'$WORK/c/two' && exit 3" >"$WORK/said" 2>&1 &&
    die "a failed command was committed"
[ ! -e "$WORK/a/one" ] && [ ! -e "$WORK/b/two" ] ||
    die "a failed update of two nodes is there: $(cat "$WORK/said")"
"$STEADFAST" atomically "$WORK/c" -- sh -c "echo 1 >'$WORK/a/one' && echo 2 >'$WORK/b/two'" ||
    die "atomically"
[ "$(cat "$WORK/b/one" "$WORK/c/two")" = "$(printf '1\n2')" ] ||
    die "an update of two nodes is not there"
[ -e "$WORK/a/.snapshots/before/counter" ] || die "a snapshot of node b is not on node a"
"$STEADFAST" transact "$WORK/c" || die "transact on a peer"
for node in a b c; do
    "$STEADFAST" top --json "$WORK/$node" | says '"peers": 2' ||
        die "top on node $node does not know the peers"
done
ok "commands on any node are about the whole volume"

# The compliance suite on a peer, while another peer changes things next to it.
(
    mkdir "$WORK/c/churn" && cd "$WORK/c/churn"
    while [ ! -e "$WORK/enough" ]; do
        for number in $(seq 20); do echo "$number" >"f$number"; done
        mv f1 f2 && mkdir d && ln f3 d/f3 && chmod 600 f4 && rm -r d f*
    done
) 2>"$WORK/churn.log" &
CHURN=$!
own "$CHURN"
mkdir "$WORK/a/suite"
# The kernel tells of a last close a moment later, and flock and OFD locks end then. The check above
# waits for that.
timeout 600 "$POSIX_SUITE" "$WORK/b/suite" --require-all \
    --exclude description-locks-exclude-within-a-process --exclude flock-goes-with-the-last-close \
    >"$WORK/suite.log" ||
    die "the compliance suite on a peer: $(grep -v '^ok' "$WORK/suite.log" | tail -n 20)"
touch "$WORK/enough"
wait "$CHURN" || die "the churn ends with $?: $(tail -n 3 "$WORK/churn.log")"
ok "compliance suite on a peer: $(tail -n 1 "$WORK/suite.log")"

# goes_on NODE OTHER: a program on NODE that holds files and locks, and works on with them after the
# next takeover, while OTHER runs one, too. See the helper.
declare -A GOES_ON
goes_on() {
    python3 "$TESTS/helpers/holds_on.py" "$WORK/$1" "$1" "$2" "$SIGNS" >"$WORK/holds-$1.log" 2>&1 &
    GOES_ON[$1]=$!
    own $!
}
# hold_on NODE OTHER: both run one.
hold_on() {
    SIGNS=$(mktemp -d "$WORK/signs.XXXX")
    goes_on "$1" "$2"
    goes_on "$2" "$1"
    signs_of "$1" "$2" holds
    signs_of "$1" "$2" waits
    sleep 0.3
}
signs_of() { # NODE OTHER SIGN
    local node try
    for node in "$1" "$2"; do
        for try in $(seq 600); do
            [ ! -e "$SIGNS/$node-$3" ] || break
            [ -d "/proc/${GOES_ON[$node]}" ] || break
            sleep 0.05
        done
        [ -e "$SIGNS/$node-$3" ] ||
            die "a program on node $node ($try): $(tail -n 5 "$WORK/holds-$node.log")"
    done
}
# held_on NODE OTHER: both go on after the takeover, and other programs get the locks only then.
held_on() {
    local node
    touch "$SIGNS/taken-over"
    signs_of "$1" "$2" went-on
    flock --nonblock "$WORK/$1/flock-$2" true && die "a lock of node $2 is lost"
    touch "$SIGNS/enough"
    for node in "$1" "$2"; do
        wait "${GOES_ON[$node]}" ||
            die "a program on node $node: $(tail -n 5 "$WORK/holds-$node.log")"
        timeout 30 flock "$WORK/$1/flock-$node" true || die "a lock outlives its program"
        rm -r "$WORK/$1"/*-"$node"
    done
    [ "$(grep -c after "$WORK/$1/appended")" = 2 ] || die "appended: $(cat "$WORK/$1/appended")"
    rm "$WORK/$1/appended"
}

# The owner is killed: another node takes over, and the third one goes on with it. Nothing is lost
# that the survivors were told of, synced or not. Their files stay open, and their locks held.
for number in $(seq 10); do synced "$([ $((number % 2)) = 0 ] && echo b || echo c)" "$number"; done
echo "not synced" >"$WORK/b/not-synced"
hold_on b c
kill -9 "${PIDS[a]}"
killed=$(now_ms)
owns b
owns c
TOOK=$(($(now_ms) - killed))
held_on b c
ends a
[ "$(cat "$WORK/fenced")" = a ] || die "the killed owner was not fenced"
all_there b "a killed owner"
all_there c "a killed owner"
[ "$(cat "$WORK/c/not-synced")" = "not synced" ] ||
    die "node c does not have what node b was told"
echo go >"$WORK/b/goes" && [ "$(cat "$WORK/c/goes")" = go ] ||
    die "the survivors do not work together"
grep -q "has all that 2 of 2 nodes were told" "$WORK/b.log" "$WORK/c.log" ||
    die "the next owner does not have what it was brought: $(last_lines b) $(last_lines c)"
ok "a killed owner: the others serve after $TOOK ms, with their open files and locks"

# A stopped owner. A program waits through the takeover.
node_start a
owns a
OWNER=$(status "d['owner']['name']")
OTHERS=${NODES//$OWNER/}
set -- $OTHERS
synced "$1" 11
kill -STOP "${PIDS[$OWNER]}"
timeout 60 sh -c "echo waited >'$WORK/$2/waited'" || die "a program does not outlive the takeover"
owns "$1"
all_there "$1" "a stopped owner"
[ "$(cat "$WORK/$1/waited")" = waited ] || die "what was written through the takeover is not there"
ends "$OWNER"
ok "a stopped owner: programs wait and go on"

# A killed peer: its locks and files are given back after its session's time.
node_start "$OWNER"
owns "$OWNER"
[ "$(status "d['owner']['name']")" != "$OWNER" ] || die "a node that joins owns the volume"
PEER=$OWNER
OWNER=$(status "d['owner']['name']")
(
    exec 9>"$WORK/$PEER/held"
    flock 9
    touch "$WORK/has-it"
    sleep 60
) &
own $!
for _ in $(seq 200); do [ ! -e "$WORK/has-it" ] || break; sleep 0.05; done
flock --nonblock "$WORK/$OWNER/held" true && die "a lock of a peer is not seen on the owner"
kill -9 "${PIDS[$PEER]}"
timeout 60 flock "$WORK/$OWNER/held" true || die "a lock outlives the node that held it"
ends "$PEER"
grep -q "node $PEER is gone" "$WORK/$OWNER.log" ||
    die "the owner does not say so: $(last_lines "$OWNER")"
ok "the locks of a killed node end"

# A handover loses nothing, synced or not, and closes no file of the other nodes.
node_start "$PEER"
owns "$PEER"
echo accepted >"$WORK/$PEER/accepted"
set -- ${NODES//$OWNER/}
hold_on "$1" "$2"
"$STEADFAST" cluster handover --to "$PEER" "$VOLUME" >/dev/null
ends "$OWNER"
[ "$STATUS" -eq 0 ] || die "the old owner ends with $STATUS: $(last_lines "$OWNER")"
owns "$PEER"
[ "$(status "d['owner']['name']")" = "$PEER" ] || die "another node has the volume"
[ "$(cat "$WORK/$PEER/accepted")" = accepted ] || die "a handover lost what was accepted"
held_on "$1" "$2"
ok "a handover loses nothing, and the other nodes' programs go on"

# Without etcd the owner cannot know whether it is the owner: requests wait, and then go on.
node_start "$OWNER"
owns "$OWNER"
kill_etcd
sleep 1
(timeout 60 sh -c "echo later >'$WORK/$OWNER/later'" && touch "$WORK/went-on") &
own $!
sleep 1
[ ! -e "$WORK/went-on" ] || die "an owner that is not sure of its lease has answered"
restart_etcd
for _ in $(seq 1000); do [ ! -e "$WORK/went-on" ] || break; sleep 0.05; done
[ -e "$WORK/went-on" ] || die "requests do not go on after an outage of etcd"
[ "$(status "d['owner']['name']")" = "$PEER" ] || die "an outage of etcd made another owner"
ok "an outage of etcd makes requests wait"

# leaves NODE: unmounts there. It may say once that a point was lost with an earlier owner.
leaves() {
    timeout 60 "$STEADFAST" umount "$WORK/$1" >"$WORK/said" 2>&1 ||
        grep -q "stale file handle" "$WORK/said" ||
        die "umount of node $1: $(cat "$WORK/said")"
    ends "$1"
    [ "$STATUS" -eq 0 ] || die "node $1 ends with $STATUS: $(last_lines "$1")"
}
# Peers leave, and the last owner closes the volume.
for node in ${NODES//$PEER/} "$PEER"; do leaves "$node"; done
[ "$(status "d['owner'], d['nodes']")" = "None []" ] ||
    die "a node is left: $("$STEADFAST" cluster status "$VOLUME")"
for node in a b c; do
    ! grep -q "internal error" "$WORK/$node"*.log || die "node $node has panicked"
done
check_volume

# With certificates, a node without one is refused.
tls() { # NAME [IP]: a key and a certificate of the authority
    openssl req -newkey rsa:2048 -nodes -keyout "$WORK/$1.key" -out "$WORK/$1.csr" -subj "/CN=$1" \
        2>/dev/null
    printf 'subjectAltName=IP:127.0.0.1\n' >"$WORK/ext"
    openssl x509 -req -in "$WORK/$1.csr" -CA "$WORK/ca.pem" -CAkey "$WORK/ca.key" -CAcreateserial \
        -days 2 -extfile "$WORK/ext" -out "$WORK/$1.pem" 2>/dev/null
}
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$WORK/ca.key" -out "$WORK/ca.pem" \
        -subj /CN=test -days 2 2>/dev/null
    tls node
    NODE_OPTIONS="&ca=$WORK/ca.pem&cert=$WORK/node.pem&key=$WORK/node.key"
    node_start a
    owns a
    node_start b
    owns b
    echo encrypted >"$WORK/b/secret" && [ "$(cat "$WORK/a/secret")" = encrypted ] ||
        die "TLS between nodes"
    dd if=/dev/zero of="$WORK/b/large" bs=1M count=20 status=none &&
        cmp "$WORK/a/large" "$WORK/b/large" ||
        die "large files over TLS"
    NODE_OPTIONS=
    node_start c
    # Before, it joins the cluster in etcd, which may take a while on a busy disk.
    for _ in $(seq 1000); do
        ! grep -q "cannot reach the owner" "$WORK/c.log" || break; sleep 0.05
    done
    grep -q "cannot reach the owner" "$WORK/c.log" ||
        die "a node without certificate: $(last_lines c)"
    timeout 60 "$STEADFAST" umount "$WORK/c" >/dev/null 2>&1 ||
        die "umount of a node that reaches no owner"
    ends c
    leaves b
    leaves a
    ok "TLS between nodes; a node without certificate is refused"
fi
finish
