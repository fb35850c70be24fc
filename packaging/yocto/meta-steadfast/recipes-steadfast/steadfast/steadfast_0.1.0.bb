SUMMARY = "Transactional, power-fail-safe file system"
DESCRIPTION = "The command steadfast, which makes, mounts and checks volumes."
LICENSE = "MIT | Apache-2.0"
LIC_FILES_CHKSUM = "file://LICENSE-MIT;md5=2d249d7b29f130e4ae0359969926e9d9"

# Made beside this recipe:
#   git archive --prefix=steadfast-0.1.0/ -o files/steadfast-0.1.0.tar.gz HEAD
SRC_URI = "file://steadfast-${PV}.tar.gz"
# The crates that Cargo.lock names: bitbake -c update_crates steadfast writes the list.
include steadfast-crates.inc

inherit cargo cargo-update-recipe-crates

# As the profile `dist`: the class asks for `release`. The program of the lab stays away.
CARGO_BUILD_FLAGS += "-p steadfast-cli"
export CARGO_PROFILE_RELEASE_OPT_LEVEL = "s"
export CARGO_PROFILE_RELEASE_LTO = "fat"
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS = "1"

do_install() {
    install -D -m 0755 ${B}/target/${CARGO_TARGET_SUBDIR}/steadfast ${D}${bindir}/steadfast
    install -d ${D}${sbindir}
    for tool in mount umount mkfs fsck; do
        ln -sf ../bin/steadfast ${D}${sbindir}/$tool.steadfast
        ln -sf ../bin/steadfast ${D}${sbindir}/$tool.fuse.steadfast
    done
}

RRECOMMENDS:${PN} = "kernel-module-fuse"
