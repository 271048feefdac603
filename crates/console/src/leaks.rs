//! `/debug/leaks`: the goroutines that wait for what cannot happen any more, as dumps have goroutines, or as JSON.

use std::fmt::Write as _;

use windlass::debug::{Leak, Leaks, Verdict};

use crate::goroutines::{Bounded, left_out, one};
use crate::json::{array, quoted};

/// Up to `limit` leaked goroutines, the oldest first.
pub(crate) fn text(mut found: Leaks, limit: usize, most: usize) -> String {
    let total = found.leaks.len();
    let shown = found.leaks.drain(..total.min(limit)).collect::<Vec<_>>();
    let runtime = found.runtime.escape_debug();
    let text = format!("{runtime}: {total} leaked goroutines\n");
    let mut out = Bounded { text, most };
    let n_shown = shown
        .iter()
        .take_while(|leak| out.write_str(&format!("\n{leak}")).is_ok())
        .count();
    out.text + &left_out(total - n_shown, "goroutines")
}

/// Up to `limit` leaked goroutines as JSON, the oldest first.
pub(crate) fn json(found: Leaks, limit: usize, most: usize) -> String {
    let mut left = most;
    let shown = found.leaks.iter().take(limit).map(entry);
    let shown = shown.take_while(|part| {
        let room = left.checked_sub(part.len() + 1);
        left = room.unwrap_or(0);
        room.is_some()
    });
    format!(
        "{{\"runtime\":{},\"total\":{},\"leaks\":{}}}\n",
        quoted(&found.runtime),
        found.leaks.len(),
        array(shown)
    )
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
