#!/usr/bin/env bash
# Exports a mount over NFS 3 with nfs-ganesha, a user-space server, to libnfs, a user-space client.
# Files can be listed and copied in and out. A client's handle of an open file refers to the same
# file after a remount. The test runs in its own network namespace, so it affects no other ports and
# mounts. Needs root, and the Debian packages nfs-ganesha, nfs-ganesha-vfs and libnfs-utils.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=nfs
plain && skip_all "this is about exporting a mount"
[ "$(id -u)" = 0 ] || skip_all "only root can have a network of its own"
need unshare ip ss rpcbind ganesha.nfsd nfs-ls nfs-cp python3
plugins=$(echo /usr/lib/*/ganesha/libfsalvfs.so)
[ -e "$plugins" ] || skip_all "nfs-ganesha-vfs is not installed"
if [ -z "${NFS_NAMESPACE:-}" ]; then
    unshare --net --mount true 2>/dev/null || skip_all "no network of its own can be made here"
    NFS_NAMESPACE=1 exec unshare --net --mount timeout 300 bash "${BASH_SOURCE[0]}"
fi

start nfs
ip link set lo up
for directory in /run /var/lib/nfs; do mount -t tmpfs none "$directory"; done
mkdir -p /run/rpcbind /run/ganesha /var/lib/nfs/ganesha
rpcbind -f >"$WORK/rpcbind.log" 2>&1 &
own $!

cat >"$WORK/ganesha.conf" <<CONF
NFS_CORE_PARAM {
    Protocols = 3; NFS_Port = 42049; MNT_Port = 42048; NLM_Port = 42047; Rquota_Port = 42046;
    Enable_NLM = false; Enable_RQUOTA = false; Plugins_Dir = "$(dirname "$plugins")";
}
NFS_KRB5 { Active_krb5 = false; }
EXPORT {
    Export_Id = 77; Path = $MNT; Pseudo = /data; Access_Type = RW; Squash = none; SecType = sys;
    Protocols = 3; Transports = TCP, UDP; Filesystem_Id = 77.1;
    FSAL { Name = VFS; fsid_type = None; }
}
CONF

SERVER=
serve() {
    ganesha.nfsd -F -f "$WORK/ganesha.conf" -L "$WORK/ganesha.log" -p "$WORK/ganesha.pid" \
        >"$WORK/ganesha.out" 2>&1 &
    SERVER=$!
    own "$SERVER"
    local try
    for try in $(seq 300); do
        ! grep -q 'NFS SERVER INITIALIZED' "$WORK/ganesha.log" 2>/dev/null || return 0
        [ -d "/proc/$SERVER" ] || break
        sleep 0.1
    done
    die "nfs-ganesha does not start ($try): $(tail -n 5 "$WORK/ganesha.log" "$WORK/ganesha.out")"
}
serve_no_more() {
    kill "$SERVER"
    gone "$SERVER" 30 || die "nfs-ganesha does not end"
    rm -f "$WORK/ganesha.log"
}
lines() {
    local try
    for try in $(seq 200); do
        [ "$(wc -l <"$WORK/client.out")" -lt "$1" ] || return 0
        sleep 0.1
    done
    die "the client has no answer ($try): $(cat "$WORK/client.out" "$WORK/client.err")"
}

make_volume 64M
mount_volume
mkdir "$MNT/dir"
echo "first" >"$MNT/dir/file"
head -c 3000000 /dev/urandom >"$WORK/data"
serve

url=nfs://127.0.0.1$MNT
timeout 30 nfs-cp "$WORK/data" "$url/copy?version=3" >"$WORK/cp.log" 2>&1 ||
    die "nfs-cp: $(cat "$WORK/cp.log")"
cmp "$WORK/data" "$MNT/copy" || die "what NFS wrote is something else on the mount"
timeout 30 nfs-cp "$url/copy?version=3" "$WORK/back" >"$WORK/cp.log" 2>&1 ||
    die "nfs-cp: $(cat "$WORK/cp.log")"
cmp "$WORK/data" "$WORK/back" || die "NFS reads something else"
timeout 30 nfs-ls -R "$url?version=3" >"$WORK/ls" || die "nfs-ls: $(cat "$WORK/ls")"
grep -q ' dir/file$' "$WORK/ls" && grep -q ' 3000000 .*copy$' "$WORK/ls" ||
    die "nfs-ls: $(cat "$WORK/ls")"
ok "files go both ways over NFS"

mkfifo "$WORK/in"
python3 "$TESTS/helpers/nfs_handle.py" "$MNT" /dir/file <"$WORK/in" >"$WORK/client.out" \
    2>"$WORK/client.err" &
own $!
exec 9>"$WORK/in"
lines 2
serve_no_more
mv "$MNT/dir/file" "$MNT/renamed"
remount_volume
serve
echo "after the remount" >&9
lines 4
for try in $(seq 100); do
    grep -q "after the remount" "$MNT/renamed" && break
    sleep 0.1
done
[ "$(cat "$MNT/renamed")" = "after the remount" ] ||
    die "the write by the old handle has not arrived ($try)"
[ "$(sort -u "$WORK/client.out" | tr -d '\n')" = first ] ||
    die "the client saw: $(cat "$WORK/client.out")"
ok "a handle means the same file after a remount, and after a rename"
exec 9>&-
serve_no_more
umount_volume
check_volume
finish
