//! An event that happens once and that at most one goroutine or thread waits for:
//! the end of a goroutine, of a scope's last goroutine, of an offloaded job.
//!
//! A word: nothing yet, done, detached (nobody will wait), or the address of a
//! waiter on the waiting frame.
//!
//! | waiter                              | setter                                 |
//! |-------------------------------------|----------------------------------------|
//! | 1. (parked) CAS nothing → address;  | 1. swap in "done"                      |
//! |    if done: go on                   | 2. got an address? read the waiter,    |
//! | 2. wait                             | 3. tell it that it was read: its frame |
//! | 3. cancelled? CAS address → nothing;|    may go                              |
//! |    if done: wait for setter's 3     | 4. wake it                             |
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::park::{self, Caller, Cancelled};
use super::wake;
use crate::g::header::GRef;
use crate::g::status::{Reason, WaitId};
use crate::sys::clock::NEVER;
use crate::sys::futex;

const NOTHING: *mut () = std::ptr::null_mut();
const DONE: *mut () = std::ptr::without_provenance_mut(1);
const DETACHED: *mut () = std::ptr::without_provenance_mut(2);

/// What lies on the waiting frame.
struct Waiter {
    g: Option<GRef>,
    wait: Cell<WaitId>,
    /// Whether the address may be in the word. Written by the commit before it publishes.
    published: Cell<bool>,
    /// 1 once the setter needs this no more; the word a thread sleeps on.
    released: AtomicU32,
}

/// Whether it has happened.
#[inline]
pub(crate) fn is_done(word: &AtomicPtr<()>) -> bool {
    word.load(Ordering::Acquire) == DONE
}

/// Waits until it happens.
///
/// # Errors
///
/// [`Cancelled`] if the runtime ends first and `reason` may be cut short.
pub(crate) fn wait(word: &AtomicPtr<()>, reason: Reason) -> Result<(), Cancelled> {
    while !is_done(word) {
        match park::caller() {
            Caller::Goroutine(g) => wait_parked(word, g, reason)?,
            Caller::Thread => wait_blocked(word),
        }
    }
    Ok(())
}

fn wait_parked(word: &AtomicPtr<()>, g: GRef, reason: Reason) -> Result<(), Cancelled> {
    let may_cancel = reason == Reason::Join;
    if may_cancel {
        park::cancel_point()?;
    }
    let waiter = Waiter {
        g: Some(g),
        wait: Cell::new(WaitId::default()),
        published: Cell::new(false),
        released: AtomicU32::new(0),
    };
    let at = std::ptr::from_ref(&waiter).cast_mut().cast::<()>();
    let waiter_ref = &waiter;
    park::park(reason, move |_, wait, _| {
        waiter_ref.wait.set(wait);
        waiter_ref.published.set(true);
        if word
            .compare_exchange(NOTHING, at, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return true;
        }
        // Done already, and nobody knows of this waiter.
        waiter_ref.published.set(false);
        false
    });
    if !waiter.published.get() {
        return Ok(());
    }
    // Still published: woken without the event, because the runtime ends. Otherwise the setter has
    // the address, and the frame stays until it has read what it needs.
    if word
        .compare_exchange(at, NOTHING, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        while waiter.released.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        return Ok(());
    }
    if may_cancel {
        park::cancel_point()
    } else {
        Ok(())
    }
}

fn wait_blocked(word: &AtomicPtr<()>) {
    let waiter = Waiter {
        g: None,
        wait: Cell::new(WaitId::default()),
        published: Cell::new(false),
        released: AtomicU32::new(0),
    };
    let at = std::ptr::from_ref(&waiter).cast_mut().cast::<()>();
    if word
        .compare_exchange(NOTHING, at, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        while waiter.released.load(Ordering::Acquire) == 0 {
            futex::wait(&waiter.released, 0, NEVER);
        }
    }
}

/// Says that it has happened, and wakes who waits. Gives `true` if nobody ever
/// will: the caller then disposes of the outcome.
pub(crate) fn set(word: &AtomicPtr<()>) -> bool {
    let before = word.swap(DONE, Ordering::AcqRel);
    if before == NOTHING || before == DONE {
        return false;
    }
    if before == DETACHED {
        return true;
    }
    let waiter = before.cast::<Waiter>();
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

/// Says that nobody will wait. `true` if it has happened already: the caller then
/// disposes of the outcome.
pub(crate) fn detach(word: &AtomicPtr<()>) -> bool {
    word.compare_exchange(NOTHING, DETACHED, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
}
