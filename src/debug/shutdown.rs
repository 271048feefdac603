//! Ends the process when the end of a run takes too long.
//!
//! A goroutine that computes without a call into windlass, blocks its thread, or catches the
//! unwinding again and again cannot be cancelled. Its thread cannot be killed, because it may hold
//! any lock, and its stack cannot be freed while it runs. It may run on the thread that called
//! `run`, so `run` cannot return either. Therefore the process ends, with a message.

use super::dump::Dump;
use crate::sched::types::state::Sched;
use crate::sys::signal;

/// Ends the process with a dump of the goroutines that have not ended. Called by sysmon.
pub(crate) fn give_up(sched: &Sched) {
    let dump = Dump::take(sched);
    if dump.goroutines.is_empty() {
        // The last one ended just now.
        return;
    }
    let text = format!(
        "shutdown: goroutines of {:?} still live {:?} after the main goroutine has ended\n\n{dump}",
        sched.config.name,
        sched.config.shutdown_timeout.unwrap_or_default(),
    );
    // Not through std: a goroutine may hold the lock of std's stderr.
    signal::write_stderr(text.as_bytes());
    signal::exit_now(2);
}
