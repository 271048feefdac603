//! Dumps on SIGQUIT, for runtimes that asked for it.
//!
//! The handler only counts and wakes a thread of the process's own, which takes the
//! dumps: a handler may interrupt anything, an allocation or a holder of a lock.

use std::io::{self, Write};
use std::sync::Arc;

use super::dump::Dump;
use super::registry::Registry;
use crate::loom::native::atomic::{AtomicI32, Ordering};
use crate::sched::state::Sched;
use crate::sys::sched as threads;
use crate::sys::signal::{self, AfterQuit};

/// Whom to dump.
static REGISTRY: Registry = Registry::new();

/// Dumps `sched`, too, from now on until it goes.
///
/// # Errors
///
/// The kernel's, if it gives no thread.
pub(crate) fn register(sched: &Arc<Sched>) -> io::Result<()> {
    REGISTRY.add(sched, || {
        crate::loom::thread::Builder::new()
            .name("windlass-sigquit".to_owned())
            .spawn(watch)?;
        signal::install_quit_handler();
        Ok(())
    })
}

/// The kernel's number of the thread that waits for the signal, if there is one.
pub(crate) fn thread_id() -> Option<i32> {
    Some(THREAD.load(Ordering::Acquire)).filter(|&tid| tid != 0)
}

/// Ordering: release by the thread when it begins.
static THREAD: AtomicI32 = AtomicI32::new(0);

fn watch() {
    THREAD.store(threads::gettid(), Ordering::Release);
    let mut seen = 0;
    loop {
        seen = signal::wait_for_quit(seen);
        let mut out = String::from("SIGQUIT: quit\n");
        for sched in REGISTRY.runtimes() {
            out.push_str(&format!("\n{}", Dump::take(&sched)));
        }
        let mut stderr = io::stderr().lock();
        // There is nobody else to tell.
        let _ = stderr.write_all(out.as_bytes());
        let _ = stderr.flush();
        drop(stderr);
        if signal::after_quit() == AfterQuit::Exit {
            // As Go does. No destructors: whoever sends this signal wants an end.
            signal::exit_now(2);
        }
    }
}
