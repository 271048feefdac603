//! The state of a goroutine, as ownership: which thread may resume it, and which may queue it.
//!
//! | status     | who may access its stack | who may change the state                 |
//! |------------|--------------------------|------------------------------------------|
//! | Free       | no thread                | the slab it lies in                      |
//! | New        | no thread (it has none)  | its creator, until it is queued          |
//! | Runnable   | no thread                | the queue that it is in (exactly one)    |
//! | Running    | the M that runs it       | the same M                               |
//! | Blocked    | the M that runs it       | the same M, which has no right to a P    |
//! | Waiting    | no thread                | the waker whose CAS makes it Runnable    |
//! | Cancelling | its canceller, read only | the canceller, which restores Waiting    |
//! | Dead       | no thread                | the last reference                       |
//!
//! Several wakers may race for a waiting G: a completion, a timer, an unpark, the shutdown. The
//! **wake token** is the CAS from `Waiting` of one particular wait to `Runnable`. The word carries
//! the number of the wait. So a late waker, which comes when the goroutine is already in another
//! wait, fails instead of ending the wrong wait. The number never goes back, not even when the slot
//! is reused for another goroutine.
//!
//! `Cancelling` freezes a wait: while a canceller asks the kernel to cancel an operation, the frame
//! with the operation must not be popped. A completion that finds `Cancelling` marks its operation
//! done and leaves the G alone. The canceller restores `Waiting`, checks the mark, and then readies
//! the G itself.
//!
//! Two flags are stored beside the kind. `HELD` freezes a waiting G while a dump copies its stack,
//! or while a commit reads it ([`Status::set_waiting_held`]). Wakers and cancellers of the wait
//! spin until the flag is cleared, so no wake is lost and the holder has nothing to make up for.
//! `STAMPED` means that the queued G carries the time at which it was queued, for the histogram of
//! scheduling latencies. [`Status::load`] shows neither. `CANCELLABLE` is a part of the reason: a
//! context may end the wait. `BOUND` stays from the spawn to the end: the goroutine runs on its home node only. It is
//! here because a thief of another node reads it of each goroutine, and takes this line in any case.
//!
//! ```text
//!  63        42 41          16 15            14     8 7    6       5     4..3  2..0
//!  | seconds   | number      | CANCELLABLE | reason | HELD STAMPED BOUND  -   | kind |
//! ```
//!
//! The seconds give the start of the wait, in steps of 2^30 ns of the runtime's clock; together
//! with the number they identify the wait. Both wrap around, but a stale id cannot match: no
//! goroutine waits 2^26 times in a second, and a waker that is 52 days late would have to find the
//! same number, too.

use windlass_ground::numbered::numbered;

use crate::loom::{AtomicU32, AtomicU64, Ordering, after_seq_cst};

numbered! {
    /// The state of a goroutine. See the table above.
    pub(crate) enum GKind {
        Free,
        New,
        Runnable,
        Running,
        Waiting,
        Cancelling,
        Blocked,
        Dead,
    }
}

numbered! {
    /// The reason why a goroutine waits. Shown in dumps; it also decides how a cancellation ends the
    /// wait.
    pub(crate) enum Reason {
        None,
        /// `task::park`: any unpark, a timer, or the shutdown may wake it.
        Park,
        /// `sleep`: only its timer or the shutdown.
        Sleep,
        /// An operation of the ring: only its completion. Cancelled through the ring.
        Io,
        /// `JoinHandle::join`: the joined goroutine or the shutdown.
        Join,
        /// `task::scope` waits for borrowing goroutines: never ended early.
        Scope,
        /// `offload` waits for a job that uses its frame: never ended early.
        Offload,
        /// In a wait queue (`sync::waitq`): ended by a taker, a timer, or the shutdown.
        ChanSend,
        ChanRecv,
        Select,
        Mutex,
        RwLock,
        Condvar,
        Semaphore,
        Barrier,
        Once,
        WaitGroup,
        Future,
        /// `sim::settle`: the scheduler of the simulation, or the shutdown.
        Settle,
        /// A simulated socket: the simulated network, a timer, or the shutdown.
        SimulatedIo,
    }
}

