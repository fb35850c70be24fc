# Functions that the scripts of this directory share: a volume for each script, mounted, and always
# cleaned up.
#
# Environment:
#   STEADFAST   the binary (default: target/release/steadfast of this repository)
#   BOUND       ci (default: seconds to a few minutes each) or full
#   TEST_DIR    directory for image, mount point and scratch files (default: /tmp); needs a few GiB
#   TARGET_DIR  run on this existing directory instead of a Steadfast mount, to check the script
#               itself on another file system; mounting, killing and checking are left out then
#   KEEP=1      keep the scratch directory (image, logs)
#
# A script calls `start NAME`, then `make_volume SIZE`, `mount_volume`, ... and ends with `finish`.
# It registers every background process with `own PID`, which ends the process by its id.

set -euo pipefail
export LC_ALL=C

TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(dirname "$TESTS")
STEADFAST=${STEADFAST:-$REPO/target/release/steadfast}
BOUND=${BOUND:-ci}
TEST_DIR=${TEST_DIR:-/tmp}
TARGET_DIR=${TARGET_DIR:-}

OWNED=()
DAEMON=
MOUNT_MS=
GUARD=
EXPLAINED=
NAME=test
WORK=${WORK:-}
MNT=
IMAGE=

# start NAME: creates the scratch directory, sets names and the trap. The script itself creates
# further images and mount points below $WORK.
start() {
    NAME=$1
    case $BOUND in ci | full) ;; *) die "BOUND is '$BOUND': set it to ci or full" ;; esac
    if [ -z "$TARGET_DIR" ]; then
        [ -x "$STEADFAST" ] ||
            die "no binary at $STEADFAST: build it with 'cargo build --release' or set STEADFAST"
        [ -r /dev/fuse ] && [ -w /dev/fuse ] || skip_all "/dev/fuse cannot be used here"
        STEADFAST=$(realpath "$STEADFAST")
    fi
    WORK=$(mktemp -d "$TEST_DIR/steadfast-$NAME.XXXXXX")
    chmod 755 "$WORK"
    guard
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    IMAGE=$WORK/volume.img
    if [ -n "$TARGET_DIR" ]; then
        MNT=$(mktemp -d "$TARGET_DIR/steadfast-$NAME.XXXXXX")
        chmod 755 "$MNT"
        echo "$MNT" >"$WORK/target"
    else
        MNT=$WORK/mnt
        mkdir "$MNT"
    fi
}

say() { printf '%s: %s\n' "$NAME" "$*"; }

ok() { say "ok: $*"; }

die() {
    EXPLAINED=1
    printf '%s: FAILED: %s\n' "$NAME" "$*" >&2
    if [ -n "$WORK" ] && [ -s "$WORK/daemon.log" ]; then
        printf '%s: the last lines of the daemon:\n' "$NAME" >&2
        tail -n 20 "$WORK/daemon.log" >&2
    fi
    exit 1
}

skip_all() {
    say "skipped: $*"
    exit 0
}

finish() { printf '%s: ok\n' "$NAME"; }

