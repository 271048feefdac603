//! A one-time event with at most one waiter, goroutine or thread: the end of a goroutine, of a
//! scope's last goroutine, of an offloaded job.
//!
//! The event is a word: nothing yet, done, detached (there will be no waiter), or the address of a
//! waiter in the waiting frame.
//!
//! | waiter                              | setter                                 |
//! |-------------------------------------|----------------------------------------|
//! | 1. (parked) CAS nothing → address;  | 1. swap in "done"                      |
//! |    if done: go on                   | 2. found an address? read the waiter,  |
//! | 2. wait                             | 3. set `released`: the frame may end   |
//! | 3. cancelled, or too late?          | 4. wake the waiter                     |
//! |    CAS address → nothing;           |                                        |
//! |    if done: wait for setter's 3     |                                        |
#![allow(unsafe_code)]

use std::cell::Cell;

use super::park::{self, Caller};
use super::points::{self, Cancelled};
use super::sleep;
use super::turn;
use super::wake;
use crate::g::cancel_wait::ScopeChain;
use crate::g::header::GRef;
use crate::g::status::{Reason, WaitId};
use crate::loom::native::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::loom::native::futex;
use crate::sched::types::current;
use crate::sched::types::m::M;
use crate::sys::clock::{self, NEVER};
use crate::util::chaos::{self, Point};

const NOTHING: *mut () = std::ptr::null_mut();
const DONE: *mut () = std::ptr::without_provenance_mut(1);
const DETACHED: *mut () = std::ptr::without_provenance_mut(2);

/// The waiter, in the waiting frame.
struct CompletionWaiter {
    g: Option<GRef>,
    wait: Cell<WaitId>,
    /// Whether the word may hold its address. Written by the commit before it publishes.
    published: Cell<bool>,
    /// 1 once the setter no longer accesses the waiter; the word a thread sleeps on.
    released: AtomicU32,
}

/// Whether the event has happened.
#[inline]
pub(crate) fn is_done(word: &AtomicPtr<()>) -> bool {
    word.load(Ordering::Acquire) == DONE
}

/// Why [`join`] gave up.
#[derive(Debug)]
pub(crate) enum Unjoined {
    /// The caller unwinds, because its run ends.
    Cancelled(Cancelled),
    /// The caller is the goroutine itself: it would wait for ever.
    Itself,
}

impl From<Cancelled> for Unjoined {
    fn from(c: Cancelled) -> Unjoined {
        Unjoined::Cancelled(c)
    }
}

/// Waits until `g` has ended.
///
/// # Errors
///
/// If the runtime ends first, or the caller is `g`.
pub(crate) fn join(g: GRef) -> Result<(), Unjoined> {
    while !is_done(&g.join) {
        match park::caller() {
            Caller::Goroutine(me) if me == g => return Err(Unjoined::Itself),
            Caller::Goroutine(me) => {
                wait_parked(&g.join, me, Reason::Join, NEVER, ScopeChain::NONE)?;
            }
            // Also a goroutine in a blocking section, or one that unwinds.
            Caller::Thread if current::g() == Some(g) => return Err(Unjoined::Itself),
            Caller::Thread => wait_blocked(&g.join, NEVER),
        }
    }
    Ok(())
}

/// Waits for the event.
///
/// # Errors
///
/// [`Cancelled`] if the runtime ends first, for a wait with [`Reason::Join`].
pub(crate) fn wait(word: &AtomicPtr<()>, reason: Reason) -> Result<(), Cancelled> {
    while !is_done(word) {
        match park::caller() {
            Caller::Goroutine(g) => wait_parked(word, g, reason, NEVER, ScopeChain::NONE)?,
            Caller::Thread => wait_blocked(word, NEVER),
        }
    }
    Ok(())
}