impl Reason {
    /// The reason with a number.
    pub(crate) fn of(number: u8) -> Reason {
        Reason::ALL
            .get(usize::from(number))
            .copied()
            .unwrap_or(Reason::None)
    }

    /// Whether taking the wake token is enough to end the wait early. An operation must be
    /// cancelled in the kernel first, and the remaining waits never end early.
    pub(crate) fn ends_by_token(self) -> bool {
        !matches!(
            self,
            Reason::None | Reason::Io | Reason::Scope | Reason::Offload
        )
    }

    /// Whether the wait is for a lock: it ends with the lock acquired, or by unwinding.
    pub(crate) fn is_lock(self) -> bool {
        matches!(self, Reason::Mutex | Reason::RwLock | Reason::Once)
    }
}

/// Why a goroutine begins a wait, and whether its current context may end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Why(u8);

/// The bit of a [`Why`] that lets a context end the wait.
const CANCELLABLE: u8 = 1 << 7;

impl From<Reason> for Why {
    #[inline(always)]
    fn from(reason: Reason) -> Why {
        Why(reason as u8)
    }
}

impl Why {
    pub(crate) fn reason(self) -> Reason {
        Reason::of(self.0 & !CANCELLABLE)
    }

    /// A wait that a context may end, if the goroutine has one.
    #[inline(always)]
    pub(crate) const fn cancellable(reason: Reason, has_context: bool) -> Why {
        Why(reason as u8 | if has_context { CANCELLABLE } else { 0 })
    }
}

/// A dump or a commit reads the stack: only the holder may change the state until this is cleared.
const HELD: u64 = 1 << 7;
/// The queued G carries the time at which it was queued.
const STAMPED: u64 = 1 << 6;
/// The G runs on its home node only.
const BOUND: u64 = 1 << 5;
/// The bits that a step from one kind to the next changes.
const OF_KIND: u64 = 0xff & !BOUND;

/// The number of a wait, and the seconds above it.
const NUMBER_SHIFT: u32 = 16;
const NUMBER_MASK: u64 = (1 << 26) - 1;
const SECONDS_SHIFT: u32 = 42;
/// The unit of the seconds: 2^30 ns.
const STEP_SHIFT: u32 = 30;
/// The same in ns.
pub(crate) const STEP_NS: u64 = 1 << STEP_SHIFT;

/// One reading of a status word, without its flags: the layout is above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    #[inline]
    pub(crate) fn kind(self) -> GKind {
        GKind::ALL[(self.0 & 7) as usize]
    }

    pub(crate) fn reason(self) -> Reason {
        Reason::of(self.reason_number())
    }

    #[inline(always)]
    fn reason_number(self) -> u8 {
        (self.0 >> 8) as u8 & !CANCELLABLE
    }

    /// For a waiting G: how long before `now_ns` the wait began, approximately.
    pub(crate) fn waited_ns(self, now_ns: u64) -> u64 {
        let steps = (now_ns >> STEP_SHIFT).wrapping_sub(self.0 >> SECONDS_SHIFT);
        // A wait that began just after the clock was read is 0 steps old.
        let steps = steps & ((1 << (64 - SECONDS_SHIFT)) - 1);
        if steps >= 1 << (63 - SECONDS_SHIFT) {
            0
        } else {
            steps << STEP_SHIFT
        }
    }

    /// Whether the goroutine's current context may end the wait.
    pub(crate) fn is_cancellable(self) -> bool {
        (self.0 >> 8) as u8 & CANCELLABLE != 0
    }

    fn with_kind(self, kind: GKind) -> Snapshot {
        Snapshot((self.0 & !OF_KIND) | kind as u64)
    }
}

/// Identifies one wait of one G slot; a waker must present it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct WaitId(u64);

impl WaitId {
    /// Why the goroutine waits.
    #[inline(always)]
    pub(crate) fn why(self) -> Why {
        Why((self.0 >> 8) as u8)
    }
}

