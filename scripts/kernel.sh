#!/usr/bin/env bash
# `make kernel`: builds the module for the running kernel, or for KVER, into target/kernel/KVER.
# The core becomes one object first; kbuild compiles the C side against the kernel's headers.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_cargo
[ "$(uname -m)" = x86_64 ] || die "the module is for x86_64 only, this machine is $(uname -m)"
kver=${KVER:-$(uname -r)}
if [ ! -e "/lib/modules/$kver/build" ] && [ ! -e "/usr/src/linux-headers-$kver" ]; then
    need_packages "linux-headers-$kver"
fi
headers=/lib/modules/$kver/build
[ -e "$headers" ] || headers=/usr/src/linux-headers-$kver
[ -e "$headers/Makefile" ] || die "no headers of kernel $kver: $headers: install linux-headers-$kver"
need_packages make gcc binutils kmod

target=x86_64-unknown-none
toolchain=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
if command -v rustup >/dev/null; then
    rustup target list --installed --toolchain "$toolchain" | grep -qx "$target" \
        || rustup target add "$target" --toolchain "$toolchain"
    rustup component list --installed --toolchain "$toolchain" | grep -qx rust-src \
        || rustup component add rust-src --toolchain "$toolchain"
fi

output=$(realpath -m "$(target_directory)")/kernel
mkdir -p "$output/$kver"

# The kernel's own Rust build uses these flags with a stable compiler in the same way. They are
# attributes of functions, so `core` and `alloc` are built again with them. The size-optimised sort
# of `core` needs no memory on the stack.
flags=(-Crelocation-model=static -Ccode-model=kernel -Cforce-unwind-tables=no -Zplt=yes
    -Zfunction-return=thunk-extern -Zretpoline-external-thunk=yes -Zfunction-sections=no)
ibt=no
if grep -qs '^CONFIG_X86_KERNEL_IBT=y' "$headers/.config"; then
    ibt=yes
    flags+=(-Zcf-protection=branch)
fi
RUSTC_BOOTSTRAP=1 RUSTFLAGS=${flags[*]} "${CARGO:-cargo}" build --locked --quiet --profile kernel \
    -p steadfast-kernel --target "$target" --target-dir "$output/cargo" \
    -Zbuild-std=core,alloc -Zbuild-std-features=optimize_for_size

# One object has everything; those of compiler_builtins are left out.
archive=$output/cargo/$target/kernel/libsteadfast_kernel.a
object=$(ar t "$archive" | grep '^steadfast_kernel-.*\.o$') || die "no object of the core in $archive"
[ "$(wc -l <<<"$object")" -eq 1 ] || die "more than one object of the core in $archive"
build=$output/$kver
cp kernel/*.[chS] kernel/Kbuild "$build/"
ar p "$archive" "$object" >"$build/core.o_shipped"
# modpost wants to know how each object was made.
: >"$build/.core.o.cmd"

run_kbuild() {
    make -k -s -C "$headers" M="$build" KBUILD_MODPOST_WARN="${MODPOST_WARN:-}" modules
}
run_kbuild
if [ "$ibt" = no ]; then
    # kbuild runs objtool only on what it compiles. Without it the core has no unwind data, and its
    # returns are not patched.
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
echo "kernel: $build/steadfast.ko for $kver"
