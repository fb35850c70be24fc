################################################################################
#
# steadfast
#
################################################################################

STEADFAST_VERSION = 0.1.0
# Made beside this file's external tree: git archive --prefix=steadfast-0.1.0/ \
#	-o packaging/buildroot/steadfast-0.1.0.tar.gz HEAD
STEADFAST_SITE = $(BR2_EXTERNAL_STEADFAST_PATH)
STEADFAST_SITE_METHOD = file
STEADFAST_LICENSE = MIT or Apache-2.0
STEADFAST_LICENSE_FILES = LICENSE-MIT LICENSE-APACHE
# The program of the lab stays away: a device measures nothing.
STEADFAST_CARGO_BUILD_OPTS = -p steadfast-cli
# As the profile `dist`: cargo-package asks for `release`.
STEADFAST_CARGO_ENV = \
	CARGO_PROFILE_RELEASE_OPT_LEVEL=s \
	CARGO_PROFILE_RELEASE_LTO=fat \
	CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
	CARGO_PROFILE_RELEASE_DEBUG=false

define STEADFAST_INSTALL_TARGET_CMDS
	$(INSTALL) -D -m 0755 $(@D)/target/$(RUSTC_TARGET_NAME)/release/steadfast \
		$(TARGET_DIR)/usr/bin/steadfast
	mkdir -p $(TARGET_DIR)/usr/sbin
	$(foreach tool,mount umount mkfs fsck, \
		ln -sf ../bin/steadfast $(TARGET_DIR)/usr/sbin/$(tool).steadfast
		ln -sf ../bin/steadfast $(TARGET_DIR)/usr/sbin/$(tool).fuse.steadfast
	)
endef

define STEADFAST_LINUX_CONFIG_FIXUPS
	$(call KCONFIG_ENABLE_OPT,CONFIG_FUSE_FS)
endef

$(eval $(cargo-package))
