//! The end of a run that takes too long.
//!
//! A goroutine that computes without a call into windlass, blocks its thread, or catches the
//! unwinding again and again cannot be made to end. Its thread cannot be killed, as it may
//! hold any lock, and its stack cannot be given up while it runs. The thread that called
//! `run` may be the one, so `run` cannot return either. What is left is to end the
//! process, and to say why.

use super::dump::Dump;
use crate::sched::state::Sched;
use crate::sys::signal;

/// Ends the process with a dump of what has not ended. Called by sysmon.
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
    // Not by way of std: a goroutine may hold its lock.
    signal::write_stderr(text.as_bytes());
    signal::exit_now(2);
}
