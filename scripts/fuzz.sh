#!/bin/sh
# Fuzzes every target for FUZZ_SECONDS (60) each, with the corpora in fuzz/corpus. New inputs go to
# fuzz/found, so that the working tree stays clean. To keep the inputs that add coverage:
#   cd fuzz && cargo +nightly fuzz cmin TARGET corpus/TARGET found/TARGET
# Failing inputs are in fuzz/artifacts; the message shows how to run them again.
set -eu
cd "$(dirname "$0")/../fuzz"
cargo=${CARGO:-cargo}
seconds=${FUZZ_SECONDS:-60}
fail() {
    echo "make fuzz: $*" >&2
    exit 1
}
"$cargo" +nightly --version > /dev/null 2>&1 ||
    fail "a nightly compiler is needed; get one with:" \
        "rustup toolchain install nightly --profile minimal"
if ! "$cargo" +nightly fuzz --version > /dev/null 2>&1; then
    echo "make fuzz: installing cargo-fuzz" >&2
    "$cargo" install cargo-fuzz --locked ||
        fail "cargo-fuzz could not be installed; it needs the network and a C++ compiler:" \
            "cargo install cargo-fuzz --locked"
fi
command -v c++ > /dev/null ||
    fail "libFuzzer is C++: install a compiler, such as the Debian package g++"
for target in ${FUZZ_TARGETS:-image raw_image operations nbd_server nbd_client}; do
    mkdir -p "found/$target"
    echo "== $target, $seconds seconds" >&2
    "$cargo" +nightly fuzz run "$target" "found/$target" "corpus/$target" -- \
        -max_total_time="$seconds" -max_len=400 -timeout=20 -malloc_limit_mb=64 -rss_limit_mb=1024 \
        -print_final_stats=1 ||
        fail "$target found something; the input and how to run it again are above"
done
