#!/usr/bin/env bash
# Runs every command in the blocks of the README marked `<!-- test -->`, in order, in an empty
# directory. Also runs `make run` twice, over a mount whose daemon was killed, and `make stop`.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export STEADFAST=${STEADFAST:-$root/target/release/steadfast}
PATH=$(dirname "$STEADFAST"):$PATH

scratch=$(mktemp -d)
cleanup() {
    for directory in "$scratch/mnt" "$scratch/run/mnt"; do
        steadfast umount --quiet "$directory" 2>/dev/null ||
            umount -l "$directory" 2>/dev/null || true
    done
    rm -rf --one-file-system "$scratch"
}
trap cleanup EXIT

blocks=$(awk '
    /^<!-- test -->$/ { marked = 1; next }
    marked && /^```sh$/ { inside = 1; marked = 0; count++; next }
    /^```$/ { inside = 0 }
    inside { print }
    END { if (count < 3) { print "echo \"readme.sh: only " count " blocks found\"; exit 1" } }
' "$root/README.md")
mkdir -p "$scratch"
(cd "$scratch" && bash -euxo pipefail -c "$blocks")
echo "commands of the README: ok"

# The output of these commands must be what the comments in the README say.
[ "$(steadfast cat "$scratch/disk.img" /app.conf /app.data)" = $'version 1\nversion 1' ]
echo "rollback and power cut of the tour: ok"

mkdir -p "$scratch/run"
make_run() {
    make -C "$root" --no-print-directory "$@" IMAGE="$scratch/run/steadfast.img" \
        MOUNT="$scratch/run/mnt"
}
make_run run SIZE=64M
echo hello >"$scratch/run/mnt/file"
steadfast transact "$scratch/run/mnt"
again=$(make_run run)
grep -q "already mounted" <<<"$again"
echo "make run twice: ok"

kill -9 "$(steadfast info --get daemon_pid "$scratch/run/mnt")"
make_run run
[ "$(cat "$scratch/run/mnt/file")" = hello ]
echo "make run over a dead mount: ok"

make_run stop
if mountpoint -q "$scratch/run/mnt"; then exit 1; fi
steadfast check "$scratch/run/steadfast.img"
echo "readme: ok"
