#!/usr/bin/env bash
# `make deb`: builds Debian packages in $CARGO_TARGET_DIR/debian (default target/debian). steadfast
# is the command with all its files; libsteadfast1 is the library; libsteadfast-dev has the files
# for compiling against it. Prints the paths of the packages.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_cargo
tools=$(realpath -m "$(target_directory)")/tools
PATH=$tools/bin:$PATH
if ! command -v cargo-deb >/dev/null; then
    # A debug build is faster, and it builds three small packages.
    env -u CARGO_TARGET_DIR "${CARGO:-cargo}" install --locked --quiet --debug cargo-deb --version '^3' --root "$tools" \
        || die "cargo-deb could not be built: $tools: install it with 'cargo install --locked cargo-deb'"
fi

# The same as `make install`, into the directory that the metadata in
# crates/steadfast-cli/Cargo.toml names.
stage=$(realpath -m "$(target_directory)")/release/deb-stage
rm -rf "$stage"
PREFIX=/usr DESTDIR=$stage LIBDIR=/usr/lib scripts/install.sh
# Man pages and texts in packages must be compressed.
gzip -9n "$stage"/usr/share/man/man1/*.1
install -d "$stage/usr/sbin"
for helper in mount umount; do
    ln -sf ../bin/steadfast "$stage/usr/sbin/$helper.steadfast"
    ln -sf ../bin/steadfast "$stage/usr/sbin/$helper.fuse.steadfast"
done
for tool in mkfs fsck; do
    ln -sf ../bin/steadfast "$stage/usr/sbin/$tool.steadfast"
    ln -sf ../bin/steadfast "$stage/usr/sbin/$tool.fuse.steadfast"
done

# cargo-deb only strips binaries that cargo has built.
strip --strip-unneeded "$stage"/usr/lib/libsteadfast.so.1
strip --strip-debug "$stage"/usr/lib/libsteadfast.a

for variant in '' libsteadfast1 libsteadfast-dev; do
    cargo-deb --quiet --strip --no-build --locked -p steadfast-cli ${variant:+--variant "$variant"}
done
