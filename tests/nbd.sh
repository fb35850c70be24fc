#!/usr/bin/env bash
# The NBD server with programs of other projects: libnbd (nbdinfo, nbdcopy), qemu (qemu-img,
# qemu-io, qemu-storage-daemon) and nbdkit; and the remote medium on their servers. The exports are
# memory, a raw image, and a file in a volume whose flushes are transaction points. Also TLS with
# certificates.
#
# Debian packages: nbdkit, libnbd-bin, qemu-utils, qemu-system-common, openssl, dosfstools, mtools.
# Tests of missing programs are skipped.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=nbd
plain && skip_all "this is about serving images"
start nbd
has() { command -v "$1" >/dev/null || { say "skipped: $1 is not installed"; return 1; }; }

SERVER=
# serve ARGUMENTS: starts a server on a free port and sets ADDRESS.
serve() {
    : >"$WORK/serve.out"
    "$STEADFAST" serve "$@" --listen 127.0.0.1:0 >"$WORK/serve.out" 2>"$WORK/serve.err" &
    SERVER=$!
    own "$SERVER"
    local try
    for try in $(seq 200); do
        ADDRESS=$(sed -n 's/^serving .* on //p' "$WORK/serve.out")
        [ -z "$ADDRESS" ] || return 0
        [ -d "/proc/$SERVER" ] || break
        sleep 0.05
    done
    die "the server does not start ($try): $(cat "$WORK/serve.err")"
}
serve_no_more() {
    kill "$SERVER"
    gone "$SERVER" 30 || die "the server does not end"
}
run() { timeout 120 "$@" >"$WORK/run.log" 2>&1 || die "$*: $(tail -n 5 "$WORK/run.log")"; }

head -c 20000000 /dev/urandom >"$WORK/data"
truncate -s 32M "$WORK/data"

serve memory --size 64M
if has nbdinfo; then
    run nbdinfo "nbd://$ADDRESS/a"
    grep -q 'can_multi_conn: true' "$WORK/run.log" && grep -q 'can_fua: true' "$WORK/run.log" ||
        die "nbdinfo: $(cat "$WORK/run.log")"
    run nbdinfo --size "nbd://$ADDRESS/a"
    [ "$(cat "$WORK/run.log")" = $((64 << 20)) ] || die "nbdinfo --size: $(cat "$WORK/run.log")"
    ok "nbdinfo reads what the server says"
fi
if has nbdcopy; then
    run nbdcopy "$WORK/data" "nbd://$ADDRESS/a"
    run nbdcopy "nbd://$ADDRESS/a" "$WORK/back"
    truncate -s 32M "$WORK/back"
    cmp "$WORK/data" "$WORK/back" || die "nbdcopy brings something else back"
    run nbdinfo --map "nbd://$ADDRESS/a"
    grep -q 'hole' "$WORK/run.log" || die "there is no hole: $(cat "$WORK/run.log")"
    run nbdinfo --list "nbd://$ADDRESS"
    grep -q 'export="a"' "$WORK/run.log" || die "nbdinfo --list: $(cat "$WORK/run.log")"
    ok "nbdcopy both ways, holes and names"
fi
if has qemu-io; then
    run qemu-io -f raw -c 'write -P 7 1M 3M' -c 'read -P 7 1M 3M' -c 'write -z 2M 64k' \
        -c 'read -P 0 2M 64k' -c 'discard 1M 1M' -c 'write -f -P 9 0 4k' -c flush \
        -c 'read -P 9 0 4k' "nbd://$ADDRESS/b"
    ! grep -qi 'fail\|error' "$WORK/run.log" || die "qemu-io: $(cat "$WORK/run.log")"
    run qemu-img convert -f raw -O raw -n "$WORK/data" "nbd://$ADDRESS/b"
    # The export is larger than the file.
    run qemu-img compare -f raw -F raw "$WORK/data" "nbd://$ADDRESS/b"
    ok "qemu-io and qemu-img"
fi
serve_no_more

# A raw image, and a second program that tries to open it.
cp "$WORK/data" "$WORK/raw.img"
serve nbd "$WORK/raw.img"
if has qemu-io; then
    run qemu-io -f raw -c 'write -P 5 0 1M' -c flush "nbd://$ADDRESS"
    "$STEADFAST" serve nbd "$WORK/raw.img" --listen 127.0.0.1:0 >/dev/null 2>"$WORK/second" &&
        die "two owners"
    grep -q 'in use' "$WORK/second" || die "the second owner is told: $(cat "$WORK/second")"
fi
serve_no_more
has qemu-io && [ "$(head -c 1 "$WORK/raw.img" | od -An -tu1 | tr -d ' ')" != 5 ] &&
    die "the image was not written"
ok "a raw image"

