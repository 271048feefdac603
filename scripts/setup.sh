#!/usr/bin/env bash
# Looks for what the build needs beyond cargo, make and a C compiler, which is
# libhwloc with its header, SQLite with its header for two of the example programs,
# and pkg-config to find them, and installs what is
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

# The packages of a distribution, for what is missing: hwloc, or sqlite.
install() {
    local packages
    if command -v apt-get >/dev/null; then
        packages="lib$1-dev pkg-config"
        [ "$1" != sqlite ] || packages="libsqlite3-dev pkg-config"
        say_packages "$1" "$packages"
        as_root apt-get update
        # shellcheck disable=SC2086
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install --yes --no-install-recommends $packages
    elif command -v dnf >/dev/null; then
        say_packages "$1" "$1-devel pkgconf-pkg-config"
        as_root dnf install --assumeyes "$1-devel" pkgconf-pkg-config
    elif command -v pacman >/dev/null; then
        say_packages "$1" "$1 pkgconf"
        as_root pacman --sync --refresh --needed --noconfirm "$1" pkgconf
    elif command -v zypper >/dev/null; then
        packages="$1-devel"
        [ "$1" != sqlite ] || packages=sqlite3-devel
        say_packages "$1" "$packages pkg-config"
        as_root zypper --non-interactive install "$packages" pkg-config
    else
        fail "no apt-get, dnf, pacman or zypper here: install the development packages of" \
            "hwloc 2.4 or later (libhwloc-dev, hwloc-devel or hwloc) and SQLite 3 (libsqlite3-dev, sqlite-devel" \
            "or sqlite), and pkg-config, by hand, then try again"
    fi
}

say_packages() {
    printf 'setup: %s is missing; installing %s\n' "$1" "$2"
}

hwloc_is_there() {
    command -v pkg-config >/dev/null && pkg-config --exists 'hwloc >= 2.4.0'
}

# For the programs in examples/ports.
sqlite_is_there() {
    pkg-config --exists 'sqlite3 >= 3.34.1'
}

command -v cargo >/dev/null || fail "cargo is missing: install rustup, then open a new shell"
command -v cc >/dev/null || fail "a C compiler (cc) is missing: install gcc or clang"

if ! hwloc_is_there; then
    install hwloc
    hwloc_is_there || fail "pkg-config still does not find hwloc 2: is PKG_CONFIG_PATH set?"
fi
if ! sqlite_is_there; then
    install sqlite
    sqlite_is_there || fail "pkg-config still does not find SQLite 3: is PKG_CONFIG_PATH set?"
fi

# The pinned toolchain, for a rustup that does not fetch it by itself.
if command -v rustup >/dev/null && ! rustup show active-toolchain >/dev/null 2>&1; then
    rustup toolchain install || fail "rustup could not install the toolchain of rust-toolchain.toml"
fi
