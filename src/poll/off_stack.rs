//! A wait of a goroutine that has no stack meanwhile: for a descriptor, a time, a context, a channel.
//!
//! The goroutine begins the wait when it leaves its stack (`OffStack` in `g::header`). What a wait has in
//! its frame otherwise lies here: the event with what registers it, the scope of the context, and the record
//! for the M. From there on it is a wait as any other, and its wakers need not know of it: a completion, a
//! sender, a deadline, a context and the end of a run end it as they end that of a parked goroutine, which
//! then gets a stack and looks at the result.
//!
//! The scope stays in the list of its context between two waits, because a server's connections share the
//! lock of that list. So while the goroutine's own code runs, the scope is masked.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomPinned;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::ptr::NonNull;

use windlass_ground::std_traits::debug_fields;

use super::op::{self, Deadline};
use super::ready;
use crate::bubble;
use crate::g::cancel_wait::{CancelScope, CancelSource, Over, ScopeChain};
use crate::g::header::{GRef, OffStack};
use crate::g::status::{Reason, WaitId, Why};
use crate::loom::native::Arc;
use crate::netpoll::op::Op;
use crate::sched::types::m::M;
use crate::sched::wait::current_context;
use crate::sched::wait::park::{self, Commit, Record};
use crate::sys::clock::{self, NEVER};
use crate::sys::request::Request;

/// A context that ends waits off the stack.
pub(crate) type Source = Arc<dyn CancelSource>;

/// The event of a wait without a stack. From the first wait on it stays in place. It moves between threads
/// with its goroutine, and is shared by none.
pub(crate) trait Event: fmt::Debug {
    fn reason(&self) -> Reason;

    /// Prepares a wait of `g`, which is the caller; returns the result if there is nothing to wait for.
    fn prepare(&mut self, _g: GRef, limits: Limits) -> Option<io::Result<()>> {
        limits.is_late().then(|| self.at_deadline())
    }

    /// In the commit: publishes the wait, after which nothing of the event may be read. Returns when the event may
    /// come by the clock alone, or nothing if there is nothing to wait for, as if `is_done`.
    fn begin(&self, _wait: WaitId, _m: &M, is_done: bool) -> Option<u64> {
        (!is_done).then_some(NEVER)
    }

    /// Whether it has ended the last wait, and no limit has.
    fn has_ended_it(&self) -> bool {
        false
    }

    /// The result of a wait that has ended; `None` to prepare it again, which finds that a limit is over.
    fn look(&mut self, _limits: Limits) -> Option<io::Result<()>> {
        None
    }

    /// The result at the deadline.
    fn at_deadline(&self) -> io::Result<()> {
        Err(ready::not_in_time())
    }

    /// The result when the context is done.
    fn at_done(&self, over: Over) -> io::Result<()> {
        Err(current_context::Error::from(over).into())
    }
}

/// The limits of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    deadline_ns: u64,
    chain: ScopeChain,
}

impl Limits {
    pub(crate) fn is_late(self) -> bool {
        self.deadline_ns != NEVER && self.deadline_ns <= clock::now_ns()
    }

    fn until_ns(self) -> u64 {
        self.deadline_ns.min(self.chain.deadline_ns())
    }
}

/// The deadline.
#[derive(Debug)]
pub(crate) struct Time;

impl Event for Time {
    fn reason(&self) -> Reason {
        Reason::Sleep
    }

    fn at_deadline(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The end of the context.
#[derive(Debug)]
pub(crate) struct Done;

impl Event for Done {
    fn reason(&self) -> Reason {
        Reason::Sleep
    }

    fn at_done(&self, _over: Over) -> io::Result<()> {
        Ok(())
    }
}

/// One of the events, or an error, of a descriptor, which stays open.
pub(crate) struct Ready {
    fd: i32,
    events: i16,
    /// The operation of the last wait.
    op: Option<Op>,
}

debug_fields!(Ready, |this| fd: this.fd, events: this.events);

impl Ready {
    pub(crate) fn new(fd: &impl AsFd, events: i16) -> Ready {
        let fd = fd.as_fd().as_raw_fd();
        let op = None;
        Ready { fd, events, op }
    }

    /// Waits as a goroutine with a stack: where the wait must not block, in a simulation, and where the
    /// poller needs another way.
    #[cold]
    fn wait_on_stack(&self, limits: Limits) -> io::Result<()> {
        // SAFETY: the owner keeps the descriptor open.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        current_context::run_in(limits.chain, || {
            ready::wait(fd, self.events, limits.deadline_ns)
        })
    }
}

impl Event for Ready {
    fn reason(&self) -> Reason {
        Reason::Io
    }

