//! What a goroutine is.
//!
//! ```text
//!   spawn          first run             park            end
//!     |                |                   |               |
//!  [ G slot ]    [ G slot | stack ]   [ G slot | stack ]  [ G slot ] -> free
//!   header,        the closure moves    its frames hold    the result waits
//!   closure        onto the stack       what it waits for  for `join`
//!
//!  New -> Runnable -> Running -> Waiting -> Runnable -> ... -> Dead
//!                        |  ^
//!                        v  |
//!                      Blocked (in a blocking section, or its P was taken)
//! ```
//!
//! A G is a slot of type-stable memory (`slab`): a header, and the closure it
//! will run or the result it left. A stack is bound when it first runs and goes
//! back when it ends. `status` says who may touch what; `coro` is the one place
//! that switches stacks.

pub(crate) mod status;
pub(crate) mod stack;
pub(crate) mod coro;
pub(crate) mod slab;
pub(crate) mod goroutine_locals;
pub(crate) mod header;
pub(crate) mod snapshot;
pub(crate) mod list;
pub(crate) mod cancel_wait;
