#!/usr/bin/env bash
# build.sh HEADERS DIRECTORY: builds the module from the sources and core.o_shipped in DIRECTORY,
# with a kernel's headers. `make kernel` and DKMS use it; it needs no Rust.
set -euo pipefail
headers=$1
build=$(realpath "$2")
# modpost wants to know how each object was made.
: >"$build/.core.o.cmd"

run_kbuild() {
    make -k -s -C "$headers" M="$build" KBUILD_MODPOST_WARN="${MODPOST_WARN:-}" modules
}
run_kbuild
if ! grep -qs '^CONFIG_X86_KERNEL_IBT=y' "$headers/.config"; then
    # kbuild runs objtool only on what it compiles. Without it the core has no unwind data, and its
    # returns are not patched. Kernels with IBT run it on the whole module.
    command=$(grep -o '[^;]*tools/objtool/objtool [^;]*' "$build/.shim.o.cmd" | head -n 1 || true)
    if [ -n "$command" ]; then
        arguments=$(sed -E 's/.*objtool\/objtool //; s/[^ ]*shim\.o *$//' <<<"$command")
        cp "$build/core.o_shipped" "$build/core.o"
        # shellcheck disable=SC2086
        "$headers/tools/objtool/objtool" $arguments "$build/core.o"
        cp "$build/core.o" "$build/core.o_shipped"
        run_kbuild
    fi
fi
strip -g "$build/steadfast.ko"
