#!/usr/bin/env bash
# A cargo build of this workspace (one crate in CI), with sources and target on the mount. A second
# build must have nothing to do.
source "$(dirname "$0")/lib.sh"
start build
need git cargo

export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
git -C "$REPO" rev-parse HEAD >/dev/null 2>&1 ||
    skip_all "this is not a git repository with a commit"

make_volume 16G
mount_volume
source=$MNT/source
git clone -q "file://$REPO" "$source" || die "git clone"
export CARGO_TARGET_DIR=$MNT/target

what=(-p steadfast-media)
full && what=(--workspace)
build() { (cd "$source" && timeout 3600 cargo "$@" "${what[@]}") >"$WORK/cargo.log" 2>&1; }

build build || die "cargo build: $(tail -n 30 "$WORK/cargo.log")"
grep -q Compiling "$WORK/cargo.log" || die "the first build compiled nothing"
ok "build"

build build || die "cargo build again: $(tail -n 30 "$WORK/cargo.log")"
! grep -q Compiling "$WORK/cargo.log" ||
    die "the second build compiled again: $(head -n 5 "$WORK/cargo.log")"
ok "second build finds nothing to do"

what=(-p steadfast-media --lib)
build test || die "cargo test: $(tail -n 30 "$WORK/cargo.log")"
ok "programs built on the mount run"

remount_volume
what=(-p steadfast-media)
full && what=(--workspace)
build build || die "cargo build after the remount: $(tail -n 30 "$WORK/cargo.log")"
! grep -q Compiling "$WORK/cargo.log" ||
    die "it compiled again after a remount: $(head -n 5 "$WORK/cargo.log")"
ok "nothing to do after a remount"

touch "$source/crates/steadfast-media/src/lib.rs"
build build || die "cargo build after a change: $(tail -n 30 "$WORK/cargo.log")"
grep -q "Compiling steadfast-media" "$WORK/cargo.log" || die "a changed file was not seen"
ok "a changed file is seen"

umount_volume
check_volume
finish
