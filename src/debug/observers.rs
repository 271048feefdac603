//! The observers of a runtime that its settings ask for.

use std::io;

use super::{deadlock, live, panics, schedtrace, shutdown, sigquit, stall};
use crate::config::Config;
use crate::loom::native::Arc;
use crate::sched::types::debug_hooks::{Check, DebugHooks, OnStall, Print};
use crate::sched::types::state::Sched;

/// Installs them in a new runtime.
///
/// # Errors
///
/// The kernel's, if there can be no thread for `SIGQUIT`.
pub(crate) fn install(sched: &Arc<Sched>) -> io::Result<()> {
    let config = &sched.config;
    if !config.is_simulated() {
        deadlock::register(sched);
    }
    let first = sched.debug_hooks.set(hooks(config));
    debug_assert!(first.is_ok(), "a scheduler is watched from its beginning");
    #[cfg(feature = "backtrace")]
    if config.stall_reports.is_some() {
        crate::sched::monitor::stall::allow_samples();
    }
    if config.flight_recorder {
        sched.start_tracing();
    }
    if config.cpu_accounting {
        sched.start_accounting();
    }
    if config.name_panics {
        panics::install();
    }
    if config.dump_on_sigquit {
        sigquit::register(sched)?;
    }
    if config.live_metrics {
        live::register(sched);
    }
    Ok(())
}

/// Those that sysmon calls.
fn hooks(config: &Config) -> DebugHooks {
    let print: Print = if config.scheddetail {
        schedtrace::print_detail
    } else {
        schedtrace::print
    };
    let every = config.schedtrace.filter(|every| !every.is_zero());
    let check: Option<Check> = config.deadlock_detection.then_some(deadlock::check);
    let stalls = config.stall_reports.filter(|after| !after.is_zero());
    let stalls = stalls.map(|after| {
        let reporter: Box<dyn OnStall> = Box::<stall::Reporter>::default();
        (after, reporter)
    });
    let shutdown = config.shutdown_timeout;
    let shutdown = shutdown.map(|most| (most, shutdown::give_up as Check));
    DebugHooks::new(every.map(|every| (every, print)), check, stalls, shutdown)
}
