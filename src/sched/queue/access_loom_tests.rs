//! Retaking a P from an M that gives it away meanwhile: a P has one holder.
#![allow(unsafe_code)]

use super::*;
use crate::loom::models::{self, Arc, UnsafeCell, thread};

/// State accessed only by the holder of a P. loom reports concurrent accesses, and an access that
/// does not see an earlier one.
struct P(UnsafeCell<u32>);

impl P {
    fn touch(&self) {
        // SAFETY: the models show that there is no concurrent access.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }
}

/// An M that holds the first P and runs user code; a second M that may be given that P.
struct World {
    ps: [P; 2],
    access: AtomicU32,
    in_runtime: AtomicU32,
    p: AtomicPtr<P>,
    /// The first P was given to the second M.
    is_given: AtomicU32,
    /// As `M::preempt_at`.
    preempt_at: AtomicU32,
    /// As `P::syscall` of the first P: 1 while the M is in a blocking section.
    section: AtomicU32,
}

impl World {
    fn new() -> Arc<World> {
        let world = Arc::new(World {
            ps: [P(UnsafeCell::new(0)), P(UnsafeCell::new(0))],
            access: AtomicU32::new(HAS_P),
            in_runtime: AtomicU32::new(0),
            p: AtomicPtr::new(std::ptr::null_mut()),
            is_given: AtomicU32::new(0),
            preempt_at: AtomicU32::new(0),
            section: AtomicU32::new(0),
        });
        world.hold(Some(0));
        world
    }

    fn hold(&self, i: Option<usize>) {
        let p = i.map_or(std::ptr::null(), |i| &raw const self.ps[i]);
        self.p.store(p.cast_mut(), Ordering::Relaxed);
    }

    /// The M enters the scheduler. `false` if it has lost its P, or has to wait for the decision:
    /// after that sysmon does nothing more to this M, so nothing is left to check.
    fn enter(&self) -> bool {
        mark_inside(&self.in_runtime);
        is_granted(&self.access)
    }

    /// As `retake::request_preempt` does.
    fn ask(&self) {
        self.preempt_at.store(1, Ordering::Relaxed);
        self.words().ask();
    }

    /// The M, inside: accesses the P that it holds.
    fn use_p(&self) {
        let p = self.p.load(Ordering::Relaxed);
        // SAFETY: it points into this world.
        unsafe { (*p).touch() };
    }

    fn words(&self) -> Access<'_, P> {
        Access {
            access: &self.access,
            in_runtime: &self.in_runtime,
            p: &self.p,
        }
    }

    /// Sysmon retakes the first P from the M, and uses it if it succeeds.
    fn take_first(&self) -> bool {
        let barrier = || {
            crate::loom::fence(Ordering::SeqCst);
            true
        };
        let is_taken = self.words().take(&raw const self.ps[0], barrier);
        if is_taken {
            self.ps[0].touch();
        }
        is_taken
    }
}

fn spawn_in<T: 'static>(
    world: &Arc<World>,
    f: impl FnOnce(&World) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = Arc::clone(world);
    thread::spawn(move || f(&world))
}

#[test]
fn loom_a_p_is_not_taken_from_an_m_that_is_inside() {
    models::run(|| {
        let world = World::new();
        let m = spawn_in(&world, |world| {
            for _ in 0..2 {
                if !world.enter() {
                    return;
                }
                world.use_p();
                mark_outside(&world.in_runtime);
            }
        });
        world.take_first();
        m.join().unwrap();
    });
}

/// A destructor enters where it is: it uses the P if the M has it, and does without it if it may be taken.
#[test]
fn loom_an_entry_in_place_uses_only_a_p_that_stays() {
    models::run(|| {
        let world = World::new();
        let m = spawn_in(&world, |world| {
            for _ in 0..2 {
                mark_inside(&world.in_runtime);
                if is_granted(&world.access) || state(&world.access) == PREEMPT {
                    world.use_p();
                }
                mark_outside(&world.in_runtime);
            }
        });
        world.ask();
        world.take_first();
        m.join().unwrap();
    });
}

#[test]
fn loom_an_m_that_keeps_its_p_is_asked() {
    models::run(|| {
        let world = World::new();
        let m = spawn_in(&world, |world| {
            let mut was_asked = false;
            for _ in 0..2 {
                mark_inside(&world.in_runtime);
                while state(&world.access) == RETAKING {
                    thread::yield_now();
                }
                was_asked |= acknowledge(&world.access);
                if state(&world.access) == HAS_P {
                    world.use_p();
                }
                mark_outside(&world.in_runtime);
            }
            was_asked
        });
        let is_taken = world.take_first();
        let was_asked = m.join().unwrap();
        let is_asked = world.access.load(Ordering::Relaxed) == PREEMPT;
        assert_eq!(u32::from(is_taken) + u32::from(was_asked | is_asked), 1);
    });
}

#[test]
fn loom_a_p_that_was_given_away_is_not_taken_from_its_last_m() {
    models::run(|| {
        let world = World::new();
        let m = spawn_in(&world, |world| {
            if !world.enter() {
                return;
            }
            world.use_p();
            // As `locked::give`, and then `run::take_p` of another P.
            world.hold(None);
            world.is_given.store(1, Ordering::Release);
            world.hold(Some(1));
            world.access.store(HAS_P, Ordering::Relaxed);
            mark_outside(&world.in_runtime);
            if world.enter() {
                world.use_p();
            }
        });
        let other_m = spawn_in(&world, |world| {
            if world.is_given.load(Ordering::Acquire) == 1 {
                world.ps[0].touch();
            }
        });
        world.take_first();
        m.join().unwrap();
        other_m.join().unwrap();
    });
}

/// A request is for one dispatch, which the M knows when it acknowledges it.
#[test]
fn loom_a_request_comes_with_its_dispatch() {
    models::run(|| {
        let world = World::new();
        let sysmon = spawn_in(&world, World::ask);
        mark_inside(&world.in_runtime);
        if acknowledge(&world.access) {
            assert_eq!(world.preempt_at.load(Ordering::Relaxed), 1);
        }
        sysmon.join().unwrap();
    });
}

/// The next holder of a P sees what the M did with it inside, by the barrier alone.
#[test]
fn loom_a_p_that_is_taken_shows_all_that_its_m_did() {
    models::run(|| {
        let world = World::new();
        let m = spawn_in(&world, |world| {
            if world.enter() {
                world.use_p();
                mark_outside(&world.in_runtime);
            }
        });
        if world.take_first() {
            let is_in_question = world.words().take(&raw const world.ps[0], || true);
            assert!(!is_in_question, "a P is taken once");
        }
        m.join().unwrap();
    });
}

/// An M in a blocking section loses its P through that section only: neither a request nor a verdict hides that it blocks.
#[test]
fn loom_a_p_of_a_blocking_section_is_not_taken_as_a_hogs() {
    models::run(|| {
        let world = World::new();
        let sysmon = spawn_in(&world, |world| {
            world.words().ask();
            world.take_first();
        });
        mark_inside(&world.in_runtime);
        if matches!(world.access.load(Ordering::Acquire), HAS_P | PREEMPT) {
            // As `handoff::begin_blocking`, and then `leave_blocking`.
            world.use_p();
            world.access.store(BLOCKING, Ordering::Relaxed);
            world.section.store(1, Ordering::Release);
            mark_outside(&world.in_runtime);
            mark_inside(&world.in_runtime);
            let returns = world
                .section
                .compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire);
            assert!(returns.is_ok());
            world.access.store(HAS_P, Ordering::Relaxed);
            world.use_p();
        }
        sysmon.join().unwrap();
    });
}
