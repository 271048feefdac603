//! M: an OS thread, the Note on which it sleeps without a P, and the state it owns.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;

use super::p::P;
use super::simulation::Simulation;
use super::state::Sched;
use crate::g::fork::ForkList;
use crate::g::header::{GRef, Header, OutLink};
use crate::loom;
use crate::loom::native::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use crate::loom::native::futex;
use crate::loom::oracle;
use crate::sched::queue::access::Access;
pub(crate) use crate::sched::queue::access::{BLOCKING, FORKED, HAS_P, PREEMPT, RETAKEN, RETAKING};
use crate::sched::queue::handed_work::HandedWork;
use crate::sys::clock::NEVER;
use crate::sys::sched as threads;

/// A one-shot wake-up: a futex word. A wake that precedes the sleep is remembered.
///
/// Ordering: the waker's writes are released by its swap and acquired by the sleeper's.
#[derive(Debug, Default)]
pub(crate) struct Note(AtomicU32);

impl Note {
    /// Sleeps until [`Note::wake`], and clears it.
    pub(crate) fn sleep(&self) {
        while self.0.swap(0, Ordering::AcqRel) == 0 {
            futex::wait(&self.0, 0, NEVER);
        }
    }

    /// Sleeps until [`Note::wake`] or for `ns`; `true` if it was woken.
    pub(crate) fn sleep_timeout(&self, ns: u64) -> bool {
        if self.0.swap(0, Ordering::AcqRel) == 1 {
            return true;
        }
        futex::wait(&self.0, 0, ns);
        self.0.swap(0, Ordering::AcqRel) == 1
    }

    pub(crate) fn wake(&self) {
        if self.0.swap(1, Ordering::AcqRel) == 0 {
            futex::wake_one(&raw const self.0);
        }
    }
}

/// When `checkpoint` reads the clock next, and what it saw last.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Calls until then. Ordering: relaxed; the M counts down, and may overwrite the 0 that sysmon
    /// stores, which sysmon then repeats.
    pub(crate) left: AtomicU32,
    /// Calls between two readings of the clock.
    pub(crate) interval: Cell<u32>,
    /// The time of the last reading, and when the running goroutine was first seen.
    pub(crate) looked_ns: Cell<u64>,
    pub(crate) since_ns: Cell<u64>,
    /// The P's dispatch count at that time.
    pub(crate) dispatches: Cell<u64>,
}

impl Checks {
    /// Counts a call. Whether the clock is to be read.
    #[inline(always)]
    pub(crate) fn count_down(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left != 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        left == 0
    }
}

/// The goroutine that an M runs: written by the M, read by other threads for observation.
///
/// Ordering: relaxed; the goroutine that a reader finds may have switched out or ended. It is
/// type-stable memory.
#[derive(Debug, Default)]
pub(crate) struct CurG(AtomicPtr<Header>);

impl CurG {
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<GRef> {
        // SAFETY: only `set` stores here, and slots are type-stable.
        NonNull::new(self.0.load(Ordering::Relaxed)).map(|p| unsafe { GRef::from_raw(p) })
    }

    #[inline(always)]
    pub(crate) fn set(&self, g: Option<GRef>) {
        let p = g.map_or(std::ptr::null_mut(), GRef::as_ptr);
        self.0.store(p, Ordering::Relaxed);
    }
}

const NO_CPU: usize = usize::MAX;

/// A thread of the runtime, with the P that it holds.
///
/// A reference shows that the M keeps its P: only the M's own loop has one, and a goroutine inside the
/// scheduler (`handoff::Section`). So what belongs to the holder of a P is reached through it. Others
/// have a [`Carrier`].
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct M(Carrier);

impl std::ops::Deref for M {
    type Target = Carrier;
    #[inline(always)]
    fn deref(&self) -> &Carrier {
        &self.0
    }
}

