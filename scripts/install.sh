#!/usr/bin/env bash
# `make install`: the commands, the helpers for mount(8), man pages, completions, and the library
# for C.
#   PREFIX   where programs will look for them (default /usr/local)
#   DESTDIR  put in front of every path, for packages
#   LIBDIR   where libraries go (default $PREFIX/lib)
#   SBINDIR  where mount(8), mkfs(8) and fsck(8) look for helpers (default /sbin)
#   PROFILE  of cargo: dist, small and slow to build (default), or release
#   STEADFAST_BUILT  the directory of programs and libraries that are built, in place of what cargo
#            builds
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

prefix=${PREFIX:-/usr/local}
destination=${DESTDIR:-}
libdir=${LIBDIR:-$prefix/lib}
sbindir=${SBINDIR:-/sbin}
profile=${PROFILE:-dist}
built=${STEADFAST_BUILT:-$(target_directory)/$profile}
if [ -z "${STEADFAST_BUILT:-}" ]; then
    need_cargo
    "${CARGO:-cargo}" build --profile "$profile" --locked -p steadfast-cli -p steadfast-lab-cli \
        -p steadfast-capi
fi
version=$("$built/steadfast" --version | cut -d' ' -f2)

# As few permissions as a package has, whatever the umask of the caller.
umask 022
for program in steadfast steadfast-lab; do
    install -D -m 755 "$built/$program" "$destination$prefix/bin/$program"
done
install -d "$destination$sbindir"
# What mount(8), mkfs(8), fsck(8) and systemd-fsck look for.
for tool in mount umount mkfs fsck; do
    ln -sf "$prefix/bin/steadfast" "$destination$sbindir/$tool.steadfast"
    ln -sf "$prefix/bin/steadfast" "$destination$sbindir/$tool.fuse.steadfast"
done

install -d "$destination$prefix/include" "$destination$libdir/pkgconfig"
install -m 644 crates/steadfast-capi/include/steadfast.h \
    crates/steadfast-capi/include/steadfast-ioctl.h "$destination$prefix/include/"
install -m 644 "$built/libsteadfast.a" "$destination$libdir/"
install -m 644 "$built/libsteadfast.so" "$destination$libdir/libsteadfast.so.1"
ln -sf libsteadfast.so.1 "$destination$libdir/libsteadfast.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" \
    packaging/steadfast.pc.in >"$destination$libdir/pkgconfig/steadfast.pc"
chmod 644 "$destination$libdir/pkgconfig/steadfast.pc"

share=$destination$prefix/share
install -d "$share/man/man1" "$share/man/man8" "$share/bash-completion/completions" \
    "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
for program in steadfast steadfast-lab; do
    "$built/$program" completions bash >"$share/bash-completion/completions/$program"
    "$built/$program" completions zsh >"$share/zsh/vendor-completions/_$program"
    "$built/$program" completions fish >"$share/fish/vendor_completions.d/$program.fish"
done
"$built/steadfast-lab" manpages "$share/man/man1"
# Section 8 holds what administrators call by the name of the file system.
mv "$share"/man/man1/*.8 "$share/man/man8/"
install -m 644 packaging/man/*.8 "$share/man/man8/"
for tool in mount umount mkfs fsck; do
    ln -sf "$tool.steadfast.8" "$share/man/man8/$tool.fuse.steadfast.8"
done
# As they are called through `steadfast`.
ln -sf steadfast-lab-torture.1 "$share/man/man1/steadfast-torture.1"
ln -sf steadfast-lab-flash-torture.1 "$share/man/man1/steadfast-flash-torture.1"

install -d "$destination$prefix/lib/udev/rules.d" "$share/doc/steadfast/examples" \
    "$share/doc/steadfast-lab"
sed "s|@PREFIX@|$prefix|" packaging/udev/61-steadfast.rules \
    >"$destination$prefix/lib/udev/rules.d/61-steadfast.rules"
# They have one place each, whatever the prefix of the rest.
if [ "$prefix" = /usr ]; then
    install -D -m 755 packaging/initramfs-tools/hooks/steadfast \
        "$share/initramfs-tools/hooks/steadfast"
    install -D -m 644 packaging/initramfs-tools/scripts/steadfast \
        "$share/initramfs-tools/scripts/steadfast"
    install -D -m 755 packaging/systemd/steadfast.shutdown \
        "$destination/usr/lib/systemd/system-shutdown/steadfast"
fi
install -D -m 644 packaging/magic/steadfast "$share/misc/steadfast.magic"
install -m 644 packaging/systemd/srv-data.mount examples/c/*.c "$share/doc/steadfast/examples/"
install -m 755 examples/python/notes.py "$share/doc/steadfast/examples/"
# Help texts name pages by their names in docs/.
install -m 644 README.md CHANGELOG.md docs/*.md "$share/doc/steadfast/"
install -d "$share/doc/steadfast/inside"
install -m 644 docs/inside/*.md "$share/doc/steadfast/inside/"
for page in LAB LAB-REPORT PERFORMANCE TESTING; do
    mv "$share/doc/steadfast/$page.md" "$share/doc/steadfast-lab/"
done
install -d "$share/doc/steadfast-lab/testing"
install -m 644 docs/testing/*.md "$share/doc/steadfast-lab/testing/"
