#!/usr/bin/env bash
# Runs a test program for aarch64 (tests/debug) under qemu's user emulation, lets it crash as the child of the test gdb::a_core_of_a_crash, and
# asks gdb for its goroutines. scripts/aarch64.sh calls it in place of the program.
#
#   scripts/aarch64-gdb.sh PROGRAM [ARG..]
#
# The exit status is 77 if there is no gdb-multiarch or no qemu-aarch64.
set -euo pipefail

sysroot=${XDG_CACHE_HOME:-$HOME/.cache}/windlass-aarch64/sysroot
command -v gdb-multiarch qemu-aarch64 >/dev/null || { echo 'install gdb-multiarch and qemu-user' >&2; exit 77; }
work=$(mktemp -d)
socket=$work/gdb
WINDLASS_TEST_CHILD=crash timeout 100 qemu-aarch64 -L "$sysroot" -g "$socket" "$1" --exact gdb::a_core_of_a_crash --nocapture >&2 &
machine=$!
trap 'kill "$machine" 2>/dev/null || true; rm -rf "$work"' EXIT
for ((i = 0; i < 100; i++)); do [ ! -S "$socket" ] || break; sleep 0.1; done
timeout 90 gdb-multiarch -batch -nx -iex 'add-auto-load-safe-path /' -ex "set sysroot $sysroot" -ex "target remote $socket" -ex continue \
    -ex 'info goroutines' -ex 'goroutine all bt' -ex 'goroutine 2' -ex bt "$1" >"$work/says" 2>&1
for part in 'goroutine 2 [chan receive], spawned at' '6 goroutines: ' 'name "crasher"], spawned at' 'debug::gdb::waits_for_a_message' \
    'debug::gdb::writes_to_nothing' 'switch_yield'; do
    grep -qF "$part" "$work/says" || { cat "$work/says"; echo "gdb did not say: $part"; exit 1; }
done
echo 'gdb shows the goroutines of a program for aarch64'
