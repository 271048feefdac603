//! Running operations for goroutines and threads.

pub(crate) mod op;
pub(crate) mod fd;
