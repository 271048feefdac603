//! Goroutines that wait, and the leaked ones of them.

use windlass::debug::{Goroutine, Leaks, State};
use windlass::task::{self, JoinHandle};
use windlass::{Handle, blocking};

use crate::util;

/// Starts a goroutine that begins to wait.
#[track_caller]
pub(crate) fn waits(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let waiter = task::Builder::new().name(name).spawn(f).unwrap();
    wait_until_it_waits(waiter.task().id());
    waiter
}

/// Returns when the goroutine waits. It takes no dump: the walker of stacks would move bytes of the caller's to the heap.
pub(crate) fn wait_until_it_waits(id: u64) {
    let waits = |g: &Goroutine| g.id == id && g.state == State::Waiting;
    util::wait_until(|| Handle::current().goroutines().iter().any(waits));
}

/// The leaks, once the threads have left all goroutines that wait: a dump has their nodes then.
pub(crate) fn leaks() -> Leaks {
    let handle = Handle::current();
    let rests = |g: &Goroutine| g.state != State::Waiting || g.node.is_some();
    util::wait_until(|| handle.dump().goroutines.iter().all(rests));
    blocking(|| handle.leaks()).unwrap()
}

pub(crate) fn names(found: &Leaks) -> Vec<&str> {
    let names = found
        .leaks
        .iter()
        .map(|leak| leak.goroutine.name.as_deref());
    names.map(|name| name.unwrap_or("unnamed")).collect()
}
