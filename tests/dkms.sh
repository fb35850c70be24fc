#!/usr/bin/env bash
# The package steadfast-dkms: what it has, and that DKMS builds the module from it for the kernel of
# the distribution, without Rust. Nothing is installed or loaded.
source "$(dirname "$0")/lib.sh"
plain && { echo "dkms: skipped: nothing of this is about another file system"; exit 0; }
start dkms
[ "$(uname -m)" = x86_64 ] || skip_all "the module is for x86_64 only"
need dpkg-deb gcc make readelf modinfo
headers=$(dpkg-query -W -f '${Depends}' linux-headers-amd64 2>/dev/null |
    grep -o 'linux-headers-[^ ,]*' | sed -n 1p) || skip_all "no package linux-headers-amd64"
kver=${headers#linux-headers-}

deb=$(cd "$REPO" && KVER=$kver scripts/dkms.sh 2>"$WORK/log") ||
    die "make dkms: $(tail -n 5 "$WORK/log")"
dpkg-deb -x "$deb" "$WORK/package"
dpkg-deb -e "$deb" "$WORK/control"
version=$(dpkg-deb -f "$deb" Version)
[ "$version" = "$("$STEADFAST" --version | cut -d' ' -f2)" ] ||
    die "the package has version $version"
sources=$WORK/package/usr/src/steadfast-$version
for file in "$REPO"/kernel/*.[chS] "$REPO/kernel/Kbuild" "$REPO/kernel/build.sh"; do
    cmp -s "$file" "$sources/$(basename "$file")" ||
        die "the package has another ${file##*/}, or none"
done
for file in dkms.conf core.o_shipped; do
    [ -s "$sources/$file" ] || die "the package has no $file"
done
! grep -rqF "$REPO" "$WORK/control" "$sources"/*.[chS] "$sources"/{Kbuild,build.sh,dkms.conf} ||
    die "the package names a path of this machine"
for script in postinst prerm; do
    [ -x "$WORK/control/$script" ] && sh -n "$WORK/control/$script" || die "$script cannot be run"
    ! grep -q @ "$WORK/control/$script" || die "$script was not filled in"
done
ok "the package has all sources and the core"

command -v dkms >/dev/null || skip_all "no dkms on this machine: the package was not built with it"
# A directory with all that a build needs, and no Rust.
mkdir -p "$WORK"/{tree,bin}
for directory in /usr/sbin /usr/bin /sbin /bin; do
    for program in "$directory"/*; do
        name=${program##*/}
        case $name in
        cargo | rustc | rustup) ;;
        *) [ -e "$WORK/bin/$name" ] || ln -s "$program" "$WORK/bin/$name" ;;
        esac
    done
done
source_dir=/lib/modules/$kver/build
[ -e "$source_dir" ] || source_dir=/usr/src/$headers
PATH=$WORK/bin dkms build -m steadfast -v "$version" -k "$kver" --kernelsourcedir "$source_dir" \
    --dkmstree "$WORK/tree" --sourcetree "$WORK/package/usr/src" >"$WORK/build.log" 2>&1 ||
    die "dkms build: $(tail -n 20 "$WORK/build.log" "$WORK/tree/steadfast/$version"/build/make.log)"
module=$(find "$WORK/tree/steadfast/$version/$kver" -name 'steadfast.ko*' | sed -n 1p)
[ -n "$module" ] || die "dkms made no module"
case $module in
*.xz) xz -d "$module" && module=${module%.xz} ;;
*.zst) zstd -qd --rm "$module" && module=${module%.zst} ;;
esac
[ "$(modinfo -F vermagic "$module" | cut -d' ' -f1)" = "$kver" ] ||
    die "the module is for another kernel"
# The same sections as that of `make kernel`, unwind data of the core included.
sections() {
    readelf -SW "$1" | sed 's/^ *\[ *[0-9]*\] *//' | awk '/^\.(orc|return|text)/ { print $1, $5 }'
}
built=${CARGO_TARGET_DIR:-$REPO/target}/kernel/$kver/steadfast.ko
sections "$module" >"$WORK/dkms-sections"
sections "$built" >"$WORK/sections"
grep -q '^\.orc_unwind ' "$WORK/sections" || die "no unwind data in $built"
diff "$WORK/sections" "$WORK/dkms-sections" >"$WORK/difference" ||
    die "the module differs from that of make kernel: $(cat "$WORK/difference")"
ok "dkms builds the module for $kver without Rust"
finish
