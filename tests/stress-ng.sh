#!/usr/bin/env bash
# The filesystem class of stress-ng, each stressor for some seconds, with its own verification.
source "$(dirname "$0")/lib.sh"
start stress-ng
need stress-ng

make_volume 8G
mount_volume
mkdir -m 777 "$MNT/stress"

# Excluded stressors: those that do not use the file system of the temporary directory but kernel
# file systems or other mounts. Also fanotify, which marks every mount of the machine and hangs in
# some kernels on any file system.
exclude=${EXCLUDE:-binderfs,bind-mount,procfs,fanotify}
seconds=$(bounded 1 10)
stressors=$(stress-ng --class 'filesystem?' 2>/dev/null | sed 's/^[^:]*://' | tr -s ' \n' '\n' |
    grep .)
for stressor in ${STRESSORS:-$stressors}; do
    case ",$exclude," in *",$stressor,"*) continue ;; esac
    begin=$(now_ms)
    if timeout -k 10 180 stress-ng "--$stressor" 2 --timeout "${seconds}s" --verify \
        --temp-path "$MNT/stress" --metrics-brief --oom-avoid --log-file "$WORK/stress.log" \
        >"$WORK/stress.out" 2>&1; then
        ok "$stressor ($(($(now_ms) - begin)) ms)"
    else
        status=$?
        # stress-ng's codes for "cannot run": 3 is a lack of some resource, 4 is not supported here.
        case $status in
        3 | 4) say "skipped: $stressor ($(grep -iE 'skipp|not ' "$WORK/stress.out" | sed -n 1p))" ;;
        *) die "$stressor: exit $status: $(grep -iE 'fail|error' "$WORK/stress.out" |
            sed -n 1,10p)" ;;
        esac
    fi
    [ -z "$(ls -A "$MNT/stress")" ] ||
        die "$stressor left something behind: $(ls "$MNT/stress" | sed -n 1,3p)"
done

umount_volume
check_volume
finish
