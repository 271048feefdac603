//! A pool of threads for jobs that block. It grows on demand and is joined at its end; jobs are passed through
//! crossbeam's `Injector`.
#![allow(unsafe_code)]

use std::io;

use crossbeam_deque::{Injector, Steal};
use windlass_sys::{affinity, clock, sched as threads};

use crate::loom::native::atomic::{AtomicBool, Ordering};
use crate::loom::native::{Condvar, Mutex, PoisonError};
use crate::loom::thread::JoinHandle;

/// Maximum number of threads of a pool; further jobs queue.
const MAX_THREADS: usize = 512;

/// A function and its data, which stay until it has run.
#[derive(Debug)]
pub struct Job {
    run: unsafe fn(*mut ()),
    data: *mut (),
}

// SAFETY: by the contract of `Job::new` the call may be made on any thread.
unsafe impl Send for Job {}

impl Job {
    /// A job that calls `run` with `data` once, on a thread of the pool.
    ///
    /// # Safety
    ///
    /// Any thread may call `run` with `data`, until one has done so or [`Offload::submit`] gives the job back. `run` does
    /// not unwind.
    pub unsafe fn new(run: unsafe fn(*mut ()), data: *mut ()) -> Job {
        Job { run, data }
    }
}

#[derive(Debug, Default)]
struct JobQueue {
    n_idle: usize,
    /// Queued jobs that no thread has taken yet.
    n_jobs: usize,
    /// Jobs that may wait for other jobs ([`Offload::submit_long`]), queued or running.
    n_long: usize,
    threads: Vec<JoinHandle<()>>,
    /// Kernel thread ids of the running pool threads.
    tids: Vec<i32>,
    closing: bool,
}

/// A pool: its threads and jobs.
#[derive(Debug)]
pub struct Offload {
    jobs: Injector<Job>,
    /// The CPUs of its threads, which would else inherit those of the thread that starts them.
    mask: Mutex<Option<affinity::Mask>>,
    pool: Mutex<JobQueue>,
    wake: Condvar,
    /// Jobs wait for a thread that [`Offload::start_wanted`] is to start. Ordering: relaxed, a hint.
    wanted: AtomicBool,
}

impl Offload {
    /// A pool without threads.
    pub fn new() -> Offload {
        Offload {
            jobs: Injector::new(),
            mask: Mutex::default(),
            pool: Mutex::default(),
            wake: Condvar::new(),
            wanted: AtomicBool::new(false),
        }
    }

    /// Kernel thread ids of the threads that wait for jobs or run one.
    pub fn thread_ids(&self) -> Vec<i32> {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.tids.clone()
    }

    /// Sets the CPUs on which the threads may run.
    pub fn set_mask(&self, mask: Option<affinity::Mask>) {
        *self.mask.lock().unwrap_or_else(PoisonError::into_inner) = mask;
    }

    /// Calls `f` with the CPUs of the threads; `None` if none were set.
    pub fn with_mask<T>(&self, f: impl FnOnce(&affinity::Mask) -> T) -> Option<T> {
        let mask = self.mask.lock().unwrap_or_else(PoisonError::into_inner);
        mask.as_ref().map(f)
    }

    /// Ends the threads, when all jobs are done.
    pub fn close(&self) {
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

    /// Queues a job. `may_start` says whether the caller may start threads. `true` if one is missing, because it may not or
    /// the kernel refuses: another thread calls [`Offload::start_wanted`]. `Err` gives the job back if there is no thread and
    /// the kernel refuses one.
    pub fn submit(&'static self, job: Job, may_start: bool) -> Result<bool, Job> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let more = pool.n_idle <= pool.n_jobs && pool.threads.len() < MAX_THREADS;
        let is_refused = more && may_start && self.start(&mut pool).is_err();
        if is_refused && pool.threads.is_empty() {
            return Err(job);
        }
        pool.n_jobs += 1;
        self.jobs.push(job);
        drop(pool);
        self.wake.notify_one();
        let is_wanted = is_refused || more && !may_start;
        if is_wanted {
            self.wanted.store(true, Ordering::Relaxed);
        }
        Ok(is_wanted)
    }

    /// As [`Offload::submit`], for a job that may wait until another job is done. So one thread always has no such job, and at least half of
    /// `MAX_THREADS` have none. `Err` gives the job back if that is not possible. When it is done,
    /// call [`Offload::end_long`].
    pub fn submit_long(&'static self, job: Job, may_start: bool) -> Result<bool, Job> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.n_long >= MAX_THREADS / 2 {
            return Err(job);
        }
        while pool.threads.len() < pool.n_long + 2 {
            if !may_start || self.start(&mut pool).is_err() {
                return Err(job);
            }
        }
        pool.n_long += 1;
        drop(pool);
        self.submit(job, may_start)
    }

    /// A job of [`Offload::submit_long`] is done.
    pub fn end_long(&self) {
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

    /// Whether jobs wait for [`Offload::start_wanted`].
    pub fn awaits_thread(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Starts the threads that jobs wait for.
    ///
    /// # Errors
    ///
    /// The kernel refuses one, and it remains wanted.
    ///
    /// # Safety
    ///
    /// The pool stays in its place until [`Offload::close`] has returned.
    pub unsafe fn start_wanted(&self) -> io::Result<()> {
        if !self.awaits_thread() {
            return Ok(());
        }
        // SAFETY: by this function's contract; `close` joins the threads.
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
            // SAFETY: by the contract of `Job::new`.
            unsafe { (job.run)(job.data) };
            pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}