    fn prepare(&mut self, g: GRef, limits: Limits) -> Option<io::Result<()>> {
        if limits.is_late() || bubble::is_inside() {
            return Some(self.wait_on_stack(limits));
        }
        self.op.insert(Op::new(g)).publish();
        None
    }

    fn begin(&self, wait: WaitId, m: &M, is_done: bool) -> Option<u64> {
        let poll = Request::PollAdd {
            fd: self.fd,
            events: u32::from(self.events.cast_unsigned()),
        };
        let op = self.op.as_ref()?;
        // SAFETY: it is a poll. The operation stays until it is complete: only then does the goroutine run, and
        // may drop this.
        let start = || unsafe { op::start_request(m, &poll, op, wait) };
        op::begin(op, wait, is_done, start).then_some(NEVER)
    }

    fn has_ended_it(&self) -> bool {
        let op = self.op.as_ref();
        op.is_some_and(|op| !op.timed_out() && !op.ended_at_once())
    }

    fn look(&mut self, limits: Limits) -> Option<io::Result<()>> {
        let op = self.op.as_ref()?;
        if op::shows(op.result(), self.events) {
            return Some(Ok(()));
        }
        match op::why_failed(limits.chain, Deadline::at(limits.deadline_ns), op.into()) {
            Ok(()) => None,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Some(self.at_deadline()),
            // Rings may not poll here, or show what nobody asked for.
            Err(_) if op::is_to_repeat(op.result()) => Some(self.wait_on_stack(limits)),
            Err(e) => Some(Err(e)),
        }
    }
}

/// A [`Record`], with what fits behind it.
#[repr(C)]
struct Head {
    commit: Commit,
    why: Why,
    /// Whether the last wait has begun, and its end was not looked at.
    is_begun: bool,
    /// The P with its timer.
    timer_on: Cell<u32>,
}

const _: () = assert!(mem::offset_of!(Head, commit) == mem::offset_of!(Record, commit));
const _: () = assert!(mem::offset_of!(Head, why) == mem::offset_of!(Record, why));
const _: () = assert!(size_of::<Head>() == size_of::<Record>());

/// A wait during which its goroutine has no stack. It may be waited again and again.
#[repr(C)]
pub(crate) struct OffStackWait<E: Event + ?Sized> {
    /// First, so that its address is that of the whole.
    head: Head,
    deadline_ns: u64,
    /// The scope of the context that ends the wait, whose source it owns. It names the goroutine from the first wait on,
    /// and is in the context's list from then on.
    scope: Option<CancelScope>,
    pinned: PhantomPinned,
    event: E,
}

debug_fields!([E: Event + ?Sized] OffStackWait<E>, |this| event: &this.event, ..);

// SAFETY: the goroutine that waits moves between threads, and an event with it. The cells are its own, those of
// the scope and the operation guarded as they are on a stack, which moves with its goroutine, too.
unsafe impl<E: Event + ?Sized> Send for OffStackWait<E> {}
// SAFETY: a shared reference is of use for nothing but its text.
unsafe impl<E: Event + ?Sized> Sync for OffStackWait<E> {}

impl<E: Event> OffStackWait<E> {
    /// A wait that `source` ends with an error, and the deadline, `NEVER` for none.
    pub(crate) fn new(event: E, deadline_ns: u64, source: Option<Source>) -> Pin<Box<Self>> {
        Box::pin(OffStackWait {
            head: Head {
                commit: commit::<E>,
                why: Why::from(Reason::None),
                is_begun: false,
                timer_on: Cell::new(0),
            },
            deadline_ns,
            scope: source.map(scope_of),
            pinned: PhantomPinned,
            event,
        })
    }

    /// In the commit: begins the wait of `g`. Nothing of it is read once its wakers may know of it.
    fn wait(&self, g: GRef, m: &M) -> bool {
        let limits = self.limits();
        let limit_ns = limits.until_ns();
        park::begin_wait(g, self.head.why, m, |wait| {
            let is_done = limits.chain.is_set();
            self.head.timer_on.set(m.p().idx as u32);
            let next_ns = self.event.begin(wait, m, is_done);
            let until_ns = next_ns.map(|next_ns| next_ns.min(limit_ns));
            if let Some(until_ns) = until_ns
                && until_ns != NEVER
            {
                m.p().timers.add(until_ns, g, wait);
            }
            until_ns.is_some()
        })
    }
}

impl<E: Event + ?Sized> OffStackWait<E> {
    /// Ends the waits from here on at `deadline_ns` at the latest. Between two waits.
    pub(crate) fn set_deadline(self: Pin<&mut Self>, deadline_ns: u64) {
        self.fields().deadline_ns = deadline_ns;
    }

