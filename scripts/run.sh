#!/usr/bin/env bash
# `make run`: from a clone to a mounted volume. Can be run again at any time.
#   STEADFAST_BUILT  the directory of programs that are built; without it cargo builds them
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

image=${IMAGE:-steadfast.img}
directory=${MOUNT:-mnt}
size=${SIZE:-1G}

need_cargo
command -v fusermount3 >/dev/null || need_packages fuse3
need_fuse
if [ -z "${STEADFAST_BUILT:-}" ]; then
    [ -x "$(target_directory)/release/steadfast" ] \
        || echo "the first build fetches and compiles some 300 crates: about 10 minutes on two" \
            "processors, later ones a minute"
    "${CARGO:-cargo}" build --release --locked -p steadfast-cli -p steadfast-lab-cli
fi
steadfast=${STEADFAST_BUILT:-$(target_directory)/release}/steadfast

# Exit code 8: a mount whose daemon was killed. Clear it: the image has all acknowledged data.
status=0
"$steadfast" info "$directory" >/dev/null 2>&1 || status=$?
if [ "$status" -eq 8 ]; then
    echo "clearing a mount whose daemon is gone: $directory"
    "$steadfast" umount --quiet "$directory"
fi
mkdir -p "$directory"

if mountpoint -q "$directory"; then
    "$steadfast" info "$directory" >/dev/null 2>&1 \
        || die "something else is mounted here: $directory:" \
            "unmount it, or choose another place with MOUNT=DIR"
    echo "already mounted: $directory"
else
    if [ ! -e "$image" ]; then
        "$steadfast" mkfs --size "$size" "$image"
    fi
    "$steadfast" mount --log steadfast.log "$image" "$directory"
    echo "mounted: $image on $directory"
fi

cat <<TEXT

Try (PATH=$(realpath "$(dirname "$steadfast")"):\$PATH makes the command just 'steadfast'):

  # use it like any directory; show its space and its properties
  cp -r docs $directory/
  $steadfast df $directory
  $steadfast info $directory

  # from now on only 'transact' makes changes durable, all of them or none
  $steadfast mask set $directory manual
  $steadfast transact $directory
  rm -r $directory/docs
  $steadfast rollback $directory
  ls $directory/docs

Unmount, wait until it is safe:

  $steadfast umount $directory
TEXT
