//! `/debug/goroutines`: all goroutines, grouped by stack as Go's `debug=1` has them, one by one as in
//! dumps, or as JSON.

use std::collections::HashMap;
use std::fmt::Write as _;

use windlass::debug::{Dump, Frame, Goroutine};

use crate::json::{array, quoted, quoted_or_null};

/// Goroutines that wait, or run, in the same place.
struct Group<'a> {
    first: &'a Goroutine,
    n: usize,
    /// The longest wait, in seconds.
    longest: u64,
}

/// A text that has no more than so many bytes.
pub(crate) struct Bounded {
    pub(crate) text: String,
    pub(crate) most: usize,
}

impl std::fmt::Write for Bounded {
    /// Fails if there is no room for the part, and adds nothing of it.
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        if self.text.len() + part.len() > self.most {
            return Err(std::fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

impl Bounded {
    /// Adds parts while there is room, and returns their number.
    pub(crate) fn add(&mut self, mut parts: impl Iterator<Item = String>) -> usize {
        let mut n = 0;
        while parts
            .next()
            .is_some_and(|part| self.write_str(&part).is_ok())
        {
            n += 1;
        }
        n
    }
}

/// The end of a list that does not have all goroutines.
pub(crate) fn left_out(n_left: usize, what: &str) -> String {
    match n_left {
        0 => String::new(),
        n => format!("\n{n} more {what} are left out; the parameter limit is for other numbers\n"),
    }
}

/// The goroutines by stack, the largest group first: up to `limit` groups.
pub(crate) fn grouped(dump: Dump, limit: usize, most: usize) -> String {
    let mut groups: HashMap<_, Group<'_>> = HashMap::new();
    for g in &dump.goroutines {
        let addresses: Vec<_> = g.frames().iter().map(|frame| frame.address).collect();
        let group = groups.entry((g.status(), &g.label, addresses));
        let group = group.or_insert(Group {
            first: g,
            n: 0,
            longest: 0,
        });
        group.n += 1;
        group.longest = group.longest.max(g.waiting.as_secs());
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.n), group.first.id));
    let text = format!("goroutine profile: total {}\n", dump.goroutines.len());
    let mut out = Bounded { text, most };
    let n_shown = out.add(groups.iter().take(limit).map(as_text));
    out.text + &left_out(groups.len() - n_shown, "stacks")
}

/// Up to `limit` goroutines as in dumps, the oldest first.
pub(crate) fn one_by_one(mut dump: Dump, limit: usize, most: usize) -> String {
    /// The beginning of every entry of a dump.
    const ENTRY: &str = "\n\ngoroutine ";
    let total = dump.goroutines.len();
    dump.goroutines.truncate(limit);
    let mut out = Bounded {
        text: String::new(),
        most,
    };
    let is_whole = write!(out, "{dump}").is_ok();
    if !is_whole {
        // The last entry is not whole.
        let end = out.text.rfind(ENTRY);
        out.text.truncate(end.map_or(0, |at| at + 1));
    }
    let n_shown = out.text.matches(ENTRY).count();
    out.text + &left_out(total - n_shown, "goroutines")
}

/// The parts of a stack that are one call each, the innermost first. Functions that were inlined into
/// another have its address, and are before it. A function that calls itself has its address again.
pub(crate) fn calls(stack: &[Frame]) -> impl Iterator<Item = &[Frame]> {
    let mut left = stack;
    std::iter::from_fn(move || {
        let (first, others) = left.split_first()?;
        let is_inside = |other: &&Frame| other.address == first.address && *other != first;
        let n = 1 + others.iter().take_while(is_inside).count();
        let (these, rest) = left.split_at(n);
        left = rest;
        Some(these)
    })
}

fn as_text(group: &Group<'_>) -> String {
    let g = group.first;
    let mut out = format!("\n{} @", group.n);
    // Writing to a string cannot fail.
    for frames in calls(g.frames()) {
        let _ = write!(out, " {:#x}", frames[0].address);
    }
    let _ = write!(out, "\n# state: {}", g.status());
    if group.longest > 0 {
        let _ = write!(out, ", up to {} s", group.longest);
    }
    out.push('\n');
    if let Some(label) = &g.label {
        let _ = writeln!(out, "# labels: {{\"label\":{}}}", quoted(label));
    }
    for frame in g.frames() {
        let text = frame.to_string();
        let mut parts = text.lines();
        let function = parts.next().unwrap_or_default();
        let place = parts.next().unwrap_or_default();
        let _ = writeln!(out, "#\t{:#x}\t{function}{place}", frame.address);
    }
    if g.frames().is_empty() {
        let _ = writeln!(out, "#\tspawned at {}", g.spawned_at);
    }
    out
}

/// Up to `limit` goroutines as JSON, the oldest first.
pub(crate) fn json(dump: Dump, limit: usize, most: usize) -> String {
    let total = dump.goroutines.len();
    let parts = dump.goroutines.iter().take(limit).map(one);
    listed(&dump.runtime, total, "goroutines", parts, most)
}

/// A list of a runtime as JSON, with as many parts as there is room for.
pub(crate) fn listed(
    runtime: &str,
    total: usize,
    name: &str,
    parts: impl Iterator<Item = String>,
    most: usize,
) -> String {
    let mut left = most;
    let shown = parts.take_while(|part| {
        let room = left.checked_sub(part.len() + 1);
        left = room.unwrap_or(0);
        room.is_some()
    });
    format!(
        "{{\"runtime\":{},\"total\":{total},\"{name}\":{}}}\n",
        quoted(runtime),
        array(shown)
    )
}

fn number_or_null(number: Option<impl std::fmt::Display>) -> String {
    number.map_or_else(|| "null".to_owned(), |n| n.to_string())
}

/// A goroutine as JSON.
pub(crate) fn one(g: &Goroutine) -> String {
    let cpu = g.cpu_time.map(|time| time.as_secs_f64());
    format!(
        "{{\"id\":{},\"parent\":{},\"name\":{},\"label\":{},\"state\":{},\"waiting_seconds\":{},\
         \"cpu_seconds\":{},\"p\":{},\"m\":{},\"node\":{},\"waits_for\":{},\"spawned_at\":{},\"stack\":{}}}",
        g.id,
        g.parent,
        quoted_or_null(g.name.as_deref()),
        quoted_or_null(g.label.as_deref()),
        quoted(g.status()),
        g.waiting.as_secs_f64(),
        number_or_null(cpu),
        number_or_null(g.p),
        number_or_null(g.m),
        number_or_null(g.node),
        number_or_null(g.waits_for),
        quoted(&g.spawned_at.to_string()),
        array(g.frames().iter().map(frame)),
    )
}

fn frame(frame: &Frame) -> String {
    format!(
        "{{\"address\":\"{:#x}\",\"function\":{},\"file\":{},\"line\":{}}}",
        frame.address,
        quoted_or_null(frame.function.as_deref()),
        quoted_or_null(frame.file.as_deref()),
        number_or_null(frame.line),
    )
}

#[cfg(test)]
mod tests;
