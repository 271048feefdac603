//! The scheduler's part of a simulated run: the list of goroutines that can run, from which the
//! bubble's strategy chooses, and why the run was stopped. Only the thread of the run uses it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use windlass_ground::std_traits::debug_fields;
use windlass_trace::recording::{Known, Recording};

use super::events::{self, Event, EventKind};
use super::progress::Progress;
use super::state::Sched;
use crate::bubble::Bubble;
use crate::bubble::net::faults::DiskEvent;
use crate::bubble::net::socket::Ticket;
use crate::bubble::runnable;
use crate::g::header::GRef;
use crate::g::status::WaitId;
use crate::loom::native::Arc;

/// Why a run was stopped before the main goroutine ended, or at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing can run, and no timer will change that.
    Deadlock,
    /// The run has had all its steps.
    Steps,
    /// The main goroutine has ended, and others never will.
    Left,
    /// A thread outside has woken or spawned a goroutine, or a goroutine has started a thread.
    Outside,
}

/// Goroutines that can run, and their numbers, in the order in which they became runnable.
#[derive(Debug, Default)]
pub(crate) struct Runnable {
    pub(crate) order: runnable::Runnable,
    /// By their numbers. Those that have left are still there.
    gs: Vec<Option<GRef>>,
}

impl Runnable {
    pub(crate) fn push(&mut self, bubble: &Bubble, g: GRef) {
        bubble.add_runnable(g.id(), &mut self.order);
        let id = g.id() as usize;
        if self.gs.len() <= id {
            self.gs.resize(id + 1, None);
        }
        self.gs[id] = Some(g);
    }

    pub(crate) fn remove(&mut self, at: usize) -> GRef {
        let id = self.order.remove(at);
        self.gs[id as usize].expect("it was pushed")
    }

    /// Takes out the goroutines for which `is_out` holds, and adds them to `others`.
    pub(crate) fn move_to(&mut self, others: &mut Vec<GRef>, is_out: impl Fn(GRef) -> bool) {
        let mut at = 0;
        while at < self.order.len() {
            let id = self.order.at(at);
            if is_out(self.gs[id as usize].expect("it was pushed")) {
                others.push(self.remove(at));
            } else {
                at += 1;
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Number of switch points that goroutines may pass once the run is over, before the next call
/// unwinds the caller, and before the simulation gives up.
const LATE_AFTER: u64 = 20_000;
const HOPELESS_AFTER: u64 = 2_000_000;

/// Called with the number of the goroutine that is left for another one, and its last step.
pub(crate) type OnSwitch = Box<dyn Fn(&Sched, u64, u64)>;

/// A simulated run.
pub(crate) struct Simulation {
    pub(crate) bubble: Rc<Bubble>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) runnable: RefCell<Runnable>,
    /// Goroutines that could run, but their host is paused.
    pub(crate) held: RefCell<Vec<GRef>>,
    /// Goroutines may be left that a crash of their host has to end.
    pub(crate) has_lost: Cell<bool>,
    /// Goroutines that wait for the simulated network.
    pub(crate) waiting: RefCell<BTreeMap<Ticket, (GRef, WaitId)>>,
    n_tickets: Cell<Ticket>,
    /// The goroutine that was chosen at a switch point, which the one before has left for it.
    pub(crate) next: Cell<Option<GRef>>,
    /// The number of the goroutine that ran last.
    pub(crate) last: Cell<u64>,
    /// Goroutines in `sim::settle`: they wait until all others do.
    pub(crate) settling: RefCell<Vec<(GRef, WaitId)>>,
    /// The main goroutine, which waits until no other goroutine will ever run.
    pub(crate) lingering: Cell<Option<(GRef, WaitId)>>,
    /// Whether it is a failure if other goroutines are left then.
    pub(crate) forbids_others: bool,
    /// Why the run was stopped, and at which step and with which hash.
    pub(crate) stopped: Cell<Option<Stop>>,
    /// Called when the run is stopped, before goroutines are cancelled: takes the dump.
    pub(crate) on_stop: Box<dyn Fn(&Sched)>,
    /// Called with the number of a host, and with what happens to its disk.
    pub(crate) on_disk: fn(u32, DiskEvent),
    /// Called when another goroutine runs than before.
    pub(crate) on_switch: Option<OnSwitch>,
    /// The events of the run, if it is to be written as a trace.
    pub(crate) recording: Option<Recording>,
    /// Switch points since the run was over.
    n_late: Cell<u64>,
}

debug_fields!(Simulation, |this| bubble: this.bubble, ..);

impl Simulation {
    pub(crate) fn new(
        bubble: Bubble,
        progress: Arc<Progress>,
        on_stop: Box<dyn Fn(&Sched)>,
        on_disk: fn(u32, DiskEvent),
    ) -> Simulation {
        Simulation {
            bubble: Rc::new(bubble),
            progress,
            runnable: RefCell::default(),
            held: RefCell::default(),
            has_lost: Cell::new(false),
            waiting: RefCell::default(),
            n_tickets: Cell::new(0),
            next: Cell::new(None),
            last: Cell::new(0),
            settling: RefCell::default(),
            lingering: Cell::new(None),
            forbids_others: false,
            stopped: Cell::new(None),
            on_stop,
            on_disk,
            on_switch: None,
            recording: None,
            n_late: Cell::new(0),
        }
    }

    /// The number of another wait for the network.
    pub(crate) fn next_ticket(&self) -> Ticket {
        self.n_tickets.set(self.n_tickets.get() + 1);
        self.n_tickets.get()
    }

    /// Makes the goroutines runnable whose waits for the network have come to an end.
    pub(crate) fn wake_network(&self) {
        for ticket in self.bubble.take_woken() {
            let waiting = self.waiting.borrow_mut().remove(&ticket);
            if let Some((g, wait)) = waiting
                && g.status.wake(wait)
            {
                self.make_runnable(g);
            }
        }
    }

    /// Adds a goroutine, whose wait has ended, to those that can run.
    pub(crate) fn make_runnable(&self, g: GRef) {
        if self.recording.is_some() {
            self.introduce(g);
            self.record(Event {
                g: g.id(),
                ..events::now(EventKind::Ready)
            });
        }
        self.runnable.borrow_mut().push(&self.bubble, g);
    }

    /// Keeps an event. `false` if this run is not recorded.
    pub(crate) fn record(&self, event: Event) -> bool {
        let Some(recording) = &self.recording else {
            return false;
        };
        if !self.is_over() {
            recording.add(self.bubble.step(), event);
        }
        true
    }

    /// Notes the name of a goroutine, if this run is recorded.
    pub(crate) fn introduce(&self, g: GRef) {
        if let Some(recording) = &self.recording {
            recording.introduce(g.id(), || Known {
                parent: g.parent(),
                name: g.name().map(str::to_owned),
            });
        }
    }

    /// Whether the run is over, and only torn down.
    pub(crate) fn is_over(&self) -> bool {
        self.bubble.is_over()
    }

    /// Counts `n` switch points after the end of the run. `true` if there have been so many that
    /// some goroutine will not end.
    pub(crate) fn count_late(&self, n: u64) -> bool {
        self.n_late.set(self.n_late.get() + n);
        self.n_late.get() > HOPELESS_AFTER
    }

    /// Whether the run is over, and some goroutine goes on without a wait that could be cut short.
    pub(crate) fn is_late(&self) -> bool {
        self.n_late.get() > LATE_AFTER
    }
}
