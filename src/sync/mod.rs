//! Locks and the other things to wait for, with `std::sync`'s names.

pub(crate) mod waitq;
