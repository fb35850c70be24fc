# Functions that the scripts share; sourced, not run.

# Exits with one line on standard error: the problem, the place and the remedy.
die() {
    echo "steadfast: $*" >&2
    exit 1
}

# Runs a command as root, directly or through sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "root is needed: $*: run it as root, or install sudo"
    fi
}

# Installs missing Debian packages.
need_packages() {
    local missing=()
    local package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' \
            || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null \
        || die "packages are missing: ${missing[*]}:" \
            "install them with this system's package manager"
    echo "installing ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get update -qq && exec apt-get install -y -qq "$@"' - "${missing[@]}" >/dev/null \
        || die "apt-get failed: ${missing[*]}: install them by hand"
}

# Installs the standard library for a target, for the toolchain $2 if it is given.
need_target() {
    local toolchain=(${2:+--toolchain "$2"}) installed
    command -v rustup >/dev/null || return 0
    installed=$(rustup target list --installed "${toolchain[@]}")
    grep -qx -- "$1" <<<"$installed" || rustup target add "$1" "${toolchain[@]}" >&2 \
        || die "no standard library for $1: rustup: add it with 'rustup target add $1'"
}

need_cargo() {
    command -v "${CARGO:-cargo}" >/dev/null \
        || die "no cargo: PATH: install Rust from https://rustup.rs"
}

# Checks that FUSE is available and usable, because mounts need it.
need_fuse() {
    if [ ! -e /dev/fuse ]; then
        as_root modprobe fuse 2>/dev/null || true
    fi
    [ -e /dev/fuse ] || die "no FUSE on this machine: /dev/fuse:" \
        "load it with 'modprobe fuse'; give a container --device /dev/fuse --cap-add SYS_ADMIN"
    { : <>/dev/fuse; } 2>/dev/null || die "no permission to use FUSE: /dev/fuse:" \
        "run it as root, or let your user (or its container) open the device"
}

# The directory for cargo's output.
target_directory() {
    echo "${CARGO_TARGET_DIR:-target}"
}
