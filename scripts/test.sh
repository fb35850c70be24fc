#!/usr/bin/env bash
# `make test`: the tests of every crate, then tests/*.sh with real programs on real mounts. The last
# lines are the results: those of cargo, one per script, and `N passed, N failed`.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

cargo=${CARGO:-cargo}
# Time limit of one script, in seconds.
script_limit=${SCRIPT_LIMIT:-900}
need_cargo
need_packages fuse3 fio stress-ng rsync sqlite3 attr acl git python3 nbdkit libnbd-bin qemu-utils \
    qemu-system-common openssl etcd-server iproute2 ceph-mon ceph-osd ceph-common \
    linux-headers-amd64 dkms qemu-system-x86 busybox-static cpio kmod gcc libc6-dev debootstrap \
    genimage dosfstools mtools
# Without FUSE the other tests still run; those that could not run count as failed.
fuse=yes
(need_fuse) || fuse=no

logs=$(target_directory)/test-logs
mkdir -p "$logs"
results=()
# What failed and why, in few lines: a record of this run may keep only its end.
failures=()
passed=0
failed=0
if [ "$fuse" = no ]; then
    results+=("mounts: FAILED: there is no usable /dev/fuse, nothing was mounted")
    failures+=("mounts: there is no usable /dev/fuse, nothing was mounted")
    failed=1
fi

# reason LOG: the lines of a script's log that tell why it failed. The message of the script may
# stand before many lines of a daemon.
reason() {
    { grep -m 1 -A 2 'FAILED: ' "$1" || true; grep -v '^ok' "$1" | tail -n 4; } | cut -c1-300
}

# Many tests wait, so the release build fits beside them. If this build fails, the run says so.
"$cargo" test --workspace --locked --no-fail-fast --no-run
nice -n 19 "$cargo" build --release --locked --workspace --bins >"$logs/release.log" 2>&1 &
release=$!
trap 'kill "$release" 2>/dev/null' EXIT
"$cargo" test --workspace --locked --no-fail-fast 2>&1 | tee "$logs/cargo.log"
cargo_status=${PIPESTATUS[0]}
while read -r line; do
    results+=("$line")
    read -r ok bad < <(sed -E 's/.* ([0-9]+) passed; ([0-9]+) failed.*/\1 \2/' <<<"$line")
    passed=$((passed + ok))
    failed=$((failed + bad))
done < <(grep -E '^test result: ' "$logs/cargo.log")
# A failed build, or a test program that crashed, has no result line.
if [ "$cargo_status" -ne 0 ] && ! grep -q '^test result: FAILED' "$logs/cargo.log"; then
    results+=("cargo test: exit code $cargo_status")
    failures+=("cargo test: exit code $cargo_status: $(tail -n 3 "$logs/cargo.log" | cut -c1-300)")
    failed=$((failed + 1))
fi
while read -r line; do
    said=$(grep -A 3 "^thread '$line' .*panicked" "$logs/cargo.log" | tail -n +2 | head -n 3) \
        || true
    failures+=("$line: $(cut -c1-300 <<<"$said")")
done < <(sed -nE 's/^test (.+) \.\.\. FAILED$/\1/p' "$logs/cargo.log")

if wait "$release"; then
    STEADFAST=$(realpath "$(target_directory)")/release/steadfast
    export STEADFAST
    for script in tests/*.sh; do
        name=$(basename "$script" .sh)
        # lib.sh has the shared functions, and all.sh runs the other scripts.
        [[ $name == lib || $name == all ]] && continue
        echo "== $script"
        start=$SECONDS
        timeout --kill-after=30 "$script_limit" bash "$script" 2>&1 | tee "$logs/$name.log"
        status=${PIPESTATUS[0]}
        if [ "$status" -eq 0 ]; then
            results+=("$script: ok ($((SECONDS - start)) s)")
            passed=$((passed + 1))
        else
            took=$((SECONDS - start))
            results+=("$script: FAILED with exit code $status after $took s, see $logs/$name.log")
            failures+=("$script: exit code $status: $(reason "$logs/$name.log")")
            failed=$((failed + 1))
        fi
    done
else
    results+=("release build: FAILED, see $logs/release.log")
    failures+=("release build: $(tail -n 3 "$logs/release.log" | cut -c1-300)")
    failed=$((failed + 1))
fi

echo
echo "== results"
printf '%s\n' "${results[@]}"
if [ "${#failures[@]}" -gt 0 ]; then
    echo
    echo "== failures"
    printf '%s\n' "${failures[@]}"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
