//! How a P divides its time: one policy a file, with the numbers that steer it and the cells that it alone changes.
//! Nothing here knows a P: times and counts come in as arguments, so each policy is tested as it is.
//!
//! The holder of the P calls the methods, unless they say that any thread may.

pub(crate) mod pace;
pub(crate) mod slice;
pub(crate) mod node_queue_turns;
pub(crate) mod timer_pace;
pub(crate) mod kernel_visits;
