#!/usr/bin/env bash
# Runs two commands side by side: beside.sh FIRST SECOND. The second gets the CPU time that the first leaves, so that tests
# which mostly wait hardly notice what compiles beside them. It prints when it has ended. Both must succeed.
set -um
printed=$(mktemp)
nice -n 19 bash -c "$2" >"$printed" 2>&1 </dev/null &
second=$!
# It is a process group, which an interrupt of the first does not reach.
trap 'kill -- -$second 2>/dev/null; wait $second 2>/dev/null; rm -f "$printed"' EXIT
trap 'exit 130' INT TERM
bash -c "$1" || exit
wait $second
status=$?
cat "$printed"
exit $status
