//! Time and work: of the twin where there is one, else of this machine.

#[cfg(not(explore))]
use std::time::Duration;

#[cfg(explore)]
pub(crate) use windlass::explore::charge;
#[cfg(explore)]
pub(crate) use windlass::explore::twin::{current_cpu, forget_costs, now_ns};

/// Computes for so long.
#[cfg(not(explore))]
pub(crate) fn charge(duration: Duration) {
    let until_ns = now_ns() + duration.as_nanos() as u64;
    while now_ns() < until_ns {
        std::hint::spin_loop();
    }
}

/// Nanoseconds since the first call.
#[cfg(not(explore))]
pub(crate) fn now_ns() -> u64 {
    static BASE: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let base = BASE.get_or_init(std::time::Instant::now);
    base.elapsed().as_nanos() as u64
}

/// Only the twin has costs.
#[cfg(not(explore))]
pub(crate) fn forget_costs() {}
