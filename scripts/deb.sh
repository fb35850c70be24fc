#!/usr/bin/env bash
# `make deb`: Debian packages in $CARGO_TARGET_DIR/debian (default target/debian): steadfast, the
# command with everything that belongs to it; libsteadfast1, the library; libsteadfast-dev, what
# compiling against it needs. Prints their paths.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_cargo
tools=$(realpath -m "$(target_directory)")/tools
PATH=$tools/bin:$PATH
if ! command -v cargo-deb >/dev/null; then
    # A debug build is quicker to make, and it packs three small packages.
    env -u CARGO_TARGET_DIR "${CARGO:-cargo}" install --locked --quiet --debug cargo-deb --version '^3' --root "$tools" \
        || die "cargo-deb could not be built: $tools: install it with 'cargo install --locked cargo-deb'"
fi

# What `make install` would do, below the directory that the metadata in
# crates/steadfast-cli/Cargo.toml names.
stage=$(realpath -m "$(target_directory)")/release/deb-stage
rm -rf "$stage"
PREFIX=/usr DESTDIR=$stage LIBDIR=/usr/lib scripts/install.sh
# Pages and texts of a package are compressed.
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

# cargo-deb strips what cargo has built only.
strip --strip-unneeded "$stage"/usr/lib/libsteadfast.so.1
strip --strip-debug "$stage"/usr/lib/libsteadfast.a

for variant in '' libsteadfast1 libsteadfast-dev; do
    cargo-deb --quiet --strip --no-build --locked -p steadfast-cli ${variant:+--variant "$variant"}
done
