//! The state of a bubble, and the calling thread's bubble.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use super::draw::{Rng, mix};
use super::log::{Event, Log};
use super::messages::Messages;
use super::net::dice::Dice;
use super::net::faults::Faults;
use super::net::links::Quality;
use super::net::network::Network;
use super::net::socket::Ticket;
use super::runnable::Runnable;
use super::strategy::{Choice, Options, Pick, Script, Strategy};

/// Where the clock of every bubble begins. Not at 0, so that a little may be subtracted.
const BEGIN_NS: u64 = 1_000_000_000_000;

/// The time of day at which every bubble begins, in seconds since 1970: 1 January 2000, UTC.
const BEGIN_OF_DAY: Duration = Duration::from_secs(946_684_800);

/// A panic that ended a goroutine.
#[derive(Clone, Debug)]
pub struct Panicked {
    /// The number of the goroutine.
    pub id: u64,
    /// Its name.
    pub name: Option<String>,
    /// The message of the panic.
    pub message: String,
    /// Unknown if the program has replaced the panic hook.
    pub at: Option<String>,
    /// The step of the run at which it panicked.
    pub step: u64,
    /// The virtual time of the panic.
    pub at_ns: u64,
}

/// A panic that the hook saw.
#[derive(Debug)]
struct Seen {
    id: u64,
    at: Option<String>,
    /// The run was over.
    is_late: bool,
}

/// One simulated run: its clock, its choices, its log. Used by one thread.
#[derive(Debug)]
pub struct Bubble {
    now_ns: Cell<u64>,
    /// The time on `std`'s clock when the bubble began.
    began: Instant,
    strategy: RefCell<Box<dyn Strategy>>,
    /// For all choices but that of the next goroutine.
    rng: RefCell<Rng>,
    /// Makes all choices, if there is one.
    script: RefCell<Option<Script>>,
    /// All choices that a script would have to make.
    choices: RefCell<Vec<Choice>>,
    log: Log,
    step: Cell<u64>,
    most_steps: u64,
    /// The steps of each goroutine, by its number.
    steps_of: RefCell<Vec<u64>>,
    /// Where each goroutine was spawned, by its number, if the log keeps a list.
    sites: RefCell<Option<Vec<Option<&'static Location<'static>>>>>,
    seed: u64,
    /// The failure that this run repeats, if it does. Then panics print nothing.
    repeats: Option<String>,
    /// The run is being torn down: nothing is drawn or logged any more.
    is_over: Cell<bool>,
    panics: RefCell<Vec<Panicked>>,
    /// Whether the race detector has reported something in this run.
    has_raced: Cell<bool>,
    /// The last panic of each goroutine that the hook saw.
    seen_by_hook: RefCell<Vec<Seen>>,
    network: RefCell<Network>,
    /// Counts the messages of channels, if that is asked for.
    messages: Option<Messages>,
    /// Waits for sockets that have come to an end, for the scheduler.
    woken: RefCell<Vec<Ticket>>,
    /// The number of the goroutine that runs.
    running: Cell<u64>,
    /// The host of each goroutine, by its number, and how often the host had crashed when it was
    /// spawned.
    homes: RefCell<Vec<(u32, u32)>>,
    /// Tells this bubble from others of the process.
    serial: u64,
    /// Data that higher modules keep for the run, such as its disks: one value of each type.
    parts: RefCell<Vec<Rc<dyn Any>>>,
}

impl Bubble {
    /// A bubble whose clock begins at `began`. `keeps` says whether all events are kept.
    pub fn new(
        began: Instant,
        seed: u64,
        (strategy, script): (Box<dyn Strategy>, Option<Script>),
        most_steps: u64,
        keeps: bool,
        repeats: Option<String>,
    ) -> Bubble {
        Bubble {
            now_ns: Cell::new(BEGIN_NS),
            began,
            strategy: RefCell::new(strategy),
            rng: RefCell::new(Rng::new(mix(seed ^ 0xC401CE5))),
            script: RefCell::new(script),
            choices: RefCell::default(),
            log: Log::new(keeps),
            step: Cell::new(0),
            most_steps,
            steps_of: RefCell::default(),
            sites: RefCell::new(keeps.then(Vec::new)),
            seed,
            repeats,
            is_over: Cell::new(false),
            panics: RefCell::default(),
            has_raced: Cell::new(false),
            seen_by_hook: RefCell::default(),
            network: RefCell::new(Network::new(Quality::default(), Faults::default(), 0)),
            messages: None,
            woken: RefCell::default(),
            running: Cell::new(0),
            homes: RefCell::default(),
            serial: 0,
            parts: RefCell::default(),
        }
    }

