#!/usr/bin/env bash
# `make boards`: runs the core on emulated microcontrollers, with a power cut at every write of a
# short run, and writes docs/boards.json and docs/BOARDS.md. `make boards-check` compares with the
# committed table instead, and fails if a figure grew by more than 5 %.
#
#   boards.sh [measure|check] [--table FILE] [--again]
#   boards.sh planted
#
# --again compares the last run once more. `planted` fails unless the power cuts find a medium whose
# flushes do nothing. Builds and logs are kept below target/boards.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

task=${1:-measure}
[ $# -eq 0 ] || shift
table=docs/boards.json
again=no
while [ $# -gt 0 ]; do
    case $1 in
        --table) table=$2 && shift ;;
        --again) again=yes ;;
        *) die "boards: unknown option: $1" ;;
    esac
    shift
done

# board, Rust target, profile: a name for the features of the core
runs="an386 thumbv7em-none-eabi small
an386 thumbv7em-none-eabi full
an500 thumbv7em-none-eabi small
an505 thumbv8m.main-none-eabi small
virt riscv32imac-unknown-none-elf small"
# What each feature takes: measured for an386, without power cuts. The check has the sums of all.
features="snapshots xattrs name-cache log-overlay fast-crc"
# Seconds of one program.
limit=120

base=$(realpath -m "$(target_directory)")/boards
mkdir -p "$base"
logs=()

# emulate BOARD PROGRAM: the programs count on 8 ns for each instruction. What they print
# comes on standard error.
emulate() {
    local machine=(qemu-system-arm -machine "mps2-$1")
    [ "$1" != virt ] || machine=(qemu-system-riscv32 -machine virt -bios none)
    timeout --kill-after=5 "$limit" "${machine[@]}" -nodefaults -nic none -display none \
        -monitor none -serial none -icount shift=3 -semihosting-config enable=on,target=native \
        -kernel "$2" </dev/null 2>&1
}

# run_board BOARD PROFILE: both programs, into one log.
run_board() {
    local log=$base/$1.$2.log program
    : >"$log"
    for program in figures cuts; do
        emulate "$1" "$base/$1.$2.$program" >>"$log" \
            || die "boards: $1, $2: $program failed: $(tail -n 1 "$log")"
    done
}

# build BOARD TARGET PROFILE [OPTION...]
build() {
    local board=$1 target=$2 profile=$3 program
    need_target "$target"
    (cd boards && BOARD=$board CARGO_TARGET_DIR=$base "${CARGO:-cargo}" build --quiet --locked \
        --release --target "$target" "${@:4}")
    for program in figures cuts; do
        cp "$base/$target/release/$program" "$base/$board.$profile.$program"
    done
}

if [ "$again" = no ]; then
    need_cargo
    need_packages qemu-system-arm qemu-system-misc python3
fi
if [ "$task" = planted ]; then
    build an386 thumbv7em-none-eabi planted --features lying-flush
    if emulate an386 "$base/an386.planted.cuts" >"$base/an386.planted.log"; then
        die "boards: the power cuts do not find that flushes do nothing"
    fi
    grep -qE '^wrong state:|^failed at' "$base/an386.planted.log" \
        || die "boards: the planted fault was not found, but this:" \
            "$(tail -n 1 "$base/an386.planted.log")"
    echo "boards: the planted fault was found"
    exit 0
fi
if [ "$again" = no ]; then
    running=()
    while read -r board target profile; do
        build "$board" "$target" "$profile" --no-default-features --features "${profile#small}"
        run_board "$board" "$profile" &
        running+=($!)
    done <<<"$runs"
    for process in "${running[@]}"; do
        wait "$process"
    done
fi
sizes=()
if [ "$task" = measure ]; then
    for feature in $features; do
        build an386 thumbv7em-none-eabi "$feature" --features "$feature"
        emulate an386 "$base/an386.$feature.figures" >"$base/an386.$feature.size" \
            || die "boards: with $feature: figures failed: $(tail -n 1 "$base/an386.$feature.size")"
        sizes+=("$base/an386.$feature.size")
    done
fi
while read -r board _ profile; do
    logs+=("$base/$board.$profile.log")
done <<<"$runs"
if [ "$task" = measure ]; then
    python3 boards/table.py write "$table" docs/BOARDS.md "${logs[@]}" "${sizes[@]}"
else
    python3 boards/table.py check "$table" "${logs[@]}"
fi
echo "boards: ok"
