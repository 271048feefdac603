//! Stack overflow of a goroutine: reports which goroutine, before the process aborts.
//!
//! Runs in the SIGSEGV handler on the M's alternate stack, so it allocates nothing, takes no lock,
//! and formats numbers by hand.

use crate::sched::types::current;
use crate::sys::mmap;
use crate::sys::signal::write_stderr;

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
    let mut line = Line::default();
    line.text("\nwindlass: goroutine ").number(g.id());
    if let Some(name) = g.name() {
        line.text(" '").text(name).text("'");
    }
    if let Some(site) = g.site() {
        line.text(", spawned at ")
            .text(site.file())
            .text(":")
            .number(u64::from(site.line()));
        line.text(",");
    }
    line.text(" overflowed its stack of ")
        .number(bytes as u64)
        .text(" bytes\n");
    line.text("windlass: give it more with task::Builder::stack_size, or all of them with Builder::stack_size\n");
    line.flush();
    true
}

/// A line of text, written in pieces of a fixed buffer.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            bytes: [0; 512],
            len: 0,
        }
    }
}

impl Line {
    fn text(&mut self, s: &str) -> &mut Line {
        for &b in s.as_bytes() {
            if self.len == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.len] = b;
            self.len += 1;
        }
        self
    }

    fn number(&mut self, mut n: u64) -> &mut Line {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.text(std::str::from_utf8(&digits[at..]).unwrap_or("?"))
    }

    fn flush(&mut self) {
        write_stderr(&self.bytes[..self.len]);
        self.len = 0;
    }
}