    /// Before the run begins: sets the network, and a number that no other bubble of the process
    /// has.
    pub fn with_network(mut self, network: Network, serial: u64) -> Bubble {
        self.network = RefCell::new(network);
        self.serial = serial;
        self
    }

    /// Before the run begins: counts the messages of channels.
    pub fn count_messages(&mut self) {
        self.messages = Some(Messages::default());
    }

    /// The messages of channels, if they are counted.
    pub fn messages(&self) -> Option<&Messages> {
        self.messages.as_ref()
    }

    /// The number of the goroutine that runs.
    #[inline]
    pub fn running(&self) -> u64 {
        self.running.get()
    }

    /// Calls `f` with the network.
    pub fn net<T>(&self, f: impl FnOnce(&mut Network, &dyn Dice) -> T) -> T {
        let mut network = self.network.borrow_mut();
        if !self.is_over.get() {
            network.sweep(self);
        }
        network.set_caller(self.running.get(), self.step.get());
        let result = f(&mut network, self);
        self.woken.borrow_mut().append(&mut network.take_woken());
        result
    }

    /// The waits for sockets that have come to an end since the last call.
    pub fn take_woken(&self) -> Vec<Ticket> {
        self.woken.take()
    }

    /// The number that no other bubble of the process has.
    #[inline]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    // Hosts.

    /// A goroutine runs from now on.
    pub fn set_running(&self, id: u64, parent: u64) {
        self.running.set(id);
        self.home(id, parent);
    }

    /// The host of a goroutine, and how often it had crashed then: those of the goroutine's parent.
    fn home(&self, id: u64, parent: u64) -> (u32, u32) {
        let mut homes = self.homes.borrow_mut();
        let at = id as usize;
        if homes.len() <= at {
            homes.resize(at + 1, UNKNOWN);
        }
        if homes[at] == UNKNOWN {
            let of_parent = homes.get(parent as usize).copied();
            homes[at] = of_parent.filter(|&home| home != UNKNOWN).unwrap_or((0, 0));
        }
        homes[at]
    }

    /// Makes a goroutine that has not yet run the first one of a host.
    pub fn set_home(&self, id: u64, host: u32) {
        let life = self.network.borrow().life_of(host);
        self.home(id, 0);
        self.homes.borrow_mut()[id as usize] = (host, life);
    }

    /// The host of a goroutine.
    pub fn host_of(&self, id: u64, parent: u64) -> u32 {
        self.home(id, parent).0
    }

    /// Whether the host of a goroutine has crashed since the goroutine was spawned.
    pub fn is_lost(&self, id: u64, parent: u64) -> bool {
        let (host, life) = self.home(id, parent);
        host != 0 && self.network.borrow().life_of(host) != life
    }

    /// Whether the host of a goroutine stands still.
    pub fn is_paused(&self, id: u64, parent: u64) -> bool {
        let (host, _) = self.home(id, parent);
        host != 0 && self.network.borrow().is_paused(host)
    }

    /// The host of the goroutine that runs.
    pub fn current_host(&self) -> u32 {
        self.homes
            .borrow()
            .get(self.running.get() as usize)
            .map_or(0, |&(host, _)| host)
    }

    /// Whether the host of the goroutine that runs has crashed under it.
    pub fn is_current_lost(&self) -> bool {
        let home = self
            .homes
            .borrow()
            .get(self.running.get() as usize)
            .copied();
        home.is_some_and(|(host, life)| host != 0 && self.network.borrow().life_of(host) != life)
    }

