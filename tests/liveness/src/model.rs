//! The protocol of idle Ps, spinning Ms and wakes as a state machine: three Ps, of which the first runs a goroutine that
//! pushes and then computes for ever, and a thread outside that pushes, too.
//!
//! Memory is sequentially consistent, and each step reads or writes one shared word, or takes one goroutine. Steps are named
//! after the lines that they stand for: `sched/queue/idle.rs`, `sched/proc/sleep.rs`, `sched/proc/find.rs` and
//! `sched/wait/wake.rs`. Not modelled: timers, completions, nodes, the queue of more than one goroutine that a thief takes. An
//! M that takes two from the node's queue puts the second into the ring of the busy P, for its own.
//! Without sysmon: nothing comes to the help of a wake that is lost.

/// A step left out or moved. The checker must notice each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// `sleep` does not look at the queues once the P is idle.
    SleepsWithoutLook,
    /// `sleep` sets the bit of its node after that look.
    SetsBitLate,
    /// `sleep` lowers the spinner count, looks, and only then inserts the P into the idle set.
    BecomesIdleLate,
    /// `sleep` writes the P's word when the P can be claimed already.
    PreparesLate,
    /// The last spinner that stops does not look.
    LastSpinnerDoesNotLook,
    /// The last spinner looks, and then lowers the count.
    LastSpinnerLooksEarly,
    /// An M that finds work by the look in `sleep` does not spin.
    FindsWorkInVain,
    /// `wake_spinner`, which finds no P to claim and was the last to be counted as a spinner, does not try again.
    WakerGivesUp,
    /// `sleep` lowers the spinner count before it inserts the P into the idle set. This lets no work wait: both steps come
    /// before the look at the queues.
    LowersSpinnersFirst,
    /// `take_back` does not look whether a P has become idle since.
    TakesBackBlindly,
    /// A waker that finds one and sets the bit again wakes nobody.
    SetsAgainInSilence,
    /// An M that takes two goroutines from the node's queue wakes nobody for the second.
    TakesTwoInSilence,
}

/// The Ps. The first is the one whose goroutine pushes.
pub(crate) const PS: u8 = 3;
/// The Ms of the other two Ps, and the two pushers.
pub(crate) const THREADS: usize = 4;
const OUTSIDER: usize = 3;

/// The queues: the ring of the busy P, and the node's. Those of the other Ps stay empty.
const RING: u8 = 0;
const NODE: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    Awake,
    Asleep,
    Notified,
}

/// Where a thread is. A number names the queue, or the P, that the step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    // find.rs
    ReadAlone,
    TakeBatch,
    PushRest,
    MaySpin,
    AddSpinner,
    Steal(u8),
    SpinOn,
    // A goroutine was found: `stop_spinning` of sleep.rs, and its run.
    Found,
    LowerAsLast,
    LookAsLast(u8),
    LowerAfterLook,
    Run,
    // sleep.rs
    Prepare,
    InsertIdle,
    LowerSpinners,
    ReadBit,
    SetBit,
    Look(u8),
    InsertIdleLate,
    PrepareLate,
    SetBitLate,
    Sleep,
    Claim,
    AwaitNotifier,
    BeginSpinning,
    // wake.rs
    Push,
    AnyIdleAfterPush,
    HasBit,
    AnyIdle,
    ClearBit,
    LookBehind,
    SetBitAgain,
    BeginWake,
    BeginWakeAnyIdle,
    BeginWakeCas,
    ClaimIdle(u8),
    Notify(u8),
    StopSpinning,
    // The thread does nothing any more.
    Computes,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Thread {
    at: At,
    is_spinning: bool,
    /// A value read, which a later step of the thread uses: `alone`, or whether there is work.
    flag: bool,
    to_push: u8,
}

/// A state of all threads and of what they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    queues: [u8; 2],
    idle: [bool; PS as usize],
    words: [Word; PS as usize],
    /// Of the node, in `Sched::idle_nodes`.
    has_bit: bool,
    n_spinning: u8,
    /// Goroutines that may still turn out to compute for ever. One P is left for the rest.
    n_long: u8,
    threads: [Thread; THREADS],
}

/// The P of an M. That of the busy goroutine is the first.
fn p_of(thread: usize) -> u8 {
    thread as u8 + 1
}

fn is_m(thread: usize) -> bool {
    thread < PS as usize - 1
}

