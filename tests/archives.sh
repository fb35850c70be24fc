#!/usr/bin/env bash
# `make archives`: the package for firmware engineers, unpacked and used without Rust. Its example
# is built with CMake and survives a power cut at every write and flush, on an emulated Cortex-M4,
# also as code for a Cortex-M0. Two more programs misuse the library and run it in arenas of every
# size. A flush that does nothing, planted into the example, is found.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_cargo
need_packages cmake gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm make
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

package=$(scripts/archives.sh thumbv6m-none-eabi thumbv7em-none-eabi \
    thumbv7em-none-eabihf | tail -n 1)
tar -xzf "$package" -C "$work"
root=$(echo "$work"/steadfast-*-firmware)
example=$root/example
echo "archives: $(stat -c %s "$package") bytes"

# configure SOURCE BUILD [OPTION...]: what CMake says is in BUILD.log.
configure() {
    PATH=/usr/bin:/bin cmake -S "$1" -B "$2" \
        -DCMAKE_TOOLCHAIN_FILE="$example/board/cortex-m4.cmake" -DCMAKE_PREFIX_PATH="$root" \
        "${@:3}" >"$2.log" 2>&1
}
# build SOURCE BUILD [OPTION...]
build() {
    configure "$@" && PATH=/usr/bin:/bin cmake --build "$2" >>"$2.log" 2>&1 \
        || die "archives: $1 does not build: $(tail -n 5 "$2.log")"
}
emulate() {
    timeout --kill-after=5 100 qemu-system-arm -machine mps2-an386 -nodefaults -nic none \
        -display none -monitor none -serial none -semihosting-config enable=on,target=native \
        -kernel "$1" </dev/null 2>&1
}

hard=-DCMAKE_C_FLAGS='-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16'
build "$example" "$work/soft"
build "$example" "$work/hard" "$hard"
# A Cortex-M4 runs the code for a Cortex-M0, too. QEMU has no Cortex-M0 with this much memory.
build "$example" "$work/m0" -DCMAKE_C_FLAGS='-mcpu=cortex-m0 -mthumb'
grep -q eabihf/small "$work/hard/CMakeFiles/firmware.dir/link.txt" \
    || die "archives: another archive than that for hard floats was taken"
grep -q thumbv6m-none-eabi/small "$work/m0/CMakeFiles/firmware.dir/link.txt" \
    || die "archives: another archive than that for a Cortex-M0 was taken"
for kind in soft hard m0; do
    said=$(emulate "$work/$kind/firmware.elf") || die "archives: the example, $kind: $said"
    cuts=$(grep -c '^start: update 0$' <<<"$said")
    grep -qx "an update without a cut has $cuts writes and flushes" <<<"$said" \
        && [ "$cuts" -ge 5 ] && grep -qx 'start: update 1' <<<"$said" \
        || die "archives: the example, $kind: $said"
    echo "archives: ok: $kind: $cuts power cuts; $(tail -n 1 <<<"$said")"
done

cp -r "$example" "$work/planted"
sed -i '/memcpy(chip.stable, chip.working/d' "$work/planted/main.c"
build "$work/planted" "$work/lying"
if said=$(emulate "$work/lying/firmware.elf"); then
    die "archives: a flush that does nothing is not found: $said"
fi
grep -qx WRONG <<<"$said" || die "archives: a flush that does nothing: $said"
echo "archives: ok: a planted fault is found"

for profile in small full; do
    build crates/steadfast-capi/tests/firmware "$work/tests.$profile" -DEXAMPLE="$example" \
        -DSTEADFAST_PROFILE="$profile"
    for program in bad_input memory; do
        [ "$profile $program" != "full memory" ] || continue
        said=$(emulate "$work/tests.$profile/$program.elf") && [ "$(tail -n 1 <<<"$said")" = ok ] \
            || die "archives: $program, $profile: $said"
        echo "archives: ok: $program, $profile"
    done
done

# What the package does not have is named.
refused() {
    if configure "$example" "$work/refused" "${@:2}"; then
        die "archives: CMake accepts ${*:2}"
    fi
    tr -s ' \n' ' ' <"$work/refused.log" | grep -qF -- "$1" \
        || die "archives: ${*:2}: $(tail -n 5 "$work/refused.log")"
    rm -r "$work/refused"
}
all="thumbv6m-none-eabi;thumbv7em-none-eabi;thumbv7em-none-eabihf"
refused "set STEADFAST_TARGET to one of: $all" -DCMAKE_C_FLAGS=-mcpu=cortex-m3
refused "set STEADFAST_TARGET to one of" -DSTEADFAST_TARGET=thumbv7m-none-eabi
refused "set it to small or full" -DSTEADFAST_PROFILE=tiny
sed -i 's/find_package(Steadfast/& 0.2/' "$example/CMakeLists.txt"
refused 'compatible with requested version "0.2"' -DSTEADFAST_PROFILE=small
echo "archives: ok: what is missing is named"
