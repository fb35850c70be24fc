#!/usr/bin/env bash
# `make archives`: the library for C without an operating system, for firmware engineers without
# Rust: $CARGO_TARGET_DIR/archives/steadfast-VERSION-firmware.tar.gz, with headers, a static archive
# for each target and profile, a CMake package and an example. Prints its path.
#
#   archives.sh [TARGET...]   only these targets
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

targets=("$@")
[ $# -gt 0 ] || targets=(thumbv7em-none-eabihf thumbv7em-none-eabi thumbv8m.main-none-eabihf
    thumbv8m.main-none-eabi thumbv6m-none-eabi riscv32imac-unknown-none-elf)
need_cargo
version=$(awk -F'"' '/^version = / { print $2; exit }' Cargo.toml)
base=$(realpath -m "$(target_directory)")
root=$base/archives/steadfast-$version-firmware
# The linker that comes with Rust, for all targets.
linker=$(find "$(rustc --print sysroot)" -name rust-lld -type f | sed -n 1p)
[ -n "$linker" ] || die "no rust-lld below $(rustc --print sysroot): install Rust with rustup"

rm -rf "$root"
mkdir -p "$root/include" "$root/lib/cmake/Steadfast"
cp crates/steadfast-capi/include/steadfast.h crates/steadfast-capi/include/steadfast-port.h \
    "$root/include/"
cp packaging/firmware/README.md LICENSE-APACHE LICENSE-MIT docs/EMBEDDED.md docs/C-API.md "$root/"
cp packaging/firmware/SteadfastConfig.cmake "$root/lib/cmake/Steadfast/"
sed "s/@VERSION@/$version/" packaging/firmware/SteadfastConfigVersion.cmake.in \
    >"$root/lib/cmake/Steadfast/SteadfastConfigVersion.cmake"
cp -r examples/firmware "$root/example"

# Every function of the headers must be in the archive, and nothing else be wanted.
functions=$(grep -ohE '\bsf_[a-z_]+\(' "$root"/include/*.h | tr -d '(' | sort -u \
    | grep -vE '^sf_(format_image|open_image|snapshot_open_image)$')
check() {
    local wanted=() function
    for function in $functions; do wanted+=(-u "$function"); done
    "$linker" -flavor gnu --gc-sections --no-undefined -e sf_start "${wanted[@]}" "$1" \
        -o "$root.linked" \
        || die "archives: $1 is not complete"
    rm "$root.linked"
}
for target in "${targets[@]}"; do
    need_target "$target"
    for profile in small full; do
        features=
        [ "$profile" = small ] || features=full
        "${CARGO:-cargo}" rustc --quiet --locked --lib --profile firmware -p steadfast-capi \
            --no-default-features --features "$features" --target "$target" --crate-type staticlib \
            >&2
        mkdir -p "$root/lib/$target/$profile"
        cp "$base/$target/firmware/libsteadfast.a" "$root/lib/$target/$profile/"
        check "$root/lib/$target/$profile/libsteadfast.a"
    done
done

# The same sources make the same file.
changed=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$changed" -C "$base/archives" \
    -c "steadfast-$version-firmware" | gzip -9n >"$root.tar.gz"
echo "$root.tar.gz"
