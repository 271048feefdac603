//! The Chrome trace-event format, which ui.perfetto.dev and chrome://tracing open: JSON, written event by
//! event. Traces of runtimes (`runtime`) and of simulated runs (`simulated`) are files of it.
//!
//! A file has processes, and each has rows. Slices of a row nest or lie one after the other.

use std::fmt::Write as _;
use std::io::{self, Write};

/// A row of a process; the format calls it a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) pid: u64,
    pub(crate) tid: u64,
}

/// Writes a file. Times are written relative to its first moment.
pub(crate) struct Output<W: Write> {
    writer: io::BufWriter<W>,
    from_ns: u64,
    is_first: bool,
}

impl<W: Write> Output<W> {
    /// Begins a file in which `from_ns` is the time 0.
    pub(crate) fn new(writer: W, from_ns: u64) -> io::Result<Output<W>> {
        let mut writer = io::BufWriter::new(writer);
        writer.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Output {
            writer,
            from_ns,
            is_first: true,
        })
    }

    /// Ends the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.writer.write_all(b"]}\n")?;
        self.writer.flush()
    }

    /// Writes the name of a process.
    pub(crate) fn process(&mut self, pid: u64, name: &str) -> io::Result<()> {
        let name = quoted(name);
        self.event(
            pid,
            &format!("\"ph\":\"M\",\"name\":\"process_name\",\"args\":{{\"name\":{name}}}"),
        )
    }

    /// Writes the place of a process among the others.
    #[cfg(feature = "sim")]
    pub(crate) fn process_place(&mut self, pid: u64, place: u64) -> io::Result<()> {
        self.event(
            pid,
            &format!(
                "\"ph\":\"M\",\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{place}}}"
            ),
        )
    }

    /// Writes the name of a row, and its place among those of its process.
    pub(crate) fn row(&mut self, row: Row, name: &str, place: u64) -> io::Result<()> {
        let (name, tid) = (quoted(name), row.tid);
        self.event(
            row.pid,
            &format!(
                "\"ph\":\"M\",\"name\":\"thread_name\",\"tid\":{tid},\"args\":{{\"name\":{name}}}"
            ),
        )?;
        self.event(
            row.pid,
            &format!(
                "\"ph\":\"M\",\"name\":\"thread_sort_index\",\"tid\":{tid},\"args\":{{\"sort_index\":{place}}}"
            ),
        )
    }

    /// Writes a slice. `args` is the inside of a JSON object.
    pub(crate) fn slice(
        &mut self,
        row: Row,
        (from_ns, to_ns): (u64, u64),
        category: &str,
        name: &str,
        args: &str,
    ) -> io::Result<()> {
        let fields = format!(
            "\"ph\":\"X\",\"cat\":\"{category}\",\"name\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{{args}}}",
            quoted(name),
            row.tid,
            self.ts(from_ns),
            us(to_ns.saturating_sub(from_ns)),
        );
        self.event(row.pid, &fields)
    }

    /// Writes an instant.
    pub(crate) fn mark(&mut self, row: Row, at_ns: u64, name: &str, args: &str) -> io::Result<()> {
        let fields = format!(
            "\"ph\":\"i\",\"s\":\"t\",\"cat\":\"runtime\",\"name\":{},\"tid\":{},\"ts\":{},\"args\":{{{args}}}",
            quoted(name),
            row.tid,
            self.ts(at_ns),
        );
        self.event(row.pid, &fields)
    }

    /// Writes an arrow between two slices.
    pub(crate) fn flow(&mut self, id: usize, from: (Row, u64), to: (Row, u64)) -> io::Result<()> {
        for (ph, more, (row, at_ns)) in [("s", "", from), ("f", ",\"bp\":\"e\"", to)] {
            let fields = format!(
                "\"ph\":\"{ph}\"{more},\"id\":{id},\"cat\":\"wake\",\"name\":\"wake\",\"tid\":{},\"ts\":{}",
                row.tid,
                self.ts(at_ns),
            );
            self.event(row.pid, &fields)?;
        }
        Ok(())
    }

    /// Writes the begin or the end of a region of goroutine `g`. Events with the same category and
    /// number are drawn on a row of their own.
    pub(crate) fn region_end(
        &mut self,
        row: Row,
        g: u64,
        name: &str,
        is_begin: bool,
        at_ns: u64,
    ) -> io::Result<()> {
        let ph = if is_begin { "b" } else { "e" };
        let fields = format!(
            "\"ph\":\"{ph}\",\"cat\":\"region\",\"id\":\"0x{g:x}\",\"name\":{},\"tid\":{},\"ts\":{},\"args\":{{\"goroutine\":{g}}}",
            quoted(name),
            row.tid,
            self.ts(at_ns),
        );
        self.event(row.pid, &fields)
    }

    fn event(&mut self, pid: u64, fields: &str) -> io::Result<()> {
        let sep = if self.is_first { "\n" } else { ",\n" };
        self.is_first = false;
        write!(self.writer, "{sep}{{\"pid\":{pid},{fields}}}")
    }

    fn ts(&self, at_ns: u64) -> String {
        us(at_ns.saturating_sub(self.from_ns))
    }
}

/// Formats nanoseconds as microseconds, exactly.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// Quotes a string for JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
        assert_eq!(us(1_002_003), "1002.003");
    }
}
