//! The goroutines of a runtime, as plain values.
//!
//! The slots that goroutines live in are walked, not a list: spawning pays nothing for
//! it. A slot may be given to another goroutine at any moment, so what is read of one
//! is read under a reference to it:
//!
//! 1. its status says that it holds a goroutine of this runtime;
//! 2. its count of references is raised, unless it is 0;
//! 3. its status still says so. From here on it cannot be given away.
//!
//! A slot that was given away between 1 and 2 shows at 3 as the next goroutine, whole,
//! or as free, because whoever fills it in publishes it by its status.

use std::fmt;
use std::time::Duration;

use super::stack::{self, Frame};
use crate::g::header::GRef;
use crate::g::slab;
use crate::g::status::{Kind, Reason, Snapshot};
use crate::sched::spawn::TaskRef;
use crate::sched::state::Sched;
use crate::sys::clock;

/// What a goroutine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// In a queue: it runs when its turn comes.
    Runnable,
    /// On a thread.
    Running,
    /// On a thread, without a claim to a P: in a blocking section, or computing for so
    /// long that its P was taken.
    Blocked,
    /// Parked. [`Goroutine::wait_reason`] says what for.
    Waiting,
}

/// A goroutine, as it was at some moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Goroutine {
    /// Its number, unique in the process.
    pub id: u64,
    /// The goroutine that spawned it, 0 if that was no goroutine.
    pub parent: u64,
    /// The name given to it.
    pub name: Option<String>,
    /// What it is doing.
    pub state: State,
    /// What it waits for, in the words of Go's dumps where there are such.
    pub wait_reason: Option<&'static str>,
    /// For how long it has waited, to about a second.
    pub waiting: Duration,
    /// Where it was spawned.
    pub spawned_at: &'static std::panic::Location<'static>,
    /// The P that it runs on.
    pub p: Option<usize>,
    /// The thread (M) that it runs on.
    pub m: Option<u64>,
    /// The NUMA node that its stack lies on, by the kernel's number. In a dump, of a
    /// parked goroutine.
    pub node: Option<u32>,
    /// What is on its stack, the innermost call first, with the runtime's own functions.
    /// In a dump, of a parked goroutine, with the feature `backtrace`.
    pub stack: Vec<Frame>,
}

impl Goroutine {
    /// State and reason in a word or two, as a dump has it in brackets.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match (self.state, self.wait_reason) {
            (State::Waiting, Some(reason)) => reason,
            (State::Waiting, None) => "waiting",
            (State::Runnable, _) => "runnable",
            (State::Running, _) => "running",
            (State::Blocked, _) => "blocking",
        }
    }

    /// The part of [`Goroutine::stack`] that is not the runtime's: from the call that the
    /// goroutine waits in to the function that it was spawned with.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        stack::own_frames(&self.stack)
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
        f.write_str("]")
    }
}

/// What a wait is called: Go's words for what Go has.
pub(crate) fn reason_text(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::None => return None,
        Reason::Park => "park",
        Reason::Sleep => "sleep",
        Reason::Io => "IO wait",
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
    })
}

/// Calls `f` with every goroutine of `sched` that has not ended, in no order.
pub(crate) fn for_each(sched: &Sched, mut f: impl FnMut(Goroutine, &TaskRef)) {
    let running = running(sched);
    slab::for_each(|g| {
        if let Some((task, status)) = claim(sched, g)
            && let Some(goroutine) = describe(g, status, &running)
        {
            f(goroutine, &task);
        }
    });
}

/// A reference to the goroutine in a slot, and its status, if it is one of `sched`.
fn claim(sched: &Sched, g: GRef) -> Option<(TaskRef, Snapshot)> {
    let mine = |status: Snapshot| {
        !matches!(status.kind(), Kind::Free | Kind::Dead)
            && std::ptr::eq(g.sched(), std::ptr::from_ref(sched).cast())
    };
    if !mine(g.status.load()) || !g.try_retain() {
        return None;
    }
    let task = TaskRef::from_counted(g);
    let status = g.status.load();
    mine(status).then_some((task, status))
}

/// The number of the goroutine that is in a slot, if it is one of `sched`.
pub(crate) fn id_of(sched: &Sched, g: GRef) -> Option<u64> {
    claim(sched, g).map(|(task, _)| task.g().id())
}

/// The goroutine that is in a slot, if it is one of `sched`.
pub(crate) fn one(sched: &Sched, g: GRef) -> Option<Goroutine> {
    let (_task, status) = claim(sched, g)?;
    describe(g, status, &running(sched))
}

/// A goroutine on a thread, and where that is.
struct Running {
    g: GRef,
    m: u64,
    p: Option<usize>,
}

/// Which goroutines are on threads now.
fn running(sched: &Sched) -> Vec<Running> {
    let ms = sched.ms.lock();
    ms.all
        .iter()
        .filter_map(|m| {
            let g = m.curg.get()?;
            let holds = |p: &&crate::sched::p::P| std::ptr::eq(p.owner(), &raw const **m);
            let p = sched.ps.iter().find(holds).map(|p| p.idx);
            Some(Running { g, m: m.id, p })
        })
        .collect()
}

fn describe(g: GRef, status: Snapshot, running: &[Running]) -> Option<Goroutine> {
    let on = running.iter().find(|r| r.g == g);
    let state = match status.kind() {
        // Its P was taken, as it did not come to the runtime for long.
        Kind::Running if on.is_some_and(|r| r.p.is_none()) => State::Blocked,
        Kind::New | Kind::Runnable => State::Runnable,
        Kind::Running => State::Running,
        Kind::Blocked => State::Blocked,
        Kind::Waiting | Kind::Cancelling => State::Waiting,
        Kind::Free | Kind::Dead => return None,
    };
    let waits = state == State::Waiting;
    // Read a moment before the status: it may have gone on.
    let on = on.filter(|_| matches!(state, State::Running | State::Blocked));
    Some(Goroutine {
        id: g.id(),
        parent: g.parent(),
        name: g.name().map(str::to_owned),
        state,
        wait_reason: waits.then(|| reason_text(status.reason())).flatten(),
        waiting: if waits {
            Duration::from_nanos(status.waited_ns(clock::now_ns()))
        } else {
            Duration::ZERO
        },
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
