#!/usr/bin/env bash
# `make install`: the command, the helpers for mount(8), man pages, completions, and the library for
# C.
#   PREFIX   directory in which programs will find them (default /usr/local)
#   DESTDIR  prefix of every path, for packages
#   LIBDIR   directory of the libraries (default $PREFIX/lib)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

prefix=${PREFIX:-/usr/local}
destination=${DESTDIR:-}
libdir=${LIBDIR:-$prefix/lib}
need_cargo
"${CARGO:-cargo}" build --release --locked -p steadfast-cli -p steadfast-capi
built=$(target_directory)/release
steadfast=$built/steadfast
version=$("$steadfast" --version | cut -d' ' -f2)

install -D -m 755 "$steadfast" "$destination$prefix/bin/steadfast"
install -d "$destination/sbin"
for helper in mount umount; do
    ln -sf "$prefix/bin/steadfast" "$destination/sbin/$helper.steadfast"
    ln -sf "$prefix/bin/steadfast" "$destination/sbin/$helper.fuse.steadfast"
done
# The names that mkfs(8), fsck(8) and systemd-fsck look for.
for tool in mkfs fsck; do
    ln -sf "$prefix/bin/steadfast" "$destination/sbin/$tool.steadfast"
    ln -sf "$prefix/bin/steadfast" "$destination/sbin/$tool.fuse.steadfast"
done

install -d "$destination$prefix/include" "$destination$libdir/pkgconfig"
install -m 644 crates/steadfast-capi/include/steadfast.h crates/steadfast-capi/include/steadfast-ioctl.h \
    "$destination$prefix/include/"
install -m 644 "$built/libsteadfast.a" "$destination$libdir/"
install -m 644 "$built/libsteadfast.so" "$destination$libdir/libsteadfast.so.1"
ln -sf libsteadfast.so.1 "$destination$libdir/libsteadfast.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" packaging/steadfast.pc.in \
    >"$destination$libdir/pkgconfig/steadfast.pc"
chmod 644 "$destination$libdir/pkgconfig/steadfast.pc"

share=$destination$prefix/share
install -d "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/vendor-completions" \
    "$share/fish/vendor_completions.d"
"$steadfast" manpages "$share/man/man1"
"$steadfast" completions bash >"$share/bash-completion/completions/steadfast"
"$steadfast" completions zsh >"$share/zsh/vendor-completions/_steadfast"
"$steadfast" completions fish >"$share/fish/vendor_completions.d/steadfast.fish"
install -d "$destination$prefix/lib/udev/rules.d" "$share/doc/steadfast/examples"
sed "s|@PREFIX@|$prefix|" packaging/udev/61-steadfast.rules >"$destination$prefix/lib/udev/rules.d/61-steadfast.rules"
install -D -m 644 packaging/magic/steadfast "$share/misc/steadfast.magic"
install -m 644 packaging/systemd/srv-data.mount examples/c/*.c "$share/doc/steadfast/examples/"
install -m 755 examples/python/notes.py "$share/doc/steadfast/examples/"
install -m 644 README.md CHANGELOG.md docs/C-API.md docs/INTEGRATION.md docs/POSIX.md docs/FORMAT.md "$share/doc/steadfast/"