/// Waits for the event, the deadline, or the end of the current context. `true` if the event has
/// happened.
///
/// # Errors
///
/// [`Cancelled`] if the runtime ends first.
pub(crate) fn wait_until(word: &AtomicPtr<()>, deadline_ns: u64) -> Result<bool, Cancelled> {
    loop {
        if is_done(word) {
            return Ok(true);
        }
        let chain = park::current_chain();
        if clock::now_ns() >= deadline_ns || chain.over().is_some() {
            return Ok(false);
        }
        let deadline_ns = deadline_ns.min(chain.deadline_ns());
        match park::caller() {
            Caller::Goroutine(g) => wait_parked(word, g, Reason::Join, deadline_ns, chain)?,
            Caller::Thread => {
                // Neither a context nor the end of a run wakes a thread, so it polls.
                points::cancel_point()?;
                let look_ns = clock::now_ns().saturating_add(sleep::look_up_ns(chain));
                wait_blocked(word, deadline_ns.min(look_ns));
            }
        }
    }
}

fn wait_parked(
    word: &AtomicPtr<()>,
    g: GRef,
    reason: Reason,
    deadline_ns: u64,
    chain: ScopeChain,
) -> Result<(), Cancelled> {
    let may_cancel = reason == Reason::Join;
    if may_cancel {
        points::cancel_point()?;
    }
    let waiter = CompletionWaiter {
        g: Some(g),
        wait: Cell::new(WaitId::default()),
        published: Cell::new(false),
        released: AtomicU32::new(0),
    };
    let at = std::ptr::from_ref(&waiter).cast_mut().cast::<()>();
    let waiter_ref = &waiter;
    let begin = move |_, wait, _: &M, is_done| {
        if is_done {
            return false;
        }
        waiter_ref.wait.set(wait);
        waiter_ref.published.set(true);
        let is_published = word
            .compare_exchange(NOTHING, at, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if !is_published {
            // Already done.
            waiter_ref.published.set(false);
        }
        is_published
    };
    park::park_until::<false>(
        park::enter(),
        reason,
        move || deadline_ns,
        chain,
        begin,
        || is_done(word),
    );
    if !waiter.published.get() {
        return Ok(());
    }
    // Still published: woken without the event, because the runtime ends or the deadline has
    // passed. If the CAS fails, the setter has the address, and the frame must stay until the
    // setter is done with the waiter.
    if word
        .compare_exchange(at, NOTHING, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        while waiter.released.load(Ordering::Acquire) == 0 {
            crate::loom::spin_loop();
        }
        return Ok(());
    }
    if may_cancel {
        points::cancel_point()
    } else {
        Ok(())
    }
}

fn wait_blocked(word: &AtomicPtr<()>, deadline_ns: u64) {
    let waiter = CompletionWaiter {
        g: None,
        wait: Cell::new(WaitId::default()),
        published: Cell::new(false),
        released: AtomicU32::new(0),
    };
    let at = std::ptr::from_ref(&waiter).cast_mut().cast::<()>();
    let withdraw = || {
        word.compare_exchange(at, NOTHING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    };
    if word
        .compare_exchange(NOTHING, at, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        while waiter.released.load(Ordering::Acquire) == 0 {
            let left_ns = clock::left_ns(deadline_ns);
            if left_ns == 0 && withdraw() {
                return;
            }
            if turn::block_thread(deadline_ns) {
                continue;
            }
            // If withdrawing failed, the setter is about to release the waiter.
            futex::wait(&waiter.released, 0, left_ns);
        }
    }
}

/// Signals the event, and wakes the waiter. `true` if the event is detached: the caller then drops
/// the outcome.
pub(crate) fn set(word: &AtomicPtr<()>) -> bool {
    let before = word.swap(DONE, Ordering::AcqRel);
    chaos::pause(Point::Event);
    if before == NOTHING || before == DONE {
        return false;
    }
    if before == DETACHED {
        return true;
    }
    let waiter = before.cast::<CompletionWaiter>();
    // SAFETY: a published waiter stays on its frame until `released` is set below.
    let (g, wait, released) = unsafe {
        let w = &*waiter;
        (w.g, w.wait.get(), &raw const w.released)
    };
    // SAFETY: as above; this store is the last access to the waiter.
    unsafe { (*released).store(1, Ordering::Release) };
    match g {
        Some(g) => {
            wake::wake(g, wait);
        }
        None => futex::wake_one(released),
    }
    false
}

/// Declares that there will be no waiter. `true` if the event has already happened: the caller then
/// drops the outcome.
pub(crate) fn detach(word: &AtomicPtr<()>) -> bool {
    word.compare_exchange(NOTHING, DETACHED, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
}