    /// The virtual time, in nanoseconds.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// The virtual time that has passed.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now_ns.get() - BEGIN_NS)
    }

    /// The virtual time from the beginning of the run to `ns`.
    pub fn elapsed_at(&self, ns: u64) -> Duration {
        Duration::from_nanos(ns - BEGIN_NS)
    }

    /// The virtual time in `std`'s type.
    pub fn now(&self) -> Instant {
        self.began + self.elapsed()
    }

    /// The time of day on the host of the goroutine that runs.
    pub fn time_of_day(&self) -> SystemTime {
        let now = SystemTime::UNIX_EPOCH + BEGIN_OF_DAY + self.elapsed();
        let skew_ns = self.network.borrow().skew_ns(self.current_host());
        let skew = Duration::from_nanos(skew_ns.unsigned_abs());
        match skew_ns {
            0.. => now + skew,
            _ => now - skew,
        }
    }

    /// Moves the clock to `ns`, unless that has passed.
    pub fn advance(&self, ns: u64) {
        if ns > self.now_ns.get() {
            self.now_ns.set(ns);
            self.add(Event::Clock { ns });
        }
    }

    /// Draws a number below `n`, which is not 0.
    pub fn below(&self, n: usize) -> usize {
        if n == 1 || self.is_over.get() {
            return 0;
        }
        let picked = match &mut *self.script.borrow_mut() {
            Some(script) => u64::from(script.take(n as u32)),
            None => self.rng.borrow_mut().below(n as u64),
        };
        self.note_choice(picked as usize, n);
        self.add(Event::Draw {
            picked,
            of: n as u64,
        });
        picked as usize
    }

    /// Draws whether something happens that has this probability, in millionths. In a script it is
    /// a choice from two, and 0 is that it does not happen.
    pub(crate) fn chance(&self, per_million: u32) -> bool {
        if per_million == 0 || self.is_over.get() {
            return false;
        }
        let picked = match &mut *self.script.borrow_mut() {
            Some(script) => script.take(2),
            None => u32::from(self.rng.borrow_mut().below(1_000_000) < u64::from(per_million)),
        };
        self.note_choice(picked as usize, 2);
        self.add(Event::Draw {
            picked: u64::from(picked),
            of: 2,
        });
        picked == 1
    }

    /// The run's value of the type `T`, made at its first use.
    pub fn part<T: Any + Default>(&self) -> Rc<T> {
        let mut parts = self.parts.borrow_mut();
        let found = parts
            .iter()
            .find_map(|part| Rc::clone(part).downcast::<T>().ok());
        found.unwrap_or_else(|| {
            let part = Rc::new(T::default());
            parts.push(part.clone());
            part
        })
    }

    /// A goroutine has become runnable.
    pub fn add_runnable(&self, id: u64, runnable: &mut Runnable) {
        let priority = self.strategy.borrow_mut().priority(id);
        runnable.push(id, priority);
    }

    /// Chooses who runs next: the current goroutine (`None`), or a place in `runnable`, which is
    /// not empty. This is a step.
    pub fn pick(
        &self,
        current: Option<u64>,
        yielded: Option<u64>,
        runnable: &mut Runnable,
    ) -> Pick {
        if self.is_over.get() {
            return match current {
                Some(_) => None,
                None => Some(0),
            };
        }
        let n_current = usize::from(current.is_some());
        let pick = match &mut *self.script.borrow_mut() {
            Some(script) => {
                let is_last = yielded.is_some() && runnable.last() == yielded;
                let n_others = runnable.len() - usize::from(is_last);
                self.pick_by_script(script, n_current == 1, runnable.len(), n_others)
            }
            None => {
                let pick = self.strategy.borrow_mut().pick(&mut Options {
                    step: self.step.get(),
                    current,
                    yielded,
                    runnable,
                });
                if runnable.len() + n_current > 1 {
                    let picked = pick.map_or(0, |at| at + n_current);
                    self.note_choice(picked, runnable.len() + n_current);
                }
                pick
            }
        };
        let id = pick.map_or(current, |at| Some(runnable.at(at)));
        let id = id.unwrap_or(0);
        self.count(id, runnable.len() as u64);
        pick
    }

    /// `n_others` is the number of runnable goroutines without the one that has just yielded.
    fn pick_by_script(
        &self,
        script: &mut Script,
        has_current: bool,
        n_runnable: usize,
        n_others: usize,
    ) -> Pick {
        let n_current = usize::from(has_current);
        // A choice from one is noted all the same: the choices are those of a run without a bound.
        let all = match script.is_search() {
            true if has_current && !script.may_preempt() => 1,
            true if !has_current => n_others.max(1),
            _ => n_current + n_runnable,
        };
        if n_current + n_runnable == 1 {
            return Some(0);
        }
        let picked = script.take(all as u32) as usize;
        self.note_choice(picked, all);
        let pick = picked.checked_sub(n_current);
        if has_current && pick.is_some() {
            script.preempted();
        }
        pick
    }

    fn note_choice(&self, picked: usize, of: usize) {
        self.choices.borrow_mut().push(Choice {
            picked: picked as u32,
            of: of as u32,
        });
    }

    /// If the run has ended and was to make the choices of a script: where it could not, if that is so.
    pub fn misfit(&self) -> Option<String> {
        self.script.borrow().as_ref().and_then(Script::misfit)
    }

    /// All choices of the run.
    pub fn take_choices(&self) -> Vec<Choice> {
        self.choices.take()
    }

    /// The current goroutine goes on, because no other can run. This is a step as well.
    pub fn go_on(&self, id: u64) {
        if !self.is_over.get() {
            self.count(id, 0);
        }
    }

    fn count(&self, id: u64, of: u64) {
        self.step.set(self.step.get() + 1);
        let mut steps_of = self.steps_of.borrow_mut();
        let at = id as usize;
        if steps_of.len() <= at {
            steps_of.resize(at + 1, 0);
        }
        steps_of[at] += 1;
        drop(steps_of);
        self.add(Event::Run { id, of });
    }

    fn add(&self, event: Event) {
        if !self.is_over.get() {
            self.log.add(event);
        }
    }

    /// Notes where a goroutine was spawned, if the log keeps a list.
    pub fn note_site(&self, id: u64, site: Option<&'static Location<'static>>) {
        if let Some(sites) = &mut *self.sites.borrow_mut() {
            let at = id as usize;
            if sites.len() <= at {
                sites.resize(at + 1, None);
            }
            sites[at] = site;
        }
    }

    /// Says where the events of two runs differ: of this one and of another one with the same seed.
    pub fn difference(&self, events: &[Event], again: (&Bubble, &[Event])) -> String {
        let pairs = events.iter().zip(again.1);
        let same = pairs.take_while(|(a, b)| a == b).count();
        format!(
            "event {same} differs: {} in the first run, {} in the second",
            self.describe(events.get(same)),
            again.0.describe(again.1.get(same))
        )
    }

    /// An event in words, or the end of the log.
    fn describe(&self, event: Option<&Event>) -> String {
        match event {
            None => "the end".to_owned(),
            Some(Event::Run { id, of }) => {
                let site = self.site(*id);
                let site = site.map_or(String::new(), |site| format!(", spawned at {site},"));
                format!("goroutine {id}{site} runs while {of} others can")
            }
            Some(Event::Clock { ns }) => format!("the clock moves to {ns} ns"),
            Some(Event::Draw { picked, of }) => format!("{picked} is drawn of {of}"),
        }
    }

    /// Where a goroutine was spawned, if that is kept.
    pub fn site(&self, id: u64) -> Option<&'static Location<'static>> {
        let sites = self.sites.borrow();
        sites
            .as_ref()
            .and_then(|s| s.get(id as usize).copied().flatten())
    }

    /// The number of steps so far.
    #[inline]
    pub fn step(&self) -> u64 {
        self.step.get()
    }

    /// The hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.log.hash()
    }

    /// The events, if they are kept.
    pub fn take_events(&self) -> Vec<Event> {
        self.log.take_list()
    }

    /// Whether the run has had all its steps.
    pub fn is_exhausted(&self) -> bool {
        self.step.get() >= self.most_steps
    }

    /// The goroutines with the most steps, the first one with the most.
    pub fn hottest(&self, n: usize) -> Vec<(u64, u64)> {
        let steps_of = self.steps_of.borrow();
        let mut all: Vec<(u64, u64)> = steps_of
            .iter()
            .enumerate()
            .filter(|&(_, &steps)| steps > 0)
            .map(|(id, &steps)| (id as u64, steps))
            .collect();
        all.sort_by_key(|&(id, steps)| (std::cmp::Reverse(steps), id));
        all.truncate(n);
        all
    }

    /// From now on nothing is drawn or logged.
    pub fn end(&self) {
        self.is_over.set(true);
    }

    /// Whether the run is being torn down.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// The seed of all choices.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The text of the failure that this run repeats.
    pub fn repeats(&self) -> Option<&str> {
        self.repeats.as_deref()
    }

    /// Called by the panic hook, with the place.
    pub fn note_hook(&self, id: u64, at: Option<&Location<'_>>) {
        let mut seen = self.seen_by_hook.borrow_mut();
        seen.retain(|seen| seen.id != id);
        seen.push(Seen {
            id,
            at: at.map(Location::to_string),
            is_late: self.is_over.get(),
        });
    }

    /// A panic has ended goroutine `id`.
    pub fn note_panic(&self, id: u64, name: Option<&str>, payload: &(dyn std::any::Any + Send)) {
        self.note_panic_in(id, id, name, payload);
    }

    /// As [`note_panic`](Bubble::note_panic), but goroutine `running` has run the code that panicked: a destructor of
    /// what `id` has returned.
    pub fn note_panic_in(
        &self,
        running: u64,
        id: u64,
        name: Option<&str>,
        payload: &(dyn std::any::Any + Send),
    ) {
        let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let mut seen = self.seen_by_hook.borrow_mut();
        let seen = seen
            .iter()
            .position(|seen| seen.id == running)
            .map(|at| seen.remove(at));
        // Panics of goroutines while the run is torn down are no failures. One that was left
        // waiting in a scope ends later than it panicked.
        if seen
            .as_ref()
            .map_or(self.is_over.get(), |seen| seen.is_late)
        {
            return;
        }
        self.panics.borrow_mut().push(Panicked {
            id,
            name: name.map(str::to_owned),
            message: text.unwrap_or_else(|| "a payload that is not a string".to_owned()),
            at: seen.and_then(|seen| seen.at),
            step: self.step.get(),
            at_ns: self.now_ns.get(),
        });
    }

    /// The race detector has reported a race of the goroutine that runs.
    pub fn note_race(&self) {
        self.has_raced.set(true);
    }

    /// Whether the race detector has reported a race in this run.
    pub fn has_raced(&self) -> bool {
        self.has_raced.get()
    }

    /// The panics that have ended goroutines.
    pub fn panics(&self) -> Vec<Panicked> {
        self.panics.borrow().clone()
    }

    /// Makes this the bubble of the calling thread, until the guard is dropped.
    pub fn enter(self: &Rc<Bubble>) -> Entered {
        let entered = Rc::into_raw(Rc::clone(self));
        set_current(entered);
        Entered(entered)
    }
}

