//! The threads of Ms: how they start and end. Only sysmon starts them. Its thread is unmodified, so that nothing a
//! goroutine has set on its own (affinity, memory policy, signal mask) is inherited.
#![allow(unsafe_code)]

use super::run::m_loop;
use super::spare::{pass, tell_of_thread};
use crate::loom::Ordering;
use crate::sched::types::m::M;
use crate::sched::types::p::P;
use crate::sched::types::state::Sched;
use crate::sys::clock;
use crate::sys::sched as threads;
use crate::sys::signal::{self, AltStack};

/// Starts a thread for `p`. `false` at the limit, or when the kernel refuses a thread.
pub(crate) fn start_m(sched: &Sched, p: &P) -> bool {
    if sched.n_ms.load(Ordering::Relaxed) >= sched.config.max_threads {
        warn_once(
            sched,
            &format!(
                "all {} threads are in use (max_threads)",
                sched.config.max_threads
            ),
        );
        p.owner.store(std::ptr::null_mut(), Ordering::Release);
        return false;
    }
    let id = sched.next_m.fetch_add(1, Ordering::Relaxed);
    let m = list_m(sched, id);
    pass(p, m);
    let address = std::ptr::from_ref(m).expose_provenance();
    let thread = crate::loom::thread::Builder::new()
        .name(format!("{}-m{id}", sched.config.name))
        .spawn(move || {
            // SAFETY: the M is boxed in `Sched::ms` until this thread is joined.
            let m = unsafe { &*std::ptr::with_exposed_provenance::<M>(address) };
            m_main(m);
        });
    match thread {
        Ok(thread) => {
            sched.ms.lock().threads.push(thread);
            true
        }
        Err(e) => {
            p.owner.store(std::ptr::null_mut(), Ordering::Release);
            m.next_p.store(std::ptr::null_mut(), Ordering::Release);
            retire_m(sched, m);
            warn_once(sched, &format!("the kernel refuses another thread ({e})"));
            false
        }
    }
}

/// Gives an M for a new thread: one whose thread has ended, or one more. It is in the list of Ms
/// before its thread exists: a canceller waits for the commits of all Ms there.
pub(crate) fn list_m(sched: &Sched, id: u64) -> &M {
    sched.n_ms.fetch_add(1, Ordering::Relaxed);
    let mut ms = sched.ms.lock();
    let m = ms.retired.pop().unwrap_or_else(|| {
        ms.all.push(Box::new(M::new(id, sched)));
        &raw const **ms.all.last().expect("pushed just now")
    });
    // SAFETY: the M is boxed in `Sched::ms` until the run ends, which waits for the caller.
    let m = unsafe { &*m };
    m.renew(id);
    m
}

/// Keeps an M that has no thread, for the next one. The caller uses it no more.
fn retire_m(sched: &Sched, m: &M) {
    sched.n_ms.fetch_sub(1, Ordering::Relaxed);
    sched.ms.lock().retired.push(m);
}

/// Reports on stderr that there are too few threads, once per runtime.
pub(crate) fn warn_once(sched: &Sched, why: &str) {
    if !sched.warned_threads.swap(true, Ordering::Relaxed) {
        signal::report(format_args!(
            "{why}: goroutines behind a blocking call, an offloaded one or a locked thread wait for it; raise \
             Builder::max_threads or the limits on threads (ulimit -u, pids cgroup)"
        ));
    }
}

/// The whole life of an M other than M0.
fn m_main(m: &M) {
    let slack = clock::tighten_timer_slack();
    m.has_short_slice
        .store(threads::shorten_own_slice(), Ordering::Relaxed);
    let stack = AltStack::install();
    m_loop(m);
    drop(stack);
    clock::restore_timer_slack(slack);
    if m.retired.get() {
        m.sched().n_retired.fetch_add(1, Ordering::Relaxed);
        make_room(m);
    }
}

/// The thread of `m`, whose goroutine ended with it locked, runs no more goroutines: another may be started. The caller
/// uses `m` no more.
pub(crate) fn make_room(m: &M) {
    let sched = m.sched();
    m.tid.store(0, Ordering::Relaxed);
    retire_m(sched, m);
    tell_of_thread(sched, sched.ms.lock());
}

#[cfg(all(test, not(loom)))]
#[path = "threads_tests.rs"]
mod tests;
