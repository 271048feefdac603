#!/usr/bin/env bash
# Runs cargo for aarch64 on a machine of another architecture.
#
#   scripts/aarch64.sh check|test ARG..    cargo's own arguments follow
#   scripts/aarch64.sh gdb ARG..           tests that gdb shows goroutines: scripts/aarch64-gdb.sh
#   scripts/aarch64.sh --prepare           only gets what it takes to check
#   scripts/aarch64.sh --prepare-tests     gets what it takes to run tests, too
#
# `check` needs the standard library for aarch64-unknown-linux-gnu. It is, in this order: what rustup has
# installed or can fetch; else what the pinned compiler builds from its source, with rust-src of
# rustup or from Debian's package of the same version. (-Zbuild-std is unstable, and RUSTC_BOOTSTRAP
# allows it in a stable compiler. Nothing that is shipped is built so.)
# `test` also needs Debian's cross compiler and libhwloc, and runs each test program in an emulated
# machine: scripts/numa-vm.sh. AARCH64_NODES chooses its number of NUMA nodes. AARCH64_STD=source
# builds the standard library even where rustup has it.
#
# The exit status is 77 if something cannot be had here, and the last line says what.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
cache=${XDG_CACHE_HOME:-$HOME/.cache}/windlass-aarch64
sysroot=$cache/sysroot

say() { printf 'aarch64: %s\n' "$*" >&2; }
die() { say "$2"; exit "$1"; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. scripts/debian.sh

# Where the standard library's source is for the compiler in use; fetched if need be.
library_source() {
    local version found
    found=$(rustc --print sysroot)/lib/rustlib/src/rust/library
    if [ ! -e "$found/Cargo.lock" ]; then
        version=$(rustc -vV | sed -n 's/^release: //p')
        found=$cache/rust-$version/library
        if [ ! -e "$found/Cargo.lock" ]; then
            say "fetching the source of the standard library $version"
            fetch_library_source "$version" "$found" || return 1
        fi
    fi
    printf %s "$found"
}

fetch_library_source() { # VERSION FOLDER
    local suite exact
    command -v apt-get >/dev/null || return 1
    # Which suite has this version changes with time.
    for suite in "$(release)-backports" trixie-backports forky sid; do
        use_index "$suite" || continue
        exact=$(with_index apt-cache madison rust-src | awk -v version="$1" -F' *\\| *' \
            'index($2, version "+") == 1 { print $2; exit }')
        [ -n "$exact" ] || continue
        download "rust-src=$exact" || return 1
        mkdir -p "$work/source" "$(dirname "$2")"
        dpkg-deb --fsys-tarfile "$work"/debs/rust-src*.deb |
            tar -x -C "$work/source" "./usr/src/rustc-$1/library" || return 1
        mv "$work/source/usr/src/rustc-$1/library" "$2"
        return
    done
    return 1
}

# The environment in which cargo finds a standard library, and the options that it takes for it.
options=(--target "$target")
use_library() {
    if [ "${AARCH64_STD:-}" != source ]; then
        [ ! -e "$(rustc --print sysroot)/lib/rustlib/$target/lib" ] || return 0
        # Where it may fetch, this is the short way.
        if command -v rustup >/dev/null && timeout 120 rustup target add "$target" >/dev/null 2>&1; then
            return 0
        fi
    fi
    local source
    source=$(library_source) || die 77 "neither the standard library for $target nor its source can be had"
    export RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$source
    options+=(-Zbuild-std=std,panic_unwind,test)
}

use_linker() {
    if ! command -v aarch64-linux-gnu-gcc >/dev/null; then
        command -v apt-get >/dev/null || die 77 "aarch64-linux-gnu-gcc is missing"
        say "installing the cross compiler"
        apt-cache show gcc-aarch64-linux-gnu >/dev/null 2>&1 || as_root apt-get -qq update >&2 || true
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
            gcc-aarch64-linux-gnu libc6-dev-arm64-cross >"$work/log" 2>&1 ||
            { tail -3 "$work/log" >&2; die 77 "gcc-aarch64-linux-gnu cannot be had"; }
    fi
    if [ ! -e "$sysroot/complete" ]; then
        say "fetching libhwloc"
        # Libraries to run with, and libhwloc to link to. The rest of what linking takes is the
        # cross compiler's.
        use_index --arch arm64 "$(release)" &&
            download libc6 libgcc-s1 libudev1 libhwloc15 libhwloc-dev || die 77 "libhwloc for arm64 cannot be had"
        rm -rf "$sysroot"
        mkdir -p "$sysroot"
        local package
        for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
        : >"$sysroot/complete"
    fi
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    # Libraries that libhwloc itself needs are found when the program starts.
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS=-Clink-arg=-Wl,--allow-shlib-undefined
    export PKG_CONFIG_SYSROOT_DIR_aarch64_unknown_linux_gnu=$sysroot
    export PKG_CONFIG_PATH_aarch64_unknown_linux_gnu=$sysroot/usr/lib/aarch64-linux-gnu/pkgconfig
}

command=${1:?check, test, --prepare or --prepare-tests}
shift
export PKG_CONFIG_ALLOW_CROSS=1
use_library
case $command in
    --prepare) ;;
    check) ${CARGO:-cargo} check "${options[@]}" "$@" ;;
    --prepare-tests)
        use_linker
        scripts/numa-vm.sh --arch aarch64 --prepare
        ;;
    test)
        use_linker
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/scripts/numa-vm.sh --arch aarch64 --nodes ${AARCH64_NODES:-1} --timeout ${AARCH64_TIMEOUT:-1800} --"
        # Half optimised: emulation is slow, and the optimiser uses what weak ordering allows.
        export CARGO_PROFILE_DEV_OPT_LEVEL=1
        ${CARGO:-cargo} test "${options[@]}" "$@"
        ;;
    gdb)
        use_linker
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$PWD/scripts/aarch64-gdb.sh CARGO_PROFILE_DEV_OPT_LEVEL=1
        ${CARGO:-cargo} test "${options[@]}" -p windlass --test debug "$@"
        ;;
    *) die 2 "unknown command $command: the head of this script lists them" ;;
esac