/// The home of a goroutine that nobody has asked about.
const UNKNOWN: (u32, u32) = (u32::MAX, 0);

impl Dice for Bubble {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn step(&self) -> u64 {
        self.step.get()
    }

    fn began_ns(&self) -> u64 {
        BEGIN_NS
    }

    fn below(&self, n: u32) -> u32 {
        Bubble::below(self, n as usize) as u32
    }

    fn is_search(&self) -> bool {
        let script = self.script.borrow();
        script.as_ref().is_some_and(Script::is_search)
    }
}

/// See [`Bubble::enter`]. One that is forgotten keeps the bubble.
#[derive(Debug)]
pub struct Entered(*const Bubble);

impl Drop for Entered {
    fn drop(&mut self) {
        set_current(std::ptr::null());
        // SAFETY: the count is from `enter`, on this thread, and is given back once.
        drop(unsafe { Rc::from_raw(self.0) });
    }
}

thread_local!(static CURRENT: Cell<*const Bubble> = const { Cell::new(std::ptr::null()) });

/// Not inlined, with an empty assembly, and returns a value: see `sched::types::current`. A
/// goroutine outside of bubbles reads the clock here as well, and may change its thread.
#[inline(never)]
fn current_ptr() -> *const Bubble {
    // SAFETY: the empty assembly touches nothing; it keeps the compiler from merging calls of this
    // function.
    #[cfg(not(miri))]
    unsafe {
        std::arch::asm!("", options(nostack, preserves_flags))
    };
    CURRENT.with(Cell::get)
}

