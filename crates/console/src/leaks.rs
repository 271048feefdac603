//! `/debug/leaks`: the goroutines that wait for what cannot happen any more, as dumps have goroutines, or as JSON.

use windlass::debug::{Leak, Leaks, Verdict};

use crate::goroutines::{Bounded, left_out, listed, one};
use crate::json::quoted;

/// Up to `limit` leaked goroutines, the oldest first.
pub(crate) fn text(found: Leaks, limit: usize, most: usize) -> String {
    let total = found.leaks.len();
    let runtime = found.runtime.escape_debug();
    let text = format!("{runtime}: {total} leaked goroutines\n");
    let mut out = Bounded { text, most };
    let shown = found.leaks.iter().take(limit);
    let n_shown = out.add(shown.map(|leak| format!("\n{leak}")));
    out.text + &left_out(total - n_shown, "goroutines")
}

/// Up to `limit` leaked goroutines as JSON, the oldest first.
pub(crate) fn json(found: Leaks, limit: usize, most: usize) -> String {
    let total = found.leaks.len();
    let parts = found.leaks.iter().take(limit).map(entry);
    listed(&found.runtime, total, "leaks", parts, most)
}

fn entry(leak: &Leak) -> String {
    let verdict = match leak.verdict {
        Verdict::Proved => "proved",
        _ => "suspected",
    };
    format!(
        "{{\"verdict\":{},\"reason\":{},\"goroutine\":{}}}",
        quoted(verdict),
        quoted(&leak.reason),
        one(&leak.goroutine),
    )
}