impl State {
    /// All Ms look for work, and each pusher is going to push that many goroutines.
    pub(crate) fn first(to_push: [u8; 2]) -> State {
        let thread = |at, to_push| Thread {
            at,
            is_spinning: false,
            flag: false,
            to_push,
        };
        State {
            queues: [0; 2],
            idle: [false; PS as usize],
            words: [Word::Awake; PS as usize],
            has_bit: false,
            n_spinning: 0,
            n_long: PS - 2,
            threads: [
                thread(At::ReadAlone, 0),
                thread(At::ReadAlone, 0),
                thread(At::Push, to_push[0]),
                thread(At::Push, to_push[1]),
            ],
        }
    }

    /// Whether a goroutine waits in a queue.
    pub(crate) fn has_work(&self) -> bool {
        self.queues.iter().any(|&n| n > 0)
    }

    /// The step that a thread is about to take, for a report.
    pub(crate) fn step_of(&self, thread: usize) -> String {
        let name = ["M1", "M2", "goroutine on P0", "outsider"][thread];
        format!("{name}: {:?}", self.threads[thread].at)
    }

    /// The states that one step of `thread` may lead to; none if it waits, computes or has ended.
    pub(crate) fn after(&self, thread: usize, fault: Fault) -> impl Iterator<Item = State> {
        let mut next = *self;
        let at = self.threads[thread].at;
        let other = match at {
            At::Run if self.n_long > 0 => Some(self.with(thread, At::Computes)),
            At::SpinOn => Some(self.with(thread, At::Prepare)),
            _ => None,
        };
        let moves = match at {
            At::ReadAlone | At::TakeBatch | At::MaySpin | At::AddSpinner => next.finds(thread),
            At::PushRest => next.pushes_rest(fault),
            At::Steal(_) | At::SpinOn => next.searches(thread),
            At::Found | At::LowerAsLast | At::LookAsLast(_) | At::LowerAfterLook | At::Run => {
                next.stops_spinning(thread, fault)
            }
            At::Prepare
            | At::InsertIdle
            | At::LowerSpinners
            | At::ReadBit
            | At::SetBit
            | At::Look(_) => next.goes_idle(thread, fault),
            At::InsertIdleLate | At::PrepareLate | At::SetBitLate => next.is_late(thread),
            At::Sleep | At::Claim | At::BeginSpinning | At::AwaitNotifier => {
                next.awakes(thread, fault)
            }
            At::Push | At::AnyIdleAfterPush => next.pushes(thread),
            At::HasBit | At::AnyIdle | At::ClearBit | At::LookBehind | At::SetBitAgain => {
                next.looks_for_idle(thread, fault)
            }
            _ => next.wakes(thread, fault),
        };
        let next = moves.map(|at| next.with(thread, at));
        next.into_iter().chain(other.map(|mut computes| {
            computes.n_long -= u8::from(at == At::Run);
            computes
        }))
    }

    fn with(mut self, thread: usize, at: At) -> State {
        self.threads[thread].at = at;
        self
    }

    fn n_idle(&self) -> u8 {
        self.idle.iter().filter(|&&idle| idle).count() as u8
    }

    fn take(&mut self, queue: u8) -> bool {
        let n = &mut self.queues[queue as usize];
        let is_there = *n > 0;
        *n -= u8::from(is_there);
        is_there
    }

    /// `find_runnable`, `find_runnable_slow`, and the beginning of `search`.
    fn finds(&mut self, thread: usize) -> Option<At> {
        let at = self.threads[thread].at;
        let n_busy = PS - self.n_idle();
        Some(match at {
            At::ReadAlone => {
                self.threads[thread].flag = n_busy == 1;
                At::TakeBatch
            }
            At::TakeBatch if self.take(NODE) => {
                // A spinner that takes two wakes nobody, as one spins: itself.
                match !self.threads[thread].is_spinning && self.take(NODE) {
                    true => At::PushRest,
                    false => At::Found,
                }
            }
            At::TakeBatch if self.threads[thread].flag => At::Prepare,
            At::TakeBatch if self.threads[thread].is_spinning => At::Steal(RING),
            At::TakeBatch => At::MaySpin,
            At::MaySpin if 2 * self.n_spinning < n_busy => At::AddSpinner,
            At::MaySpin => At::Prepare,
            _ => {
                self.n_spinning += 1;
                self.threads[thread].is_spinning = true;
                At::Steal(RING)
            }
        })
    }

    /// The second of two goroutines, which was in no queue since they were taken.
    fn pushes_rest(&mut self, fault: Fault) -> Option<At> {
        self.queues[RING as usize] += 1;
        Some(match fault {
            Fault::TakesTwoInSilence => At::Found,
            _ => At::AnyIdleAfterPush,
        })
    }

