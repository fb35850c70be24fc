#!/usr/bin/env bash
# `make lint`: every check that needs no test run: format, clippy, documentation, licences, pages.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

cargo=${CARGO:-cargo}
boards=$(realpath -m "$(target_directory)")/boards
need_cargo
"$cargo" fmt --all --check
"$cargo" clippy --workspace --all-targets --locked -- -D warnings
# The firmware is a workspace of its own, and its programs need a target without an operating
# system.
(cd boards && "$cargo" fmt --check && CARGO_TARGET_DIR=$boards "$cargo" clippy --quiet --locked \
    --target thumbv7em-none-eabihf -- -D warnings)
# What only the kernel module has: memory and panics of a target without an operating system.
need_target x86_64-unknown-none
"$cargo" clippy -p steadfast-kernel --lib --target x86_64-unknown-none --locked -- -D warnings
# What only firmware has: an arena, one lock, and characters without a sign.
need_target thumbv7em-none-eabihf
"$cargo" clippy --quiet -p steadfast-capi --lib --no-default-features \
    --target thumbv7em-none-eabihf --locked -- -D warnings
# Links to private items are allowed: this documentation is for developers.
RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' "$cargo" doc --workspace --no-deps \
    --document-private-items --locked --quiet

tools=$(realpath -m "$(target_directory)")/tools
PATH=$tools/bin:$PATH
if ! command -v cargo-deny >/dev/null; then
    # This crate is not part of the workspace, so its target directory is removed again. A debug
    # build is faster.
    env -u CARGO_TARGET_DIR "$cargo" install --locked --quiet --debug cargo-deny --version '^0.20' \
        --root "$tools" \
        || die "cargo-deny could not be built: $tools:" \
            "install it with 'cargo install --locked cargo-deny'"
fi
cargo-deny --log-level error check bans licenses sources
# The advisories need the network. The other checks work without it.
if cargo-deny fetch db >/dev/null 2>&1; then
    cargo-deny --log-level error check advisories
else
    echo "lint: the advisory database cannot be fetched; advisories are not checked"
fi
for script in scripts/*.sh tests/*.sh bench/*.sh .ci/run; do
    [ -e "$script" ] && bash -n "$script"
done
tests/docs.sh
echo "lint: ok"
