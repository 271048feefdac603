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

use super::park::{self, Caller};
use super::points::{self, Cancelled};
use super::sleep;
use super::turn;
use super::wake;
use crate::bubble;
use crate::g::cancel_wait::ScopeChain;
use crate::g::header::GRef;
use crate::g::status::{Reason, WaitId};
use crate::loom::{self, AtomicPtr, AtomicU32, Cell, Ordering};
use crate::sched::types::current;
use crate::sched::types::m::M;
use crate::sys::clock::{self, NEVER};
use crate::util::chaos::{self, Point};

const NOTHING: *mut () = std::ptr::null_mut();
const DONE: *mut () = std::ptr::without_provenance_mut(1);
const DETACHED: *mut () = std::ptr::without_provenance_mut(2);

/// The waiter, in the waiting frame. All of it is in cells, as the frame may end while a commit that has published it
/// still has the reference.
struct CompletionWaiter {
    g: Cell<Option<GRef>>,
    wait: Cell<WaitId>,
    /// Whether the word may hold its address. Written by the commit before it publishes.
    published: Cell<bool>,
    /// 1 once the setter no longer accesses the waiter; the word a thread sleeps on.
    released: AtomicU32,
}

/// What the setter has read of a waiter, whose frame may be gone.
struct Waiting {
    g: Option<GRef>,
    wait: WaitId,
    released: *const AtomicU32,
}

impl Waiting {
    /// The setter's step 4.
    fn wake(self) {
        match self.g {
            Some(g) => _ = wake::wake(g, self.wait),
            None => loom::futex_wake_one(self.released),
        }
    }
}

impl CompletionWaiter {
    fn new(g: Option<GRef>) -> CompletionWaiter {
        CompletionWaiter {
            g: Cell::new(g),
            wait: Cell::new(WaitId::default()),
            published: Cell::new(false),
            released: AtomicU32::new(0),
        }
    }

    fn as_raw(&self) -> *mut () {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The waiter's step 1. `false` if the event has happened.
    fn publish(&self, word: &AtomicPtr<()>) -> bool {
        word.compare_exchange(NOTHING, self.as_raw(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// As [`CompletionWaiter::publish`], in the commit of a goroutine's park: with what the setter and the goroutine read.
    fn publish_wait(&self, word: &AtomicPtr<()>, wait: WaitId) -> bool {
        self.wait.set(wait);
        self.published.set(true);
        let is_published = self.publish(word);
        if !is_published {
            // Already done.
            self.published.set(false);
        }
        is_published
    }

    /// The waiter's step 3. `false` if the setter has the address.
    fn withdraw(&self, word: &AtomicPtr<()>) -> bool {
        word.compare_exchange(self.as_raw(), NOTHING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Ends the wait of a goroutine that goes on. Then its frame may end. `false` if it was woken without the event, because
    /// the runtime ends or the deadline has passed.
    fn is_over(&self, word: &AtomicPtr<()>) -> bool {
        if !self.published.get() {
            return true;
        }
        if self.withdraw(word) {
            return false;
        }
        // The setter has the address, and the frame must stay until it is done with the waiter.
        while self.released.load(Ordering::Acquire) == 0 {
            loom::spin_loop();
        }
        true
    }
}

/// Stands for the end of the frame: loom reports accesses that it does not follow.
#[cfg(loom)]
impl Drop for CompletionWaiter {
    fn drop(&mut self) {
        self.wait.set(WaitId::default());
        self.published.set(false);
    }
}

/// Whether the event has happened.
#[inline]
pub(crate) fn is_done(word: &AtomicPtr<()>) -> bool {
    word.load(Ordering::Acquire) == DONE
}

/// The address of the waiter's record, which lies on the stack of the waiting goroutine; a small number if no
/// goroutine waits. For comparison only.
pub(crate) fn waiter(word: &AtomicPtr<()>) -> usize {
    word.load(Ordering::Relaxed).addr()
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
            Caller::Thread => {
                points::cancel_point()?;
                wait_blocked(&g.join, look_at_ns(ScopeChain::NONE));
            }
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
                points::cancel_point()?;
                wait_blocked(word, deadline_ns.min(look_at_ns(chain)));
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
    let waiter = CompletionWaiter::new(Some(g));
    let waiter_ref = &waiter;
    let begin =
        move |_, wait, _: &M, is_done: bool| !is_done && waiter_ref.publish_wait(word, wait);
    park::park_until::<false>(
        park::enter(),
        reason,
        move || deadline_ns,
        chain,
        begin,
        || is_done(word),
    );
    if !waiter.is_over(word) && may_cancel {
        return points::cancel_point();
    }
    Ok(())
}

/// Until when a thread waits at most: neither a context nor the end of a run wakes it, so it polls. In a simulation no
/// other code runs meanwhile.
fn look_at_ns(chain: ScopeChain) -> u64 {
    match bubble::is_inside() {
        true => NEVER,
        false => clock::now_ns().saturating_add(sleep::look_up_ns(chain)),
    }
}

fn wait_blocked(word: &AtomicPtr<()>, deadline_ns: u64) {
    let waiter = CompletionWaiter::new(None);
    if !waiter.publish(word) {
        return;
    }
    while waiter.released.load(Ordering::Acquire) == 0 {
        let left_ns = clock::left_ns(deadline_ns);
        if left_ns == 0 && waiter.withdraw(word) {
            return;
        }
        if turn::block_thread(deadline_ns) {
            continue;
        }
        // If withdrawing failed, the setter is about to release the waiter.
        loom::futex_wait(&waiter.released, 0, left_ns);
    }
}

/// Signals the event, and wakes the waiter. `true` if the event is detached: the caller then drops
/// the outcome.
pub(crate) fn set(word: &AtomicPtr<()>) -> bool {
    match take_waiter(word) {
        Ok(waiter) => {
            // SAFETY: this caller has taken the waiter.
            unsafe { release(waiter) }.wake();
            false
        }
        Err(is_detached) => is_detached,
    }
}

/// The setter's step 1.
///
/// # Errors
///
/// If there is no waiter: whether the event is detached.
fn take_waiter(word: &AtomicPtr<()>) -> Result<*const CompletionWaiter, bool> {
    let before = word.swap(DONE, Ordering::AcqRel);
    chaos::pause(Point::Event);
    match before {
        waiter if waiter == NOTHING || waiter == DONE => Err(false),
        waiter if waiter == DETACHED => Err(true),
        waiter => Ok(waiter.cast()),
    }
}

/// The setter's steps 2 and 3.
///
/// # Safety
///
/// The waiter was taken out of the word, by this caller.
unsafe fn release(waiter: *const CompletionWaiter) -> Waiting {
    // SAFETY: a published waiter stays on its frame until `released` is set below.
    let waiting = unsafe {
        let w = &*waiter;
        Waiting {
            g: w.g.get(),
            wait: w.wait.get(),
            released: &raw const w.released,
        }
    };
    // SAFETY: as above; this store is the last access to the waiter.
    unsafe { (*waiting.released).store(1, Ordering::Release) };
    waiting
}

/// Declares that there will be no waiter. `true` if the event has already happened: the caller then
/// drops the outcome.
pub(crate) fn detach(word: &AtomicPtr<()>) -> bool {
    word.compare_exchange(NOTHING, DETACHED, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
}

#[cfg(all(test, any(loom, miri)))]
#[path = "completion_loom_tests.rs"]
mod loom_tests;
