//! A wait for a descriptor, a time or a context of a goroutine that has no stack meanwhile.
//!
//! The goroutine begins the wait when it leaves its stack (`OffStack` in `g::header`). What a wait has in
//! its frame otherwise lies here: the operation, the scope of the context, and the record for the M. From
//! there on it is a wait as any other, and its wakers need not know of it: a completion, a deadline,
//! a context and the end of a run end it as they end that of a parked goroutine, which then gets a stack
//! and looks at the result.
//!
//! The scope stays in the list of its context between two waits, because a server's connections share the
//! lock of that list. So while the goroutine's own code runs, the scope is masked.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::marker::PhantomPinned;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::ptr::NonNull;

use super::op::{self, Deadline};
use super::ready;
use crate::bubble;
use crate::g::cancel_wait::{CancelScope, CancelSource, ScopeChain};
use crate::g::header::{GRef, OffStack};
use crate::g::status::{Reason, Why};
use crate::loom::native::Arc;
use crate::netpoll::op::Op;
use crate::sched::types::m::M;
use crate::sched::wait::current_context;
use crate::sched::wait::park::{self, Record};
use crate::sys::clock::{self, NEVER};
use crate::sys::request::Request;
use crate::util::fmt_as::debug_fields;

/// A context that ends waits off the stack.
pub(crate) type Source = Arc<dyn CancelSource + Send + Sync>;

/// What ends the wait with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// One of the events, or an error, of the descriptor, which stays open.
    Ready { fd: i32, events: i16 },
    /// The deadline.
    Time,
    /// The context.
    Done,
}

impl Until {
    pub(crate) fn ready(fd: &impl AsFd, events: i16) -> Until {
        let fd = fd.as_fd().as_raw_fd();
        Until::Ready { fd, events }
    }
}

/// A wait during which its goroutine has no stack. It may be waited again and again.
#[repr(C)]
pub(crate) struct OffStackWait {
    /// First, so that its address is that of the whole.
    record: Record,
    until: Until,
    deadline_ns: u64,
    source: Option<Source>,
    /// Set at the first wait, as it names the goroutine.
    scope: Option<CancelScope>,
    /// The operation of the last wait.
    op: Option<Op>,
    /// Whether the last wait has begun, and its end was not looked at.
    is_begun: bool,
    /// The P with its timer.
    timer_on: Cell<u32>,
    pinned: PhantomPinned,
}

debug_fields!(OffStackWait, |this| until: this.until, ..);

// SAFETY: the goroutine that waits moves between threads. The cells are its own, those of the scope and the
// operation guarded as they are on a stack, which moves with its goroutine, too.
unsafe impl Send for OffStackWait {}

impl OffStackWait {
    /// A wait that `source` ends with an error, and the deadline, `NEVER` for none.
    pub(crate) fn new(until: Until, deadline_ns: u64, source: Option<Source>) -> Pin<Box<Self>> {
        Box::pin(OffStackWait {
            record: Record {
                commit,
                why: Why::from(Reason::None),
            },
            until,
            deadline_ns,
            source,
            scope: None,
            op: None,
            is_begun: false,
            timer_on: Cell::new(0),
            pinned: PhantomPinned,
        })
    }

    /// Sets the deadline of the waits from here on. Between two waits.
    pub(crate) fn set_deadline(self: Pin<&mut Self>, deadline_ns: u64) {
        self.fields().deadline_ns = deadline_ns;
    }

    /// Sets the context of the waits from here on. Between two waits.
    pub(crate) fn set_source(self: Pin<&mut Self>, source: Option<Source>) {
        let this = self.fields();
        this.leave();
        this.source = source;
    }

    /// Takes a step of the goroutine `g`, which is the caller: looks whether the wait is over.
    ///
    /// # Errors
    ///
    /// The wait, for which the goroutine is to leave its stack before the next call.
    pub(crate) fn step(self: Pin<&mut Self>, g: GRef) -> Result<io::Result<()>, OffStack> {
        let this = self.fields();
        let ended = match mem::take(&mut this.is_begun) {
            true => this.look(),
            false => None,
        };
        match ended.or_else(|| this.begin(g)) {
            Some(ended) => Ok(ended),
            None => Err(OffStack::new(NonNull::from(&*this))),
        }
    }

    /// Runs the goroutine's own code between two waits. Its waits do not end with the context.
    pub(crate) fn run<T>(self: Pin<&mut Self>, f: impl FnOnce() -> T) -> T {
        let _masked = self.fields().scope.as_ref().map(CancelScope::masked);
        f()
    }

    /// The scope and the operation are not moved: others may have their addresses.
    fn fields(self: Pin<&mut Self>) -> &mut OffStackWait {
        // SAFETY: callers move nothing out of it while it is registered or in flight.
        unsafe { self.get_unchecked_mut() }
    }

    fn chain(&self) -> ScopeChain {
        self.scope.as_ref().map_or(ScopeChain::NONE, ScopeChain::of)
    }