# Prints where each thread of each process with the name $1 waits.
waits_of() {
    local process task
    for process in $(pgrep -x -f ".*$1.*"); do
        echo "process $process: $(tr '\0' ' ' <"/proc/$process/cmdline")"
        for task in "/proc/$process/task"/*; do
            echo "$(cat "$task/comm") in $(cat "$task/wchan"): $(cat "$task/syscall")"
        done
    done 2>/dev/null
}

full() { [ "$BOUND" = full ]; }

# bounded CI FULL: the value for the present BOUND.
bounded() { if full; then echo "$2"; else echo "$1"; fi; }

plain() { [ -n "$TARGET_DIR" ]; }

# A program that the script requires.
need() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || skip_all "no $program on this machine"
    done
}

own() {
    OWNED+=("$1")
    echo "$1" >>"$WORK/owned"
}

# A killed script runs no trap, and a script that waits for a program runs its trap late. So a
# process in its own session outlives the script and cleans up after it.
guard() {
    STEADFAST=$STEADFAST WORK=$WORK TARGET_DIR=$TARGET_DIR KEEP=${KEEP:-} setsid bash -c '
        source "$1/lib.sh"
        trap "" INT TERM HUP
        IMAGE=$WORK/volume.img MNT=$WORK/mnt
        while [ -d "/proc/$2" ]; do sleep 1; done
        [ -d "$WORK" ] || exit 0
        [ ! -e "$WORK/device" ] ||
            IMAGE=$(losetup --associated "$WORK/device" --output NAME --noheadings)
        [ ! -e "$WORK/owned" ] || mapfile -t OWNED <"$WORK/owned"
        cleanup' guard "$TESTS" $$ </dev/null >/dev/null 2>&1 &
    GUARD=$!
    disown "$GUARD"
}

# says PATTERN: whether the input has a line with this pattern; options are those of grep. It reads
# all of the input: `grep -q` stops at the first line that fits, and what the command writes then
# ends it with SIGPIPE.
says() {
    local all
    all=$(cat)
    grep -q "$@" <<<"$all"
}

# refused WORDS COMMAND...: the command fails with one line that has these words.
refused() {
    local words=$1
    shift
    if timeout 60 "$@" >"$WORK/said" 2>&1; then die "accepted: $*"; fi
    [ "$(wc -l <"$WORK/said")" -eq 1 ] || die "more than a line: $(cat "$WORK/said")"
    grep -qF -- "$words" "$WORK/said" || die "'$words' is not in: $(cat "$WORK/said")"
}

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# make_volume SIZE [mkfs options]
make_volume() {
    plain && return
    local size=$1
    shift
    rm -f "$IMAGE"
    timeout 60 "$STEADFAST" mkfs --size "$size" "$@" "$IMAGE" >"$WORK/mkfs.log" 2>&1 ||
        die "mkfs: $(cat "$WORK/mkfs.log")"
}

# make_device SIZE [mkfs options]: the same on a loop device, whose name is then in IMAGE. Fails if
# no loop device is available. A mount writes to a device differently than to a file: writes are
# answered before the device has them.
make_device() {
    plain && return
    local size=$1 device
    shift
    rm -f "$WORK/device"
    truncate -s "$size" "$WORK/device"
    device=$(losetup --find --show "$WORK/device" 2>/dev/null) || { rm "$WORK/device" && return 1; }
    IMAGE=$device
    timeout 60 "$STEADFAST" mkfs "$@" "$IMAGE" >"$WORK/mkfs.log" 2>&1 ||
        die "mkfs: $(cat "$WORK/mkfs.log")"
}

# Detaches the devices of make_device, found by their file, which only this script uses.
drop_devices() {
    [ -e "$WORK/device" ] || return 0
    losetup --associated "$WORK/device" --output NAME --noheadings 2>/dev/null |
        xargs --no-run-if-empty losetup --detach
}

# mount_volume [mount options]: returns when the volume is mounted. DAEMON is the id of the process
# that serves it; MOUNT_MS is the duration of the command in milliseconds.
mount_volume() {
    plain && return
    local begin
    begin=$(now_ms)
    timeout 60 "$STEADFAST" mount --log "$WORK/daemon.log" -o allow_other "$@" "$IMAGE" "$MNT" \
        >"$WORK/mount.log" 2>&1 || die "mount: $(cat "$WORK/mount.log")"
    MOUNT_MS=$(($(now_ms) - begin))
    DAEMON=$(daemon_of "$IMAGE")
    [ -n "$DAEMON" ] || die "mounted, but no daemon serves $IMAGE"
    mountpoint -q "$MNT" || die "mount returned, but $MNT is not a mount point"
}

# The process that runs this binary with this image among its arguments. The daemon's helper has the
# same arguments, and may have a number that comes before the daemon's.
daemon_of() {
    local image=$1 process executable
    for process in /proc/[0-9]*; do
        executable=$(readlink "$process/exe" 2>/dev/null) || continue
        [ "${executable% (deleted)}" = "$STEADFAST" ] || continue
        [ "$(cat "$process/comm" 2>/dev/null)" != steadfast-pull ] || continue
        if tr '\0' '\n' <"$process/cmdline" 2>/dev/null | says -xF -- "$image"; then
            basename "$process"
            return
        fi
    done
}

umount_volume() {
    plain && return
    timeout 300 "$STEADFAST" umount "$MNT" >"$WORK/umount.log" 2>&1 ||
        die "umount: $(cat "$WORK/umount.log")"
    ! mountpoint -q "$MNT" || die "umount returned, but $MNT is still a mount point"
    # The volume is closed by now; the process may still be releasing its memory.
    gone "$DAEMON" 10 || die "umount returned, but the daemon $DAEMON still runs"
    DAEMON=
}

# A power cut from the daemon's view: killed without notice, and its mount detached.
kill_daemon() {
    plain && return
    [ -n "$DAEMON" ] || die "there is no daemon to kill"
    kill -9 "$DAEMON"
    gone "$DAEMON" 30 || die "the daemon $DAEMON does not die"
    DAEMON=
    umount -l "$MNT" 2>/dev/null || true
}

# gone PID SECONDS: waits for a process that is not a child of this shell. Its first thread becomes
# a zombie before the other threads have closed their files.
gone() {
    local deadline=$(($(date +%s) + $2)) threads
    while [ -d "/proc/$1" ]; do
        threads=("/proc/$1/task"/*)
        if [ "${#threads[@]}" -le 1 ] &&
            [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1)" = Z ]; then
            break
        fi
        [ "$(date +%s)" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

# Unmounts cleanly and mounts again.
remount_volume() {
    umount_volume
    mount_volume "$@"
}

check_volume() {
    plain && return
    timeout 1800 "$STEADFAST" check "$IMAGE" >"$WORK/check.log" 2>&1 ||
        die "check: $(tail -n 20 "$WORK/check.log")"
    ok "check finds nothing${1:+ ($1)}"
}

cleanup() {
    local status=$? pid
    # The trap keeps the command that was the last one.
    [ "$status" -eq 0 ] || [ -n "$EXPLAINED" ] || say "FAILED: exit code $status: $BASH_COMMAND" >&2
    trap - EXIT INT TERM HUP
    set +e
    for pid in "${OWNED[@]}"; do
        kill -9 "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
    done
    if ! plain && [ -n "$MNT" ]; then
        # The daemon is ended first, because a mount with a hanging daemon could block this script
        # too.
        [ -n "$DAEMON" ] || DAEMON=$(daemon_of "$IMAGE")
        if [ -n "$DAEMON" ]; then
            timeout 20 "$STEADFAST" umount "$MNT" >/dev/null 2>&1
            if [ -d "/proc/$DAEMON" ]; then
                kill -9 "$DAEMON" 2>/dev/null
                gone "$DAEMON" 10
            fi
        fi
        grep -q " $MNT " /proc/self/mounts && umount -l "$MNT"
        drop_devices
    fi
    # Detaches loop devices on files in the directory of the script.
    if [ -n "$WORK" ] && [ -d "$WORK" ]; then
        awk -v work="$WORK/" 'index($2, work) == 1 { print $2 }' /proc/self/mounts | tac |
            xargs -r -n 1 umount -l
        losetup --noheadings --output NAME,BACK-FILE 2>/dev/null |
            awk -v work="$WORK/" 'index($2, work) == 1 { print $1 }' |
            xargs -r -n 1 losetup --detach
    fi
    if [ -n "${KEEP:-}" ] && [ -n "$WORK" ]; then
        say "kept $WORK"
    elif [ -n "$WORK" ]; then
        plain && rm -rf "$(cat "$WORK/target" 2>/dev/null)"
        # Never descend into a directory that is still mounted.
        rm -rf --one-file-system "$WORK"
    fi
    [ -z "$GUARD" ] || kill -9 "$GUARD" 2>/dev/null
    exit "$status"
}