/// An M without its P: as a goroutine sees the M that it runs on, which may have lost its P, and as
/// other threads see it. Aligned to cache lines of its own: it is written at every switch.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Carrier {
    /// Ordering: relaxed; set under the lock of the Ms, before its thread exists.
    id: AtomicU64,
    pub(crate) sched: *const Sched,
    /// The P that it holds, from its own point of view: see `access`. Ordering: relaxed; other
    /// threads read it as a hint to find this M, and sysmon when it retakes the P (`access`).
    p: loom::AtomicPtr<P>,
    /// The P handed to it while it slept. Ordering: release by the giver, acquire by the taker: the
    /// M, or sysmon, which takes the P back. For a spare it is set under the lock of the Ms, and an
    /// M checks it under that lock before it lists itself as a spare.
    pub(crate) next_p: AtomicPtr<P>,
    pub(crate) curg: CurG,
    /// Since when its goroutine has used CPU time that is not yet charged to it; 0 while none runs,
    /// and where that is not measured: see `accounting`. Ordering: relaxed; written by the M.
    pub(crate) run_since_ns: AtomicU64,
    /// The forks of the running goroutine that nobody has begun, null if it has none: see
    /// `wait::fork`.
    pub(crate) forks: Cell<*const ForkList>,
    /// Calls of `join` until the next one looks for Ms that spin, and when this M last made a
    /// goroutine of a fork, in ticks.
    pub(crate) fork_looks: Cell<i32>,
    pub(crate) forked_ticks: Cell<u64>,
    /// Address of this thread's `errno`: a goroutine that changes Ms carries its value along.
    pub(crate) errno: Cell<*mut i32>,
    /// The G whose park it is committing. Ordering: stored before the status becomes Waiting (a
    /// full barrier), cleared with release; the canceller reads it with acquire after it took the
    /// token.
    pub(crate) committing: AtomicPtr<Header>,
    pub(crate) note: Note,
    /// The goroutine that has locked this thread, how often, and what names the M in its header.
    pub(crate) locked_g: CurG,
    pub(crate) n_locks: Cell<u32>,
    pub(crate) out_link: OutLink,
    /// A goroutine that only this M may run.
    pub(crate) handed_work: HandedWork,
    /// Its goroutine has ended without unlocking the thread: the thread ends, too.
    pub(crate) retired: Cell<bool>,
    /// An address on the thread's stack above the frames of the loop. Read in a signal handler on that thread.
    #[cfg(feature = "backtrace")]
    pub(crate) loop_end: Cell<usize>,
    /// Calls of `checkpoint` until it next reads the clock.
    pub(crate) checks: Checks,
    pub(crate) spinning: Cell<bool>,
    /// 1 while scheduler code runs on this M, 0 while user code does: see `handoff`.
    /// Ordering: relaxed stores with compiler fences; sysmon reads it after a membarrier.
    pub(crate) in_runtime: loom::AtomicU32,
    /// [`HAS_P`], [`RETAKING`], [`RETAKEN`], [`BLOCKING`], [`PREEMPT`] or [`FORKED`].
    pub(crate) access: loom::AtomicU32,
    /// Its P's dispatch count when its goroutine was last asked to yield: identifies that goroutine.
    /// Ordering: written before `access` becomes `PREEMPT`, with release, and read after it. At the end of a
    /// blocking section it is a hint: a request that is missed there is made again.
    pub(crate) preempt_at: AtomicU64,
    /// Counts sends and receives of its goroutines that did not have to wait.
    /// Ordering: relaxed; the M writes, and sysmon sees that it changes.
    pub(crate) transfers: loom::native::atomic::AtomicU32,
    /// The kernel's thread id, for priorities and CPU clocks. Ordering: relaxed, set at start.
    pub(crate) tid: AtomicI32,
    /// The CPU that it is pinned to, as far as the runtime knows; [`NO_CPU`] for none. Ordering:
    /// relaxed; written by its own thread when it takes a P, and by sysmon in a stopped world,
    /// where no M does. Others read it as a hint.
    cpu: AtomicUsize,
    /// Its mask may have been changed from outside: it pins itself again when it takes a P.
    /// Ordering: relaxed; set in a stopped world, read by its own thread after that.
    is_pin_in_doubt: AtomicBool,
    /// It has the mask of the process while its thread starts another one: see `children`.
    /// Ordering: sequentially consistent, because sysmon compares it with the mask that the kernel
    /// reports.
    pub(crate) is_widened: AtomicBool,
    /// Its timer slack is the process's meanwhile. Ordering: relaxed; its own thread only.
    pub(crate) is_loose: AtomicBool,
    /// It has the usual priority meanwhile, though sysmon has lowered it. Ordering: as `is_loose`.
    pub(crate) is_raised: AtomicBool,
    /// The simulated run that it carries out, null in others. Its own thread's.
    pub(crate) simulation: Cell<*const Simulation>,
    /// Its thread has a short time slice. Ordering: relaxed; it is set before the M has a P.
    pub(crate) has_short_slice: AtomicBool,
    /// Sysmon lowered its priority. Ordering: relaxed; a hint to restore it.
    pub(crate) demoted: AtomicBool,
    /// The CPU time of its thread when it last came into the runtime without its P. Ordering:
    /// written before `access` is.
    pub(crate) back_cpu_ns: AtomicU64,
}

// SAFETY: the cells belong to the M's own thread; other threads use the atomics and the note.
unsafe impl Sync for Carrier {}
// SAFETY: as for Sync: an M is created by one thread and then belongs to its own.
unsafe impl Send for Carrier {}

#[cfg(explore)]
impl Drop for M {
    fn drop(&mut self) {
        oracle::forgets(self);
    }
}

impl M {
    pub(crate) fn new(id: u64, sched: *const Sched) -> M {
        M(Carrier {
            id: AtomicU64::new(id),
            sched,
            in_runtime: loom::AtomicU32::new(1),
            access: loom::AtomicU32::new(HAS_P),
            cpu: AtomicUsize::new(NO_CPU),
            handed_work: HandedWork::new(),
            ..Carrier::default()
        })
    }

    /// The P that it holds; for scheduler code that knows that there is one.
    #[inline(always)]
    pub(crate) fn p(&self) -> &P {
        debug_assert!(self.has_p(), "M {} has no P", self.id());
        // SAFETY: Ps live as long as the scheduler, and callers know that one is held.
        unsafe { &*self.p.load(Ordering::Relaxed) }
    }

