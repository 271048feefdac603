//! Running a closure on a pool thread that has no ring, while the goroutine parks.
//!
//! For calls that must not see EINTR or short results: completions of a thread's own ring
//! operations interrupt some of its blocking calls (docs/SAFETY.md), and pool threads have
//! submitted none.
#![allow(unsafe_code)]

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use windlass_ground::offload_pool::{Job, Offload};

use super::completion;
use super::fork;
use super::handoff;
use super::park::{self, Caller};
use crate::g::status::Reason;
use crate::loom::AtomicPtr;
use crate::sched::types::current;
use crate::sched::types::m::Carrier;
use crate::sched::types::state::Sched;

struct OffloadFrame<F, T> {
    f: Option<F>,
    outcome: Option<std::thread::Result<T>>,
    done: AtomicPtr<()>,
}

/// Runs `f` on a pool thread while the calling goroutine parks. On a plain thread, runs it there.
pub(crate) fn offload<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    on_pool(f, Offload::submit).unwrap_or_else(|f| {
        // No thread of the pool can be started, so the call blocks this one.
        in_section(f)
    })
}

/// As [`offload`], for a call that may wait until another goroutine acts. Gives `f` back if it would
/// leave no thread to others ([`Offload::submit_long`]).
pub(crate) fn offload_long<F, T>(f: F) -> Result<T, F>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let mut long = None;
    let result = on_pool(f, |pool, job, may_start| {
        let is_wanted = pool.submit_long(job, may_start)?;
        long = Some(EndOnDrop(pool));
        Ok(is_wanted)
    });
    drop(long);
    result
}

/// A job that may wait for goroutines.
struct EndOnDrop(&'static Offload);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end_long();
    }
}

/// Runs `f` on a pool thread, by a job that `submit` submits. Gives `f` back if that fails.
fn on_pool<F, T, S>(f: F, submit: S) -> Result<T, F>
where
    F: FnOnce() -> T + Send,
    T: Send,
    S: FnOnce(&'static Offload, Job, bool) -> Result<bool, Job>,
{
    let (Caller::Goroutine(_), Some(m)) = (park::caller(), current::m()) else {
        return Ok(f());
    };
    let pool: *const Offload = &m.sched().offload;
    // SAFETY: the scheduler outlives its goroutines' jobs: threads are joined by `close` before it
    // goes, and this goroutine keeps the run alive until its job is done.
    let pool: &'static Offload = unsafe { &*pool };
    let mut frame = OffloadFrame {
        f: Some(f),
        outcome: None,
        done: AtomicPtr::default(),
    };
    // SAFETY: the closure and its result are Send, and the frame stays until the job sets `done`.
    let job = unsafe { Job::new(run_frame::<F, T>, (&raw mut frame).cast()) };
    // A goroutine that has locked its thread may have changed what new threads inherit.
    match submit(pool, job, !m.is_locked()) {
        Ok(true) => m.sched().sysmon.note.wake(),
        Ok(false) => {}
        Err(_) => return Err(frame.f.take().expect("the job has not run")),
    }
    completion::wait(&frame.done, Reason::Offload).expect("this wait is never cut short");
    match frame.outcome.expect("the job has run") {
        Ok(value) => Ok(value),
        Err(payload) => resume_unwind(payload),
    }
}

/// Called by sysmon: starts the threads of the pool that jobs wait for.
///
/// # Errors
///
/// The kernel refuses one, and it remains wanted.
pub(crate) fn start_wanted(sched: &Sched) -> io::Result<()> {
    // SAFETY: a scheduler does not move, and closes its pool at the end of each run, after sysmon's.
    unsafe { sched.offload.start_wanted() }
}

/// As [`offload`], for a call that depends on the thread's own credentials, name spaces, directories or
/// signal mask. A goroutine that has locked its thread may have changed these: its call blocks that
/// thread.
pub(crate) fn offload_unless_locked<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    if is_locked() {
        return in_section(f);
    }
    offload(f)
}

/// Runs `f` in a blocking section. Others may take the caller's forks meanwhile.
pub(crate) fn in_section<T>(f: impl FnOnce() -> T) -> T {
    fork::before_blocking();
    handoff::blocking(f)
}

/// Whether the calling goroutine has locked its thread.
pub(crate) fn is_locked() -> bool {
    current::m().is_some_and(Carrier::is_locked)
}

/// # Safety
///
/// `data` is a `Frame<F, T>` that stays until `done` is set, and nobody else touches it.
unsafe fn run_frame<F: FnOnce() -> T, T>(data: *mut ()) {
    let frame = data.cast::<OffloadFrame<F, T>>();
    // SAFETY: by this function's contract.
    let f = unsafe { (*frame).f.take() }.expect("a job runs once");
    let outcome = catch_unwind(AssertUnwindSafe(f));
    // SAFETY: as above.
    unsafe { (*frame).outcome = Some(outcome) };
    // SAFETY: as above; `set` reads nothing of the frame after the swap that lets it go.
    completion::set(unsafe { &(*frame).done });
}
