//! The times and counts that steer a P and sysmon: five rungs. Every other such number of the scheduler is one of
//! them, or a small part or multiple of one, by name.
//!
//! Each rung follows from what a step costs on a server of today: a dispatch some 0.1 us, a wake-up of a
//! thread 5 to 50 us, a time slice of the kernel 1 to 10 ms. docs/decisions/numbers.md has the measurements that chose
//! them. None can be set: a program that needs another value has found a fault.
//!
//! | rung | what it bounds |
//! |---|---|
//! | [`TICK_NS`], 10 us | a P's periodic duties; a chain of hand-overs beside operations in flight |
//! | [`GRACE_NS`], 20 us | a queued entry until it is submitted; an M that spins before it sleeps; a request to yield; between two clock readings of `checkpoint`; sysmon's shortest nap |
//! | [`SLICE_NS`], 200 us | a chain of hand-overs, a measurement in the average of dispatches, dispatches between two turns of the node queue, a goroutine that computes while others are due, timers of a few tickers that wait for one another |
//! | [`LATE_NS`], 1 ms | what may be late without harm: deferred events, an idle node beside an overloaded one, timers of many sleepers, looks of sysmon at a P that makes progress, of threads that nothing wakes, retries without an event |
//! | [`HOG_NS`], 10 ms | a goroutine on its P before that is retaken; sysmon's longest nap; the longest pause of attempts in vain |
//! | [`BATCH`], 32 | ring entries until they are submitted, dispatches, or transfers that did not wait, between two visits to the ring, events dispatched at once, timers that overtake |
//!
//! `queue::runq::HALF`, half a local queue, is the same for lengths: a batch from the node queue, a look into it, and a queue
//! that is long enough for completions to wait.

/// 10 us.
pub(crate) const TICK_NS: u64 = 10_000;
/// 20 us.
pub(crate) const GRACE_NS: u64 = 2 * TICK_NS;
/// 200 us.
pub(crate) const SLICE_NS: u64 = 20 * TICK_NS;
/// 1 ms.
pub(crate) const LATE_NS: u64 = 100 * TICK_NS;
/// 10 ms.
pub(crate) const HOG_NS: u64 = 1_000 * TICK_NS;

/// 32 of a kind are handled together.
pub(crate) const BATCH: u32 = 32;
