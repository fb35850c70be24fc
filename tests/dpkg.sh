#!/usr/bin/env bash
# `steadfast atomically` with a real package manager: an upgrade by dpkg takes effect completely or
# not at all. The daemon is killed at random moments of the upgrade, or dpkg fails halfway.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=dpkg
plain && skip_all "this is about atomic commands"
[ "$(id -u)" = 0 ] || skip_all "dpkg wants to be root"
need dpkg dpkg-deb sha256sum
start dpkg

# package VERSION [further line of the control file]: 300 files that contain the version.
package() {
    local tree=$WORK/tree
    rm -rf "$tree"
    mkdir -p "$tree/DEBIAN" "$tree/opt/app/data" "$tree/etc"
    printf '%s\n' 'Package: app' "Version: $1" 'Architecture: all' \
        'Maintainer: nobody <nobody@localhost>' 'Description: test' >"$tree/DEBIAN/control"
    [ -z "${2:-}" ] || echo "$2" >>"$tree/DEBIAN/control"
    echo /etc/app.conf >"$tree/DEBIAN/conffiles"
    echo "version $1" >"$tree/etc/app.conf"
    local number
    for number in $(seq 300); do
        { echo "file $number of version $1" && head -c $((number * 20)) /dev/zero; } \
            >"$tree/opt/app/data/$number"
    done
    dpkg-deb --root-owner-group -Znone --build "$tree" "$WORK/app-$1.deb" >"$WORK/build.log" 2>&1 ||
        die "dpkg-deb: $(cat "$WORK/build.log")"
}

# The files of a root, and dpkg's status of the package, as one line.
state() {
    { (cd "$MNT/root" && find . -type f ! -path './var/lib/dpkg/*-old' ! -name '*.log' -print0 |
        sort -z | xargs -0 sha256sum) &&
        dpkg-query --root="$MNT/root" -W -f '${Version} ${Status}\n' app; } | sha256sum |
        cut -d' ' -f1
}

dpkg_in_root() {
    dpkg --root="$MNT/root" --log=/dev/null --force-confnew --force-not-root "$@"
}
upgrade() {
    "$STEADFAST" atomically --quiet "$MNT" -- \
        dpkg --root="$MNT/root" --log=/dev/null --force-confnew --force-not-root \
        -i "$WORK/app-$1.deb" >"$WORK/upgrade.log" 2>&1
}

package 1
package 2
package 3 "Depends: what-nobody-has"
make_volume 128M
mount_volume
mkdir -p "$MNT/root/var/lib/dpkg/info" "$MNT/root/var/lib/dpkg/updates" \
    "$MNT/root/var/lib/dpkg/triggers"
touch "$MNT/root/var/lib/dpkg/status" "$MNT/root/var/lib/dpkg/available"
dpkg_in_root -i "$WORK/app-1.deb" >"$WORK/install.log" 2>&1 ||
    die "dpkg: $(cat "$WORK/install.log")"
"$STEADFAST" snapshot create "$MNT" one >/dev/null
old=$(state)

upgrade 3 && die "dpkg installs a package whose dependency is missing"
[ "$(state)" = "$old" ] || die "dpkg failed, and something is left of it"
ok "dpkg fails in the middle: as before"

begin=$(now_ms)
upgrade 2 || die "dpkg: $(cat "$WORK/upgrade.log")"
length=$(($(now_ms) - begin))
new=$(state)
[ "$new" != "$old" ] || die "the upgrade changes nothing"

rounds=$(bounded 6 60) before=0 after=0
for round in $(seq "$rounds"); do
    # The snapshot has the first version.
    "$STEADFAST" snapshot rollback --force "$MNT" one >/dev/null
    upgrade 2 &
    upgrading=$!
    at=$((length * round / rounds))
    sleep "$(printf '%d.%03d' $((at / 1000)) $((at % 1000)))"
    kill_daemon
    wait "$upgrading" 2>/dev/null || true
    mount_volume
    case $(state) in
        "$old") before=$((before + 1)) ;;
        "$new") after=$((after + 1)) ;;
        *) die "round $round: neither the old version nor the new one" ;;
    esac
done
ok "$rounds cuts within $length ms of dpkg: $before times the old version," \
    "$after times the new one, never in between"
umount_volume
check_volume
finish
