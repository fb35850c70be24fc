#!/usr/bin/env bash
# The packages and the integration with the system: `make deb`, installation in a minimal Debian,
# and a volume mounted there with mount(8). A C program is compiled with the installed files. Also
# the systemd unit and the udev properties.
#
# A clean Debian comes from debootstrap and is kept beside the build. Where no mirror can be
# reached, the packages are installed with `dpkg --root` into an empty directory that gets the
# host's C library, and the command runs in there.
#   PACKAGES        a directory with packages that `make deb` made before
#   PROFILE         of cargo, for packages that are made (default release); with dist the command
#                   may have 8 MB
#   STEADFAST_BUILT a directory with programs for the packages, in place of what cargo builds
#   DEBIAN_MIRROR   where packages come from (default http://deb.debian.org/debian)
source "$(dirname "$0")/lib.sh"
plain && { echo "package: skipped: nothing of this is about another file system"; exit 0; }
start package
need cargo dpkg-deb cc pkg-config unshare
[ "$(id -u)" -eq 0 ] || skip_all "chroot needs root"

target=$(realpath -m "${CARGO_TARGET_DIR:-$REPO/target}")
made=${PACKAGES:-$target/debian${STEADFAST_BUILT:+-built}}
[ -n "${PACKAGES:-}" ] || (cd "$REPO" &&
    PROFILE=${PROFILE:-release} timeout 1700 scripts/deb.sh) >"$WORK/deb.log" 2>&1 ||
        die "make deb: $(tail -n 20 "$WORK/deb.log")"
version=$("$STEADFAST" --version | cut -d' ' -f2)
packages=()
for name in steadfast steadfast-lab libsteadfast1 libsteadfast-dev; do
    package=$(ls -t "$made"/"${name}_$version"*.deb 2>/dev/null | sed -n 1p)
    [ -n "$package" ] || die "make deb made no $name"
    packages+=("$package")
done
dpkg-deb --fsys-tarfile "${packages[0]}" | tar -t | sed 's|^\./||' >"$WORK/contents"
for file in usr/bin/steadfast usr/sbin/mount.fuse.steadfast usr/sbin/umount.fuse.steadfast \
    usr/sbin/mkfs.steadfast usr/sbin/fsck.steadfast usr/share/misc/steadfast.magic \
    usr/share/man/man1/steadfast-mount.1.gz usr/share/man/man1/steadfast-snapshot-create.1.gz \
    usr/share/man/man8/mkfs.steadfast.8.gz usr/share/man/man8/fsck.steadfast.8.gz \
    usr/share/man/man8/mount.steadfast.8.gz usr/share/man/man8/umount.steadfast.8.gz \
    usr/share/initramfs-tools/hooks/steadfast usr/share/initramfs-tools/scripts/steadfast \
    usr/share/doc/steadfast/REMOTE.md usr/share/bash-completion/completions/steadfast \
    usr/lib/udev/rules.d/61-steadfast.rules; do
    grep -qx -- "$file" "$WORK/contents" || die "the package has no $file"
done
dpkg-deb --fsys-tarfile "${packages[0]}" | tar -tv >"$WORK/listing"
grep -q 'sbin/mount\.fuse\.steadfast -> \.\./bin/steadfast$' "$WORK/listing" ||
    die "mount.fuse.steadfast is not a link to the command"
# Every command and every command below it has its page.
pages() {
    local name=$1 below
    shift
    grep -qx "usr/share/man/man1/$name.1.gz" "$WORK/contents" || die "there is no page $name(1)"
    for below in $("$STEADFAST" "$@" --help 2>/dev/null |
        sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
        case "$name-$below" in
            *-help | steadfast-lab | steadfast-torture | steadfast-flash-torture) ;;
            *) pages "$name-$below" "$@" "$below" ;;
        esac
    done
}
pages steadfast
multiarch=$(dpkg-architecture -q DEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch)
dpkg-deb --field "${packages[3]}" Depends | says -F "libsteadfast1 (= $version)" ||
    die "libsteadfast-dev takes any libsteadfast1"
dpkg-deb --field "${packages[1]}" Depends | says -F "steadfast (= $version)" ||
    die "steadfast-lab takes any steadfast"
