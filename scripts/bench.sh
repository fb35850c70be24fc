#!/usr/bin/env bash
# `make bench`: the quick suites of the lab on every file system that this machine has, and the report of it in
# BENCH_OUT (target/bench). As root on volumes of its own; otherwise on the directory BENCH_DIR only.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_cargo
if [ -z "${STEADFAST:-}" ]; then
    "${CARGO:-cargo}" build --release --locked -p steadfast-cli
    STEADFAST=$(target_directory)/release/steadfast
fi
out=${BENCH_OUT:-$(target_directory)/bench}
if [ "$(id -u)" -eq 0 ]; then
    need_fuse
    where=(--on "${BENCH_ON:-steadfast,steadfast-lib,ext4,xfs,btrfs,fuse2fs}")
else
    where=(--dir "${BENCH_DIR:?as a user, name a directory to measure in BENCH_DIR, or run it as root}")
fi
exec "$STEADFAST" lab run --suite all --quick "${where[@]}" --out "$out"
