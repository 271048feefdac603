#!/usr/bin/env bash
# Runs tests under ThreadSanitizer, which is told of goroutines (docs/guide/data-races.md).
#
#   scripts/race.sh --prepare     gets the compiler and its library for the sanitizer
#   scripts/race.sh ARG..         cargo test, whose arguments follow
#
# The target x86_64-unknown-linux-gnutsan has an instrumented standard library since Rust 1.96, which is newer than the
# compiler in rust-toolchain.toml.
#
# The exit status is 77 if something cannot be had here, and the last line says what.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=1.97.0
target=x86_64-unknown-linux-gnutsan

say() { printf 'race: %s\n' "$*" >&2; }
die() { say "$2"; exit "$1"; }

has_library() { [ -e "$(rustc "+$toolchain" --print sysroot 2>/dev/null)/lib/rustlib/$target/lib" ]; }

prepare() {
    [ "$(uname -m)" = x86_64 ] || die 77 "the target $target is for x86_64"
    command -v rustup >/dev/null || die 77 "rustup is missing"
    has_library ||
        timeout 300 rustup toolchain install "$toolchain" -t "$target" --no-self-update --profile minimal >&2 ||
        die 77 "the standard library for $target cannot be had"
}

prepare
[ "${1:-}" = --prepare ] || exec cargo "+$toolchain" test --target "$target" --features windlass/race,windlass/sim "$@"
