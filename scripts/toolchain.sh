#!/usr/bin/env bash
# Prints the name of a toolchain for a checker, and installs it if it is missing.
#
#   scripts/toolchain.sh asan    a stable one, with the standard library that is built for AddressSanitizer
#   scripts/toolchain.sh race    the same, with that for ThreadSanitizer
#   scripts/toolchain.sh miri    the nightly one, with Miri
#
# The pinned compiler has none of them: Miri is a part of nightly, ThreadSanitizer's library exists since 1.96, and
# rustup lists AddressSanitizer's for the pinned version but cannot fetch it. The exit status is 77 if the toolchain
# cannot be had here.
set -euo pipefail

say() { printf 'toolchain: %s\n' "$*" >&2; }
missing() { say "$*"; exit 77; }

command -v rustup >/dev/null || missing "no rustup here"
case ${1:-} in
    asan | race)
        name=1.97.0
        sanitizer=$1
        [ "$sanitizer" = asan ] || sanitizer=tsan
        target=x86_64-unknown-linux-gnu$sanitizer
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
        say "asan, race or miri"
        exit 2
        ;;
esac
printf '%s\n' "$name"
