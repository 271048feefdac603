//! Waits for the signals that ask a program to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::flag;
use windlass::signal::{SIGINT, SIGTERM, Signals};

/// The registration for SIGINT (ctrl-c) and SIGTERM. A second signal ends the program at once, with
/// status 1, if it has not stopped by then.
pub(crate) struct StopSignals(Signals);

impl StopSignals {
    pub(crate) fn register() -> io::Result<StopSignals> {
        let asked_before = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Handlers run in this order: the first signal sets the flag with which a second one
            // exits.
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&asked_before))?;
            flag::register(signal, Arc::clone(&asked_before))?;
        }
        Ok(StopSignals(Signals::new([SIGINT, SIGTERM])?))
    }

    /// Parks the goroutine until one of the signals arrives.
    pub(crate) fn wait(&self) -> io::Result<()> {
        self.0.recv().map(drop)
    }
}
