#!/usr/bin/env bash
# Compares the public API of the library crates with the listings in docs/api, so that a change of the API
# is seen in the diff of the commit that makes it.
#
#   scripts/public-api.sh            fails and prints the difference
#   scripts/public-api.sh --update   writes the listings
#   scripts/public-api.sh --prepare  only looks for the tools
#
# It needs a nightly toolchain, because rustdoc's JSON is unstable, and cargo-public-api
# (`cargo install --locked cargo-public-api`). The exit status is 77 if one of them is missing, and the last
# line says which.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'public-api: %s\n' "$*" >&2; }

if ! cargo +nightly --version >/dev/null 2>&1; then
    say "no nightly toolchain here"
    exit 77
fi
if ! cargo public-api --version >/dev/null 2>&1; then
    say "cargo-public-api is missing: cargo install --locked cargo-public-api"
    exit 77
fi
[ "${1:-}" != --prepare ] || exit 0

# Built in a folder of its own: no test finds what another compiler has built.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/public-api
listings=$(mktemp -d)
trap 'rm -rf "$listings"' EXIT
for crate in windlass windlass-topology windlass-hyper windlass-tracing windlass-hook windlass-handover windlass-macros windlass-console; do
    # Off by default, and interfaces like the others.
    features=()
    case "$crate" in
    windlass) features=(--features sim) ;;
    windlass-hyper) features=(--features server) ;;
    esac
    # -sss leaves out what follows from the types: blanket, automatic and derived implementations.
    cargo +nightly public-api -sss --color never -p "$crate" ${features[@]+"${features[@]}"} >"$listings/$crate.txt"
    [ -s "$listings/$crate.txt" ] || { say "nothing was listed for $crate"; exit 1; }
done
if [ "${1:-}" = --update ]; then
    mkdir -p docs/api
    cp "$listings"/*.txt docs/api/
elif ! diff -ru docs/api "$listings"; then
    say "the public API differs from docs/api: look at the difference, then scripts/public-api.sh --update"
    exit 1
fi