for package in "${packages[0]}" "${packages[2]}"; do
    dpkg-deb --field "$package" Depends | says 'libc6 (>= ' ||
        die "$(basename "$package") does not say which C library it wants"
done
for package in "${packages[@]}"; do
    synopsis=$(dpkg-deb --field "$package" Description | sed -n 1p)
    [ -n "$synopsis" ] && [ ${#synopsis} -lt 80 ] &&
        [ "$synopsis" != "$(dpkg-deb --field "$package" Package)" ] ||
        die "$(basename "$package") has no synopsis: $synopsis"
done
if command -v lintian >/dev/null; then
    said=$(lintian --allow-root --fail-on error,warning "${packages[@]}" 2>&1) ||
        die "lintian: $said"
    ok "lintian finds nothing"
fi
for place in 0:usr/bin/steadfast 1:usr/bin/steadfast-lab \
    "2:usr/lib/$multiarch/libsteadfast.so.1"; do
    dpkg-deb --fsys-tarfile "${packages[${place%%:*}]}" >"$WORK/package.tar"
    tar -xOf "$WORK/package.tar" "./${place#*:}" >"$WORK/binary"
    readelf -SW "$WORK/binary" >"$WORK/sections"
    ! grep -qE '\.(symtab|debug_info) ' "$WORK/sections" ||
        die "${place#*:} has symbols that only debuggers use"
    [ "$place-${PROFILE:-}" != 0:usr/bin/steadfast-dist ] ||
        [ "$(stat -c %s "$WORK/binary")" -le 8000000 ] ||
        die "${place#*:} has $(stat -c %s "$WORK/binary") bytes, more than 8000000"
done
ok "four packages of version $version"

# --- a clean root
root=$WORK/root
suite=$(. /etc/os-release && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}")
cache=$target/tools/debian-$suite.tar
if [ -n "$suite" ] && [ ! -e "$cache" ]; then
    command -v debootstrap >/dev/null || (. "$REPO/scripts/lib.sh" &&
        need_packages debootstrap) >/dev/null 2>&1 || true
    if command -v debootstrap >/dev/null &&
        timeout 400 debootstrap --variant=minbase --include=fuse3 "$suite" \
        "$WORK/fresh" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" \
        >"$WORK/debootstrap.log" 2>&1; then
        mkdir -p "$(dirname "$cache")"
        tar --one-file-system -C "$WORK/fresh" -cf "$cache.new" . && mv "$cache.new" "$cache"
    fi
    rm -rf --one-file-system "$WORK/fresh"
fi
mkdir "$root"
if [ -e "$cache" ]; then
    tar -C "$root" -xf "$cache"
    clean="a clean Debian"
    force=()
else
    # No mirror: an empty root with the C library of this machine, into which dpkg installs the
    # packages.
    clean="an empty root (no package mirror could be reached)"
    force=(--force-depends)
    mkdir -p "$root"/{etc,tmp,usr,var/lib/dpkg/updates,var/lib/dpkg/info} &&
        : >"$root/var/lib/dpkg/status"
    # As in every Debian, because mount(8) looks for helpers in /sbin.
    for directory in bin sbin lib lib64; do
        mkdir "$root/usr/$directory" && ln -s "usr/$directory" "$root/$directory"
    done
    # Lines of libraries begin with a tab; the lines with file names do not.
    for library in $(ldd "$STEADFAST" /bin/sh /bin/mount /bin/umount | grep '^\s' |
        grep -o '/[^ ]*' | sort -u); do
        mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"
    done
    for program in sh mount umount; do cp -L "/bin/$program" "$root/bin/"; done
fi
dpkg --root="$root" "${force[@]}" --install "${packages[@]}" >"$WORK/dpkg.log" 2>&1 ||
    die "dpkg: $(tail -n 5 "$WORK/dpkg.log")"
ok "installed in $clean"

# The command gets its own mounts, which disappear with its last process. It also gets its own
# process table, whose end stops the daemon.
cat >"$root/tmp/try.sh" <<'INSIDE'
set -e
/bin/mount -t proc proc /proc
[ -e /dev/fuse ]
cd /tmp
steadfast mkfs --size 16M --label packed disk.img
/bin/mount -t fuse.steadfast -o noatime,timer=1s disk.img /mnt
echo "from inside" >/mnt/file
steadfast transact /mnt
read -r line </mnt/file
[ "$line" = "from inside" ]
steadfast umount /mnt
steadfast check disk.img >/dev/null
steadfast mount disk.img /mnt
read -r line </mnt/file
[ "$line" = "from inside" ]
steadfast umount /mnt
# The lab is found beside it.
steadfast torture --quiet --cuts 20 --seed 1
steadfast info --export disk.img
INSIDE
mkdir -p "$root"/{dev,proc,mnt,tmp}
[ -c "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3
[ -c "$root/dev/fuse" ] || mknod -m 666 "$root/dev/fuse" c 10 229
said=$(timeout 60 unshare --mount --pid --fork --kill-child --propagation private \
    chroot "$root" /bin/sh /tmp/try.sh 2>&1) ||
    die "in the root: $said"
grep -qx LABEL=packed <<<"$said" && grep -qx TYPE=steadfast <<<"$said" ||
    die "info --export said: $said"
ok "a volume mounted with mount -t fuse.steadfast in $clean"

# --- the development files, as a program uses them
export PKG_CONFIG_LIBDIR=$root/usr/lib/$multiarch/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
# shellcheck disable=SC2046 # flags are words
cc -std=c99 -Wall -Werror "$root/usr/share/doc/libsteadfast-dev/examples/logger.c" \
    $(pkg-config --cflags --libs steadfast) -o "$WORK/logger" 2>"$WORK/cc.log" ||
        die "cc: $(cat "$WORK/cc.log")"
LD_LIBRARY_PATH=$root/usr/lib/$multiarch "$WORK/logger" >"$WORK/logger.log" ||
    die "the example does not run"
readelf -d "$WORK/logger" >"$WORK/needed"
grep -q 'NEEDED.*libsteadfast\.so\.1\]' "$WORK/needed" ||
    die "the library has not the name that it should have"
# Only the symbols of the interface are visible.
strange=$(nm -D --defined-only "$root/usr/lib/$multiarch/libsteadfast.so.1" |
    awk '$3 !~ /^sf_/ { print $3 }')
[ -z "$strange" ] || die "the library shows more than its interface: $strange"
ok "a program compiled against the packages"

# --- systemd and udev
if command -v systemd-analyze >/dev/null; then
    [ "$(systemd-escape --path --suffix=mount /srv/data)" = srv-data.mount ] || die "systemd-escape"
    systemd-analyze verify --man=no "$REPO/packaging/systemd/srv-data.mount" \
        >"$WORK/verify.log" 2>&1 ||
        die "systemd-analyze: $(cat "$WORK/verify.log")"
    ok "the unit is one"
fi
make_volume 16M --label 'a disk'
mount_volume
"$STEADFAST" info --export=udev "$IMAGE" >"$WORK/udev" ||
    die "info --export of a volume that is mounted"
grep -qx 'ID_FS_LABEL_ENC=a\\x20disk' "$WORK/udev" || die "udev: $(cat "$WORK/udev")"
(eval "$("$STEADFAST" info --export "$MNT")" && [ "$LABEL" = 'a disk' ] &&
    [ "$DEVNAME" = "$IMAGE" ]) ||
    die "a shell does not read what --export prints"
umount_volume
status=0
"$STEADFAST" info --export /dev/zero >/dev/null 2>&1 || status=$?
[ "$status" -eq 2 ] || die "info --export of something else ended with $status, not 2"
ok "names for udev and scripts, of a volume in use, too"

# --- file(1)
if command -v file >/dev/null; then
    uuid=6fa459ea-ee8a-3ca4-894e-db77e160355e
    for name in mkfs tune; do
        [ "$name" = mkfs ] || "$STEADFAST" tune --uuid "$uuid" "$IMAGE" >/dev/null
        wanted=$("$STEADFAST" info --get uuid "$IMAGE")
        said=$(file -b -m "$REPO/packaging/magic/steadfast" "$IMAGE")
        named="label \"a disk\", uuid $wanted"
        [[ $said == "Steadfast file system version 1, $named, block size 4096, 4096 blocks" ]] ||
            die "file, after $name: $said"
    done
    ok "file(1) tells a volume by packaging/magic/steadfast"
fi
finish
