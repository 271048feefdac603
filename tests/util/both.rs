//! One test body, run by plain threads, by goroutines, and by both at once.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::util::{hang_guard, is_simulated, run};

/// The runner of the tasks that a test spawns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Threads,
    Goroutines,
    /// Every other one.
    Mixed,
}

pub(crate) enum Handle<T> {
    Thread(std::thread::JoinHandle<T>),
    Goroutine(windlass::task::JoinHandle<T>),
}

impl<T> Handle<T> {
    pub(crate) fn outcome(self) -> std::thread::Result<T> {
        match self {
            // The one who joins may be a goroutine.
            Handle::Thread(thread) => windlass::blocking(|| thread.join()),
            Handle::Goroutine(goroutine) => goroutine.join(),
        }
    }

    /// The value; a panic goes on here.
    pub(crate) fn join(self) -> T {
        self.outcome()
            .unwrap_or_else(|payload| resume_unwind(payload))
    }
}

impl Kind {
    pub(crate) fn spawn<T: Send + 'static>(
        self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Handle<T> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let thread = match self {
            Kind::Threads => true,
            Kind::Goroutines => false,
            Kind::Mixed => NEXT.fetch_add(1, Ordering::Relaxed).is_multiple_of(2),
        };
        if thread {
            Handle::Thread(std::thread::spawn(f))
        } else {
            Handle::Goroutine(windlass::spawn(f))
        }
    }

    /// Spawns `n` of them; each is given its number.
    pub(crate) fn spawn_all<T: Send + 'static>(
        self,
        n: usize,
        f: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Vec<Handle<T>> {
        let f = std::sync::Arc::new(f);
        (0..n)
            .map(|i| {
                let f = std::sync::Arc::clone(&f);
                self.spawn(move || f(i))
            })
            .collect()
    }
}

/// Runs the body for each kind: on a thread, in a goroutine with 2 Ps, and mixed. In a simulation
/// there are goroutines only.
pub(crate) fn on_each(body: fn(Kind)) {
    if is_simulated() {
        return body(Kind::Goroutines);
    }
    {
        let _guard = hang_guard();
        body(Kind::Threads);
    }
    run(2, || body(Kind::Goroutines));
    run(2, || body(Kind::Mixed));
}

/// A pause in which others most likely come to where they wait: nothing relies on it.
pub(crate) fn settle() {
    for _ in 0..20 {
        windlass::yield_now();
    }
    windlass::sleep(std::time::Duration::from_millis(1));
}

/// Runs `f`, which panics, and gives the payload.
pub(crate) fn panic_of<T>(f: impl FnOnce() -> T) -> Box<dyn std::any::Any + Send> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
        .err()
        .expect("it should have panicked")
}

/// A runtime of one P, on which goroutines can be brought to their waits one by one.
pub(crate) struct Line(Option<windlass::Handle>);

impl Line {
    /// Calls `f`, and returns when one goroutine more has come to a wait.
    pub(crate) fn wait_for_park<T>(&self, f: impl FnOnce() -> T) -> T {
        let Some(handle) = &self.0 else {
            let result = f();
            #[cfg(feature = "sim")]
            windlass::sim::settle();
            return result;
        };
        let parks = || handle.metrics().total().parks;
        let before = parks();
        let result = f();
        // The caller only yields meanwhile.
        crate::util::wait_until(|| parks() > before);
        result
    }

    /// Spawns a goroutine, and returns when it waits for something.
    pub(crate) fn up<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> windlass::task::JoinHandle<T> {
        self.wait_for_park(|| windlass::spawn(f))
    }
}

/// Runs `f` on such a runtime.
pub(crate) fn run_line<T: Send>(f: impl FnOnce(&Line) -> T + Send) -> T {
    if is_simulated() {
        return f(&Line(None));
    }
    let _guard = hang_guard();
    let runtime = crate::util::runtime(1);
    let line = Line(Some(runtime.handle()));
    runtime.run(|| f(&line))
}
