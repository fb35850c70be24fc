#!/usr/bin/env bash
# Rollback of a running mount. Extended, truncated, mapped, new and renamed files return to their
# state at the last transaction point. EBUSY while files are open for writing, unless --force.
# Changes that were rolled back never reappear.
source "$(dirname "$0")/lib.sh"
start rollback
need python3
plain && skip_all "there is nothing to roll back"
export PYTHONDONTWRITEBYTECODE=1

make_volume 1G
mount_volume
# Only this script sets transaction points; neither the timer nor fsync does.
"$STEADFAST" mask set "$MNT" manual

originals=$WORK/originals
mkdir "$originals"
for name in extended truncated mapped other; do head -c 50000 /dev/urandom >"$originals/$name"; done
head -c 3000000 /dev/urandom >"$originals/large"
cp "$originals"/* "$MNT/"
mkdir "$MNT/directory"
"$STEADFAST" transact "$MNT" || die "transact"
inode=$(stat -c %i "$MNT/extended")

as_before() {
    local name
    for name in extended truncated mapped other large; do
        cmp "$originals/$name" "$MNT/$name" ||
            die "$1: $name is not as it was at the transaction point"
    done
    [ ! -e "$MNT/new" ] && [ ! -e "$MNT/renamed" ] ||
        die "$1: something new is still there: $(ls "$MNT")"
    [ -d "$MNT/directory" ] || die "$1: the directory is gone"
    [ "$(stat -c %i "$MNT/extended")" = "$inode" ] || die "$1: st_ino has changed"
    ok "$1"
}

# --- no open files
echo changed >"$MNT/extended"
rm "$MNT/other" "$MNT/large"
rmdir "$MNT/directory"
mkdir "$MNT/new"
: >"$MNT/new/file"
ls -l "$MNT" >/dev/null
timeout 60 "$STEADFAST" rollback "$MNT" || die "rollback with nothing open"
as_before "nothing open"

# --- files open in every way
coproc HOLDER { exec python3 "$TESTS/helpers/rollback_holder.py" "$MNT"; }
own "$HOLDER_PID"
holder=$HOLDER_PID
exec {to}>&"${HOLDER[1]}" {from}<&"${HOLDER[0]}"
ask() {
    local answer
    echo "$1" >&"$to"
    read -r -t 60 answer <&"$from" || die "the holder does not answer to '$1'"
    ANSWER=$answer
}

ask open
[ "$ANSWER" = opened ] || die "open: $ANSWER"
ask change
[ "$ANSWER" = changed ] || die "change: $ANSWER"
if timeout 60 "$STEADFAST" rollback "$MNT" 2>"$WORK/busy.log"; then
    die "rollback with files open for writing must say that they are"
fi
[ "$(wc -l <"$WORK/busy.log")" = 1 ] || die "more than one line: $(cat "$WORK/busy.log")"
[ "$(stat -c %s "$MNT/extended")" = 105000 ] && [ "$(cat "$MNT/new")" = new ] ||
    die "a refused rollback has changed something"
ok "refused while files are open for writing: $(cat "$WORK/busy.log")"

timeout 60 "$STEADFAST" rollback --force "$MNT" || die "rollback --force"
as_before "forced while files are open, extended, truncated, mapped"
ask map
[ "$ANSWER" = "read SIGBUS store SIGBUS" ] || die "a map from before the rollback: $ANSWER"
ok "a map from before: $ANSWER"
ask stale
grep -q wrote <<<"$ANSWER" && die "an old descriptor could still write: $ANSWER"
ok "old descriptors: $ANSWER"
as_before "after late writes through old descriptors"
ask close
echo quit >&"$to"
gone "$holder" 30 || die "the holder does not end"
as_before "after the old descriptors are closed"

# --- shells with working directories on the mount, and watchers
mkdir "$MNT/stays" "$MNT/gone"
"$STEADFAST" transact "$MNT" || die "transact"
rmdir "$MNT/gone"
mkdir "$MNT/gone" "$MNT/vanishes"
echo later >"$MNT/vanishes/file"
coproc WATCHER { exec python3 "$TESTS/helpers/rollback_watcher.py"; }
own "$WATCHER_PID"
watcher=$WATCHER_PID
exec {watch_to}>&"${WATCHER[1]}" {watch_from}<&"${WATCHER[0]}"
watcher_says() {
    local answer
    echo "$1" >&"$watch_to"
    read -r -t 60 answer <&"$watch_from" || die "the watcher does not answer to '$1'"
    WATCHED=$answer
}
for pair in "root $MNT" "stays $MNT/stays" "vanishes $MNT/vanishes" "file $MNT/truncated"; do
    watcher_says "watch $pair"
done
# shell DIR: a shell with this working directory. It gets commands by a FIFO and returns an answer
# to each.
for place in stays vanishes; do
    mkfifo "$WORK/$place.in" "$WORK/$place.out"
    (cd "$MNT/$place" && exec bash --norc -s) <"$WORK/$place.in" >"$WORK/$place.out" 2>&1 &
    own $!
done
exec {stays_to}>"$WORK/stays.in" {stays_from}<"$WORK/stays.out"
exec {vanishes_to}>"$WORK/vanishes.in" {vanishes_from}<"$WORK/vanishes.out"
tell() {
    local answer
    echo "$3; echo \"code \$?\"" >&"$1"
    ANSWER=
    while read -r -t 60 answer <&"$2"; do
        [[ $answer = code\ * ]] && CODE=${answer#code } && return
        ANSWER+="$answer "
    done
    die "a shell hangs in '$3'"
}
tell "$stays_to" "$stays_from" "echo x >during && ls"
[ "$CODE" = 0 ] || die "before: $ANSWER"
tell "$vanishes_to" "$vanishes_from" "cat file"
[ "$CODE" = 0 ] || die "before: $ANSWER"
watcher_says events
grep -q "stays:create:during" <<<"$WATCHED" || die "no event of a new file: $WATCHED"

timeout 60 "$STEADFAST" rollback --force "$MNT" || die "rollback under shells and watchers"
watcher_says events
for event in create delete moved_from moved_to modify close_write; do
    ! grep -qE "(^| |\+|:)$event(:|\+| |\$)" <<<"$WATCHED" ||
        die "a rollback looks like an operation to watchers: $WATCHED"
done
ok "watchers see no operations in a rollback: $WATCHED"
for command in "cat file" "echo y >file" "ls" "mkdir below" "cat ./file"; do
    tell "$vanishes_to" "$vanishes_from" "$command"
    [ "$CODE" != 0 ] || [ "$command" = ls ] ||
        die "'$command' works in a directory that is gone: $ANSWER"
    ! grep -q later <<<"$ANSWER" || die "'$command' shows what is gone: $ANSWER"
done
ok "a shell in a directory that is gone is told so: $ANSWER"
tell "$vanishes_to" "$vanishes_from" "cd $MNT && ls stays"
[ "$CODE" = 0 ] && [ -z "$ANSWER" ] || die "the shell cannot go on from there: $ANSWER"
tell "$stays_to" "$stays_from" "ls && echo z >after && cat after"
[ "$CODE" = 0 ] && [ "$ANSWER" = "z " ] || die "the shell in the directory that stays: $ANSWER"
watcher_says events
grep -q "stays:create:after" <<<"$WATCHED" ||
    die "a watch on a directory that stays went silent: $WATCHED"
[ -d "$MNT/gone" ] && [ ! -e "$MNT/vanishes" ] || die "the directories are not as they were"
echo exit >&"$stays_to"
echo exit >&"$vanishes_to"
echo quit >&"$watch_to"
gone "$watcher" 30 || die "the watcher does not end"
exec {stays_to}>&- {stays_from}<&- {vanishes_to}>&- {vanishes_from}<&-
rm "$MNT/stays/after"
rmdir "$MNT/stays" "$MNT/gone"
"$STEADFAST" transact "$MNT" || die "transact"
ok "a shell and a watch in a directory that stays go on"

# --- the mount works as before
echo fresh >"$MNT/fresh"
cat "$originals/large" >>"$MNT/extended"
"$STEADFAST" transact "$MNT" || die "transact after a rollback"
kill_daemon
mount_volume
[ "$(cat "$MNT/fresh")" = fresh ] || die "a file made after the rollback is gone"
[ "$(stat -c %s "$MNT/extended")" = 3050000 ] || die "an append after the rollback is gone"
for name in truncated mapped other large; do
    cmp "$originals/$name" "$MNT/$name" || die "after kill -9: $name is not as it was"
done
ok "work after a rollback is durable"

# --- repeated rollbacks with active readers
"$STEADFAST" mask set "$MNT" manual
"$STEADFAST" transact "$MNT"
(
    while [ ! -e "$WORK/read-enough" ]; do
        cat "$MNT/large" "$MNT/truncated" >/dev/null 2>&1 || true
    done
) &
reader=$!
own "$reader"
for round in $(seq "$(bounded 20 300)"); do
    echo "$round" >"$MNT/round"
    rm -f "$MNT/truncated"
    cp "$originals/other" "$MNT/large"
    timeout 60 "$STEADFAST" rollback --force "$MNT" || die "rollback in round $round"
    [ ! -e "$MNT/round" ] || die "round $round is still there"
    cmp -s "$originals/large" "$MNT/large" || die "large differs in round $round"
done
touch "$WORK/read-enough"
gone "$reader" 60 || die "the reader hangs"
ok "rollbacks in a loop while files are read"

umount_volume
check_volume
finish
