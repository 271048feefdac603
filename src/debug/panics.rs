//! Names the goroutine that panics in a line on stderr. std's message, which follows, names only a
//! thread.
//!
//! The panic hook belongs to the process. The first runtime that is built sets it; the hook then
//! calls its predecessor, so a program's own hook is called as before. A hook that the program sets
//! later replaces this one, unless it calls its predecessor. The line is written by one system
//! call, without std's lock, which the goroutine may hold.
//!
//! So the output capture of test harnesses does not get the line. `eprint!` would pass it there, but
//! where nothing is captured, which cannot be asked for, it waits for std's lock, also while another
//! goroutine waits with that, and it panics where the write fails, which in a hook ends the process.

use std::fmt::Write;
use std::panic;

use crate::g::header::GRef;
use crate::loom::native::Once;
use crate::sched::types::current;
use crate::sys::signal;

/// Sets the hook, once per process.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    // std does not let a panicking thread set a hook. The next runtime will set it.
    if std::thread::panicking() {
        return;
    }
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if let Some(g) = wanted() {
                #[cfg(feature = "sim")]
                if let Some(bubble) = crate::bubble::current() {
                    bubble.note_hook(g.id(), info.location());
                    if bubble.repeats().is_some() {
                        return;
                    }
                }
                signal::write_stderr(line(g).as_bytes());
            }
            before(info);
        }));
    });
}

/// The goroutine that panics, if its runtime was built with `name_panics`.
fn wanted() -> Option<GRef> {
    let m = current::m()?;
    m.curg.get().filter(|_| m.sched().config.name_panics)
}

fn line(g: GRef) -> String {
    let mut line = format!("goroutine {}", g.id());
    // Writing to a string does not fail.
    if let Some(name) = g.name() {
        let _ = write!(line, " [name {name:?}]");
    }
    if let Some(site) = g.site() {
        let _ = write!(line, ", spawned at {site},");
    }
    line.push_str(" panicked:\n");
    line
}
