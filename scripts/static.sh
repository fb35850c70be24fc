#!/usr/bin/env bash
# `make static`: `steadfast` as one file that needs nothing of the system that it runs on, for an
# initramfs or a device without a C library: $CARGO_TARGET_DIR/TRIPLE/dist/steadfast. Prints its
# path.
#   STATIC_TARGET  the triple (default: musl for the processor of this machine)
#   PROFILE        of cargo: dist, small and slow to build (default), or release
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

triple=${STATIC_TARGET:-$(uname -m)-unknown-linux-musl}
profile=${PROFILE:-dist}
need_cargo
# C code of the TLS library is compiled against the headers of musl.
need_packages musl-tools >&2
need_target "$triple"
# Packed relocations are 130 KB less; musl knows them since 1.2.4.
"${CARGO:-cargo}" rustc --profile "$profile" --locked --target "$triple" -p steadfast-cli \
    --bin steadfast -- -C link-arg=-Wl,-z,pack-relative-relocs
program=$(target_directory)/$triple/$profile/steadfast
realpath "$program"
