//! The part of scheduling that several NUMA nodes need, below everything else: decisions as functions of
//! numbers, load summaries, and who steals from whom. Nothing here knows a P.

pub(crate) mod policy;
pub(crate) mod summary;
pub(crate) mod remote_peers;
