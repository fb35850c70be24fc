#!/usr/bin/env bash
# `make dkms`: the Debian package steadfast-dkms in $CARGO_TARGET_DIR/debian (default
# target/debian). It has the C side of the module and the core as an object, so the machine that
# installs it needs no Rust. Prints its path. KVER: the kernel whose headers are used here.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# The running kernel may be another one than any that has headers here.
newest_headers() {
    dpkg-query -W -f '${Depends}' linux-headers-amd64 \
        | grep -o 'linux-headers-[^ ,]*' | sed 's/linux-headers-//;q'
}

need_packages dpkg-dev linux-headers-amd64 >&2
target=$(realpath -m "$(target_directory)")
version=$(awk -F'"' '/^version = / { print $2; exit }' Cargo.toml)
work=$target/dkms-work
rm -rf "$work"
mkdir -p "$work" "$target/debian"
KVER=${KVER:-$(newest_headers)} scripts/kernel.sh >"$work/log" 2>&1 \
    || die "make kernel: $work/log: $(tail -n 5 "$work/log" | tr '\n' ' ')"

# The object before any objtool, whose output depends on the kernel.
package=$work/package
sources=$package/usr/src/steadfast-$version
mkdir -p "$package/DEBIAN" "$sources" "$package/usr/share/doc/steadfast-dkms"
cp kernel/*.[chS] kernel/Kbuild kernel/build.sh "$sources/"
cp "$target/kernel/core.o" "$sources/core.o_shipped"
cp packaging/debian/copyright "$package/usr/share/doc/steadfast-dkms/"
fill() { sed "s/@VERSION@/$version/" "packaging/dkms/$1" >"$2"; }
fill dkms.conf.in "$sources/dkms.conf"
fill control.in "$package/DEBIAN/control"
for script in postinst prerm; do
    fill "$script.in" "$package/DEBIAN/$script"
    chmod 755 "$package/DEBIAN/$script"
done
# The last change of the sources is the date of everything in the package.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH
deb=$target/debian/steadfast-dkms_${version}_amd64.deb
dpkg-deb --root-owner-group --build "$package" "$deb" >/dev/null
echo "$deb"
