#!/usr/bin/env bash
# Prints the name of a toolchain for a checker, and installs it if it is missing.
#
#   scripts/toolchain.sh asan    a stable one, with the standard library that is built for AddressSanitizer
#   scripts/toolchain.sh miri    the nightly one, with Miri
#
# The pinned compiler has neither: Miri is a part of nightly, and rustup lists that library for the pinned
# version but cannot fetch it. The exit status is 77 if the toolchain cannot be had here.
set -euo pipefail

say() { printf 'toolchain: %s\n' "$*" >&2; }
missing() { say "$*"; exit 77; }

command -v rustup >/dev/null || missing "no rustup here"
case ${1:-} in
    asan)
        name=1.97.0
        target=x86_64-unknown-linux-gnuasan
        [ "$(uname -m)" = x86_64 ] || missing "$target is for x86-64"
        library=$(rustc "+$name" --print target-libdir --target "$target" 2>/dev/null) || library=
        [ -e "$library" ] ||
            timeout 300 rustup toolchain install "$name" --target "$target" --profile minimal --no-self-update >&2 ||
            missing "$name with $target cannot be had"
        ;;
    miri)
        name=nightly
        cargo "+$name" miri --version >/dev/null 2>&1 ||
            timeout 300 rustup component add --toolchain "$name" miri rust-src >&2 ||
            missing "Miri of the toolchain $name cannot be had"
        ;;
    *)
        say "asan or miri"
        exit 2
        ;;
esac
printf '%s\n' "$name"
