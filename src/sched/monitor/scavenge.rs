//! Returns the pages of long-free stacks to the kernel.
//!
//! Time is divided into ages. Stacks that were free in a node's pool for a whole age (`g::stack`)
//! lose their pages in the next one, so 5 to 10 s after their last use; the last of a hundred thousand
//! stacks some 15 s later, because of the bound below. Sysmon does this, for a
//! bounded time in each round; goroutines that take and return stacks have no extra work. Stacks in
//! the caches of Ps (64 of each size) come to the pool once a P has slept for an age: its M returns them, for
//! which sysmon wakes it.
//!
//! Where the kernel reports that tasks wait for memory ([`Pressure`]), an age of the pools lasts a second.
//!
//! The bound is a time and no number of stacks, because the cost of a stack differs by a factor of
//! ten: adjacent stacks share a system call, and each call interrupts all CPUs of the process, which
//! forget their address translations.

use crate::sched::types::caches::AGE_NS;
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;
use crate::sched::wait::wake;
use crate::sys::clock::{self, NEVER};
use crate::sys::pressure::Pressure;
use crate::util::ladder;

/// How long a round works before it leaves the rest to the next one.
pub(super) const ROUND_NS: u64 = ladder::LATE_NS / 2;
/// The number of stacks handled between two readings of the clock.
pub(super) const AT_ONCE: usize = 64;
/// Pause between rounds, while there are stacks left.
pub(super) const PAUSE_NS: u64 = 2 * ladder::HOG_NS;
/// How often memory is asked for while there are pages to return, and so the length of an age where it is short.
const PRESSURE_EVERY_NS: u64 = AGE_NS / 5;

/// Sysmon's state for this.
#[derive(Debug, Default)]
pub(crate) struct Scavenger {
    /// Opened when there are pages to return.
    pressure: Option<Pressure>,
    age_end_ns: u64,
    /// When the next round is due: at the end of the age, or before.
    next_ns: u64,
}

impl Scavenger {
    /// Runs a round if one is due.
    #[inline]
    pub(crate) fn serve(&mut self, sched: &Sched, now_ns: u64) {
        if now_ns >= self.next_ns {
            self.round(sched, now_ns);
        }
    }

    #[cold]
    fn round(&mut self, sched: &Sched, now_ns: u64) {
        let has_pages = sched
            .nodes
            .iter()
            .any(|node| node.stacks.has_pages_to_return());
        if now_ns >= self.age_end_ns || has_pages && self.is_memory_short(now_ns) {
            sched.nodes.iter().for_each(|node| node.stacks.end_age());
            wake_sleepers(sched, now_ns);
            self.age_end_ns = now_ns + AGE_NS;
        }
        let until_ns = now_ns + ROUND_NS;
        let mut nodes = sched.nodes.iter();
        let is_cut = nodes.any(|node| {
            loop {
                if node.stacks.return_old(AT_ONCE) == 0 {
                    break false;
                }
                if clock::now_ns() >= until_ns {
                    break true;
                }
            }
        });
        self.next_ns = match is_cut {
            true => now_ns + PAUSE_NS,
            false if has_pages => self.age_end_ns.min(now_ns + PRESSURE_EVERY_NS),
            false => self.age_end_ns,
        };
    }

    fn is_memory_short(&mut self, now_ns: u64) -> bool {
        let open = || {
            let path = windlass_topology::memory_pressure_file();
            Pressure::open(path.as_deref(), PRESSURE_EVERY_NS)
        };
        self.pressure.get_or_insert_with(open).is_high(now_ns)
    }

    /// How long sysmon may sleep while every P is idle: [`NEVER`] once all pages are returned.
    pub(crate) fn longest_sleep_ns(&self, sched: &Sched, now_ns: u64) -> u64 {
        let mut nodes = sched.nodes.iter();
        if nodes.any(|node| node.stacks.has_pages_to_return()) || sched.ps_in_use().any(has_stacks)
        {
            self.next_ns.saturating_sub(now_ns)
        } else {
            NEVER
        }
    }
}

/// Wakes the Ms of Ps that have slept for an age with stacks in their caches: an M then returns these.
fn wake_sleepers(sched: &Sched, now_ns: u64) {
    let is_old = |p: &&P| match p.stats.asleep_since_ns.get() {
        0 => false,
        since_ns => now_ns.saturating_sub(since_ns) >= AGE_NS,
    };
    let old = sched.ps_in_use().filter(is_old);
    old.filter(|p| has_stacks(p))
        .for_each(|p| wake::wake_sleeper(sched, p));
}

fn has_stacks(p: &P) -> bool {
    p.local.caches.n_stacks() > 0
}