    fn until_ns(&self) -> u64 {
        self.deadline_ns.min(self.chain().deadline_ns())
    }

    /// Prepares a wait, unless there is nothing to wait for.
    fn begin(&mut self, g: GRef) -> Option<io::Result<()>> {
        self.enter(g);
        if let Some(ended) = self.ended_by_context() {
            return Some(ended);
        }
        let is_late = self.deadline_ns != NEVER && self.deadline_ns <= clock::now_ns();
        let reason = match self.until {
            Until::Ready { .. } if is_late || bubble::is_inside() => {
                return Some(self.wait_on_stack());
            }
            Until::Ready { .. } => {
                self.op.insert(Op::new(g)).publish();
                Reason::Io
            }
            _ if is_late => return Some(self.late()),
            _ => Reason::Sleep,
        };
        self.record.why = Why::cancellable(reason, self.chain().is_some());
        self.is_begun = true;
        None
    }

    /// Enters the scope of the context, if it has one.
    fn enter(&mut self, g: GRef) {
        if let (Some(source), None) = (&self.source, &self.scope) {
            let scope = self
                .scope
                .insert(CancelScope::new(Some(g), source.deadline_ns()));
            scope.enter(ScopeChain::NONE);
            // SAFETY: the scope is in no list, and is removed before it moves.
            unsafe { source.add(scope) };
        }
    }

    /// Leaves the scope, if it has entered.
    fn leave(&mut self) {
        if let (Some(source), Some(scope)) = (&self.source, &self.scope) {
            source.remove(scope);
            scope.leave();
        }
        self.scope = None;
    }

    /// The result of a wait that has ended; `None` if it is to begin again.
    fn look(&self) -> Option<io::Result<()>> {
        let was_woken = match &self.op {
            Some(op) if matches!(self.until, Until::Ready { .. }) => {
                !op.timed_out() && !op.ended_at_once()
            }
            _ => false,
        };
        if self.until_ns() != NEVER && (was_woken || self.chain().is_set()) {
            park::note_stale_timer(self.timer_on.get() as usize);
        }
        match (self.until, &self.op) {
            (Until::Ready { events, .. }, Some(op)) => self.look_at(op, events),
            // The next begin finds that the time is over.
            _ => None,
        }
    }

    fn look_at(&self, op: &Op, events: i16) -> Option<io::Result<()>> {
        if op::shows(op.result(), events) {
            return Some(Ok(()));
        }
        match op::why_failed(self.chain(), Deadline::at(self.deadline_ns), op.into()) {
            Ok(()) => None,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Some(self.late()),
            // Rings may not poll here, or show what nobody asked for.
            Err(_) if op::is_to_repeat(op.result()) => Some(self.wait_on_stack()),
            Err(e) => Some(Err(e)),
        }
    }

    fn ended_by_context(&self) -> Option<io::Result<()>> {
        let over = self.chain().over()?;
        Some(match self.until {
            Until::Done => Ok(()),
            _ => Err(current_context::Error::from(over).into()),
        })
    }

    fn late(&self) -> io::Result<()> {
        match self.until {
            Until::Time => Ok(()),
            _ => Err(ready::not_in_time()),
        }
    }

    /// Waits as a goroutine with a stack: where the wait must not block, in a simulation, and where the
    /// poller needs another way.
    #[cold]
    fn wait_on_stack(&self) -> io::Result<()> {
        let Until::Ready { fd, events } = self.until else {
            return Ok(());
        };
        // SAFETY: the owner keeps the descriptor open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        current_context::run_in(self.chain(), || ready::wait(fd, events, self.deadline_ns))
    }

    /// In the commit: begins the wait of `g`. Nothing of it is read once its wakers may know of it.
    fn wait(&self, g: GRef, m: &M) -> bool {
        let (chain, until_ns) = (self.chain(), self.until_ns());
        park::begin_wait(g, self.record.why, m, |wait| {
            let is_done = chain.is_set();
            self.timer_on.set(m.p().idx as u32);
            let waits = match (self.until, &self.op) {
                (Until::Ready { fd, events }, Some(op)) => {
                    let events = u32::from(events.cast_unsigned());
                    let poll = Request::PollAdd { fd, events };
                    // SAFETY: the request holds no pointer. The operation stays until it is complete: only then
                    // does the goroutine run, and may drop this.
                    op::begin(op, wait, is_done, || unsafe {
                        op::start_request(m, &poll, op, wait)
                    })
                }
                _ => !is_done,
            };
            if waits && until_ns != NEVER {
                m.p().timers.add(until_ns, g, wait);
            }
            waits
        })
    }
}

/// # Safety
///
/// `record` is the first field of an [`OffStackWait`], which stays in place until `g` runs again.
unsafe fn commit(record: NonNull<Record>, g: GRef, m: &M) -> bool {
    // SAFETY: by this function's contract.
    unsafe { record.cast::<OffStackWait>().as_ref() }.wait(g, m)
}

impl Drop for OffStackWait {
    fn drop(&mut self) {
        self.leave();
    }
}
