//! Time, work and costs: of the twin where there is one, else of this machine, which has no costs.

#[cfg(explore)]
pub(crate) use of_twin::{begin_costs, end_costs, take_costs};
#[cfg(explore)]
pub(crate) use windlass::explore::charge;
#[cfg(explore)]
pub(crate) use windlass::explore::twin::{current_cpu, now_ns};

#[cfg(not(explore))]
pub(crate) use of_this_machine::{begin_costs, charge, end_costs, now_ns};

/// How much longer than in the twin a workload is measured on a machine that others disturb.
pub(crate) const LONGER: u64 = if cfg!(explore) { 1 } else { 20 };

#[cfg(explore)]
mod of_twin {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use windlass::explore::twin::{Report, current_cpu, forget_costs, now_ns, report};

    /// The costs of a run between its first `begin_costs` and its first `end_costs`.
    #[derive(Debug, Default)]
    pub(crate) struct Costs {
        /// The CPUs that have begun before its end.
        pub(crate) cpus: BTreeSet<usize>,
        begun_ns: u64,
        ended: Option<(u64, Report)>,
    }

    impl Costs {
        pub(crate) fn report(&self) -> Report {
            self.ended.clone().unwrap_or_default().1
        }

        /// From its beginning to its end.
        pub(crate) fn span_ns(&self) -> u64 {
            self.ended
                .as_ref()
                .map_or(0, |(at_ns, _)| at_ns - self.begun_ns)
        }
    }

    static COSTS: Mutex<Costs> = Mutex::new(Costs {
        cpus: BTreeSet::new(),
        begun_ns: 0,
        ended: None,
    });

    fn costs() -> MutexGuard<'static, Costs> {
        COSTS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin_costs() {
        let mut costs = costs();
        if costs.cpus.is_empty() {
            forget_costs();
            costs.begun_ns = now_ns();
        }
        if costs.ended.is_none() {
            costs.cpus.insert(current_cpu());
        }
    }

    pub(crate) fn end_costs() {
        costs().ended.get_or_insert_with(|| (now_ns(), report()));
    }

    /// The costs of the run that has ended; the next one begins anew.
    pub(crate) fn take_costs() -> Costs {
        std::mem::take(&mut *costs())
    }
}

#[cfg(not(explore))]
mod of_this_machine {
    use std::time::{Duration, Instant};

    /// Computes for so long.
    pub(crate) fn charge(duration: Duration) {
        let until_ns = now_ns() + duration.as_nanos() as u64;
        while now_ns() < until_ns {
            std::hint::spin_loop();
        }
    }

    /// Nanoseconds since the first call.
    pub(crate) fn now_ns() -> u64 {
        static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        BASE.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    pub(crate) fn begin_costs() {}

    pub(crate) fn end_costs() {}
}
