//! The labels of a runtime, to which the CPU time of goroutines is charged.

use crate::g::details::Label;
use crate::loom::native::atomic::AtomicU64;
use crate::loom::native::{Arc, PoisonError, RwLock};

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

impl Accounts {
    /// The label of this name, made for `n_ps` Ps if there is none. `None` if there are [`MAX_LABELS`] others. Calls
    /// `note_new` after it has made one.
    pub(super) fn label(
        &self,
        name: &str,
        n_ps: usize,
        note_new: impl FnOnce(),
    ) -> Option<Arc<Label>> {
        let find = |all: &[Arc<Label>]| all.iter().find(|label| *label.name == *name).cloned();
        let found = find(&self.labels.read().unwrap_or_else(PoisonError::into_inner));
        if found.is_some() {
            return found;
        }
        let mut all = self.labels.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = find(&all) {
            return Some(label);
        }
        if all.len() >= MAX_LABELS {
            return None;
        }
        let label = Arc::new(Label::new(name, all.len(), n_ps));
        all.push(Arc::clone(&label));
        note_new();
        Some(label)
    }

    /// All labels, in the order in which they were first used.
    pub(super) fn labels(&self) -> Vec<Arc<Label>> {
        let labels = self.labels.read();
        labels.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