    /// The loop of `search`: other Ps' rings, then the node's queue; then it is over, or goes on.
    fn searches(&mut self, thread: usize) -> Option<At> {
        let at = self.threads[thread].at;
        Some(match at {
            At::Steal(queue) if self.take(queue) => At::Found,
            At::Steal(NODE) => At::SpinOn,
            At::Steal(queue) => At::Steal(queue + 1),
            // All others are idle.
            _ if self.n_idle() + 1 == PS => At::Prepare,
            _ => At::Steal(RING),
        })
    }

    /// `stop_spinning` of sleep.rs, and the goroutine that runs then.
    fn stops_spinning(&mut self, thread: usize, fault: Fault) -> Option<At> {
        let at = self.threads[thread].at;
        let looks_early = fault == Fault::LastSpinnerLooksEarly;
        Some(match at {
            At::Found if !self.threads[thread].is_spinning => At::Run,
            At::Found if looks_early => At::LookAsLast(NODE),
            At::Found => At::LowerAsLast,
            At::LowerAsLast => {
                self.threads[thread].is_spinning = false;
                self.n_spinning -= 1;
                match self.n_spinning == 0 && fault != Fault::LastSpinnerDoesNotLook {
                    true => At::LookAsLast(NODE),
                    false => At::Run,
                }
            }
            At::LookAsLast(queue) => {
                let has_work = self.queues[queue as usize] > 0;
                self.threads[thread].flag = has_work;
                match (has_work, queue == RING) {
                    (false, false) => At::LookAsLast(RING),
                    _ if looks_early => At::LowerAfterLook,
                    (true, _) => At::HasBit,
                    (false, true) => At::Run,
                }
            }
            At::LowerAfterLook => {
                self.threads[thread].is_spinning = false;
                self.n_spinning -= 1;
                match self.threads[thread].flag {
                    true => At::HasBit,
                    false => At::Run,
                }
            }
            // It ends.
            _ => At::ReadAlone,
        })
    }

    /// `sleep`, up to where it sleeps.
    fn goes_idle(&mut self, thread: usize, fault: Fault) -> Option<At> {
        let at = self.threads[thread].at;
        let p = p_of(thread);
        Some(match at {
            At::Prepare => {
                self.threads[thread].flag = std::mem::take(&mut self.threads[thread].is_spinning);
                if fault != Fault::PreparesLate {
                    self.words[p as usize] = Word::Asleep;
                }
                match self.threads[thread].flag && fault == Fault::LowersSpinnersFirst {
                    true => At::LowerSpinners,
                    false => At::InsertIdle,
                }
            }
            At::InsertIdle => {
                self.idle[p as usize] = fault != Fault::BecomesIdleLate;
                match self.threads[thread].flag && fault != Fault::LowersSpinnersFirst {
                    true => At::LowerSpinners,
                    false => At::ReadBit,
                }
            }
            At::LowerSpinners => {
                self.n_spinning -= 1;
                match fault {
                    Fault::LowersSpinnersFirst => At::InsertIdle,
                    _ => At::ReadBit,
                }
            }
            At::ReadBit if !self.has_bit && fault != Fault::SetsBitLate => At::SetBit,
            At::ReadBit | At::SetBit => {
                self.has_bit |= at == At::SetBit;
                match fault {
                    Fault::SleepsWithoutLook => At::Sleep,
                    _ => At::Look(NODE),
                }
            }
            At::Look(queue) => {
                let has_work = self.queues[queue as usize] > 0;
                self.threads[thread].flag = has_work;
                match (has_work || queue == RING, fault) {
                    (false, _) => At::Look(RING),
                    (true, Fault::BecomesIdleLate) => At::InsertIdleLate,
                    (true, Fault::PreparesLate) => At::PrepareLate,
                    (true, Fault::SetsBitLate) => At::SetBitLate,
                    _ => after_look(has_work),
                }
            }
            at => unreachable!("{at:?}"),
        })
    }

    /// A step of `sleep` that a fault has moved behind the look.
    fn is_late(&mut self, thread: usize) -> Option<At> {
        let at = self.threads[thread].at;
        let p = p_of(thread) as usize;
        match at {
            At::InsertIdleLate => self.idle[p] = true,
            At::PrepareLate => self.words[p] = Word::Asleep,
            _ => self.has_bit = true,
        }
        Some(after_look(self.threads[thread].flag))
    }

