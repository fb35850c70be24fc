#!/usr/bin/env bash
# SQLite with WAL and with a rollback journal. The daemon is killed several times during the work.
# The database must be intact and contain every acknowledged transaction.
source "$(dirname "$0")/lib.sh"
start sqlite
need python3

make_volume 2G
mount_volume
export PYTHONDONTWRITEBYTECODE=1
rounds=$(bounded 3 15)
for journal in wal delete; do
    acknowledged=$WORK/acknowledged-$journal
    : >"$acknowledged"
    for round in $(seq "$rounds"); do
        database=$MNT/$journal.db
        python3 "$TESTS/helpers/sqlite_writer.py" "$database" "$acknowledged" "$journal" \
            2>"$WORK/writer.log" &
        writer=$!
        own "$writer"
        before=$(wc -l <"$acknowledged")
        # Kill in the middle of the work, at an irregular moment.
        sleep "$((1 + RANDOM % 2)).$((RANDOM % 1000))"
        if plain; then kill "$writer"; else kill_daemon; fi
        # The writer ends by itself when its file system is gone.
        gone "$writer" 60 || die "the writer does not end: $(cat "$WORK/writer.log")"
        wait "$writer" 2>/dev/null || true
        [ "$(wc -l <"$acknowledged")" -gt "$before" ] ||
            die "no transaction succeeded: $(cat "$WORK/writer.log")"
        mount_volume
        result=$(timeout 300 python3 "$TESTS/helpers/sqlite_verify.py" "$database" \
            "$acknowledged" 2>&1) ||
            die "$journal, kill $round: $result"
        ok "$journal, kill $round: $result"
    done
done

umount_volume
check_volume
finish
