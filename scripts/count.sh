#!/usr/bin/env bash
# `make count`: counts instructions, allocations, copies and device requests of each operation of
# the core, and writes docs/counts.json and docs/COUNTS.md. `make count-check` measures the smaller
# volumes only and fails if a count grew by more than 5 % over the committed table.
#
# Installs valgrind where it is missing. Prepared volumes and profiles are kept below target/count.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

task=${1:-measure}
need_cargo
[ "$(uname -sm)" = "Linux x86_64" ] ||
    die "counting needs Linux on x86-64: $(uname -sm): the table is of that processor"
need_packages valgrind util-linux libc-bin
"${CARGO:-cargo}" build --workspace --release --locked --bin steadfast-count
peers=()
if [ "$task" = measure ]; then
    # littlefs is C, and its bindings need libclang.
    need_packages libclang-dev
    base=$(realpath -m "$(target_directory)")/count-peers
    CARGO_TARGET_DIR=$base "${CARGO:-cargo}" build --release --locked \
        --manifest-path bench/count-peers/Cargo.toml
    peers=(--peers "$base/release/count-peers")
fi
exec "$(target_directory)/release/steadfast-count" "$task" --directory "$(target_directory)/count" \
    "${peers[@]}" "${@:2}"
