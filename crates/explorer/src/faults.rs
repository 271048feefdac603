//! Faults of the simulated kernel: as often as the seed says, and never while every thread
//! waits, so that no fault ends a deadlock.
//!
//! - *Errors*. An operation that nobody cancelled fails with ECANCELED, EINTR or ERESTARTSYS, as
//!   when the thread that submitted it ends: the runtime makes it again, and nobody sees
//!   anything. Or it fails with EAGAIN, ENOBUFS or ENOMEM, which the caller sees. A request that
//!   completes many times ends with such an error.
//! - *Ends*. A request that completes many times has its last completion early.
//! - *Short transfers* of streams.
//! - *Late completions*: the operation was done, and can be cancelled no more, but its completion
//!   comes later, after those of operations that were done later.
//! - *Refusals*: `io_uring_enter(2)` and a message to a ring fail for now, only a part of the entries
//!   is taken, or a wait is interrupted.

use super::strategy::Rng;

/// `ERESTARTSYS`, which some operations let out.
const ERESTARTSYS: i32 = 512;

/// Errors of which the caller of the runtime hears nothing.
const HIDDEN: [i32; 3] = [libc::ECANCELED, libc::EINTR, ERESTARTSYS];
/// Errors that the caller gets, and can try again after.
const SHOWN: [i32; 3] = [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM];

/// How `io_uring_enter(2)` fails for now.
const REFUSALS: [i32; 3] = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM];

/// One completion in so many of a request that completes many times is the last.
const ENDS: [u64; 4] = [2, 4, 16, 64];

/// One in so many, 0 for none.
#[derive(Clone, Copy, Debug, Default)]
struct Odds(u64);

impl Odds {
    fn draw(rng: &mut Rng, from: [u64; 4]) -> Odds {
        Odds(from[rng.below(4) as usize])
    }

    fn hit(self, rng: &mut Rng) -> bool {
        self.0 != 0 && rng.one_in(self.0)
    }
}

/// The faults of a schedule, and how often they come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    errors: Odds,
    ends: Odds,
    shorts: Odds,
    delays: Odds,
    refusals: Odds,
}

impl Faults {
    /// The faults that the seed draws. A part of the schedules have no faults of a kind.
    pub(super) fn new(rng: &mut Rng) -> Faults {
        Faults {
            errors: Odds::draw(rng, [0, 0, 16, 4]),
            ends: Odds::draw(rng, ENDS),
            shorts: Odds::draw(rng, [0, 8, 4, 2]),
            delays: Odds::draw(rng, [0, 8, 4, 2]),
            refusals: Odds::draw(rng, [0, 0, 64, 8]),
        }
    }

    /// Whether the next operation fails.
    pub(super) fn fails(&self, rng: &mut Rng) -> bool {
        self.errors.hit(rng)
    }

    /// The error of a failing call; `hidden` if its caller may not see an error that says nothing of what
    /// it asked for.
    pub(super) fn error(rng: &mut Rng, hidden: bool) -> i32 {
        match hidden || rng.one_in(2) {
            true => HIDDEN[rng.below(3) as usize],
            false => SHOWN[rng.below(3) as usize],
        }
    }

    /// Whether a request that completes many times does so for the last time.
    pub(super) fn ends(&self, rng: &mut Rng) -> bool {
        self.ends.hit(rng)
    }

    /// How much of `len` is moved at most.
    pub(super) fn length(&self, rng: &mut Rng, len: u32) -> u32 {
        match len > 1 && self.shorts.hit(rng) {
            true => 1 + rng.below(u64::from(len) - 1) as u32,
            false => len,
        }
    }

    /// Whether a completion comes later.
    pub(super) fn delays(&self, rng: &mut Rng) -> bool {
        self.delays.hit(rng)
    }

    /// Whether a wait is interrupted.
    pub(super) fn interrupts(&self, rng: &mut Rng) -> bool {
        self.refusals.hit(rng)
    }

    /// The error with which a system call on a ring fails for now, if it does.
    pub(super) fn refuses(&self, rng: &mut Rng) -> Option<i32> {
        let hit = self.refusals.hit(rng);
        hit.then(|| REFUSALS[rng.below(3) as usize])
    }

    /// How many of `n` entries the kernel takes.
    pub(super) fn takes(&self, rng: &mut Rng, n: usize) -> usize {
        match n > 1 && self.refusals.hit(rng) {
            true => 1 + rng.below(n as u64 - 1) as usize,
            false => n,
        }
    }
}