    /// The rest of `sleep`.
    fn awakes(&mut self, thread: usize, fault: Fault) -> Option<At> {
        let Thread { at, flag, .. } = self.threads[thread];
        let spins = flag && fault != Fault::FindsWorkInVain;
        let p = p_of(thread) as usize;
        Some(match at {
            At::Sleep if self.words[p] == Word::Notified => At::Claim,
            At::Claim if std::mem::take(&mut self.idle[p]) => {
                self.words[p] = Word::Awake;
                match spins {
                    true => At::BeginSpinning,
                    false => self.looks_again(thread),
                }
            }
            At::Claim => At::AwaitNotifier,
            At::BeginSpinning => {
                self.n_spinning += 1;
                self.threads[thread].is_spinning = true;
                self.looks_again(thread)
            }
            At::AwaitNotifier if self.words[p] == Word::Notified => {
                self.words[p] = Word::Awake;
                self.threads[thread].is_spinning = true;
                self.looks_again(thread)
            }
            _ => return None,
        })
    }

    fn looks_again(&mut self, thread: usize) -> At {
        self.threads[thread].flag = false;
        At::ReadAlone
    }

    /// A push, to the ring of the busy P or to the node's queue, and what `wake_for_surplus` reads.
    fn pushes(&mut self, thread: usize) -> Option<At> {
        let at = self.threads[thread].at;
        let is_outsider = thread == OUTSIDER;
        Some(match at {
            At::Push if self.threads[thread].to_push == 0 => At::Done,
            At::Push => {
                self.threads[thread].to_push -= 1;
                self.queues[if is_outsider { NODE } else { RING } as usize] += 1;
                match is_outsider {
                    true => At::HasBit,
                    false => At::AnyIdleAfterPush,
                }
            }
            At::AnyIdleAfterPush if !self.has_bit => done_waking(thread),
            // `any_idle` reads the bit again, as it does for the outsider.
            _ => At::AnyIdle,
        })
    }

    /// `any_idle` of wake.rs, with `IdleNodes::take_back`.
    fn looks_for_idle(&mut self, thread: usize, fault: Fault) -> Option<At> {
        let at = self.threads[thread].at;
        let any_idle = self.n_idle() > 0;
        Some(match at {
            At::HasBit if !self.has_bit => done_waking(thread),
            At::HasBit => At::AnyIdle,
            At::AnyIdle if any_idle => At::BeginWake,
            At::AnyIdle => At::ClearBit,
            At::ClearBit => {
                self.has_bit = false;
                match fault {
                    Fault::TakesBackBlindly => done_waking(thread),
                    _ => At::LookBehind,
                }
            }
            At::LookBehind if any_idle => At::SetBitAgain,
            At::LookBehind => done_waking(thread),
            _ => {
                self.has_bit = true;
                match fault {
                    Fault::SetsAgainInSilence => done_waking(thread),
                    _ => At::BeginWake,
                }
            }
        })
    }

    /// `wake_spinner`, with `IdleSet::begin_wake`. What `wake_in` reads before is read again here.
    fn wakes(&mut self, thread: usize, fault: Fault) -> Option<At> {
        let at = self.threads[thread].at;
        let none_idle = !self.idle.contains(&true);
        Some(match at {
            At::BeginWake if self.n_spinning != 0 => done_waking(thread),
            At::BeginWake => At::BeginWakeAnyIdle,
            At::BeginWakeAnyIdle if none_idle => done_waking(thread),
            At::BeginWakeAnyIdle => At::BeginWakeCas,
            At::BeginWakeCas if self.n_spinning != 0 => done_waking(thread),
            At::BeginWakeCas => {
                self.n_spinning = 1;
                At::ClaimIdle(1)
            }
            At::ClaimIdle(PS) => At::StopSpinning,
            At::ClaimIdle(p) if std::mem::take(&mut self.idle[p as usize]) => At::Notify(p),
            At::ClaimIdle(p) => At::ClaimIdle(p + 1),
            At::Notify(p) => {
                self.words[p as usize] = Word::Notified;
                done_waking(thread)
            }
            At::StopSpinning => {
                self.n_spinning -= 1;
                match self.n_spinning == 0 && fault != Fault::WakerGivesUp {
                    true => At::BeginWake,
                    false => done_waking(thread),
                }
            }
            _ => return None,
        })
    }
}

fn after_look(has_work: bool) -> At {
    match has_work {
        true => At::Claim,
        false => At::Sleep,
    }
}

/// A pusher goes on with its next push; an M runs the goroutine that it has found.
fn done_waking(thread: usize) -> At {
    match is_m(thread) {
        true => At::Run,
        false => At::Push,
    }
}
