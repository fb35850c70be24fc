#!/usr/bin/env bash
# `make performance`: measures what docs/PERFORMANCE.md describes and writes the tables in
# docs/performance/measured.md, between its two marks. Needs root.
#
# Two runs of the lab, below target/performance: `goals` on the targets of the goals, and the suites
# PERFORMANCE_SUITES (b4,device,check) on BENCH_ON (steadfast,steadfast-lib,ext4,xfs). BENCH_EFFORT
# (quick, default, full) and BENCH_ROUNDS (5) apply to both. PERFORMANCE_RESUME=1 continues a
# stopped run. PERFORMANCE_RESULT names existing results (directories, separated by spaces); then
# nothing is measured. The file is written only when all runs are complete.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

page=docs/performance/measured.md
grep -q '^<!-- measured -->$' "$page" && grep -q '^<!-- end -->$' "$page" \
    || die "the marks are gone: $page:" \
        "put '<!-- measured -->' and '<!-- end -->' on lines of their own"
if [ -z "${STEADFAST:-}" ]; then
    need_cargo
    "${CARGO:-cargo}" build --release --locked -p steadfast-cli -p steadfast-lab-cli
    STEADFAST=$(target_directory)/release/steadfast
fi
export STEADFAST
export BENCH_RESUME=${PERFORMANCE_RESUME:-} BENCH_ROUNDS=${BENCH_ROUNDS:-5}

# A run with failures still has a result, and the tables show its failures. A stopped run is
# incomplete.
measure() {
    local out=$1 on=$2 suites=$3
    BENCH_OUT=$out BENCH_ON=$on scripts/bench.sh "$suites" \
        || echo "steadfast: the run of $suites has failures, or was stopped: $out:" \
            "see the messages above" >&2
}

if [ -n "${PERFORMANCE_RESULT:-}" ]; then
    read -r -a results <<<"$PERFORMANCE_RESULT"
else
    base=$(target_directory)/performance
    results=("$base/goals" "$base/suites")
    measure "${results[0]}" "" goals
    measure "${results[1]}" "${BENCH_ON:-steadfast,steadfast-lib,ext4,xfs}" \
        "${PERFORMANCE_SUITES:-b4,device,check}"
fi
tables=$(mktemp)
new=$(mktemp)
trap 'rm -f "$tables" "$new"' EXIT
for result in "${results[@]}"; do
    "$STEADFAST" lab show --markdown "$result" >>"$tables" \
        || die "no result: $result: see the messages above"
    echo >>"$tables"
done
! grep -q '^Stopped before its end' "$tables" \
    || die "a run is not complete: ${results[*]}:" \
        "continue it with PERFORMANCE_RESUME=1 make performance"
awk -v tables="$tables" '
    /^<!-- measured -->$/ {
        print
        print ""
        while ((getline line < tables) > 0) print line
        inside = 1
        next
    }
    /^<!-- end -->$/ { inside = 0 }
    !inside { print }' "$page" >"$new"
cat "$new" >"$page"
echo "written: $page"
