#!/usr/bin/env bash
# Buffered writers through the mount beside ext4 on the same disk, interleaved: medians of ROUNDS
# (default 6) and ratios.
#
# Three questions. What do four writers that each call fdatasync reach together, on one file and on
# four, as processes and as threads? The null file system, whose fsync takes FLUSH microseconds
# (250), shows what FUSE allows there. What does admission cost (docs/decisions/0037), far from full
# and near full? STEADFAST_BEFORE names a second build to compare with. CACHED=0 leaves out the last
# question.
# As root; needs fio. SECONDS_EACH (2) is the time of a synced row.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

rounds=${ROUNDS:-6}
each=${SECONDS_EACH:-2}
need_cargo
need_fuse
"${CARGO:-cargo}" build --release --locked -p steadfast-cli -p steadfast-lab-cli
lab=$(target_directory)/release/steadfast-lab
STEADFAST=${STEADFAST:-$(target_directory)/release/steadfast}

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/steadfast-bench.XXXXXX")
declare -A program=([steadfast]=$(realpath "$STEADFAST"))
targets=(steadfast ext4 null)
if [ -n "${STEADFAST_BEFORE:-}" ]; then
    program[before]=$(realpath "$STEADFAST_BEFORE")
    targets+=(before)
fi
loop=
null=
cleanup() {
    local target
    for target in "${targets[@]}"; do
        case $target in
            ext4 | null)
                umount "$scratch/$target" 2>/dev/null ||
                    umount -l "$scratch/$target" 2>/dev/null || true
                ;;
            *) "${program[$target]}" umount --quiet "$scratch/$target" 2>/dev/null || true ;;
        esac
    done
    if [ -n "$null" ]; then
        kill "$null" 2>/dev/null || true
        wait "$null" || true
    fi
    [ -z "$loop" ] || losetup --detach "$loop" 2>/dev/null || true
    rm -rf --one-file-system "$scratch"
}
trap cleanup EXIT

for target in "${targets[@]}"; do
    mkdir "$scratch/$target"
    if [ "$target" = null ]; then
        "$lab" null --size 1G --flush "${FLUSH:-250}" --threads 8 "$scratch/null" >"$scratch/said" &
        null=$!
        timeout 10 bash -c 'until grep -q mounted "$1"; do sleep 0.05; done' wait "$scratch/said"
        continue
    fi
    # Blocks that the host has: no target pays for the host's allocation.
    dd if=/dev/zero of="$scratch/$target.img" bs=1M count=2048 status=none
    if [ "$target" = ext4 ]; then
        mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$scratch/ext4.img"
        loop=$(losetup --find --show "$scratch/ext4.img")
        mount "$loop" "$scratch/ext4"
    else
        "${program[$target]}" mkfs --force "$scratch/$target.img" >/dev/null
        "${program[$target]}" mount "$scratch/$target.img" "$scratch/$target"
    fi
done
sync

row() { # NAME FIELD FIO-OPTIONS...: FIELD iops or bw_bytes of the writes, over all jobs
    local name=$1 field=$2 target
    shift 2
    # Another target begins in each round: the one before leaves work to the disk.
    for target in "${targets[@]:round % ${#targets[@]}}" \
        "${targets[@]:0:round % ${#targets[@]}}"; do
        # The null file system answers only the question about fdatasync.
        [[ $target != null || $field = iops && $* = *--fdatasync* ]] || continue
        fio --output-format=json --output="$scratch/out" --directory="$scratch/$target" \
            --ioengine=psync --group_reporting --randrepeat=1 --name=job "$@"
        printf '%s\t%s\t%s\t' "$name" "$field" "$target"
        python3 -c 'import json, sys; text = sys.stdin.read()
print(json.loads(text[text.index("{"):])["jobs"][0]["write"][sys.argv[1]])' "$field" <"$scratch/out"
        sync -f "$scratch/$target"
    done >>"$scratch/rows"
}

synced() { # NAME OPTIONS...
    local name=$1
    shift
    row "$name" iops --rw=randwrite --bs=4k --fdatasync=1 --size=16m --time_based \
        --runtime="$each" "$@"
}

cached() { # where
    row "$1: 4 KiB at random, cached, 64 MiB" bw_bytes --rw=randwrite --bs=4k --size=64m \
        --filename=random
    row "$1: rewritten in 1 MiB, cached, 64 MiB" bw_bytes --rw=write --bs=1m --size=64m \
        --filename=random
    row "$1: new in 1 MiB, cached, 64 MiB" bw_bytes --rw=write --bs=1m --size=64m --filename=new
    row "$1: 2,000 new files of 2 KiB" iops --rw=write --bs=2k --nrfiles=2000 --filesize=2k \
        --openfiles=1 --file_service_type=sequential --create_on_open=1 \
        --filename_format='small.$filenum'
    local target
    for target in "${targets[@]}"; do
        rm -f "$scratch/$target"/new "$scratch/$target"/small.*
        sync -f "$scratch/$target"
    done
}

for ((round = 0; round < rounds; round++)); do
    synced "1 writer + fdatasync" --filename=one
    synced "4 processes, one file" --filename=one --numjobs=4
    synced "4 threads, one file" --filename=one --numjobs=4 --thread
    synced "4 processes, four files" --numjobs=4
    synced "4 threads, four files" --numjobs=4 --thread
    [ "${CACHED:-1}" = 0 ] || cached "far from full"
done
for target in "${targets[@]}"; do
    [ "$target" != null ] && [ "${CACHED:-1}" != 0 ] || continue
    room=$(df --output=avail -B1M "$scratch/$target" | tail -n 1)
    fallocate -l $((room - 180))M "$scratch/$target/filler"
    sync -f "$scratch/$target"
done
for ((round = 0; round < rounds; round++)); do
    [ "${CACHED:-1}" = 0 ] || cached "180 MiB left"
done

echo "$(uname -sr), $(nproc) processors, images of 2 GiB on $(stat -f -c %T "$scratch")," \
    "median of $rounds rounds"
python3 - "$scratch/rows" <<'PY'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    name, field, target, value = line.rstrip("\n").split("\t")
    rows.setdefault((name, field), {}).setdefault(target, []).append(float(value))
for (name, field), values in rows.items():
    middle = {target: statistics.median(each) for target, each in values.items()}
    shown = lambda value: f"{value / 1e6:,.0f} MB/s" if field == "bw_bytes" else f"{value:,.0f}/s"
    line = f"{name:<44}"
    for target, value in middle.items():
        line += f" {target} {shown(value)}"
    for peer in middle:
        if peer not in ("steadfast", "null"):
            ratios = [a / b for a, b in zip(values["steadfast"], values[peer])]
            least, most = min(ratios), max(ratios)
            line += f"; {statistics.median(ratios):.2f} x {peer} ({least:.2f} to {most:.2f})"
    print(line)
one = "1 writer + fdatasync"
for (name, field), values in rows.items():
    if "fdatasync" in name or field != "iops" or "null" not in values:
        continue
    print(f"{name}, beside 1 writer of the same target:", ", ".join(
        f"{target} {statistics.median(a / b for a, b in zip(each, rows[one, field][target])):.2f}"
        for target, each in values.items()))
PY
