#!/usr/bin/env bash
# `make performance`: measures what docs/PERFORMANCE.md tells and writes its tables again, between the two marks. As root.
# PERFORMANCE_SUITES, BENCH_ON and BENCH_EFFORT as for `make bench`; PERFORMANCE_RESULT takes a result that is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

page=docs/PERFORMANCE.md
result=${PERFORMANCE_RESULT:-}
if [ -z "${STEADFAST:-}" ]; then
    need_cargo
    "${CARGO:-cargo}" build --release --locked -p steadfast-cli
    STEADFAST=$(target_directory)/release/steadfast
fi
export STEADFAST
if [ -z "$result" ]; then
    result=$(target_directory)/performance
    BENCH_OUT=$result scripts/bench.sh "${PERFORMANCE_SUITES:-b4,b5,device,check}"
fi
tables=$(mktemp)
new=$(mktemp)
trap 'rm -f "$tables" "$new"' EXIT
"$STEADFAST" lab show --markdown "$result" >"$tables" || die "no result: $result: see the messages above"
grep -q '^<!-- measured -->$' "$page" && grep -q '^<!-- end -->$' "$page" \
    || die "the marks are gone: $page: put '<!-- measured -->' and '<!-- end -->' on lines of their own"
awk -v tables="$tables" '
    /^<!-- measured -->$/ { print; print ""; while ((getline line < tables) > 0) print line; print ""; inside = 1; next }
    /^<!-- end -->$/ { inside = 0 }
    !inside { print }' "$page" >"$new"
cat "$new" >"$page"
echo "written: $page"
