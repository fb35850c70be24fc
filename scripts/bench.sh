#!/usr/bin/env bash
# `make bench`, `make bench-SUITE`: suites of the lab on every file system that this machine has,
# and the report of it in BENCH_OUT (target/bench, target/bench-SUITE). BENCH_EFFORT is quick,
# default or full; BENCH_ROUNDS how often each test is run; BENCH_SIZE the size of each volume;
# BENCH_RESUME=1 goes on with a run that was stopped. As root on volumes of its own; otherwise on
# the directory BENCH_DIR only. BENCH_IO_URING=on or off sets the kernel's parameter
# fuse.enable_uring for the run and restores it: FUSE over io_uring for steadfast and null alike, or
# /dev/fuse.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_cargo
if [ -z "${STEADFAST:-}" ]; then
    "${CARGO:-cargo}" build --release --locked -p steadfast-cli
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
    # Each goal is about targets of its own, and those that have nothing to do with it are not
    # asked.
    goals=steadfast,steadfast-lib,steadfast-manual,null,ext4,btrfs,bindfs,gocryptfs,fuse2fs
    [ "$suite" = goals ] && on=$goals
    where=(--on "${BENCH_ON:-$on}")
else
    where=(--dir "${BENCH_DIR:?as a user, name a directory to measure in BENCH_DIR, or run it as root}")
fi
[ -n "${BENCH_SIZE:-}" ] && effort+=(--size "$BENCH_SIZE")
[ -n "${BENCH_ROUNDS:-}" ] && effort+=(--rounds "$BENCH_ROUNDS")
# A run that was stopped goes on where it was, if it is asked for and there is one.
resume=()
[ -n "${BENCH_RESUME:-}" ] && [ -e "$out/result.json" ] && resume=(--resume)

# What mounts of `auto` will find.
parameter=/sys/module/fuse/parameters/enable_uring
if [ -n "${BENCH_IO_URING:-}" ]; then
    case $BENCH_IO_URING in
        on) value=Y ;;
        off) value=N ;;
        *) die "'$BENCH_IO_URING' is no choice: BENCH_IO_URING: use on or off" ;;
    esac
    [ -w "$parameter" ] || die "no FUSE over io_uring to choose: $parameter: leave BENCH_IO_URING out, or run it as root on Linux 6.14"
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
