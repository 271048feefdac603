//! Dumps on SIGQUIT, for runtimes that asked for it.
//!
//! The handler only counts and wakes a thread of the process's own, which takes the
//! dumps: a handler may interrupt anything, an allocation or a holder of a lock.

use std::io::{self, Write};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::dump::Dump;
use crate::sched::state::Sched;
use crate::sys::sched as threads;
use crate::sys::signal::{self, AfterQuit};

/// Whom to dump, in the order in which they were built.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    is_watched: false,
    runtimes: Vec::new(),
});

struct Registry {
    /// The thread has been started.
    is_watched: bool,
    runtimes: Vec<Weak<Sched>>,
}

/// Dumps `sched`, too, from now on until it goes.
///
/// # Errors
///
/// The kernel's, if it gives no thread.
pub(crate) fn register(sched: &Arc<Sched>) -> io::Result<()> {
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    if !registry.is_watched {
        std::thread::Builder::new()
            .name("windlass-sigquit".to_owned())
            .spawn(watch)?;
        registry.is_watched = true;
        signal::install_quit_handler();
    }
    registry.runtimes.retain(|known| known.strong_count() > 0);
    registry.runtimes.push(Arc::downgrade(sched));
    Ok(())
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
        let runtimes = REGISTRY
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .runtimes
            .clone();
        for sched in runtimes.iter().filter_map(Weak::upgrade) {
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