/// The status word of a G.
///
/// Ordering: stores by the owner release what it wrote to the G; the wake CAS
/// is sequentially consistent, so that it acquires the parker's writes and takes
/// part in the store-then-check pairs of `sched::wait::park` (token against status) and
/// of cancellation (done mark against status).
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Status(AtomicU64);

impl Status {
    #[cfg(any(test, loom))]
    pub(crate) fn new() -> Status {
        Status(AtomicU64::new(0))
    }

    /// That of a goroutine that runs.
    #[cfg(test)]
    pub(crate) fn running() -> Status {
        let status = Status::new();
        status.set_new(false);
        status.set_runnable();
        status.set_running();
        status
    }

    #[inline]
    pub(crate) fn load(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::SeqCst) & !(HELD | STAMPED))
    }

    /// Loads the state as its owner: no other thread changes a word that is not Waiting.
    #[inline]
    fn load_own(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    fn set(&self, kind: GKind) {
        self.set_word(self.load_own().with_kind(kind).0);
    }

    #[inline]
    fn set_word(&self, word: u64) {
        self.0.store(word, Ordering::Release);
    }

    /// Free → New: the slot was taken from its slab and initialised.
    pub(crate) fn set_new(&self, is_bound: bool) {
        let before = self.load_own();
        debug_assert_eq!(before.kind(), GKind::Free);
        let bit = if is_bound { BOUND } else { 0 };
        self.set_word(before.with_kind(GKind::New).0 & !BOUND | bit);
    }

    /// Whether the G runs on its home node only. A hint unless the caller owns it.
    #[inline]
    pub(crate) fn is_bound(&self) -> bool {
        self.0.load(Ordering::Relaxed) & BOUND != 0
    }

    /// New or Running → Runnable, by its owner, before it queues the G.
    #[inline]
    pub(crate) fn set_runnable(&self) {
        debug_assert!(matches!(
            self.load_own().kind(),
            GKind::New | GKind::Running | GKind::Blocked
        ));
        self.set(GKind::Runnable);
    }

    /// Runnable or Blocked → Running, by the M that runs it.
    #[inline]
    pub(crate) fn set_running(&self) {
        debug_assert!(
            matches!(self.load_own().kind(), GKind::Runnable | GKind::Blocked),
            "{:?}",
            self.load_own().kind()
        );
        self.set(GKind::Running);
    }

    /// Running → Blocked, by the M that runs it.
    pub(crate) fn set_blocked(&self) {
        debug_assert_eq!(self.load_own().kind(), GKind::Running);
        self.set(GKind::Blocked);
    }

    /// Running → Dead, by the M that ran it.
    pub(crate) fn set_dead(&self) {
        debug_assert_eq!(self.load_own().kind(), GKind::Running);
        self.set(GKind::Dead);
    }

    /// New or Dead → Free: the slot goes back to its slab.
    pub(crate) fn set_free(&self) {
        debug_assert!(matches!(self.load_own().kind(), GKind::New | GKind::Dead));
        self.set(GKind::Free);
    }

    /// Running → Waiting, by the M that ran it, on the M's own stack. From here on wakers may take
    /// it; the returned id identifies this wait. `now_ns` may be coarse.
    #[inline]
    pub(crate) fn set_waiting(&self, why: impl Into<Why>, now_ns: u64) -> WaitId {
        let wait = self.next_wait(why.into(), now_ns);
        self.0.swap(wait.0, Ordering::SeqCst);
        after_seq_cst();
        wait
    }

    /// As [`Status::set_waiting`], but no waker can end the wait before `look` has returned: a
    /// waker that finds the wait in this word spins until then. So `look` may read the goroutine's
    /// stack. It must be short, and must not wait for a waker of this wait.
    #[inline]
    pub(crate) fn set_waiting_held<T>(
        &self,
        why: impl Into<Why>,
        now_ns: u64,
        look: impl FnOnce(WaitId) -> T,
    ) -> (WaitId, T) {
        let wait = self.next_wait(why.into(), now_ns);
        self.0.swap(wait.0 | HELD, Ordering::SeqCst);
        after_seq_cst();
        let seen = look(wait);
        self.let_go(wait);
        (wait, seen)
    }

    /// The status word of the next wait.
    #[inline(always)]
    fn next_wait(&self, Why(why): Why, now_ns: u64) -> WaitId {
        let before = self.load_own();
        debug_assert_eq!(before.kind(), GKind::Running);
        let kept = (before.0 + (1 << NUMBER_SHIFT)) & (NUMBER_MASK << NUMBER_SHIFT | BOUND);
        let seconds = (now_ns >> STEP_SHIFT) << SECONDS_SHIFT;
        WaitId(seconds | kept | (u64::from(why) << 8) | GKind::Waiting as u64)
    }

    /// The wake token: Waiting → Runnable for exactly this wait. After `true` the caller must queue
    /// the G.
    #[inline]
    #[must_use]
    pub(crate) fn wake(&self, wait: WaitId) -> bool {
        let runnable = Snapshot(wait.0).with_kind(GKind::Runnable);
        self.step(wait, runnable.0)
    }

    /// A transition out of one particular wait, once it is not held.
    #[inline]
    fn step(&self, wait: WaitId, to: u64) -> bool {
        match self
            .0
            .compare_exchange(wait.0, to, Ordering::SeqCst, Ordering::Relaxed)
        {
            Ok(_) => true,
            Err(now) => self.step_if_held(wait, to, now),
        }
    }

    /// The wait is over, or held; in the latter case waits for the holder.
    #[cold]
    #[inline(never)]
    fn step_if_held(&self, wait: WaitId, to: u64, mut now: u64) -> bool {
        while now == wait.0 | HELD {
            spin_or_yield();
            match self
                .0
                .compare_exchange(wait.0, to, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Whether a G that the caller took from a queue is stamped.
    #[inline(always)]
    pub(crate) fn is_stamped(&self) -> bool {
        self.0.load(Ordering::Relaxed) & STAMPED != 0
    }

    /// Freezes a waiting G, its stack included, until [`Status::let_go`]. For a few µs at most,
    /// because wakers of the wait spin. `false` if the wait is over, or another thread holds it.
    #[must_use]
    pub(crate) fn hold(&self, wait: WaitId) -> bool {
        self.0
            .compare_exchange(wait.0, wait.0 | HELD, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends a hold. Called by the holder.
    pub(crate) fn let_go(&self, wait: WaitId) {
        self.0.store(wait.0, Ordering::SeqCst);
        after_seq_cst();
    }

    /// Marks a G as stamped, if it is (still) queued. Any thread. If its owner changes the state at
    /// the same time the mark is lost, which loses a sample.
    pub(crate) fn stamp(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        Snapshot(now).kind() == GKind::Runnable
            && now & STAMPED == 0
            && self
                .0
                .compare_exchange(now, now | STAMPED, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// The number of waits that the slot has had, modulo 2^26.
    pub(crate) fn number(&self) -> u64 {
        (self.load_own().0 >> NUMBER_SHIFT) & NUMBER_MASK
    }

    /// The id of the wait in this snapshot, if it shows one.
    #[inline]
    pub(crate) fn wait_of(snapshot: Snapshot) -> Option<WaitId> {
        (snapshot.kind() == GKind::Waiting).then_some(WaitId(snapshot.0))
    }

    /// Waiting → Cancelling for exactly this wait: its frame stays from now on.
    #[must_use]
    pub(crate) fn begin_cancel(&self, wait: WaitId) -> bool {
        let held = Snapshot(wait.0).with_kind(GKind::Cancelling);
        self.step(wait, held.0)
    }

    /// Cancelling → Waiting, by the canceller.
    pub(crate) fn end_cancel(&self, wait: WaitId) {
        debug_assert_eq!(self.load_own().kind(), GKind::Cancelling);
        self.0.store(wait.0, Ordering::SeqCst);
        after_seq_cst();
    }
}

/// Waits briefly for a holder, whose thread may have lost its CPU.
fn spin_or_yield() {
    #[cfg(loom)]
    crate::loom::spin_loop();
    #[cfg(not(loom))]
    for _ in 0..64 {
        crate::loom::spin_loop();
    }
    #[cfg(not(loom))]
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread gives way here, not a goroutine"
    )]
    crate::loom::thread::yield_now();
}

/// The kind of token. There is one of each, so that neither side takes the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum WakeKind {
    /// Ends a `task::park`; `Task::unpark` gives it.
    Park = 1,
    /// Ends the wait of a goroutine that polls a future; the future's wakers give it.
    Poll = 2,
}

impl WakeKind {
    fn reason(self) -> Reason {
        match self {
            WakeKind::Park => Reason::Park,
            WakeKind::Poll => Reason::Future,
        }
    }
}

/// The token of `park` and `unpark`, and that of `block_on` and its wakers. Each is a single token,
/// which stays until it is taken.
///
/// | parker                        | unparker                              |
/// |-------------------------------|---------------------------------------|
/// | 1. status = Waiting(n)        | 1. set the token                      |
/// | 2. token set? then the wait   | 2. status Waiting(n) for it? take     |
/// |    is over                    |    the wake token of n                |
///
/// Ordering: sequentially consistent, so that one of the two sees the other.
#[derive(Debug)]
pub(crate) struct Token(AtomicU32);

impl Token {
    #[cfg(all(test, any(loom, miri)))]
    pub(crate) fn new() -> Token {
        Token(AtomicU32::new(0))
    }

    /// Takes the token, if it is set.
    #[inline]
    pub(crate) fn take(&self, whose: WakeKind) -> bool {
        self.0.fetch_and(!(whose as u32), Ordering::SeqCst) & whose as u32 != 0
    }

    /// The parker's step 2.
    pub(crate) fn is_there(&self, whose: WakeKind) -> bool {
        self.0.load(Ordering::SeqCst) & whose as u32 != 0
    }

    /// Clears both tokens, for a new goroutine in a reused slot.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The unparker's side: sets the token, and returns the wait to wake, if the goroutine is
    /// parked for it.
    pub(crate) fn give(&self, whose: WakeKind, status: &Status) -> Option<WaitId> {
        if self.0.fetch_or(whose as u32, Ordering::SeqCst) & whose as u32 != 0 {
            // It was set already: the thread that set it wakes the parker.
            return None;
        }
        after_seq_cst();
        let now = status.load();
        if now.reason_number() == whose.reason() as u8 {
            Status::wait_of(now)
        } else {
            None
        }
    }
}

#[cfg(all(test, any(loom, miri)))]
#[path = "status_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn waiting() -> (Status, WaitId) {
        let s = Status::running();
        let w = s.set_waiting(Reason::Park, 0);
        (s, w)
    }

    #[test]
    fn one_token_per_wait() {
        let (s, w) = waiting();
        assert_eq!(s.load().reason(), Reason::Park);
        assert!(s.wake(w));
        assert!(!s.wake(w));
    }

    #[test]
    fn a_late_waker_misses_the_next_wait() {
        let (s, first) = waiting();
        assert!(s.wake(first));
        s.set_running();
        let second = s.set_waiting(Reason::Io, 0);
        assert!(!s.wake(first));
        assert!(s.wake(second));
    }

    #[test]
    fn a_held_wait_cannot_be_woken() {
        let (s, w) = waiting();
        assert!(s.begin_cancel(w));
        assert!(!s.wake(w));
        assert!(!s.begin_cancel(w));
        s.end_cancel(w);
        assert!(s.wake(w));
    }

    #[test]
    fn the_number_survives_the_slot() {
        let (s, w) = waiting();
        assert!(s.wake(w));
        s.set_running();
        s.set_dead();
        s.set_free();
        s.set_new(false);
        s.set_runnable();
        s.set_running();
        assert_ne!(s.set_waiting(Reason::Park, 0), w);
    }

    #[test]
    fn a_bound_one_stays_bound_until_its_slot_is_used_again() {
        let s = Status::new();
        s.set_new(true);
        s.set_runnable();
        assert!(s.stamp() && s.is_bound());
        s.set_running();
        let w = s.set_waiting(Reason::Io, 0);
        assert!(s.is_bound() && s.hold(w));
        s.let_go(w);
        assert!(s.begin_cancel(w) && s.is_bound());
        s.end_cancel(w);
        assert_eq!(Status::wait_of(s.load()), Some(w));
        assert!(s.wake(w) && s.is_bound());
        assert_eq!(s.load().kind(), GKind::Runnable);
        s.set_running();
        s.set_blocked();
        s.set_running();
        s.set_dead();
        s.set_free();
        s.set_new(false);
        assert!(!s.is_bound());
    }

    #[test]
    fn a_wait_knows_its_age() {
        let s = Status::running();
        let day_ns = 86_400_000_000_000;
        let began_ns = 40 * day_ns;
        let _ = s.set_waiting(Reason::Sleep, began_ns);
        for (after_ns, at_least, at_most) in [
            (0, 0, 0),
            (90_000_000_000, 88_000_000_000, 92_000_000_000),
            (
                11 * day_ns,
                11 * day_ns - 2_000_000_000,
                11 * day_ns + 2_000_000_000,
            ),
        ] {
            let waited = s.load().waited_ns(began_ns + after_ns);
            assert!((at_least..=at_most).contains(&waited), "{waited}");
        }
        assert_eq!(s.load().waited_ns(began_ns - 2_000_000_000), 0);
    }

    #[test]
    fn a_hold_shows_to_nobody_and_ends() {
        let (s, w) = waiting();
        assert!(s.hold(w));
        assert!(!s.hold(w));
        assert_eq!(Status::wait_of(s.load()), Some(w));
        s.let_go(w);
        assert!(s.wake(w));
        assert!(!s.hold(w));
    }

    /// Rounds in which the other thread runs as well, and how many there may be in all for that.
    const BESIDE: usize = if cfg!(miri) { 50 } else { 50_000 };
    const MOST: usize = if cfg!(miri) { 50 } else { 3_000_000 };

    /// Takes a goroutine through its waits while another thread does `meddle` with it, which says whether it took the
    /// wake token.
    fn is_woken_once(meddle: impl Fn(&Status) -> bool + Sync) {
        let (s, is_over) = (Status::running(), std::sync::atomic::AtomicBool::new(false));
        let n_looks = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut n = 0;
                while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                    n += usize::from(meddle(&s));
                    n_looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
                n
            });
            let (mut n, mut n_rounds, mut n_beside, mut seen) = (0, 0, 0, 0);
            while n_beside < BESIDE && n_rounds < MOST {
                n_rounds += 1;
                let w = s.set_waiting(Reason::Park, 0);
                n += usize::from(s.wake(w));
                assert_eq!(s.load().kind(), GKind::Runnable);
                s.set_running();
                assert_eq!(s.load().kind(), GKind::Running);
                let before = std::mem::replace(
                    &mut seen,
                    n_looks.load(std::sync::atomic::Ordering::Relaxed),
                );
                n_beside += usize::from(seen != before);
            }
            is_over.store(true, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(n + other.join().unwrap(), n_rounds);
        });
    }

    #[test]
    fn two_wakers_have_one_token() {
        is_woken_once(|s| Status::wait_of(s.load()).is_some_and(|w| s.wake(w)));
    }

    #[test]
    fn a_hold_takes_no_token() {
        is_woken_once(|s| {
            if let Some(w) = Status::wait_of(s.load())
                && s.hold(w)
            {
                s.let_go(w);
            }
            false
        });
    }

    #[test]
    fn a_stamp_leaves_the_state() {
        is_woken_once(|s| {
            s.stamp();
            false
        });
    }

    #[test]
    fn only_a_queued_one_is_stamped() {
        let (s, w) = waiting();
        assert!(!s.stamp());
        assert!(s.wake(w));
        assert!(s.stamp() && !s.stamp());
        assert_eq!(s.load().kind(), GKind::Runnable);
        assert!(s.is_stamped());
        s.set_running();
        assert!(!s.is_stamped() && !s.stamp());
    }
}
