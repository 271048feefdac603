//! Where goroutines and Ps wait to be taken: local and node queues, the set of idle Ps, and the
//! words over which an M and another thread agree on a P. Nothing here knows a P.

pub(crate) mod runq;
pub(crate) mod global;
pub(crate) mod idle;
pub(crate) mod p_status;
pub(crate) mod handed_work;
pub(crate) mod access;
