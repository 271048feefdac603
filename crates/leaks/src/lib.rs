//! An internal part of the runtime windlass, without a promise about its API: waits that nothing can end, as plain
//! values.
//!
//! A wait may be ended by the end of another one's goroutine, or by a handle: a sender, a guard, a permit. A handle has
//! a word ([`words`]) that says to what it belongs. All private memory of the process is searched for the words of
//! handles that may end a wait ([`holders`]). A word in the memory of a goroutine is a handle that it holds; one
//! anywhere else may be used by anybody. The waits that nothing can end are the greatest set in which each can be ended
//! by members only ([`waits`]).
//!
//! Joins are found by words, too: that of a goroutine has an address on the stack of its joiner ([`joins`]).

pub mod joins;
pub mod words;
mod memory;
pub mod holders;
pub mod waits;
