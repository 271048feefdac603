//! CPU time of goroutines and labels, where the program asks for it (`Builder::cpu_accounting`).
//!
//! The M reads the clock when it switches to a goroutine and when that switches out, and adds the
//! difference to the goroutine, to its label and to the P. A blocking section is left out. A P that
//! is timed ([`TIMED`]) shares one test with tracing and nodes before a switch, and one with forks after it
//! (`M::has_switch_work`), so that the M's loop does not grow.

use super::events::EventKind;
use super::extra_work::{LABELLED, TIMED};
use super::m::M;
use super::p::P;
use super::state::Sched;
use crate::g::details::Label;
use crate::g::header::GRef;
use crate::loom::native::Arc;
use crate::loom::native::atomic::Ordering;
use crate::sys::clock;

impl Sched {
    /// The label of this name, made if there is none. `None` if there are too many others.
    pub(crate) fn label(&self, name: &str) -> Option<Arc<Label>> {
        // With the first label spawns begin to look for one to inherit.
        let begin = || self.set_extra_work(LABELLED, true);
        self.accounts.label(name, self.ps.len(), begin)
    }

    /// All labels, in the order in which they were first used.
    pub(crate) fn labels(&self) -> Vec<Arc<Label>> {
        self.accounts.labels()
    }

    /// Turns the measurement of CPU times on. Called by the builder.
    pub(crate) fn start_accounting(&self) {
        self.set_extra_work(TIMED, true);
    }
}

/// `g` is about to run on `m`. Called by that M, which is timed.
pub(crate) fn begin(m: &M, g: GRef) {
    if g.is_fresh() {
        g.set_cpu_ns(0);
    }
    m.run_since_ns.store(clock::now_ns(), Ordering::Relaxed);
}

/// `g` has switched out of `m`, or begins a blocking section there; `p` is the P of `m`, unless that
/// was retaken.
pub(crate) fn end(m: &M, g: GRef, p: Option<&P>) {
    let since_ns = m.run_since_ns.load(Ordering::Relaxed);
    // In a blocking section nothing is measured.
    if since_ns == 0 {
        return;
    }
    m.run_since_ns.store(0, Ordering::Relaxed);
    let ns = clock::now_ns().saturating_sub(since_ns);
    g.set_cpu_ns(g.cpu_ns() + ns);
    match p {
        Some(p) => {
            p.stats.cpu_ns.add(ns);
            p.stats.run_slices.record(ns);
        }
        None => {
            let without_p = &m.sched().accounts.without_p_ns;
            without_p.fetch_add(ns, Ordering::Relaxed);
        }
    }
    if let Some(label) = g.label() {
        label.charge(p.map(|p| p.idx), ns);
    }
}

/// The goroutine on `m` begins a blocking section, on an observed P.
#[cold]
#[inline(never)]
pub(crate) fn begin_section(m: &M) {
    let p = m.p();
    p.trace_if(EventKind::Block);
    if p.is_timed()
        && let Some(g) = m.curg.get()
    {
        end(m, g, Some(p));
    }
}

/// The goroutine on `m` has ended its blocking section, and `m` still has its P, which is observed.
#[cold]
#[inline(never)]
pub(crate) fn end_section(m: &M) {
    m.p().trace_if(EventKind::Unblock);
    resume(m);
}

/// The goroutine on `m` is out of its blocking section.
pub(crate) fn resume(m: &M) {
    if m.sched().config.cpu_accounting {
        m.run_since_ns.store(clock::now_ns(), Ordering::Relaxed);
    }
}
