//! Stack overflow of a goroutine: reports which goroutine, before the process aborts.
//!
//! Runs in the SIGSEGV handler on the M's alternate stack, so it allocates nothing and takes no lock.

use std::fmt::Write;

use crate::sched::types::current;
use crate::sys::mmap;
use crate::sys::signal::Line;

/// Reports the fault at `addr` if it lies in the guard page of the goroutine that
/// runs on this thread.
pub(crate) fn report(addr: usize) -> bool {
    let Some(g) = current::m().and_then(|m| m.curg.get()) else {
        return false;
    };
    let Some(span) = g.stack_span() else {
        return false;
    };
    // The guard is the page below.
    let page_bytes = mmap::page_bytes();
    if !(span.start - page_bytes..span.start).contains(&addr) {
        return false;
    }
    let bytes = (span.end | (page_bytes - 1)) + 1 - (span.start - page_bytes);
    let mut line = Line::new();
    // A line takes all that it is given.
    let _ = write!(line, "\nwindlass: goroutine {}", g.id());
    if let Some(name) = g.name() {
        let _ = write!(line, " '{name}'");
    }
    if let Some(site) = g.site() {
        let _ = write!(line, ", spawned at {}:{},", site.file(), site.line());
    }
    let _ = writeln!(line, " overflowed its stack of {bytes} bytes");
    let _ = line.write_str(
        "windlass: give it more with task::Builder::stack_size, or all of them with Builder::stack_size\n",
    );
    true
}
