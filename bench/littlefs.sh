#!/usr/bin/env bash
# littlefs (its C sources, through the crate littlefs2) over the NAND model that the figures of
# docs/FLASH.md are from. Prints page reads, programs, erasures and modelled time of the same load.
# Installs libclang-dev for the bindings where it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_packages libclang-dev
CARGO_TARGET_DIR=$(realpath -m "$(target_directory)")/littlefs
export CARGO_TARGET_DIR
"${CARGO:-cargo}" run --release --locked --quiet --manifest-path bench/littlefs/Cargo.toml
