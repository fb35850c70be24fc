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
[ -e "$headers/Makefile" ] ||
    die "no headers of kernel $kver: $headers: install linux-headers-$kver"
need_packages make gcc binutils kmod

target=x86_64-unknown-none
toolchain=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
need_target "$target" "$toolchain"
if command -v rustup >/dev/null; then
    components=$(rustup component list --installed --toolchain "$toolchain")
    grep -qx rust-src <<<"$components" || rustup component add rust-src --toolchain "$toolchain"
fi

output=$(realpath -m "$(target_directory)")/kernel
mkdir -p "$output/$kver"

# The kernel's own Rust build uses these flags with a stable compiler in the same way. They are
# attributes of functions, so `core` and `alloc` are built again with them. The size-optimised sort
# of `core` needs no memory on the stack.
flags=(-Crelocation-model=static -Ccode-model=kernel -Cforce-unwind-tables=no -Zplt=yes
    -Zfunction-return=thunk-extern -Zretpoline-external-thunk=yes -Zfunction-sections=no)
if grep -qs '^CONFIG_X86_KERNEL_IBT=y' "$headers/.config"; then
    flags+=(-Zcf-protection=branch)
fi
RUSTC_BOOTSTRAP=1 RUSTFLAGS=${flags[*]} "${CARGO:-cargo}" build --locked --quiet --profile kernel \
    -p steadfast-kernel --target "$target" --target-dir "$output/cargo" \
    -Zbuild-std=core,alloc -Zbuild-std-features=optimize_for_size

# One object has everything; those of compiler_builtins are left out.
archive=$output/cargo/$target/kernel/libsteadfast_kernel.a
object=$(ar t "$archive" | grep '^steadfast_kernel-.*\.o$') ||
    die "no object of the core in $archive"
[ "$(wc -l <<<"$object")" -eq 1 ] || die "more than one object of the core in $archive"
build=$output/$kver
cp kernel/*.[chS] kernel/Kbuild "$build/"
# For every kernel of this kind; objtool changes the copy below for one of them.
ar p "$archive" "$object" >"$output/core.o"
cp "$output/core.o" "$build/core.o_shipped"
kernel/build.sh "$headers" "$build"
echo "kernel: $build/steadfast.ko for $kver"
