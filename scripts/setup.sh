#!/usr/bin/env bash
# Looks for what the build needs beyond cargo, make and a C compiler, which is
# libhwloc with its header and pkg-config to find it, and installs what is
# missing with the package manager of the distribution.
# Run again, it does nothing: everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "this needs root, and there is no sudo; as root, run: $*"
    fi
}

install_hwloc() {
    if command -v apt-get >/dev/null; then
        say_packages libhwloc-dev pkg-config
        as_root apt-get update
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install --yes --no-install-recommends libhwloc-dev pkg-config
    elif command -v dnf >/dev/null; then
        say_packages hwloc-devel pkgconf-pkg-config
        as_root dnf install --assumeyes hwloc-devel pkgconf-pkg-config
    elif command -v pacman >/dev/null; then
        say_packages hwloc pkgconf
        as_root pacman --sync --refresh --needed --noconfirm hwloc pkgconf
    elif command -v zypper >/dev/null; then
        say_packages hwloc-devel pkg-config
        as_root zypper --non-interactive install hwloc-devel pkg-config
    else
        fail "no apt-get, dnf, pacman or zypper here: install the development package of" \
            "hwloc 2.4 or later (libhwloc-dev, hwloc-devel or hwloc) and pkg-config by hand, then try again"
    fi
}

say_packages() {
    printf 'setup: hwloc is missing; installing %s\n' "$*"
}

hwloc_is_there() {
    command -v pkg-config >/dev/null && pkg-config --exists 'hwloc >= 2.4.0'
}

command -v cargo >/dev/null || fail "cargo is missing: install rustup, then open a new shell"
command -v cc >/dev/null || fail "a C compiler (cc) is missing: install gcc or clang"

if ! hwloc_is_there; then
    install_hwloc
    hwloc_is_there || fail "pkg-config still does not find hwloc 2: is PKG_CONFIG_PATH set?"
fi

# The pinned toolchain, for a rustup that does not fetch it by itself.
if command -v rustup >/dev/null && ! rustup show active-toolchain >/dev/null 2>&1; then
    rustup toolchain install || fail "rustup could not install the toolchain of rust-toolchain.toml"
fi
