#!/usr/bin/env bash
# `make embedded`: the core must build without an operating system and without 64-bit atomics.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

target=thumbv7em-none-eabihf
need_cargo
need_target "$target"
"${CARGO:-cargo}" build --locked --lib -p steadfast -p steadfast-media -p steadfast-flash \
    --target "$target"
# What Rust programs of microcontrollers use besides. A feature is for each package that has it.
"${CARGO:-cargo}" build --locked --lib -p steadfast -p steadfast-media -p steadfast-flash \
    --features embedded-storage,defmt --target "$target"
# Without compare-and-swap, as on a Cortex-M0. Programs choose a feature of portable-atomic instead.
need_target thumbv6m-none-eabi
"${CARGO:-cargo}" build --locked --lib -p steadfast -p steadfast-media -p steadfast-flash \
    --target thumbv6m-none-eabi --config \
    'target.thumbv6m-none-eabi.rustflags = ["--cfg", "portable_atomic_unsafe_assume_single_core"]'
# The C library for programs that supply their own memory and clock, small and with everything.
for features in "" full; do
    "${CARGO:-cargo}" rustc --locked --quiet --lib -p steadfast-capi --no-default-features \
        --features "$features" --target "$target" --crate-type staticlib
done
echo "embedded: $target, thumbv6m-none-eabi: ok"
