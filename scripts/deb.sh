#!/usr/bin/env bash
# `make deb`: Debian packages in $CARGO_TARGET_DIR/debian (default target/debian), made by debhelper
# from packaging/debian: steadfast, the command with everything that belongs to it; steadfast-lab,
# what measures and proves; libsteadfast1, the library; libsteadfast-dev, what compiling against it
# needs. Prints their paths.
#   STEADFAST_BUILT  a directory of programs for the packages, in place of what cargo builds. They
#                    are then in debian-built, so that they are not taken for others.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_cargo
need_packages debhelper dpkg-dev >&2
target=$(realpath -m "$(target_directory)")
version=$(awk -F'"' '/^version = / { print $2; exit }' Cargo.toml)

# debhelper works in a directory that has `debian` in it; the repository is not touched.
work=$target/debian-work/steadfast
rm -rf "$work"
out=$target/debian${STEADFAST_BUILT:+-built}
mkdir -p "$work" "$out"
cp -r packaging/debian "$work/debian"
# The last change of the sources is the date of everything in the packages.
changed=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
cat >"$work/debian/changelog" <<END
steadfast ($version) unstable; urgency=medium

  * See /usr/share/doc/steadfast/CHANGELOG.md.

 -- The Steadfast project <team@steadfast.invalid>  $(date -R -u -d "@$changed")
END
export SOURCE=$PWD SOURCE_DATE_EPOCH=$changed
# Options for C and the like that dpkg would set are none for the program as it is tested.
log=$target/debian-work/log
(cd "$work" && debian/rules binary) >"$log" 2>&1 \
    || die "debhelper failed: $log: $(tail -n 5 "$log" | tr '\n' ' ')"
architecture=$(dpkg --print-architecture)
for package in steadfast steadfast-lab libsteadfast1 libsteadfast-dev; do
    mv "$target/debian-work/${package}_${version}_$architecture.deb" "$out/"
    echo "$out/${package}_${version}_$architecture.deb"
done
