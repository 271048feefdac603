//! Small tools that do not depend on the runtime.

pub(crate) mod bitset;
pub(crate) mod chaos;
pub(crate) mod ladder;
pub(crate) mod event_log;
pub(crate) mod choice;
#[cfg(all(test, not(loom)))]
pub(crate) mod test_child;
