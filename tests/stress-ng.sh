#!/usr/bin/env bash
# The filesystem class of stress-ng, each stressor for some seconds, with its own verification.
source "$(dirname "$0")/lib.sh"
start stress-ng
need stress-ng

make_volume 8G
mount_volume
mkdir -m 777 "$MNT/stress"

# Not about the file system of the temporary directory: kernel file systems, mounts of others, and
# fanotify, which marks every mount of the machine and hangs in some kernels whatever the file
# system.
exclude=${EXCLUDE:-binderfs,bind-mount,procfs,fanotify}
seconds=$(bounded 1 10)
stressors=$(stress-ng --class 'filesystem?' 2>/dev/null | sed 's/^[^:]*://' | tr -s ' \n' '\n' | grep .)
for stressor in ${STRESSORS:-$stressors}; do
    case ",$exclude," in *",$stressor,"*) continue ;; esac
    begin=$(now_ms)
    if timeout -k 10 180 stress-ng "--$stressor" 2 --timeout "${seconds}s" --verify --temp-path "$MNT/stress" \
        --metrics-brief --oom-avoid --log-file "$WORK/stress.log" >"$WORK/stress.out" 2>&1; then
        ok "$stressor ($(($(now_ms) - begin)) ms)"
    else
        status=$?
        # 3: not enough of some resource, 4: not supported here; stress-ng's own words for "cannot
        # be run".
        case $status in
        3 | 4) say "skipped: $stressor ($(grep -iE 'skipp|not ' "$WORK/stress.out" | head -n 1))" ;;
        *) die "$stressor: exit $status: $(grep -iE 'fail|error' "$WORK/stress.out" | head -n 10)" ;;
        esac
    fi
    [ -z "$(ls -A "$MNT/stress")" ] || die "$stressor left something behind: $(ls "$MNT/stress" | head -n 3)"
done

umount_volume
check_volume
finish
