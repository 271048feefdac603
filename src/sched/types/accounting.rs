//! CPU time of goroutines and labels, where the program asks for it (`Builder::cpu_accounting`).
//!
//! The M reads the clock when it switches to a goroutine and when that switches out, and adds the
//! difference to the goroutine, to its label and to the P. A blocking section is left out. A P that
//! is timed ([`TIMED`]) shares one test with tracing and nodes before a switch, and one with forks after it
//! (`M::has_loose_ends`), so that the M's loop does not grow.

use super::m::M;
use super::p::{LABELLED, P, TIMED, TRACED};
use super::state::Sched;
use super::trace::EventKind;
use crate::g::details::Label;
use crate::g::header::GRef;
use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::loom::native::{Arc, PoisonError, RwLock};
use crate::sys::clock;

/// The largest number of labels of a runtime: they are kept, and each has a counter for every P.
pub(crate) const MAX_LABELS: usize = 1024;

/// The labels of a runtime, and the CPU time that belongs to no P.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    labels: RwLock<Vec<Arc<Label>>>,
    /// CPU time of goroutines that computed on after their P was retaken. Ordering: relaxed,
    /// statistics.
    pub(crate) without_p_ns: AtomicU64,
}

impl Sched {
    /// The label of this name, made if there is none. `None` if there are [`MAX_LABELS`] others.
    pub(crate) fn label(&self, name: &str) -> Option<Arc<Label>> {
        let labels = &self.accounts.labels;
        let find = |all: &[Arc<Label>]| all.iter().find(|label| *label.name == *name).cloned();
        let found = find(&labels.read().unwrap_or_else(PoisonError::into_inner));
        if found.is_some() {
            return found;
        }
        let mut all = labels.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = find(&all) {
            return Some(label);
        }
        if all.len() >= MAX_LABELS {
            return None;
        }
        let label = Arc::new(Label::new(name, all.len(), self.ps.len()));
        all.push(Arc::clone(&label));
        // From here on spawns look for a label to inherit.
        for p in &self.ps {
            p.local.watched.fetch_or(LABELLED, Ordering::Relaxed);
        }
        Some(label)
    }

    /// All labels, in the order in which they were first used.
    pub(crate) fn labels(&self) -> Vec<Arc<Label>> {
        let labels = self.accounts.labels.read();
        labels.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Turns the measurement of CPU times on. Called by the builder.
    pub(crate) fn start_accounting(&self) {
        for p in &self.ps {
            p.local.watched.fetch_or(TIMED, Ordering::Relaxed);
        }
    }
}

impl P {
    /// Whether CPU times are measured.
    #[inline(always)]
    pub(crate) fn is_timed(&self) -> bool {
        self.local.watched.load(Ordering::Relaxed) & TIMED != 0
    }

    /// Whether some goroutine of the runtime has a label.
    pub(crate) fn is_labelled(&self) -> bool {
        self.local.watched.load(Ordering::Relaxed) & LABELLED != 0
    }

    /// Whether the borders of a blocking section concern anybody.
    #[inline(always)]
    pub(crate) fn observes_sections(&self) -> bool {
        self.local.watched.load(Ordering::Relaxed) & (TRACED | TIMED) != 0
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
