//! Running operations for goroutines and threads.

pub(crate) mod fd;
pub(crate) mod op;