    /// As [`set_deadline`](OffStackWait::set_deadline), unless it ends earlier.
    pub(crate) fn shorten(self: Pin<&mut Self>, deadline_ns: u64) {
        let this = self.fields();
        this.deadline_ns = this.deadline_ns.min(deadline_ns);
    }

    /// Sets the context of the waits from here on. Between two waits.
    pub(crate) fn set_source(self: Pin<&mut Self>, source: Option<Source>) {
        let this = self.fields();
        this.leave();
        this.scope = source.map(scope_of);
    }

    /// Takes a step of the goroutine `g`, which is the caller: looks whether the wait is over.
    ///
    /// # Errors
    ///
    /// The wait, for which the goroutine is to leave its stack before the next call.
    pub(crate) fn step(self: Pin<&mut Self>, g: GRef) -> Result<io::Result<()>, OffStack> {
        let this = self.fields();
        let ended = match mem::take(&mut this.head.is_begun) {
            true => this.look(),
            false => None,
        };
        match ended.or_else(|| this.prepare(g)) {
            Some(ended) => Ok(ended),
            None => Err(OffStack::new(NonNull::from(&*this).cast::<Head>())),
        }
    }

    /// Runs the goroutine's own code between two waits. Its waits do not end with the context.
    pub(crate) fn run<T>(self: Pin<&mut Self>, f: impl FnOnce() -> T) -> T {
        let _masked = self.fields().scope.as_ref().map(CancelScope::masked);
        f()
    }

    /// The scope and the event are not moved: others may have their addresses.
    fn fields(self: Pin<&mut Self>) -> &mut OffStackWait<E> {
        // SAFETY: callers move nothing out of it while it is registered or in flight.
        unsafe { self.get_unchecked_mut() }
    }

    fn limits(&self) -> Limits {
        Limits {
            deadline_ns: self.deadline_ns,
            chain: self.scope.as_ref().map_or(ScopeChain::NONE, ScopeChain::of),
        }
    }

    /// Prepares a wait, unless there is nothing to wait for.
    fn prepare(&mut self, g: GRef) -> Option<io::Result<()>> {
        self.enter(g);
        let limits = self.limits();
        if let Some(over) = limits.chain.over() {
            return Some(self.event.at_done(over));
        }
        if let Some(ended) = self.event.prepare(g, limits) {
            return Some(ended);
        }
        self.head.why = Why::cancellable(self.event.reason(), limits.chain.is_some());
        self.head.is_begun = true;
        None
    }

    /// Enters the scope of the context, if it has one.
    fn enter(&mut self, g: GRef) {
        if let Some(scope) = self.scope.as_mut().filter(|scope| scope.who.is_none()) {
            scope.who = Some(g);
            scope.enter(ScopeChain::NONE);
            // SAFETY: the scope owns its source, is in no list, and is removed before it moves.
            unsafe { source_of(scope).add(scope) };
        }
    }

    /// Leaves the scope, if it has entered, and drops it.
    fn leave(&mut self) {
        if let Some(scope) = &self.scope {
            // SAFETY: `scope_of` has made the scope the owner of this reference, and it ends here.
            let source = unsafe { Arc::from_raw(source_of(scope)) };
            if scope.who.is_some() {
                source.remove(scope);
                scope.leave();
            }
        }
        self.scope = None;
    }

    /// The result of a wait that has ended; `None` if it is to begin again.
    fn look(&mut self) -> Option<io::Result<()>> {
        let limits = self.limits();
        if limits.until_ns() != NEVER && (self.event.has_ended_it() || limits.chain.is_set()) {
            park::note_stale_timer(self.head.timer_on.get() as usize);
        }
        self.event.look(limits)
    }
}

/// A scope that owns `source`, until [`OffStackWait::leave`].
fn scope_of(source: Source) -> CancelScope {
    let scope = CancelScope::new(None, source.deadline_ns());
    // SAFETY: the reference lives as long as the scope.
    unsafe { scope.set_source(Arc::into_raw(source)) };
    scope
}

/// The source of a scope that [`scope_of`] has made.
fn source_of<'a>(scope: &CancelScope) -> &'a dyn CancelSource {
    let source = scope.source().expect("it was made with one");
    // SAFETY: the scope owns a reference to it. Callers use it no longer than the scope.
    unsafe { &*source }
}

/// # Safety
///
/// `record` is the head of an [`OffStackWait`] of an `E`, which stays in place until `g` runs again.
unsafe fn commit<E: Event>(record: NonNull<Record>, g: GRef, m: &M) -> bool {
    // SAFETY: by this function's contract.
    unsafe { record.cast::<OffStackWait<E>>().as_ref() }.wait(g, m)
}

impl<E: Event + ?Sized> Drop for OffStackWait<E> {
    fn drop(&mut self) {
        self.leave();
    }
}
