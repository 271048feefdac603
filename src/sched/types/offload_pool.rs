//! The threads on which goroutines run closures (`wait::offload`). They have no ring. The pool grows
//! on demand and is joined when the run ends; jobs are passed through crossbeam's `Injector`.
#![allow(unsafe_code)]

use std::io;

use crossbeam_deque::{Injector, Steal};

use super::m::Carrier;
use crate::loom::native::atomic::{AtomicBool, Ordering};
use crate::loom::native::{Condvar, Mutex, PoisonError};
use crate::loom::thread::JoinHandle;
use crate::sys::{affinity, clock, sched as threads};
use crate::util::fmt_as::fmt_as;

/// Maximum number of pool threads of a runtime; further jobs queue.
const MAX_THREADS: usize = 512;

/// A closure on its parked caller's frame, with its result.
pub(crate) struct Job {
    pub(crate) run: unsafe fn(*mut ()),
    pub(crate) data: *mut (),
}

// SAFETY: the data is an `OffloadFrame<F, T>` whose closure and result are Send (see `offload`),
// and the frame stays until the job sets `done`.
unsafe impl Send for Job {}

#[derive(Debug, Default)]
struct JobQueue {
    n_idle: usize,
    /// Queued jobs that no thread has taken yet.
    n_jobs: usize,
    /// Jobs that may wait for goroutines ([`Offload::submit_long`]), queued or running.
    n_long: usize,
    threads: Vec<JoinHandle<()>>,
    /// Kernel thread ids of the running pool threads.
    tids: Vec<i32>,
    closing: bool,
}

/// The threads and jobs of a runtime.
#[derive(Debug)]
pub(crate) struct Offload {
    jobs: Injector<Job>,
    /// The affinity mask of the thread that called `run`: pool threads are started on a pinned M
    /// and would inherit its one CPU.
    mask: Mutex<Option<affinity::Mask>>,
    pool: Mutex<JobQueue>,
    wake: Condvar,
    /// Jobs wait for a thread that sysmon is to start: the kernel has refused one, or a goroutine has locked its
    /// thread, which then must not start any. Ordering: relaxed, a hint; sysmon's note makes it visible.
    wanted: AtomicBool,
}

fmt_as!(Debug for Job, "Job(..)");

impl Offload {
    pub(crate) fn new() -> Offload {
        Offload {
            jobs: Injector::new(),
            mask: Mutex::default(),
            pool: Mutex::default(),
            wake: Condvar::new(),
            wanted: AtomicBool::new(false),
        }
    }

    /// Kernel thread ids of the threads that wait for jobs or run one.
    pub(crate) fn thread_ids(&self) -> Vec<i32> {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.tids.clone()
    }

    /// Sets the CPUs on which the threads may run.
    pub(crate) fn set_mask(&self, mask: Option<affinity::Mask>) {
        *self.mask.lock().unwrap_or_else(PoisonError::into_inner) = mask;
    }

    /// Calls `f` with the mask for threads that are not pinned; `None` if that is unknown.
    pub(crate) fn with_mask<T>(&self, f: impl FnOnce(&affinity::Mask) -> T) -> Option<T> {
        let mask = self.mask.lock().unwrap_or_else(PoisonError::into_inner);
        mask.as_ref().map(f)
    }

    /// Ends the threads; all jobs are done by then, because their goroutines have ended.
    pub(crate) fn close(&self) {
        let threads = {
            let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
            pool.closing = true;
            pool.tids.clear();
            std::mem::take(&mut pool.threads)
        };
        self.wake.notify_all();
        for thread in threads {
            // A pool thread catches its jobs' panics and does not panic itself.
            let _ = thread.join();
        }
        self.pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .closing = false;
    }

    /// Queues a job and makes sure that a thread will run it: sysmon starts one where this thread may not, and tries
    /// again where the kernel refuses. `Err` gives the job back if there is no thread and the kernel refuses one.
    pub(crate) fn submit(&'static self, job: Job, m: &Carrier) -> Result<(), Job> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let more = pool.n_idle <= pool.n_jobs && pool.threads.len() < MAX_THREADS;
        let is_refused = more && !m.is_locked() && self.start(&mut pool).is_err();
        if is_refused && pool.threads.is_empty() {
            return Err(job);
        }
        pool.n_jobs += 1;
        self.jobs.push(job);
        drop(pool);
        self.wake.notify_one();
        if is_refused || more && m.is_locked() {
            self.wanted.store(true, Ordering::Relaxed);
            m.sched().sysmon.note.wake();
        }
        Ok(())
    }

    /// As [`Offload::submit`], for a job that may wait until a goroutine acts, which may need a thread
    /// of the pool for that. So one thread always has no such job, and at least half of
    /// [`MAX_THREADS`] have none. `Err` gives the job back if that is not possible. When it is done,
    /// call [`Offload::end_long`].
    pub(crate) fn submit_long(&'static self, job: Job, m: &Carrier) -> Result<(), Job> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.n_long >= MAX_THREADS / 2 {
            return Err(job);
        }
        while pool.threads.len() < pool.n_long + 2 {
            if m.is_locked() || self.start(&mut pool).is_err() {
                return Err(job);
            }
        }
        pool.n_long += 1;
        drop(pool);
        self.submit(job, m)
    }

    pub(crate) fn end_long(&self) {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.n_long -= 1;
    }

    fn start(&'static self, pool: &mut JobQueue) -> io::Result<()> {
        let thread = crate::loom::thread::Builder::new()
            .name("windlass-offload".to_owned())
            .spawn(move || self.work())?;
        pool.threads.push(thread);
        Ok(())
    }

    /// Whether jobs wait for sysmon to start a thread.
    pub(crate) fn awaits_thread(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Called by sysmon: starts the threads that jobs wait for.
    ///
    /// # Errors
    ///
    /// The kernel refuses one, and it remains wanted.
    pub(crate) fn start_wanted(&self) -> io::Result<()> {
        if !self.awaits_thread() {
            return Ok(());
        }
        // SAFETY: as in `offload`: the jobs' goroutines keep the run alive.
        let all: &'static Offload = unsafe { &*std::ptr::from_ref(self) };
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let n_missing = pool.n_jobs.saturating_sub(pool.n_idle);
        let n_room = MAX_THREADS.saturating_sub(pool.threads.len());
        let started = (0..n_missing.min(n_room)).try_for_each(|_| all.start(&mut pool));
        self.wanted.store(started.is_err(), Ordering::Relaxed);
        started
    }

    fn work(&self) {
        if let Some(mask) = &*self.mask.lock().unwrap_or_else(PoisonError::into_inner) {
            affinity::restore(mask);
        }
        clock::loosen_timer_slack();
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.tids.push(threads::gettid());
        loop {
            while pool.n_jobs == 0 {
                if pool.closing {
                    return;
                }
                pool.n_idle += 1;
                pool = self.wake.wait(pool).unwrap_or_else(PoisonError::into_inner);
                pool.n_idle -= 1;
            }
            pool.n_jobs -= 1;
            drop(pool);
            let job = loop {
                match self.jobs.steal() {
                    Steal::Success(job) => break job,
                    Steal::Retry | Steal::Empty => crate::loom::spin_loop(),
                }
            };
            // SAFETY: `offload` created the function and the data for each other.
            unsafe { (job.run)(job.data) };
            pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}
