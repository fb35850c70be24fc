#!/usr/bin/env bash
# `make static`: the command as one file without a library. It is small, and it makes, mounts and
# checks a volume in a root that has nothing but it.
#   STATIC         such a file that is built already
#   STATIC_LIMIT   the most bytes that it may have (default 8 MB)
source "$(dirname "$0")/lib.sh"
plain && { echo "static: skipped: nothing of this is about another file system"; exit 0; }
start static
need readelf unshare chroot
[ "$(id -u)" -eq 0 ] || skip_all "chroot needs root"

if [ -z "${STATIC:-}" ]; then
    if command -v rustup >/dev/null &&
        ! rustup target list --installed | says -- "$(uname -m)-unknown-linux-musl"; then
        rustup target add "$(uname -m)-unknown-linux-musl" >"$WORK/rustup.log" 2>&1 ||
            skip_all "rustup has no musl here"
    fi
    STATIC=$(cd "$REPO" && timeout 1700 scripts/static.sh 2>"$WORK/build.log") ||
        die "make static: $(tail -n 5 "$WORK/build.log")"
fi
readelf -lW "$STATIC" >"$WORK/segments"
! grep -q INTERP "$WORK/segments" || die "$STATIC wants a program to load it"
readelf -dW "$STATIC" >"$WORK/dynamic"
! grep -q NEEDED "$WORK/dynamic" || die "$STATIC wants libraries"
bytes=$(stat -c %s "$STATIC")
limit=${STATIC_LIMIT:-8000000}
[ "$bytes" -le "$limit" ] || die "$bytes bytes, more than $limit"
ok "one file of $bytes bytes"

root=$WORK/root
mkdir -p "$root/dev" "$root/proc" "$root/mnt"
cp "$STATIC" "$root/steadfast"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/fuse" c 10 229
printf 'from nowhere\n' >"$root/text"
# Its own mounts and processes: the daemon ends with the last of them.
inside() {
    timeout 60 unshare --mount --pid --fork --kill-child --propagation private sh -c '
        set -e
        mount -t proc proc "$1/proc"
        root=$1
        run() { chroot "$root" /steadfast "$@"; }
        run mkfs --quiet --size 16M /disk.img
        run mount -o timer=1s /disk.img /mnt
        cp "$root/text" "$root/mnt/file"
        run transact /mnt
        run info --get daemon_pid /mnt >"$root/pid"
        [ "$(cat "$root/mnt/file")" = "from nowhere" ]
        run umount --quiet /mnt
        run check --quiet /disk.img
        run cat /disk.img /file
    ' - "$root" 2>&1
}
said=$(inside) || die "in a root with nothing in it: $said"
[ "$said" = "from nowhere" ] || die "the file says: $said"
"$STEADFAST" check --quiet "$root/disk.img" || die "the other program finds fault with the volume"
ok "a volume made, mounted, unmounted and checked in a root that has nothing else"

status=0
said=$(chroot "$root" /steadfast lab show / 2>&1) || status=$?
[ "$status" -eq 1 ] && grep -q 'package steadfast-lab' <<<"$said" ||
    die "without the lab: $status, $said"
ok "without the lab one line says what to install"
finish