# A file in a volume: after the server was killed, flushed data exists and unflushed data does not.
make_volume 64M
serve nbd "$IMAGE" --file /disk --create 16M
if has qemu-io; then
    run qemu-io -f raw -c 'write -P 1 0 1M' -c flush -c 'write -P 2 0 1M' -c 'write -P 3 4M 64k' \
        "nbd://$ADDRESS" &
    wait $!
    # qemu flushes when it closes, so this state was flushed as a whole.
    "$STEADFAST" rollback "$IMAGE" 2>"$WORK/second" && die "rolled back while it is served"
    run nbdcopy "nbd://$ADDRESS" "$WORK/before"
    timeout 30 python3 - "$ADDRESS" <<'PY' || die "a client that writes without a flush"
import socket, struct, sys
host, port = sys.argv[1].rsplit(":", 1)
s = socket.create_connection((host, int(port)))
s.recv(18, socket.MSG_WAITALL); s.sendall(struct.pack(">I", 3))
s.sendall(b"IHAVEOPT" + struct.pack(">II", 1, 0)); s.recv(10, socket.MSG_WAITALL)
for page in range(64):
    s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 1, page, page * 4096, 4096) + b"x" * 4096)
    assert s.recv(16, socket.MSG_WAITALL)[4:8] == bytes(4)
PY
    kill -9 "$SERVER"
    gone "$SERVER" 30 || die "the server does not die"
    check_volume "after the server was killed"
    run "$STEADFAST" get "$IMAGE" /disk "$WORK/after"
    cmp "$WORK/before" "$WORK/after" || die "the file is not as it was at the last flush"
    ok "a file inside a volume is as it was at the last flush"
else
    serve_no_more
fi
if command -v mkfs.vfat mcopy >/dev/null && has nbdkit && has nbdcopy; then
    truncate -s 16M "$WORK/fat"
    run mkfs.vfat "$WORK/fat"
    run mcopy -i "$WORK/fat" "$REPO/README.md" ::/small.bin
    serve nbd "$IMAGE" --file /fat --create 16M
    run nbdcopy --flush "$WORK/fat" "nbd://$ADDRESS"
    run nbdcopy "nbd://$ADDRESS" "$WORK/back"
    cmp "$WORK/fat" "$WORK/back" || die "the FAT file system is another one"
    serve_no_more
    check_volume "with a FAT file system in a file"
    ok "a FAT file system in a file of a volume"
fi

# TLS: certificates on both sides.
if has openssl; then
    new() {
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "$@" \
            >/dev/null 2>&1
    }
    mkdir "$WORK/pki"
    new -subj /CN=authority -keyout "$WORK/pki/ca-key.pem" -out "$WORK/pki/ca-cert.pem"
    for who in server client; do
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$who" \
            -keyout "$WORK/pki/$who-key.pem" -out "$WORK/pki/$who.csr" >/dev/null 2>&1
        printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$WORK/pki/ext"
        openssl x509 -req -in "$WORK/pki/$who.csr" -CA "$WORK/pki/ca-cert.pem" \
            -CAkey "$WORK/pki/ca-key.pem" -CAcreateserial -days 2 -extfile "$WORK/pki/ext" \
            -out "$WORK/pki/$who-cert.pem" >/dev/null 2>&1
    done
    serve memory --size 16M --tls-cert "$WORK/pki/server-cert.pem" \
        --tls-key "$WORK/pki/server-key.pem" --tls-ca "$WORK/pki/ca-cert.pem"
    if has nbdinfo; then
        timeout 30 nbdinfo "nbd://$ADDRESS" >"$WORK/run.log" 2>&1 && die "served without TLS"
        port=${ADDRESS##*:}
        run nbdinfo "nbds://localhost:$port/?tls-certificates=$WORK/pki"
        grep -q 'with TLS' "$WORK/run.log" || die "nbdinfo: $(cat "$WORK/run.log")"
        truncate -s 16M "$WORK/small"
        head -c 5000000 "$WORK/data" | dd of="$WORK/small" conv=notrunc status=none
        run nbdcopy "$WORK/small" "nbds://localhost:$port/?tls-certificates=$WORK/pki"
        run nbdcopy "nbds://localhost:$port/?tls-certificates=$WORK/pki" "$WORK/back"
        cmp "$WORK/small" "$WORK/back" || die "TLS brings something else back"
        ok "TLS with certificates of both sides"
    fi
    serve_no_more
fi
"$STEADFAST" serve memory --size 1M --listen 0.0.0.0:0 >/dev/null 2>"$WORK/second" &&
    die "listens for everybody"
grep -q 'no TLS' "$WORK/second" || die "the refusal says why: $(cat "$WORK/second")"
ok "no address that others can reach without TLS"
finish
