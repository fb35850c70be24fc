#!/usr/bin/env bash
# rsync -aHAX of a real tree to the mount and back. The tree also has hard links, extended
# attributes, ACLs and special files. Content and metadata must be equal each time.
source "$(dirname "$0")/lib.sh"
start rsync
need rsync setfacl getfacl setfattr getfattr

make_volume 8G
mount_volume

# The original is on the scratch file system.
origin=$WORK/origin
mkdir "$origin"
for candidate in $(bounded "/usr/lib/python3 /usr/share/doc" "/usr/share /usr/lib/python3"); do
    [ -d "$candidate" ] || continue
    rsync -aH --max-size=20m "$candidate/" "$origin/$(basename "$candidate")/"
    full || break
done
[ -n "$(ls -A "$origin")" ] || skip_all "no tree to copy on this machine"

odd=$origin/odd
mkdir "$odd"
for i in $(seq 50); do echo "file $i" >"$odd/file$i"; done
for i in $(seq 1 2 50); do ln "$odd/file$i" "$odd/hard link of $i"; done
ln -s file1 "$odd/symlink"
ln -s /nowhere "$odd/dangling"
mkfifo "$odd/fifo"
mkdir -m 1777 "$odd/sticky"
mkdir -m 2775 "$odd/setgid"
truncate -s 10M "$odd/sparse"
echo end >>"$odd/sparse"
: >"$odd/$(printf '\001\377 newline\nname')"
: >"$odd/$(printf 'n%.0s' $(seq 255))"
touch -d '1965-03-01 12:00:00.123456789 UTC' "$odd/file2"
touch -d '2101-03-01 12:00:00.987654321 UTC' "$odd/file4"
chmod 4755 "$odd/file6"
setfattr -n user.short -v value "$odd/file8" ||
    skip_all "the scratch file system has no extended attributes"
head -c 1500 /dev/zero | tr '\0' x >"$WORK/long"
setfattr -n user.long -v "$(cat "$WORK/long")" "$odd/file8"
setfattr -n user.on-directory -v x "$odd/setgid"
setfacl -m u:1234:rw,g:4321:r,m::rw "$odd/file10"
setfacl -d -m u:1234:rwx,g:4321:rx "$odd/setgid"
if [ "$(id -u)" = 0 ]; then
    mknod "$odd/null" c 1 3
    mknod "$odd/block" b 7 250
    chown 1234:4321 "$odd/file12"
    setfattr -n trusted.secret -v x "$odd/file14"
fi

# The tools list in directory order, which differs between file systems.
sort_paragraphs() { awk 'BEGIN { RS = ""; ORS = "\0" } { print }' | sort -z | tr '\0' '\n'; }

# All relevant metadata, one line per file. Sizes of directories differ between file systems.
list() {
    (
        cd "$1"
        find . -printf '%P|%y|%m|%U|%G|%T@|%l' \( -type d -printf '\n' -o -printf '|%n|%s\n' \) |
            sort
        find . -type f -print0 | sort -z | xargs -0 sha256sum
        getfattr -R -h -d -m - --absolute-names . 2>/dev/null | sort_paragraphs
        getfacl -R -p -n . 2>/dev/null | sort_paragraphs
    )
}

compare() {
    list "$1" >"$WORK/now.list"
    diff "$WORK/origin.list" "$WORK/now.list" >"$WORK/diff.log" ||
        die "$2: $(head -n 20 "$WORK/diff.log")"
    ok "$2: $(wc -l <"$WORK/origin.list") lines of names, metadata, checksums, attributes and" \
        "ACLs are the same"
}

copy() {
    # With a window of -1 rsync also compares nanoseconds.
    timeout 3600 rsync -aHAX --numeric-ids --sparse --modify-window=-1 "$@" \
        >"$WORK/rsync.log" 2>&1 ||
        die "rsync: $(tail -n 10 "$WORK/rsync.log")"
}

list "$origin" >"$WORK/origin.list"
copy "$origin/" "$MNT/copy/"
compare "$MNT/copy" "onto the mount"

copy --itemize-changes --checksum --dry-run "$origin/" "$MNT/copy/"
[ ! -s "$WORK/rsync.log" ] || die "rsync finds differences: $(head -n 10 "$WORK/rsync.log")"
ok "a second rsync finds nothing to do"

copy "$MNT/copy/" "$MNT/again/"
compare "$MNT/again" "within the mount"

remount_volume
compare "$MNT/copy" "after a remount"

copy "$MNT/copy/" "$WORK/back/"
compare "$WORK/back" "back from the mount"

copy --delete "$WORK/back/odd/" "$MNT/again/"
[ "$(ls -A "$MNT/again" | wc -l)" = "$(ls -A "$odd" | wc -l)" ] ||
    die "--delete left something behind"
rm -rf "$MNT/again"
ok "deletion"

umount_volume
check_volume
finish
