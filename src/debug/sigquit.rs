//! Dumps on SIGQUIT, for runtimes built with `dump_on_sigquit`.
//!
//! The handler only increments a counter and wakes a thread, which takes the dumps. The handler
//! itself may have interrupted an allocation or a holder of a lock.

use std::io;
use std::sync::Arc;

use super::dump::Dump;
use super::registry::Registry;
use crate::loom::native::atomic::{AtomicI32, Ordering};
use crate::sched::types::state::Sched;
use crate::sys::sched as threads;
use crate::sys::signal::{self, AfterQuit};

/// The runtimes to dump.
static REGISTRY: Registry = Registry::new();

/// Includes `sched` in the dumps until it is dropped.
///
/// # Errors
///
/// The kernel's, if the thread cannot be created.
pub(crate) fn register(sched: &Arc<Sched>) -> io::Result<()> {
    REGISTRY.add(sched, || {
        crate::loom::thread::Builder::new()
            .name("windlass-sigquit".to_owned())
            .spawn(watch)?;
        signal::install_quit_handler();
        Ok(())
    })
}

/// The thread id of the thread that waits for the signal, if it runs.
pub(crate) fn thread_id() -> Option<i32> {
    Some(THREAD.load(Ordering::Acquire)).filter(|&tid| tid != 0)
}

/// Ordering: stored with release by the thread when it begins.
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
        signal::write_stderr(out.as_bytes());
        if signal::after_quit() == AfterQuit::Exit {
            // As Go does. Destructors do not run: this signal asks for an immediate end.
            signal::exit_now(2);
        }
    }
}
