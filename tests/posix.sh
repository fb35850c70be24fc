#!/usr/bin/env bash
# The POSIX compliance suite on the mount. POSIX_SUITE names the program; otherwise it is built. Arguments go to it.
source "$(dirname "$0")/lib.sh"
start posix

if [ -z "${POSIX_SUITE:-}" ]; then
    need cargo
    (cd "$REPO" && cargo build --release -q -p steadfast-posix) || die "cargo build of the suite"
    POSIX_SUITE=${CARGO_TARGET_DIR:-$REPO/target}/release/posix-suite
fi

make_volume 2G
mount_volume
# What is known to deviate, and stays so for the reasons that docs/POSIX.md gives. A check that passes again fails the
# script until it is taken off this list.
deviations=(
    times/relatime-first-read-after-write-updates
    times/relatime-old-access-time-updates
)
# Everything that Linux file systems may have is asked for, unless it is another file system that is looked at.
require=(--require-all "${deviations[@]/#/--deviation=}")
plain && require=()
timeout 3600 "$POSIX_SUITE" "$MNT" "${require[@]}" "$@" | tee "$WORK/suite.log" || die "$(tail -n 1 "$WORK/suite.log")"
ok "$(tail -n 1 "$WORK/suite.log")"

umount_volume
check_volume
finish
