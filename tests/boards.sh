#!/usr/bin/env bash
# The core on emulated microcontrollers: no power cut leaves a wrong state, and no operation costs
# more than docs/boards.json says. Then planted tables show that the check finds a figure that has
# grown, and tells of one that has shrunk, and a medium whose flushes do nothing is found.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# Volumes that use what a small build does not have.
"${CARGO:-cargo}" test --quiet --locked -p steadfast --no-default-features --test small_profile
scripts/boards.sh check
scripts/boards.sh planted

planted=$(mktemp)
trap 'rm -f "$planted"' EXIT

# plant FACTOR: a table in which a synced append has that many times its instructions.
plant() {
    awk -v factor="$1" '/"operation":"append-32"/ && match($0, /"instructions":[0-9]+/) {
        value = substr($0, RSTART + 15, RLENGTH - 15)
        $0 = substr($0, 1, RSTART + 14) int(value * factor) substr($0, RSTART + RLENGTH)
    } { print }' docs/boards.json >"$planted"
}

boards=$(grep -c '"board":' docs/boards.json)
plant 0.9
if found=$(scripts/boards.sh check --again --table "$planted"); then
    die "boards: the check accepts a figure that has grown by a ninth"
fi
[ "$(grep -c '^MORE: .*: append-32: instructions: ' <<<"$found")" = "$boards" ] \
    || die "boards: the check does not name the figures that have grown: $found"
plant 1.2
found=$(scripts/boards.sh check --again --table "$planted") \
    || die "boards: the check fails for a figure that has shrunk: $found"
[ "$(grep -c '^less: .*: append-32: instructions: ' <<<"$found")" = "$boards" ] \
    || die "boards: the check does not tell of figures that have shrunk: $found"
echo "boards: ok: planted figures are found"