    pub(crate) fn set_p(&self, p: Option<&P>) {
        if let Some(p) = p {
            oracle::runs_on(|| p.cpu());
        }
        let p = p.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the word is this M's own, which is forgotten before it goes.
        unsafe { oracle::holds(self, &self.access, p) };
        self.p.store(p.cast_mut(), Ordering::Relaxed);
    }
}

impl Carrier {
    /// Whether a goroutine has locked it.
    #[inline(always)]
    pub(crate) fn is_locked(&self) -> bool {
        self.locked_g.get().is_some()
    }

    /// The simulated run that it carries out, if it is one.
    #[inline(always)]
    pub(crate) fn simulation(&self) -> Option<&Simulation> {
        if cfg!(not(feature = "sim")) {
            return None;
        }
        // SAFETY: set before the M's loop begins, to a value that outlives it.
        unsafe { self.simulation.get().as_ref() }
    }

    /// Makes an M whose thread has ended one for a new thread, as if it were new. The memory of Ms
    /// is not freed before the run ends: whoever has just sent something to an M may look at it
    /// when its goroutine and its thread have ended already.
    ///
    /// The caller has taken it out of [`Ms::retired`](super::state::Ms::retired), under the lock.
    pub(crate) fn renew(&self, id: u64) {
        debug_assert!(self.curg.get().is_none() && !self.has_p() && !self.is_locked());
        debug_assert!(!self.handed_work.is_there());
        self.id.store(id, Ordering::Relaxed);
        self.retired.set(false);
        self.checks.left.store(0, Ordering::Relaxed);
        self.checks.interval.set(0);
        self.in_runtime.store(1, Ordering::Relaxed);
        self.access.store(HAS_P, Ordering::Relaxed);
        self.set_cpu(None);
        self.is_widened.store(false, Ordering::SeqCst);
        self.is_loose.store(false, Ordering::Relaxed);
        self.is_raised.store(false, Ordering::Relaxed);
        self.demoted.store(false, Ordering::Relaxed);
    }

    /// Sets the nice value of its thread, which is `tid`.
    pub(crate) fn set_nice(&self, tid: i32, nice: i32) -> io::Result<()> {
        match self.has_short_slice.load(Ordering::Relaxed) {
            true => threads::set_nice_of_shortened(tid, nice),
            false => threads::set_nice(tid, nice),
        }
    }

    /// Its number, which no other M of the runtime has or had.
    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn sched(&self) -> &Sched {
        // SAFETY: the scheduler outlives its Ms, which are joined before it is dropped.
        unsafe { &*self.sched }
    }

    #[inline(always)]
    pub(crate) fn has_p(&self) -> bool {
        !self.p.load(Ordering::Relaxed).is_null()
    }

    /// Whether something is to be done when its goroutine has switched out: there are forks that nobody has
    /// begun, or its time is measured. One test for both.
    #[inline(always)]
    pub(crate) fn has_switch_work(&self) -> bool {
        self.forks.get().addr() as u64 | self.run_since_ns.load(Ordering::Relaxed) != 0
    }

    /// The words by which sysmon retakes its P.
    pub(crate) fn words(&self) -> Access<'_, P> {
        Access {
            access: &self.access,
            in_runtime: &self.in_runtime,
            p: &self.p,
        }
    }

    /// Whether it holds `p`, as seen by another thread: it may have given `p` up by now.
    pub(crate) fn seems_to_hold(&self, p: &P) -> bool {
        std::ptr::eq(self.p.load(Ordering::Relaxed), p)
    }

    /// The CPU that it is pinned to, if any.
    pub(crate) fn cpu(&self) -> Option<usize> {
        Some(self.cpu.load(Ordering::Relaxed)).filter(|&cpu| cpu != NO_CPU)
    }

    pub(crate) fn set_cpu(&self, cpu: Option<usize>) {
        self.cpu.store(cpu.unwrap_or(NO_CPU), Ordering::Relaxed);
        self.is_pin_in_doubt.store(false, Ordering::Relaxed);
    }

    /// Whether it can run a P of this CPU without pinning itself.
    pub(crate) fn is_pinned_to(&self, cpu: usize) -> bool {
        self.cpu() == Some(cpu) && !self.is_pin_in_doubt.load(Ordering::Relaxed)
    }

    /// Makes it pin itself when it next takes a P. Until then it counts as pinned where it was: it
    /// may be running a goroutine without a P.
    pub(crate) fn doubt_pin(&self) {
        self.is_pin_in_doubt.store(true, Ordering::Relaxed);
    }

    /// The P that it holds or held a moment ago, as seen by another thread or by a goroutine outside
    /// the scheduler.
    pub(crate) fn last_p(&self) -> Option<&P> {
        // SAFETY: Ps live as long as the scheduler; callers use only the parts of a P that any
        // thread may.
        unsafe { self.p.load(Ordering::Relaxed).as_ref() }
    }
}
