#!/usr/bin/env bash
# FUSE over io_uring: the tests of the mount (if cargo is installed) and the POSIX suite, with the
# kernel's parameter enabled for the duration of this script. The mounts use `-o io_uring=on`, so
# none of them can fall back.
source "$(dirname "$0")/lib.sh"
parameter=/sys/module/fuse/parameters/enable_uring
plain && skip_all "nothing to do with $TARGET_DIR"
[ -e "$parameter" ] || skip_all "this kernel has no FUSE over io_uring"
[ -w "$parameter" ] || skip_all "only root can switch on FUSE over io_uring ($parameter)"
start uring

before=$(cat "$parameter")
trap 'status=$?; set +e; echo "$before" >"$parameter"; (exit "$status"); cleanup' EXIT

# Mounts that require io_uring report what is missing.
echo N >"$parameter"
make_volume 64M
if "$STEADFAST" mount -o io_uring=on "$IMAGE" "$MNT" 2>"$WORK/refused"; then
    die "io_uring=on mounts without the kernel's parameter"
fi
grep -qF "$parameter" "$WORK/refused" ||
    die "the refusal does not name the parameter: $(cat "$WORK/refused")"
mountpoint -q "$MNT" && die "a mount is left of the refusal"
mount_volume -o io_uring=auto
grep -q io_uring "$WORK/daemon.log" && die "auto uses io_uring without the kernel's parameter"
umount_volume
ok "without the parameter: auto mounts, on is refused"

echo Y >"$parameter"
mount_volume -o io_uring=auto
grep -q "requests come over io_uring" "$WORK/daemon.log" || die "auto does not use io_uring"
umount_volume
mount_volume -o io_uring=on
kill_daemon
mount_volume -o io_uring=on
umount_volume
check_volume "after a killed daemon"

if command -v cargo >/dev/null; then
    # With the settings of `make test`, so that existing artifacts are used.
    mount_tests=(cargo test --locked --workspace --test mount)
    (cd "$REPO" && "${mount_tests[@]}" --no-run) >"$WORK/cargo.log" 2>&1 ||
        die "cargo build: $(tail -n 20 "$WORK/cargo.log")"
    # A request that waits for ever shows where: in the kernel's lists, before the limit ends all.
    # Its output is no pipe, or the reader of this script's output would wait for it.
    (for _ in $(seq 200); do sleep 1; done; waits_of "mount" >"$WORK/waits") >/dev/null 2>&1 &
    watcher=$!
    (cd "$REPO" && STEADFAST_TEST_IO_URING=on timeout 300 "${mount_tests[@]}") \
        >"$WORK/cargo.log" 2>&1 ||
        die "tests of the mount: $(tail -n 40 "$WORK/cargo.log")
$(cat "$WORK/waits" 2>/dev/null)"
    kill "$watcher"
    ok "tests of the mount: $(grep '^test result' "$WORK/cargo.log")"
    if [ -z "${POSIX_SUITE:-}" ]; then
        (cd "$REPO" && cargo build --release -q --locked -p steadfast-posix) ||
            die "cargo build of the suite"
        POSIX_SUITE=${CARGO_TARGET_DIR:-$REPO/target}/release/posix-suite
    fi
fi
if [ -n "${POSIX_SUITE:-}" ]; then
    make_volume 1G
    mount_volume -o io_uring=on,suid,dev
    # docs/POSIX.md explains why that one check can fail. It fails more often if requests really run
    # concurrently.
    timeout 300 "$POSIX_SUITE" "$MNT" --require-all --exclude create-and-remove-of-one-name \
        >"$WORK/suite.log" ||
        die "POSIX suite: $(grep -v '^ok' "$WORK/suite.log" | tail -n 20)"
    ok "POSIX suite: $(tail -n 1 "$WORK/suite.log")"
    umount_volume
    check_volume "after the POSIX suite"
fi
finish
