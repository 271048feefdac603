//! The goroutines of a runtime, as plain values.
//!
//! The walk goes over the slots that hold goroutines, not over a list, so spawning pays nothing for
//! it. A slot may be reused for another goroutine at any moment. Therefore a goroutine is read
//! under a reference to it, taken in three steps:
//!
//! 1. Check that the slot's status says that it holds a goroutine of this runtime.
//! 2. Increment its reference count, unless that is 0.
//! 3. Check the status again. From here on the slot cannot be reused.
//!
//! A slot that was reused between 1 and 2 is seen at 3 as free, or as the next goroutine, complete:
//! a new goroutine is published by its status.

use std::fmt;
use std::time::Duration;

use super::stack::{self, Frame};
use crate::g::header::GRef;
use crate::g::slab;
use crate::g::status::{GKind, Reason, Snapshot};
use crate::loom::Ordering;
use crate::sched::types::state::Sched;
use crate::sched::wait::spawn::TaskRef;
use crate::sys::clock;

/// The state of a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// In a run queue.
    Runnable,
    /// Running on a thread.
    Running,
    /// Running on a thread without a P, which was retaken: it has computed, or blocked its thread outside of
    /// a blocking section, for long.
    WithoutP,
    /// In a blocking section.
    Blocked,
    /// Parked. [`Goroutine::wait_reason`] has the reason.
    Waiting,
}

/// The description of a goroutine at some moment. Part of a [`Dump`](super::Dump).
///
/// # Examples
///
/// ```
/// use windlass::task;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let waiter = task::Builder::new().name("waiter").spawn(task::park).unwrap();
///     windlass::sleep(std::time::Duration::from_millis(1));
///     let dump = windlass::blocking(|| rt.dump());
///     let found = dump.goroutines.iter().find(|g| g.id == waiter.task().id()).unwrap();
///     println!("{found}: {}", found.status()); // goroutine 2 [park, ..]: park
///     for frame in found.frames() {
///         println!("{frame}");
///     }
///     waiter.task().unpark();
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Goroutine {
    /// Its number, unique in the process.
    pub id: u64,
    /// The number of the goroutine that spawned it; 0 if it was spawned from outside.
    pub parent: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its label, if it has one: see [`task::Builder::label`](crate::task::Builder::label).
    pub label: Option<String>,
    /// The CPU time that it has used so far, with
    /// [`cpu_accounting`](crate::Builder::cpu_accounting).
    pub cpu_time: Option<Duration>,
    /// Its state.
    pub state: State,
    /// The reason of its wait, in the words of Go's dumps where Go has the same reason.
    pub wait_reason: Option<&'static str>,
    /// How long it has waited, with a precision of about a second.
    pub waiting: Duration,
    /// The number of the goroutine that it waits for: the one that it joins, or that has locked the
    /// [`Mutex`](crate::sync::Mutex) which it wants; the latter with the feature `lock-owners`. Present in dumps.
    pub waits_for: Option<u64>,
    /// Where it was spawned.
    pub spawned_at: &'static std::panic::Location<'static>,
    /// The P that it runs on.
    pub p: Option<usize>,
    /// The thread (M) that it runs on.
    pub m: Option<u64>,
    /// The NUMA node of its stack, by the kernel's number. Present in dumps, for parked goroutines.
    pub node: Option<u32>,
    /// Its stack, the innermost call first, including the runtime's own functions. Present in
    /// dumps, for parked goroutines, with the feature `backtrace`.
    pub stack: Vec<Frame>,
}

impl Goroutine {
    /// The state or the wait reason, as a dump prints it in brackets.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match (self.state, self.wait_reason) {
            (State::Waiting, Some(reason)) => reason,
            (State::Waiting, None) => "waiting",
            (State::Runnable, _) => "runnable",
            (State::Running, _) => "running",
            (State::WithoutP, _) => "running without a P",
            (State::Blocked, _) => "blocking",
        }
    }

    /// The program's part of [`Goroutine::stack`]: from the function that called windlass to that which
    /// the goroutine was spawned with. [`status`](Goroutine::status) says what it waits for there. With
    /// `RUST_BACKTRACE=full` in the environment, the whole stack.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        match stack::shows_all() {
            true => &self.stack,
            false => stack::own_frames(&self.stack),
        }
    }
}

