#!/bin/sh
# Weakens one order after the other in the protocols that rest on them, and runs the models of that protocol (`*_loom_tests.rs`):
# which of them notices? The accesses are those that the models run (crates/ground/src/loom/weaker.rs), and a fence is left out. Prints a table,
# and without arguments writes it to docs/orders.md.
#
# usage: tests/orders/run.sh [FILE..]     e.g. src/g/status.rs; else all files
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}/orders
table=$target/table
export LOOM_MAX_PREEMPTIONS=2 RUST_BACKTRACE=0

# A file, and the modules whose models run it.
protocols='src/sched/queue/idle.rs queue::idle queue::handed_work
src/util/bitset.rs queue::idle queue::handed_work
src/g/status.rs g::status g::cancel_wait
src/sched/queue/handed_work.rs queue::handed_work
src/sched/queue/access.rs queue::access
src/netpoll/poll_desc.rs poll_desc multishot_poll
src/util/event_log.rs event_log'

# The function around a line of a file, without its generics.
function_at() {
    head -n "$2" "$1" | sed -n 's/^ *\(pub(crate) \)\{0,1\}fn \([a-z_]*\).*/\2/p' | tail -1
}

# The orders that are weaker by one step.
weaker() {
    case "$1 $2" in
        "fence "*) echo None ;;
        "load SeqCst" | "failure SeqCst") echo Acquire Relaxed ;;
        "store SeqCst") echo Release Relaxed ;;
        *" SeqCst") echo AcqRel Acquire Release ;;
        *" AcqRel") echo Acquire Release ;;
        *" Acquire" | *" Release") echo Relaxed ;;
    esac
}

# Runs the models with one order weaker, as other CPUs and as x86 order them, and prints the first that fails.
notices() {
    weaker=$1
    shift
    for cpu in any x86; do
        found=$(WINDLASS_WEAKER=$weaker WINDLASS_CPU=$cpu timeout 120 "$models" "$@" 2>&1 |
            sed -n 's/^test .*::\(loom_[a-z_]*\) .*FAILED$/\1/p' | head -1) || true
        [ -z "$found" ] || { echo "$found"; return; }
    done
}

models=$(RUSTFLAGS="--cfg loom --cfg orders" CARGO_PROFILE_RELEASE_LTO=off \
    cargo test --release -p windlass --lib --target-dir "$target" --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1)
mkdir -p "$target"
echo "$protocols" | while read -r file modules; do
    case " ${*:-$file} " in *" $file "*) ;; *) continue ;; esac
    models_of=$(printf '%s::loom_tests ' $modules)
    accesses=$(WINDLASS_WEAKER=list "$models" $models_of --nocapture 2>/dev/null |
        sed -n "s|.*order \($file:[0-9:]* [a-z_]* [A-Za-z]*\)$|\1|p" | sort -u | sort -t: -s -k2n -k3n)
    echo "$accesses" | while read -r at access order; do
        line=${at#*:}
        function=$(function_at "$file" "${line%:*}")
        for to in $(weaker "$access" "$order"); do
            found=$(notices "$at $access $to" $models_of)
            echo "| \`${file#src/}\` | \`$function\` | $access | $order | $to | ${found:+\`$found\`} |"
        done
    done
done | tee "$table"
[ $# -eq 0 ] || exit 0
page=docs/orders.md
sed '/^| `/d' "$page" >"$table.page"
cat "$table.page" "$table" >"$page"