#[inline(never)]
fn set_current(bubble: *const Bubble) {
    CURRENT.with(|c| c.set(bubble));
}

/// The bubble of the calling thread.
#[inline]
pub fn current() -> Option<Rc<Bubble>> {
    let bubble = current_ptr();
    (!bubble.is_null()).then(|| {
        // SAFETY: the guard of `enter` is on this thread, and has a count until it clears the pointer.
        unsafe {
            Rc::increment_strong_count(bubble);
            Rc::from_raw(bubble)
        }
    })
}

/// Whether the calling thread is in a bubble.
#[inline]
pub fn is_inside() -> bool {
    !current_ptr().is_null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Walk;

    fn bubble(serial: u64) -> Rc<Bubble> {
        let network = Network::new(Quality::default(), Faults::default(), 0);
        let bubble = Bubble::new(
            Instant::now(),
            1,
            (Box::new(Walk::new(Rng::new(1))), None),
            10,
            false,
            None,
        );
        Rc::new(bubble.with_network(network, serial))
    }

    /// The end of a run is no end for one who still looks at its bubble.
    #[test]
    fn a_bubble_stays_as_long_as_somebody_has_it() {
        let kept = {
            let bubble = bubble(7);
            let _entered = bubble.enter();
            current().unwrap()
        };
        assert!(current().is_none() && !is_inside());
        assert_eq!((kept.serial(), Rc::strong_count(&kept)), (7, 1));
    }

    #[test]
    fn a_guard_that_is_forgotten_keeps_the_bubble() {
        let on_its_own = std::thread::spawn(|| {
            std::mem::forget(bubble(8).enter());
            current().unwrap().serial()
        });
        assert_eq!(on_its_own.join().unwrap(), 8);
    }
}
