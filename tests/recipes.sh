#!/usr/bin/env bash
# The recipes in packaging/ for tools that build disks. genimage is run, where it is installed, and
# its partitions are looked into and mounted without a loop device; those of Buildroot and Yocto are
# checked for syntax and for the names that they use of this repository.
source "$(dirname "$0")/lib.sh"
plain && { echo "recipes: skipped: nothing of this is about another file system"; exit 0; }
start recipes
need make python3

# --- genimage
if command -v genimage >/dev/null && command -v mkdosfs >/dev/null &&
    command -v mcopy >/dev/null; then
    mkdir -p "$WORK/rootfs/etc" "$WORK/tmp"
    echo "of the recipe" >"$WORK/rootfs/etc/issue"
    "$STEADFAST" image build --quiet "$WORK/root.steadfast" "$WORK/rootfs" --owner 0:0 ||
        die "image build"
    "$STEADFAST" mkfs --quiet --size 16M --label data "$WORK/data.steadfast" || die "mkfs"
    mkdir "$WORK/empty"
    echo kernel >"$WORK/vmlinuz"
    echo initramfs >"$WORK/initrd.img"
    (cd "$WORK" &&
        genimage --config "$REPO/packaging/genimage/disk.cfg" --inputpath . --outputpath . \
        --rootpath empty --tmppath tmp) >"$WORK/genimage.log" 2>&1 ||
            die "genimage: $(tail -n 5 "$WORK/genimage.log")"
    [ "$("$STEADFAST" cat "$WORK/disk.img?offset=17M" /etc/issue)" = "of the recipe" ] ||
        die "the root is not in its partition"
    # Where the table of partitions says that the last one is.
    begin=$(python3 - "$WORK/disk.img" <<'PY'
import struct, sys
disk = open(sys.argv[1], "rb").read(4096 + 128 * 128)
assert disk[512:520] == b"EFI PART", "no GPT"
entry = struct.unpack_from("<Q", disk, 512 + 72)[0] * 512 + 2 * 128
first, last = struct.unpack_from("<QQ", disk, entry + 32)
print(first * 512, (last - first + 1) * 512)
PY
    ) || die "no third partition"
    data="$WORK/disk.img?offset=${begin% *}&size=${begin#* }"
    [ "$("$STEADFAST" info --get label "$data")" = data ] ||
        die "the data are not in their partition"
    mkdir "$WORK/data"
    "$STEADFAST" mount "$data" "$WORK/data" || die "the partition cannot be mounted"
    echo kept >"$WORK/data/file"
    # The other partition is free for others meanwhile.
    size=$(stat -c %s "$WORK/root.steadfast")
    "$STEADFAST" check --quiet "$WORK/disk.img?offset=17M&size=$size" ||
        die "the root is damaged, or locked with the data"
    "$STEADFAST" umount --quiet "$WORK/data" || die "umount"
    [ "$("$STEADFAST" cat "$data" /file)" = kept ] || die "what was written is not there"
    "$STEADFAST" check --quiet "$data" || die "the data are damaged"
    ok "genimage: two volumes in the partitions of a disk"
else
    echo "recipes: skipped: genimage with dosfstools and mtools is not installed"
fi

# --- Buildroot
tree=$REPO/packaging/buildroot
grep -q '^name: STEADFAST$' "$tree/external.desc" || die "external.desc has no name"
# What Buildroot has under these names is not here; make reads the rest and tells what it would do.
cat >"$WORK/Makefile" <<END
BR2_EXTERNAL_STEADFAST_PATH := $tree
INSTALL := install
TARGET_DIR := $WORK/target
RUSTC_TARGET_NAME := triple
D := x
define cargo-package
install-it:
	\$(STEADFAST_INSTALL_TARGET_CMDS)
endef
include \$(BR2_EXTERNAL_STEADFAST_PATH)/external.mk
END
make -C "$WORK" --no-print-directory -n install-it >"$WORK/make.log" 2>&1 ||
    die "make: $(cat "$WORK/make.log")"
for word in usr/sbin/fsck.steadfast usr/sbin/mount.fuse.steadfast 'release/steadfast'; do
    grep -q -- "$word" "$WORK/make.log" ||
        die "steadfast.mk does not install $word: $(cat "$WORK/make.log")"
done
version=$("$STEADFAST" --version | cut -d' ' -f2)
grep -qx "STEADFAST_VERSION = $version" "$tree/package/steadfast/steadfast.mk" ||
    die "steadfast.mk has another version than $version"
ok "Buildroot: the external tree is one that make reads"

# --- Yocto
layer=$REPO/packaging/yocto/meta-steadfast
recipe=$layer/recipes-steadfast/steadfast/steadfast_$version.bb
[ -e "$recipe" ] || die "no recipe for version $version"
python3 - "$recipe" "$layer/conf/layer.conf" "$REPO" <<'PY' || die "the layer is none"
import hashlib, re, sys
recipe, layer, repo = sys.argv[1:]
# A line is a comment, an assignment, inherit or include, or part of a shell function.
line = re.compile(r'(#.*|(export )?[A-Z_a-z0-9:${}\-.]+ *(\?\?|\?|\+|\.|:)?=\+? *"[^"]*"|'
                  r'(inherit|include|require) .+|)$')
for path in (recipe, layer):
    inside = False
    for number, text in enumerate(open(path), 1):
        text = text.rstrip("\n")
        if re.match(r"[a-z_:]+\(\) \{$", text):
            inside = True
        elif inside:
            inside = text != "}"
        elif not line.match(text):
            sys.exit(f"{path}:{number}: {text}")
    if inside:
        sys.exit(f"{path}: a function without an end")
text = open(recipe).read()
sum_ = re.search(r"file://LICENSE-MIT;md5=([0-9a-f]{32})", text).group(1)
if hashlib.md5(open(f"{repo}/LICENSE-MIT", "rb").read()).hexdigest() != sum_:
    sys.exit("the checksum of LICENSE-MIT is another one")
for name in ("BBFILE_COLLECTIONS", "BBFILE_PATTERN_steadfast", "LAYERSERIES_COMPAT_steadfast"):
    if name not in open(layer).read():
        sys.exit(f"layer.conf has no {name}")
PY
sed -n '/^do_install() {$/,/^}$/p' "$recipe" | sed 's/\${/${/g' | sh -n ||
    die "do_install is no shell"
ok "Yocto: the layer and its recipe"

# --- initramfs-tools
for script in hooks scripts; do
    sh -n "$REPO/packaging/initramfs-tools/$script/steadfast" ||
        die "initramfs-tools/$script is no shell"
done
[ "$(sh "$REPO/packaging/initramfs-tools/hooks/steadfast" prereqs)" = "" ] ||
    die "the hook has prerequisites"
ok "initramfs-tools: hook and boot script"
finish
