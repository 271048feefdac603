//! Invariants, checked where the runtime says what it is about to do.
//!
//! Ms, Ps and goroutines are addresses here: they are compared, and never logged.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::atomic::sync_atomic::AtomicU32;
use super::control::{Twin, charge_ps, is_twin, me, pin, with};
use super::ledger::{Ledger, Machine};

fn check(f: impl FnOnce(&mut Ledger) -> Option<&'static str>) {
    // The twin counts and checks nothing: it is about time.
    if me().is_some() && !is_twin() {
        with(|c| {
            if let Some(why) = f(&mut c.oracle) {
                c.fail(why);
            }
        });
    }
}

/// `attempt` gives what it brings from another node.
pub fn theft<T>(attempt: impl FnOnce() -> Option<T>) -> Option<T> {
    let Some(me) = me().filter(|_| is_twin()) else {
        return attempt();
    };
    let in_twin = |f: &mut dyn FnMut(&mut Twin)| with(|c| c.twin.as_mut().map_or((), f));
    in_twin(&mut |twin| twin.lines.begin_record(twin.clocks.cpu(me)));
    let found = attempt();
    in_twin(&mut |twin| {
        let places = twin.lines.end_record(twin.clocks.cpu(me));
        match found {
            Some(_) => {
                (places.into_iter()).for_each(|at| *twin.thefts.lines.entry(at).or_default() += 1)
            }
            None => twin.thefts.n_lines_in_vain += places.len() as u64,
        }
    });
    found
}

/// So many stacks were taken from a pool, or given back if that is negative.
pub fn stacks(n: isize) {
    check(|oracle| {
        oracle.n_stacks += n;
        None
    });
}

/// As above, of slots of goroutines, and their depots.
pub fn slots(n: isize) {
    check(|oracle| {
        oracle.n_slots += n;
        None
    });
}

/// At `at` is something that operations are named after, from now on if not before. It does not
/// move.
pub fn lives<T>(at: *const T) {
    check(|oracle| {
        if !oracle.living.contains_key(&at.addr()) {
            oracle.n_lived += 1;
            oracle.living.insert(at.addr(), oracle.n_lived);
        }
        None
    });
}

/// The object at `at` is gone.
pub fn dies<T>(at: *const T) {
    check(|oracle| {
        oracle.living.remove(&at.addr());
        None
    });
}

/// The object at `at` is about to be used by another thread than its own, or for the kernel.
pub fn touches<T>(at: *const T) {
    check(|oracle| {
        let lives = oracle.living.contains_key(&at.addr());
        (!lives).then_some("an operation is touched whose frame is gone")
    });
}

/// `m` takes `p` for its own, null for none.
///
/// # Safety
///
/// `access` stays where it is until [`forgets`] is called for `m`: other threads look at it.
pub unsafe fn holds<M, P>(m: *const M, access: &AtomicU32, p: *const P) {
    check(|oracle| {
        let machine = oracle.machines.entry(m.addr()).or_insert(Machine {
            p: 0,
            access: std::ptr::from_ref(access).cast(),
            runs: 0,
            commits: 0,
        });
        machine.p = p.addr();
        None
    });
}

/// The calling thread runs on this CPU from now on. A build without the explorer does not ask for it.
pub fn runs_on(cpu: impl FnOnce() -> usize) {
    pin(cpu());
}

/// Records that `m` is freed.
pub fn forgets<M>(m: *const M) {
    check(|oracle| {
        let machine = oracle.machines.remove(&m.addr())?;
        (machine.runs != 0).then_some("an M is freed that runs a goroutine")
    });
}

/// `m` is about to run a goroutine. `what` gives its P, the goroutine, and whether that is of the
/// same runtime; a build without the explorer does not call it. An M may use its P while its word
/// of access is one of `may_use`.
pub fn runs<M, P, G>(
    m: *const M,
    what: impl FnOnce() -> (*const P, *const G, bool),
    may_use: &[u32],
) {
    charge_ps(|prices| prices.switch);
    let (p, g, is_own) = what();
    check(|oracle| {
        if !is_own {
            return Some("a goroutine runs on another runtime");
        }
        for (_, other) in oracle.machines.iter().filter(|(at, _)| **at != m.addr()) {
            if other.runs == g.addr() {
                return Some("two Ms run one goroutine");
            }
            // SAFETY: the M is known, so its word is there by the contract of `holds`.
            let access = unsafe { &*other.access.cast::<AtomicU32>() }.peek();
            if other.p == p.addr() && may_use.contains(&access) {
                return Some("two Ms run one P");
            }
        }
        oracle.machines.get_mut(&m.addr())?.runs = g.addr();
        None
    });
}

/// The goroutine on `m` has switched out.
pub fn ran<M>(m: *const M) {
    charge_ps(|prices| prices.switch);
    check(|oracle| {
        oracle.machines.get_mut(&m.addr())?.runs = 0;
        None
    });
}

/// `m` begins the commit of the park of `g`.
pub fn commits<M, G>(m: *const M, g: *const G) {
    check(|oracle| {
        oracle.machines.get_mut(&m.addr())?.commits = g.addr();
        None
    });
}

/// `m` has ended its commit.
pub fn committed<M>(m: *const M) {
    commits::<M, ()>(m, std::ptr::null());
}

/// Somebody who took the wake token of `g` without having been told of the wait is about to queue
/// it.
pub fn commit_is_over<G>(g: *const G) {
    check(|oracle| {
        let commits = oracle.machines.values().any(|m| m.commits == g.addr());
        commits.then_some("a goroutine is queued while the commit of its park goes on")
    });
}

/// Sysmon helps no P any more: a wake that is lost stays lost.
static IS_WITHOUT_HELP: AtomicBool = AtomicBool::new(false);

/// For a scenario: from now on only pushers and spinners wake Ps.
pub fn leave_out_help() {
    IS_WITHOUT_HELP.store(true, Ordering::Relaxed);
}

/// Whether sysmon may help Ps.
pub fn may_help() -> bool {
    !IS_WITHOUT_HELP.load(Ordering::Relaxed)
}

/// Something is not as it must be.
pub fn must(holds: bool, why: &'static str) {
    if !holds {
        check(|_| Some(why));
    }
}
