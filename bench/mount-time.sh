#!/usr/bin/env bash
# How long `steadfast mount` takes, from the command to its return: empty and filled volumes, after
# a clean unmount and after the daemon was killed. Prints a median of RUNS (default 5) for each, and
# on what it was measured.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

runs=${RUNS:-5}
files=${FILES:-2000}
need_cargo
need_fuse
if [ -z "${STEADFAST:-}" ]; then
    "${CARGO:-cargo}" build --release --locked -p steadfast-cli
    STEADFAST=$(target_directory)/release/steadfast
fi
steadfast=$(realpath "$STEADFAST")

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/steadfast-bench.XXXXXX")
image=$scratch/disk.img
directory=$scratch/mnt
cleanup() {
    "$steadfast" umount --quiet "$directory" 2>/dev/null || true
    rm -rf --one-file-system "$scratch"
}
trap cleanup EXIT
mkdir "$directory"

microseconds() { # of the command given
    local start end
    start=$(date +%s%N)
    "$@"
    end=$(date +%s%N)
    echo $(((end - start) / 1000))
}

median() { sort -n | awk '{ v[NR] = $1 } END { printf "%.1f\n", v[int((NR + 1) / 2)] / 1000 }'; }

measure() { # label, how to end the mount
    local label=$1 ending=$2 run
    for ((run = 0; run < runs; run++)); do
        microseconds "$steadfast" mount "$image" "$directory"
        if [ "$ending" = kill ]; then
            echo "$run" >"$directory/touched"
            "$steadfast" transact "$directory"
            kill -9 "$("$steadfast" info --get daemon_pid "$directory")"
        fi
        "$steadfast" umount --quiet "$directory"
    done | median | { read -r value; printf '%-34s %8s ms\n' "$label" "$value"; }
}

fill() {
    "$steadfast" mount "$image" "$directory"
    python3 - "$directory" "$files" <<'PY'
import os, sys
directory, count = sys.argv[1], int(sys.argv[2])
for index in range(count):
    if index % 1000 == 0:
        os.mkdir(f"{directory}/{index // 1000}")
    with open(f"{directory}/{index // 1000}/{index}", "wb") as file:
        file.write(b"x" * (index % 3000))
PY
    "$steadfast" umount --quiet "$directory"
}

echo "$(uname -sr), $(nproc) processors, image on $(stat -f -c %T "$scratch"), median of $runs"
for size in 64M 1G 64G; do
    "$steadfast" mkfs --force --size "$size" "$image" >/dev/null
    measure "$size, empty, clean" clean
    measure "$size, empty, killed" kill
    fill
    measure "$size, $files files, clean" clean
    measure "$size, $files files, killed" kill
    rm "$image"
done
