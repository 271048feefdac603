//! The scheduler: goroutines (G) onto threads (M) that hold processors (P).
//!
//! # The story
//!
//! A P is the right to run goroutines on one core, with all that running them
//! needs: a run queue, timers, a ring, caches. An M is a thread. An M that holds a
//! P looks for a G ([`find`]), runs it ([`run`]), and obeys the reason with which
//! it switched out. A G that waits costs no thread; a G that blocks its thread
//! costs its P only until [`handoff`] gives the P to another M.
//!
//! Ps are grouped by NUMA node. A node has a queue for what overflows and what
//! comes from outside, a set of idle Ps, and a count of spinning Ms. Nothing that
//! happens per goroutine takes a lock or writes a line that all nodes share. When work
//! leaves its node is decided in [`policy`], by what one line of each node says
//! ([`summary`]).
//!
//! # Rooms
//!
//! A room imports from those on its left: [`numa`], [`queue`], [`types`], [`wait`], [`proc`],
//! [`monitor`]. So data lies on the left and what happens to it on the right, as in Go's
//! `runtime2.go` and `proc.go`. Inside a room files import in the order of its `mod.rs`, except in
//! `types`, where P, M and scheduler name one another. `tests/tidy.rs` checks it.
//!
//! # Designs turned down
//!
//! - A ring per M, or one poller for all: a P that moves would leave its
//!   operations behind, and one poller is a lock and a wake for everyone.
//! - Idle Ps without an M (Go): our Ms are pinned, so an idle P keeps its M, and
//!   waking a P is one store and at most one system call.
//! - Taking a goroutine's stack away in a signal handler: unsound in Rust, where
//!   foreign code may hold a lock or be inside the allocator. The P is taken instead.
//!
//! # The races, and where they are settled
//!
//! | race                                       | settled in |
//! |--------------------------------------------|------------|
//! | a wake comes before the park is finished   | `park`     |
//! | several wakers, one wait                   | `g::status`|
//! | work is pushed while the last M falls asleep | `idle`   |
//! | an owner pops what a thief takes           | `runq`     |
//! | sysmon takes a P whose G calls the runtime | `handoff`  |
//! | sysmon takes a P that its M gives away     | `access`   |
//! | the world stops while Ms sleep or compute  | `world`    |
//! | a P leaves while it is stopped or called back | `p_status` |
//! | a G wakes whose locked M gives its P away  | `handed_work` |
//! | a deadline cancels what just completed     | `netpoll::op` |
//! | a context is cancelled while a wait begins | `g::cancel_wait`   |
//! | `unpark` finds a wait whose commit reads frames | `park` |

pub(crate) mod numa;
pub(crate) mod queue;
pub(crate) mod types;
pub(crate) mod wait;
pub(crate) mod proc;
pub(crate) mod monitor;
