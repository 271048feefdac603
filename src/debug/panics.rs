//! Which goroutine panics: a line on stderr before the panic's message, which names a
//! thread, and that says nothing here.
//!
//! The hook is the process's. It is set once, when a runtime is first built, around the one
//! that is there, so a program's own hook is called as before. A hook that is set later
//! replaces this one, or calls it if it calls its predecessor, as hooks do. The line
//! is written by one system call and without std's lock, which the goroutine may hold.

use std::fmt::Write;
use std::panic;

use crate::g::header::GRef;
use crate::loom::native::Once;
use crate::sched::current;
use crate::sys::signal;

/// Sets the hook, if that has not happened yet.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    // A thread that panics may not set a hook; the next runtime will.
    if std::thread::panicking() {
        return;
    }
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if let Some(g) = wanted() {
                signal::write_stderr(line(g).as_bytes());
            }
            before(info);
        }));
    });
}

/// The goroutine that panics here, if its runtime names it.
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
