#!/usr/bin/env bash
# The price of not requesting ASYNC_DIO (docs/decisions/0034): libaio with 16 direct requests of
# 4 KiB under way, reads and writes, on the program and on a build of the same source that requests
# the flag. Interleaved: medians of ROUNDS (default 6) and ratios. The second build loses data
# beside buffered readers, so it is for this comparison alone.
#
# As root; needs fio. SECONDS_EACH (3) is the time of a row. STEADFAST and STEADFAST_ASYNC name
# builds that exist.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

rounds=${ROUNDS:-6}
each=${SECONDS_EACH:-3}
need_cargo
need_fuse
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/steadfast-bench.XXXXXX")
declare -A program
targets=(steadfast async)
cleanup() {
    local target
    for target in "${targets[@]}"; do
        [ -z "${program[$target]:-}" ] ||
            "${program[$target]}" umount --quiet "$scratch/$target" 2>/dev/null || true
    done
    rm -rf --one-file-system "$scratch"
}
trap cleanup EXIT

if [ -z "${STEADFAST:-}" ]; then
    "${CARGO:-cargo}" build --release --locked -p steadfast-cli
    STEADFAST=$(target_directory)/release/steadfast
fi
if [ -z "${STEADFAST_ASYNC:-}" ]; then
    mkdir "$scratch/source"
    git ls-files -z | tar --null --files-from=- -c | tar -C "$scratch/source" -x
    # The flag is bit 15 of INIT.
    sed -i 's/let mut flags = flag::ASYNC_READ$/& | 1 << 15/' \
        "$scratch/source/crates/steadfast-fuse/src/init.rs"
    grep -q 'ASYNC_READ | 1 << 15' "$scratch/source/crates/steadfast-fuse/src/init.rs" ||
        die "init.rs is not written as expected"
    (cd "$scratch/source" && CARGO_TARGET_DIR="$scratch/target" \
        "${CARGO:-cargo}" build --release --locked -p steadfast-cli)
    STEADFAST_ASYNC=$scratch/target/release/steadfast
fi
program=([steadfast]=$(realpath "$STEADFAST") [async]=$(realpath "$STEADFAST_ASYNC"))

for target in "${targets[@]}"; do
    mkdir "$scratch/$target"
    # Blocks that the host has: no target pays for the host's allocation.
    dd if=/dev/zero of="$scratch/$target.img" bs=1M count=1024 status=none
    "${program[$target]}" mkfs --force "$scratch/$target.img" >/dev/null
    "${program[$target]}" mount "$scratch/$target.img" "$scratch/$target"
    dd if=/dev/urandom of="$scratch/$target/file" bs=1M count=256 status=none
    sync -f "$scratch/$target"
done

row() { # NAME FIELD FIO-OPTIONS...: FIELD read or write
    local name=$1 field=$2 target
    shift 2
    # Another target begins in each round: the one before leaves work to the disk.
    for target in "${targets[@]:round % ${#targets[@]}}" \
        "${targets[@]:0:round % ${#targets[@]}}"; do
        fio --output-format=json --output="$scratch/out" --directory="$scratch/$target" \
            --filename=file --size=256m --ioengine=libaio --iodepth=16 --direct=1 --bs=4k \
            --time_based --runtime="$each" --randrepeat=1 --name=job "$@"
        printf '%s\t%s\t' "$name" "$target"
        python3 -c 'import json, sys; text = sys.stdin.read()
print(json.loads(text[text.index("{"):])["jobs"][0][sys.argv[1]]["iops"])' "$field" <"$scratch/out"
        sync -f "$scratch/$target"
    done >>"$scratch/rows"
}

for ((round = 0; round < rounds; round++)); do
    row "4 KiB read at random" read --rw=randread
    row "4 KiB written at random" write --rw=randwrite
    row "4 KiB read in order" read --rw=read
    row "4 KiB written in order" write --rw=write
done

echo "$(uname -sr), $(nproc) processors, images of 1 GiB on $(stat -f -c %T "$scratch")," \
    "libaio, 16 under way, median of $rounds rounds"
python3 - "$scratch/rows" <<'PY'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    name, target, value = line.rstrip("\n").split("\t")
    rows.setdefault(name, {}).setdefault(target, []).append(float(value))
for name, values in rows.items():
    own, peer = values["steadfast"], values["async"]
    ratios = [a / b for a, b in zip(own, peer)]
    print(f"{name:<26} {statistics.median(own):>9,.0f}/s, "
          f"with ASYNC_DIO {statistics.median(peer):>9,.0f}/s: "
          f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
PY
