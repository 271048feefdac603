#!/bin/sh
# Shows that the explorer finds what it is for: undoes the fix of each known bug in a copy of the
# tree (patches/*.patch), builds that, and runs the scenario that the patch names until something
# is found, for at most SECONDS.
#
# usage: tests/explore/prove.sh [NAME..]     e.g. A4 B13; else all patches
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${SECONDS_EACH:-120}
work=${WORK:-$root/target/explore-proof}
mkdir -p "$work"
cd "$root"
[ $# -gt 0 ] || set -- $(cd tests/explore/patches && ls | sed 's/\.patch$//')
for name in "$@"; do
    patch=$root/tests/explore/patches/$name.patch
    scenario=$(sed -n 's/^Scenario: //p' "$patch")
    copy=$work/tree
    rm -rf "$copy" && mkdir -p "$copy"
    git ls-files -z | xargs -0 tar -cf - | tar -xf - -C "$copy"
    # In a folder of a repository git would leave the files alone, and say nothing.
    (cd "$copy" && GIT_CEILING_DIRECTORIES=$work git apply "$patch")
    # One folder for all, so that only what a patch changes is built again.
    (cd "$copy" && RUSTFLAGS="--cfg explore" CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 \
        cargo build -q -p windlass-explore --target-dir "$work/target") >"$work/$name.build" 2>&1 ||
        { cat "$work/$name.build"; exit 1; }
    cp "$work/target/debug/explore" "$work/explore-$name"
    "$work/explore-$name" --seconds "$seconds" "$scenario" >"$work/$name.txt" || true
    found=$(grep '^FOUND' "$work/$name.txt" | head -1)
    echo "$name | ${found:-not found in $seconds s: $(tail -1 "$work/$name.txt")}"
done
