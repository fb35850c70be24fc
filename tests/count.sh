#!/usr/bin/env bash
# No operation of the core costs more than docs/counts.json says: instructions, allocations and
# requests to the medium, on volumes of 100 and 10,000 files. Then planted tables show that the
# check finds a count that has grown, and tells of one that has shrunk.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

[ "$(uname -sm)" = "Linux x86_64" ] \
    || { echo "count: skipped: the table is of Linux on x86-64"; exit 0; }
scripts/count.sh check

planted=$(mktemp)
trap 'rm -f "$planted"' EXIT

# plant FACTOR: a table in which mkdir has that many times its instructions.
plant() {
    awk -v factor="$1" '
    /"system":"steadfast","operation":"mkdir"/ && match($0, /"instructions":[0-9]+/) {
        value = substr($0, RSTART + 15, RLENGTH - 15)
        $0 = substr($0, 1, RSTART + 14) int(value * factor) substr($0, RSTART + RLENGTH)
    }
    { print }' docs/counts.json >"$planted"
}

plant 0.9
if found=$(scripts/count.sh check --only mkdir --table "$planted"); then
    die "count: the check accepts a count that has grown by a ninth"
fi
[ "$(grep -c '^MORE: mkdir, .* files: instructions: ' <<<"$found")" = 2 ] \
    || die "count: the check does not name the counts that have grown: $found"
plant 1.2
found=$(scripts/count.sh check --only mkdir --table "$planted") \
    || die "count: the check fails for a count that has shrunk: $found"
[ "$(grep -c '^less: mkdir, .* files: instructions: ' <<<"$found")" = 2 ] \
    || die "count: the check does not tell of counts that have shrunk: $found"
echo "count: ok: planted counts are found"
