#!/usr/bin/env bash
# Runs the POSIX compliance suite on several kinds of mounts. POSIX_SUITE names the program;
# otherwise it is built. The script passes its arguments to the program.
source "$(dirname "$0")/lib.sh"
start posix

if [ -z "${POSIX_SUITE:-}" ]; then
    need cargo
    (cd "$REPO" && cargo build --release -q -p steadfast-posix) || die "cargo build of the suite"
    POSIX_SUITE=${CARGO_TARGET_DIR:-$REPO/target}/release/posix-suite
fi

# Known and permanent deviations, for the reasons in docs/POSIX.md. If such a check passes, the
# script fails until the check is removed from this list.
deviations=()

# suite WHAT [options of the suite]
suite() {
    local what=$1
    shift
    timeout 3600 "$POSIX_SUITE" "$MNT" "${deviations[@]/#/--deviation=}" "$@" >"$WORK/suite.log" ||
        die "$what: $(grep -v '^ok' "$WORK/suite.log" | tail -n 20)"
    ok "$what: $(tail -n 1 "$WORK/suite.log")"
}

# variant WHAT MKFS-OPTIONS MOUNT-OPTIONS [options of the suite]
variant() {
    local what=$1 mkfs=$2 mount=$3
    shift 3
    # shellcheck disable=SC2086 # options are words
    make_volume 1G $mkfs
    # shellcheck disable=SC2086
    mount_volume -o suid,dev $mount
    suite "$what" "$@"
    umount_volume
    check_volume "$what"
}

if plain; then
    suite "$TARGET_DIR" "$@"
    finish
    exit 0
fi

# All optional operations of Linux file systems are required.
variant "default" "" "" --require-all "$@"
variant "write-through" "" "-o writethrough" --require-all "$@"
# Small nodes cannot hold large attribute values.
variant "512-byte blocks and nodes" "--block-size 512" "" "$@"
if full; then
    variant "64 KiB blocks" "--block-size 64K" "" --require-all "$@"
    variant "64 KiB nodes" "--node-size 64K" "" --require-all "$@"
    variant "128-byte blocks" "--block-size 128 --node-size 512" "" "$@"
    variant "one copy of metadata, no log" "--metadata-copies 1 --log-size 0" "" --require-all "$@"
    variant "direct" "" "-o direct" --require-all "$@"
    variant "one thread, small cache" "" "-o threads=1 --cache 4MiB" --require-all "$@"
fi
finish
