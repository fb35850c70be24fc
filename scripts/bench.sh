#!/usr/bin/env bash
# `make bench`, `make bench-SUITE`: runs suites of the lab on every file system that this machine
# has. The report is in BENCH_OUT (target/bench, target/bench-SUITE).
#
# BENCH_EFFORT is quick, default or full. BENCH_ROUNDS is the number of runs of each test.
# BENCH_SIZE is the size of each volume. BENCH_RESUME=1 continues an interrupted run.
# BENCH_IO_URING=on or off sets the kernel's parameter fuse.enable_uring for the run and restores
# it; steadfast and null then both use FUSE over io_uring, or both /dev/fuse.
#
# As root it uses volumes of its own, otherwise only the directory BENCH_DIR.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_cargo
if [ -z "${STEADFAST:-}" ]; then
    "${CARGO:-cargo}" build --release --locked -p steadfast-cli -p steadfast-lab-cli
    STEADFAST=$(target_directory)/release/steadfast
fi
suite=${1:-all}
out=${BENCH_OUT:-$(target_directory)/bench${1:+-$1}}
case ${BENCH_EFFORT:-quick} in
    quick) effort=(--quick) ;;
    default) effort=() ;;
    full) effort=(--full) ;;
    *) die "'$BENCH_EFFORT' is no effort: BENCH_EFFORT: use quick, default or full" ;;
esac
if [ "$(id -u)" -eq 0 ]; then
    need_fuse
    on=steadfast,steadfast-lib,ext4,xfs,btrfs,fuse2fs
    # Each goal has its own targets; other targets are skipped.
    goals=steadfast,steadfast-lib,steadfast-manual,null,ext4,btrfs,bindfs,gocryptfs,fuse2fs
    [ "$suite" = goals ] && on=$goals
    where=(--on "${BENCH_ON:-$on}")
else
    [ -n "${BENCH_DIR:-}" ] ||
        die "as a user, name a directory to measure in BENCH_DIR, or run it as root"
    where=(--dir "$BENCH_DIR")
fi
[ -n "${BENCH_SIZE:-}" ] && effort+=(--size "$BENCH_SIZE")
[ -n "${BENCH_ROUNDS:-}" ] && effort+=(--rounds "$BENCH_ROUNDS")
# Continues an interrupted run if that was requested and one exists.
resume=()
[ -n "${BENCH_RESUME:-}" ] && [ -e "$out/result.json" ] && resume=(--resume)

# The transport that mounts with `auto` will use.
parameter=/sys/module/fuse/parameters/enable_uring
if [ -n "${BENCH_IO_URING:-}" ]; then
    case $BENCH_IO_URING in
        on) value=Y ;;
        off) value=N ;;
        *) die "'$BENCH_IO_URING' is no choice: BENCH_IO_URING: use on or off" ;;
    esac
    [ -w "$parameter" ] ||
        die "no FUSE over io_uring to choose: $parameter:" \
            "leave BENCH_IO_URING out, or run it as root on Linux 6.14"
    before=$(cat "$parameter")
    trap 'echo "$before" >"$parameter"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    echo "$value" >"$parameter"
fi
if [ "$(cat "$parameter" 2>/dev/null)" = Y ]; then
    echo "transport of steadfast and null: FUSE over io_uring"
else
    echo "transport of steadfast and null: /dev/fuse"
fi
"$STEADFAST" lab run --suite "$suite" "${effort[@]}" "${where[@]}" "${resume[@]}" --out "$out"