impl fmt::Display for Goroutine {
    /// The first line of its entry in a dump, up to the colon:
    /// `goroutine 18 [sleep, 5 minutes, node 0, name "worker"]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "goroutine {} [{}", self.id, self.status())?;
        match self.waiting.as_secs() / 60 {
            0 => {}
            1 => f.write_str(", 1 minute")?,
            n => write!(f, ", {n} minutes")?,
        }
        if let Some(other) = self.waits_for {
            write!(f, ", for goroutine {other}")?;
        }
        if let Some(p) = self.p {
            write!(f, ", P{p}")?;
        }
        if let Some(m) = self.m {
            write!(f, ", M{m}")?;
        }
        if let Some(node) = self.node {
            write!(f, ", node {node}")?;
        }
        if let Some(name) = &self.name {
            write!(f, ", name {name:?}")?;
        }
        if let Some(label) = &self.label {
            write!(f, ", label {label:?}")?;
        }
        if let Some(cpu_time) = self.cpu_time {
            write!(f, ", cpu {cpu_time:.1?}")?;
        }
        f.write_str("]")
    }
}

/// The wait of a goroutine that has left its stack for it.
fn text_off_stack(reason: Reason) -> &'static str {
    match reason {
        Reason::Io => "IO wait without a stack",
        Reason::Sleep => "sleep without a stack",
        Reason::ChanRecv => "chan receive without a stack",
        _ => "future without a stack",
    }
}

/// Whether this is the wait of a goroutine without a stack.
pub(super) fn is_off_stack(wait_reason: &str) -> bool {
    wait_reason.ends_with(" without a stack")
}

/// The name of a wait reason: Go's, where Go has the same reason.
pub(crate) fn reason_text(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::None => return None,
        Reason::Park => "park",
        Reason::Sleep => "sleep",
        Reason::Io | Reason::SimulatedIo => "IO wait",
        Reason::Join => "join",
        Reason::Scope => "scope",
        Reason::Offload => "offload",
        Reason::ChanSend => "chan send",
        Reason::ChanRecv => "chan receive",
        Reason::Select => "select",
        Reason::Mutex => "sync.Mutex.lock",
        Reason::RwLock => "sync.RwLock",
        Reason::Condvar => "sync.Condvar.wait",
        Reason::Semaphore => "sync.Semaphore.acquire",
        Reason::Barrier => "sync.Barrier.wait",
        Reason::Once => "sync.Once",
        Reason::WaitGroup => "sync.WaitGroup.wait",
        Reason::Future => "future",
        Reason::Settle => "sim.settle",
    })
}

/// Calls `f` with every goroutine of `sched` that has not ended, in no order.
pub(crate) fn for_each(sched: &Sched, mut f: impl FnMut(Goroutine, &TaskRef)) {
    let running = running(sched);
    slab::all().for_each(|g| {
        if let Some((task, status)) = claim(sched, g)
            && let Some(goroutine) = describe(sched, g, status, &running)
        {
            f(goroutine, &task);
        }
    });
}

/// Takes a reference to the goroutine in a slot, and reads its status, if it is one of `sched`.
fn claim(sched: &Sched, g: GRef) -> Option<(TaskRef, Snapshot)> {
    let mine =
        |status: Snapshot| !matches!(status.kind(), GKind::Free | GKind::Dead) && sched.owns(g);
    if !mine(g.status.load()) || !g.try_retain() {
        return None;
    }
    let task = TaskRef::from_counted(g);
    let status = g.status.load();
    mine(status).then_some((task, status))
}

/// Calls `f` with every goroutine of `sched` that waits for a reason that `is_wanted`, in no order. It may have gone
/// on by then, but not ended.
#[cfg(feature = "backtrace")]
pub(super) fn for_each_waiting(
    sched: &Sched,
    is_wanted: impl Fn(Reason) -> bool,
    mut f: impl FnMut(GRef, Reason),
) {
    let waits = |status: Snapshot| status.kind() == GKind::Waiting && is_wanted(status.reason());
    slab::all().for_each(|g| {
        if waits(g.status.load())
            && let Some((task, status)) = claim(sched, g)
            && waits(status)
        {
            f(task.g(), status.reason());
        }
    });
}

