//! Properties that only some goroutines have: a name and a label.
//!
//! The G points at it, so that a goroutine with neither pays for a null pointer.

use windlass_ground::counter::Counter;
use windlass_ground::padded::Padded;

use crate::loom::native::atomic::{AtomicU64, Ordering};
use crate::loom::native::{Arc, OnceLock};

/// The name and the label of a goroutine. Other threads read them while they hold a reference to the goroutine.
#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) name: Option<Box<str>>,
    /// Set before the goroutine is queued: when it is made, or inherited a moment later.
    pub(crate) label: OnceLock<Arc<Label>>,
}

impl Details {
    pub(crate) fn new(name: Option<Box<str>>, label: Option<Arc<Label>>) -> Details {
        let set = OnceLock::new();
        if let Some(label) = label {
            // Nobody else has it yet.
            let _ = set.set(label);
        }
        Details { name, label: set }
    }
}

/// A label of a runtime: a kind of work, and the CPU time that its goroutines have used.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) name: Box<str>,
    /// Its position among the labels of its runtime.
    #[cfg_attr(
        not(feature = "backtrace"),
        expect(dead_code, reason = "only profiles need it")
    )]
    pub(crate) idx: usize,
    /// Goroutines that got it. Ordering: relaxed, statistics.
    pub(crate) spawned: AtomicU64,
    /// CPU time in nanoseconds on each P, written by the P's holder.
    on_ps: Box<[Padded<Counter>]>,
    /// CPU time on threads without a P. Ordering: relaxed, statistics.
    without_p_ns: AtomicU64,
}

impl Label {
    pub(crate) fn new(name: &str, idx: usize, n_ps: usize) -> Label {
        Label {
            name: name.into(),
            idx,
            spawned: AtomicU64::new(0),
            on_ps: (0..n_ps).map(|_| Padded(Counter::default())).collect(),
            without_p_ns: AtomicU64::new(0),
        }
    }

    /// Adds time on the P with index `p`, which the caller holds; `None` for a thread without one.
    pub(crate) fn charge(&self, p: Option<usize>, ns: u64) {
        match p {
            Some(idx) => self.on_ps[idx].add(ns),
            None => _ = self.without_p_ns.fetch_add(ns, Ordering::Relaxed),
        }
    }

    /// The CPU time of all its goroutines.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let on_ps: u64 = self.on_ps.iter().map(|c| c.get()).sum();
        on_ps + self.without_p_ns.load(Ordering::Relaxed)
    }
}
