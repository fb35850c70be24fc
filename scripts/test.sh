#!/usr/bin/env bash
# `make test`: the tests of every crate, and tests/*.sh with real programs on real mounts. The last
# lines are the results: those of cargo, one per script, and `N passed, N failed`.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

cargo=${CARGO:-cargo}
# Time limit of one script, in seconds. Some compile, and share the processors with others.
script_limit=${SCRIPT_LIMIT:-1800}
need_cargo
need_packages fuse3 fio stress-ng rsync sqlite3 attr acl git python3 nbdkit libnbd-bin qemu-utils \
    qemu-system-common openssl etcd-server iproute2 ceph-mon ceph-osd ceph-common \
    linux-headers-amd64 dkms qemu-system-x86 busybox-static cpio kmod gcc libc6-dev debootstrap \
    genimage dosfstools mtools
logs=$(realpath -m "$(target_directory)")/test-logs
rm -rf "$logs"
mkdir -p "$logs"

# Two lanes run at once, for many tests wait, and others use one processor only. The first one has
# the longest of what computes: programs of tests, virtual machines, boards, and what compiles. The
# second one has all else, which mounts and waits, one after the other.
computing_tests=(torture schedules hostile array simulation examples lab_goals)
computing_scripts=(kernel dkms boards static build)

# reason LOG: the lines of a script's log that tell why it failed. The message of the script may
# stand before many lines of a daemon.
reason() {
    { grep -m 1 -A 2 'FAILED: ' "$1" || true; grep -v '^ok' "$1" | tail -n 4; } | cut -c1-300
}

# result LINE, failure LINE and count PASSED FAILED: what the run says at its end. Both lanes write.
result() { echo "$*" >>"$logs/results"; }
failure() { echo "$*" >>"$logs/failures"; }
count() { echo "$*" >>"$logs/counts"; }
touch "$logs"/{results,failures,counts}

# show LOG: a whole log at once, so that the two lanes do not mix.
show() { flock "$logs/counts" cat "$1"; }

# cargo_tests NAME OPTION...: tests of the workspace; NAME is for the log.
cargo_tests() {
    local log=$logs/cargo-$1.log status=0 line said
    shift
    "$cargo" test --workspace --locked --no-fail-fast "$@" >"$log" 2>&1 || status=$?
    show "$log"
    while read -r line; do
        result "$line"
        count "$(sed -E 's/.* ([0-9]+) passed; ([0-9]+) failed.*/\1 \2/' <<<"$line")"
    done < <(grep -E '^test result: ' "$log")
    # A failed build, or a test program that crashed, has no result line.
    if [ "$status" -ne 0 ] && ! grep -q '^test result: FAILED' "$log"; then
        result "cargo test: exit code $status"
        failure "cargo test: exit code $status: $(tail -n 3 "$log" | cut -c1-300)"
        count 0 1
    fi
    while read -r line; do
        said=$(grep -A 3 "^thread '$line' .*panicked" "$log" | tail -n +2 | head -n 3) || true
        failure "$line: $(cut -c1-300 <<<"$said")"
    done < <(sed -nE 's/^test (.+) \.\.\. FAILED$/\1/p' "$log")
}

# script NAME: runs tests/NAME.sh.
script() {
    local log=$logs/$1.log start=$SECONDS status=0 took
    timeout --kill-after=30 "$script_limit" bash "tests/$1.sh" >"$log" 2>&1 || status=$?
    took=$((SECONDS - start))
    echo "== tests/$1.sh" | cat - "$log" >"$log.shown"
    show "$log.shown"
    rm "$log.shown"
    if [ "$status" -eq 0 ]; then
        result "tests/$1.sh: ok ($took s)"
        count 1 0
    else
        result "tests/$1.sh: FAILED with exit code $status after $took s, see $log"
        failure "tests/$1.sh: exit code $status: $(reason "$log")"
        count 0 1
    fi
}

# end_tree PID: ends a process and what it has started. It is stopped first, or it starts more.
end_tree() {
    local child children
    kill -STOP "$1" 2>/dev/null || return 0
    children=$(pgrep -P "$1")
    kill "$1"
    kill -CONT "$1"
    for child in $children; do end_tree "$child"; done
}

# rest ALL WITHOUT: the words of the first list that are not in the second.
rest() { comm -23 <(tr ' ' '\n' <<<"$1" | sort) <(tr ' ' '\n' <<<"$2" | sort); }

compute() {
    local name
    cargo_tests computing --lib --bins "${computing_tests[@]/#/--test=}"
    cargo_tests doc --doc
    for name in "${computing_scripts[@]}"; do script "$name"; done
    touch "$logs/computed"
}

mounts() {
    local name
    cargo_tests mounting "${mounting_tests[@]/#/--test=}"
    for name in "${mounting_scripts[@]}"; do script "$name"; done
    touch "$logs/mounted"
}

# Every test has a lane. lib.sh is no test, it has the shared functions.
all_tests=$("$cargo" metadata --no-deps --locked --format-version 1 | python3 -c '
import json, sys
packages = json.load(sys.stdin)["packages"]
print(*{target["name"] for package in packages for target in package["targets"]
        if "test" in target["kind"]})') || die "cargo metadata failed: Cargo.toml: run it by hand"
all_scripts=$(basename -s .sh tests/*.sh | grep -vx lib | tr '\n' ' ')
mapfile -t mounting_tests < <(rest "$all_tests" "${computing_tests[*]}")
mapfile -t mounting_scripts < <(rest "${all_scripts% }" "${computing_scripts[*]}")

# Without FUSE the other tests still run; those that could not run count as failed.
if ! (need_fuse); then
    result "mounts: FAILED: there is no usable /dev/fuse, nothing was mounted"
    failure "mounts: there is no usable /dev/fuse, nothing was mounted"
    count 0 1
fi
# If this build fails, the tests below say so. The scripts use the programs of the tests: they check
# assertions, and another build of everything takes as long as all scripts. What users get is in
# the tests of the static program, the firmware and the kernel module.
"$cargo" test --workspace --locked --no-fail-fast --no-run
"$cargo" build --profile test --locked -p steadfast-capi --lib
STEADFAST_BUILT=$(realpath "$(target_directory)/debug")
export STEADFAST_BUILT STEADFAST=$STEADFAST_BUILT/steadfast POSIX_SUITE=$STEADFAST_BUILT/posix-suite
compute &
trap 'for child in $(pgrep -P $$); do end_tree "$child"; done' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# In the background, too: only then a signal ends this script at once.
mounts &
wait
# A lane that was ended, or could not write, must not look like one without failures.
scripts_done=$(grep -c '^tests/' "$logs/results")
if ! [ -e "$logs/computed" ] || ! [ -e "$logs/mounted" ] ||
    [ "$scripts_done" -ne "$(wc -w <<<"$all_scripts")" ]; then
    failure "the run is not complete: $scripts_done of $(wc -w <<<"$all_scripts") scripts"
    count 0 1
    incomplete=yes
fi

echo
echo "== results"
cat "$logs/results"
if [ -s "$logs/failures" ]; then
    echo
    echo "== failures"
    cat "$logs/failures"
fi
read -r passed failed < <(awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }' "$logs/counts")
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ -z "${incomplete:-}" ] && ! grep -q FAILED "$logs/results"