/// The number of the goroutine that is in a slot, if it is one of `sched`.
pub(crate) fn id_of(sched: &Sched, g: GRef) -> Option<u64> {
    claim(sched, g).map(|(task, _)| task.g().id())
}

/// The goroutine that is in a slot, if it is one of `sched`.
pub(crate) fn one(sched: &Sched, g: GRef) -> Option<Goroutine> {
    let (_task, status) = claim(sched, g)?;
    describe(sched, g, status, &running(sched))
}

/// A goroutine that is on a thread, with its M and P.
struct Running {
    g: GRef,
    m: u64,
    p: Option<usize>,
    /// CPU time that is not yet charged to it.
    cpu_ns: u64,
}

/// The goroutines that are on threads now.
fn running(sched: &Sched) -> Vec<Running> {
    let now_ns = clock::now_ns();
    let ms = sched.ms.lock();
    ms.all
        .iter()
        .filter_map(|m| {
            let g = m.curg.get()?;
            let holds = |p: &&crate::sched::types::p::P| std::ptr::eq(p.owner(), &raw const **m);
            let p = sched.ps.iter().find(holds).map(|p| p.idx);
            let cpu_ns = match m.run_since_ns.load(Ordering::Relaxed) {
                0 => 0,
                since_ns => now_ns.saturating_sub(since_ns),
            };
            Some(Running {
                g,
                m: m.id(),
                p,
                cpu_ns,
            })
        })
        .collect()
}

fn describe(sched: &Sched, g: GRef, status: Snapshot, running: &[Running]) -> Option<Goroutine> {
    let on = running.iter().find(|r| r.g == g);
    let state = match status.kind() {
        GKind::Running if on.is_some_and(|r| r.p.is_none()) => State::WithoutP,
        GKind::New | GKind::Runnable => State::Runnable,
        GKind::Running => State::Running,
        GKind::Blocked => State::Blocked,
        GKind::Waiting | GKind::Cancelling => State::Waiting,
        GKind::Free | GKind::Dead => return None,
    };
    let waits = state == State::Waiting;
    // `running` was read before the status, so the goroutine may have left its thread since.
    let on = on.filter(|_| matches!(state, State::Running | State::WithoutP | State::Blocked));
    let cpu_ns = || match g.is_fresh() {
        true => 0,
        false => g.cpu_ns() + on.map_or(0, |r| r.cpu_ns),
    };
    let is_timed = sched.config.cpu_accounting;
    Some(Goroutine {
        id: g.id(),
        parent: g.parent(),
        name: g.name().map(str::to_owned),
        label: g.label().map(|label| label.name.to_string()),
        cpu_time: is_timed.then(|| Duration::from_nanos(cpu_ns())),
        state,
        wait_reason: match waits && g.is_off_stack() {
            true => Some(text_off_stack(status.reason())),
            false => waits.then(|| reason_text(status.reason())).flatten(),
        },
        waiting: if waits {
            Duration::from_nanos(status.waited_ns(clock::now_ns()))
        } else {
            Duration::ZERO
        },
        waits_for: None,
        spawned_at: g.site()?,
        p: on.and_then(|r| r.p),
        m: on.map(|r| r.m),
        node: None,
        stack: Vec::new(),
    })
}

/// All goroutines of `sched`, the oldest first.
pub(crate) fn all(sched: &Sched) -> Vec<Goroutine> {
    let mut all = Vec::new();
    for_each(sched, |g, _| all.push(g));
    all.sort_by_key(|g| g.id);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gdb's commands have a table of their own.
    #[test]
    fn gdb_knows_the_reasons() {
        let script = include_str!("gdb.py");
        let table = script.split("REASONS = [").nth(1).unwrap();
        let table = table.split(']').next().unwrap();
        let names: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
        for (number, name) in names.iter().enumerate() {
            let reason = Reason::of(number as u8);
            assert_eq!(reason as usize, number);
            assert_eq!(reason_text(reason).unwrap_or("waiting"), *name);
        }
        assert_eq!(Reason::of(names.len() as u8), Reason::None);
    }
}
