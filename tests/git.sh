#!/usr/bin/env bash
# git on the mount: clone of this repository, fsck, checkouts, gc, and the same checks after a
# remount.
source "$(dirname "$0")/lib.sh"
start git
need git

# The repository may belong to another user (a CI checkout).
export GIT_CONFIG_COUNT=2
export GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
export GIT_CONFIG_KEY_1=advice.detachedHead GIT_CONFIG_VALUE_1=false
git -C "$REPO" rev-parse HEAD >/dev/null 2>&1 ||
    skip_all "this is not a git repository with a commit"

make_volume 4G
mount_volume
clone=$MNT/clone

run() { timeout 900 "$@" >"$WORK/git.log" 2>&1 || die "$*: $(tail -n 20 "$WORK/git.log")"; }

# The tree of a commit, unpacked without git's index, must equal git's checkout.
same_tree() {
    rm -rf "$WORK/tree"
    mkdir "$WORK/tree"
    git -C "$REPO" archive "$1" | tar -x -C "$WORK/tree"
    diff -r --no-dereference --exclude=.git "$WORK/tree" "$clone" >"$WORK/diff.log" ||
        die "$1 differs: $(head -n 20 "$WORK/diff.log")"
}

head=$(git -C "$REPO" rev-parse HEAD)
run git clone --no-hardlinks "file://$REPO" "$clone"
run git -C "$clone" checkout --detach "$head"
same_tree "$head"
ok "clone has every file of $(git -C "$REPO" rev-parse --short HEAD)"

run git -C "$clone" fsck --full --strict
ok "fsck"

for commit in $(git -C "$REPO" rev-list --max-count="$(bounded 5 50)" "$head") "$head"; do
    run git -C "$clone" checkout --detach "$commit"
    [ -z "$(git -C "$clone" status --porcelain)" ] || die "status is not clean at $commit"
done
same_tree "$head"
ok "checkouts"

run git -C "$clone" -c user.name=Test -c user.email=test@example.org commit --allow-empty \
    -m "made on the mount"
run git -C "$clone" checkout -b work
for i in $(seq "$(bounded 20 300)"); do
    echo "line $i" >>"$clone/made-by-the-test"
    git -C "$clone" add made-by-the-test
    run git -C "$clone" -c user.name=Test -c user.email=test@example.org commit -m "change $i"
done
ok "commits"

run git -C "$clone" gc --prune=now
run git -C "$clone" fsck --full --strict
ok "gc and fsck"

run git clone --local "$clone" "$MNT/second"
run git -C "$MNT/second" fsck --full
ok "clone with hard links on the mount"

remount_volume
run git -C "$clone" fsck --full --strict
[ -z "$(git -C "$clone" status --porcelain)" ] || die "status is not clean after the remount"
ok "fsck and status after a remount"

umount_volume
check_volume
finish
