//! The scheduler: goroutines (G) onto threads (M) that hold processors (P).
//!
//! # Overview
//!
//! A P is the right to run goroutines on one core, together with the resources that this needs: a
//! run queue, timers, a ring, caches. An M is a thread. An M that holds a P finds a G (`proc::find`),
//! runs it (`proc::run`), and obeys the reason with which the G switched out. A G that waits occupies
//! no thread. A G that blocks its thread occupies its P only until sysmon gives the P to another M
//! (`monitor::retake`).
//!
//! Ps are grouped by NUMA node. A node has a queue for overflow and for goroutines readied from
//! outside, a set of idle Ps, and a count of spinning Ms. No per-goroutine operation takes a lock
//! or writes a cache line that all nodes share. `numa::policy` decides when work leaves its node, from
//! one cache line of each node (`numa::summary`).
//!
//! # Rooms
//!
//! A room imports from the rooms on its left: [`numa`], [`queue`], [`pacing`], [`types`], [`wait`],
//! [`proc`], [`monitor`]. Data lies on the left and what is done with it on the right, as in Go's
//! `runtime2.go` and `proc.go`. The files of a room import in the order of its `mod.rs`. In `types`
//! some have none: P, M and scheduler name one another. The methods of a type lie in its own room; the
//! others have functions. `tests/tidy.rs` checks this.
//!
//! # Rejected designs
//!
//! - A ring per M, or one poller for all Ps: a P that moves to another M would leave its operations
//!   behind, and a single poller means one lock and one wake-up path for every P.
//! - Idle Ps without an M (Go): our Ms are pinned, so an idle P keeps its M, and waking a P is one
//!   store and at most one system call.
//! - Switching a goroutine out from a signal handler: unsound in Rust, where foreign code may hold
//!   a lock or be inside the allocator. The P is retaken instead.
//!
//! # Races, and the modules that settle them
//!
//! | race                                                      | settled in       |
//! |-----------------------------------------------------------|------------------|
//! | a wake comes before the park is committed                 | `park`           |
//! | several wakers, one wait                                  | `g::status`      |
//! | work is pushed while the last M falls asleep              | `idle`           |
//! | an owner pops the goroutine that a thief takes            | `runq`           |
//! | sysmon retakes a P whose G enters the scheduler           | `handoff`        |
//! | sysmon retakes a P that its M gives away                  | `access`         |
//! | the world stops while Ms sleep or compute                 | `world`          |
//! | a P leaves while it is stopped or called back             | `p_status`       |
//! | a G is woken while its locked M gives the P away          | `handed_work`    |
//! | a deadline cancels an operation that has just completed   | `netpoll::op`    |
//! | a context is cancelled while a wait begins                | `g::cancel_wait` |
//! | `unpark` finds a wait whose commit reads the G's stack    | `park`           |

pub(crate) mod numa;
pub(crate) mod queue;
pub(crate) mod pacing;
pub(crate) mod types;
pub(crate) mod wait;
pub(crate) mod proc;
pub(crate) mod monitor;
