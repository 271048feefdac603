//! Goroutines: their memory, stacks and states.
//!
//! ```text
//!   spawn          first run             park            end
//!     |                |                   |               |
//!  [ G slot ]    [ G slot | stack ]   [ G slot | stack ]  [ G slot ] -> free
//!   header,        the closure moves    its frames hold    the result waits
//!   closure        to the stack         its wait state     for `join`
//!
//!  New -> Runnable -> Running -> Waiting -> Runnable -> ... -> Dead
//!                        |  ^
//!                        v  |
//!                      Blocked (in a blocking section, or its P was taken)
//! ```
//!
//! A G is a slot of type-stable memory (`slab`): a header, and the closure it will run or the
//! result it left. A stack is bound at the first run and returned at the end; a goroutine that polls
//! a future has one for each poll (`header::Steps`). `status` defines
//! which thread may access what; `coro` is the only module that switches stacks.

pub(crate) mod coro;
pub(crate) mod status;
pub(crate) mod goroutine_locals;
pub(crate) mod details;
pub(crate) mod header;
pub(crate) mod snapshot;
pub(crate) mod list;
pub(crate) mod slab;
pub(crate) mod cancel_wait;
pub(crate) mod fork;
