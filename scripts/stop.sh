#!/usr/bin/env bash
# `make stop`: unmounts the volume of `make run` and waits until that is complete.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

steadfast=${STEADFAST_BUILT:-$(target_directory)/release}/steadfast
[ -x "$steadfast" ] || die "not built yet: $steadfast: run 'make run' first"
exec "$steadfast" umount "${MOUNT:-mnt}"
