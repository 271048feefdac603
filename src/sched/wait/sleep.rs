//! Sleeps of goroutines and threads, and how often a thread that waits looks up.

use std::time::Duration;

use super::park::{self, Caller};
use super::points::{Cancelled, cancel_point, is_cancelled};
use super::turn;
use crate::g::cancel_wait::ScopeChain;
use crate::g::status::Reason;
use crate::sched::types::current;
use crate::sched::types::m::M;
use crate::sys::clock::{self, NEVER};
use crate::util::ladder;

/// Sleeps until `deadline_ns`, or until the current context is done.
///
/// # Errors
///
/// [`Cancelled`], only while unwinding.
pub(crate) fn sleep_until(deadline_ns: u64) -> Result<(), Cancelled> {
    cancel_point()?;
    match park::caller() {
        Caller::Goroutine(g) => {
            let chain = park::chain_of(g);
            if !ends_early(chain, deadline_ns) {
                let until_ns = deadline_ns.min(chain.deadline_ns());
                let begin = |_, _, _: &M, is_done: bool| !is_done;
                park::park_until::<false>(
                    park::enter(),
                    Reason::Sleep,
                    move || until_ns,
                    chain,
                    begin,
                    || false,
                );
                // If the context's deadline has passed, this records it in the context.
                ends_early(chain, deadline_ns);
            }
        }
        Caller::Thread => sleep_thread(deadline_ns),
    }
    cancel_point()
}

/// Whether a sleep until `deadline_ns` is, or was, cut short by a context.
fn ends_early(chain: ScopeChain, deadline_ns: u64) -> bool {
    chain.is_some() && clock::now_ns() < deadline_ns && chain.over().is_some()
}

/// The pause between two looks of a waiting thread for contexts that were cancelled and for the end of
/// a goroutine's run, neither of which wakes it. `NEVER` if there is nothing to look for.
pub(crate) fn look_up_ns(chain: ScopeChain) -> u64 {
    match current::g() {
        _ if chain.has_canceller() => ladder::LATE_NS,
        Some(_) => 50 * ladder::LATE_NS,
        None => NEVER,
    }
}

/// Whether a context or the end of a goroutine's run may end a wait of the calling thread.
pub(crate) fn may_be_cancelled() -> bool {
    park::current_chain().is_some() || current::g().is_some()
}

/// Blocks the thread. If there is only one context, its cancel wakes the thread; with several, the
/// thread polls, and notices a moment later. So does the thread of a goroutine for the end of its
/// run.
fn sleep_thread(deadline_ns: u64) {
    let chain = park::current_chain();
    let until_ns = deadline_ns.min(chain.deadline_ns());
    if turn::block_thread(until_ns) {
        return;
    }
    let look_up_ns = look_up_ns(chain);
    if look_up_ns == NEVER && !chain.is_some() {
        #[expect(
            clippy::disallowed_methods,
            reason = "here a thread waits, not a goroutine"
        )]
        return crate::loom::thread::sleep(Duration::from_nanos(
            until_ns.saturating_sub(clock::now_ns()),
        ));
    }
    while clock::now_ns() < deadline_ns && chain.over().is_none() && !is_cancelled() {
        let left_ns = clock::left_ns(until_ns);
        match chain.only() {
            Some(frame) if frame.who.is_none() => frame.word.sleep(left_ns),
            _ => clock::nap(left_ns.min(look_up_ns)),
        }
    }
}
