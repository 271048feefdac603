//! Work that begins again when it fails: a supervisor of one goroutine, as of Erlang's.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::result::Result;
use std::time::Duration;

use super::goroutine::{Cancelled, sleep, yield_now};
use super::join::drop_contained;
use crate::context;
use crate::sys::clock;

/// Runs work that is to go on for ever, and runs it again when it returns an error or panics.
///
/// Before it begins again, the goroutine sleeps: first for a tenth of a second, then for twice as long each time, up
/// to half a minute. Work that has gone on for longer than that longest pause begins with the first one again.
///
/// What ends it:
///
/// - the work returns `Ok`;
/// - the [limit](Supervisor::limit) of restarts is reached, if there is one;
/// - the goroutine's context is done: a sleep then ends early, and the work is not run again;
/// - the run of the runtime ends: the goroutine unwinds, as from any wait.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::task::{GaveUp, Supervisor};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let feeder = windlass::spawn(|| {
///         let mut n = 0;
///         Supervisor::new()
///             .backoff(Duration::from_millis(1), Duration::from_secs(1))
///             .limit(3, Duration::from_secs(60))
///             .run(|| {
///                 n += 1;
///                 if n < 3 { Err("no connection") } else { Ok(n) }
///             })
///     });
///     match feeder.join().unwrap() {
///         Ok(n) => assert_eq!(n, 3),
///         Err(GaveUp::Error(e)) => println!("gave up: {e}"),
///         Err(GaveUp::Panic(_)) => println!("gave up: it panics"), // stderr says where
///     }
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Supervisor {
    first: Duration,
    longest: Duration,
    limit: Option<(usize, Duration)>,
}

/// A supervisor has given up: the last error of its work, or the payload of its last panic.
pub enum GaveUp<E> {
    /// It returned this error.
    Error(E),
    /// It panicked with this payload.
    Panic(Box<dyn Any + Send>),
}

/// A failure during the pause after it. Its destructor is the program's code, and the end of the run, which unwinds from
/// the pause, must not end the process by it.
struct Failure<E>(Option<GaveUp<E>>);

impl<E> Failure<E> {
    fn into_inner(mut self) -> GaveUp<E> {
        self.0.take().expect("a failure is taken once")
    }
}

impl<E> Drop for Failure<E> {
    fn drop(&mut self) {
        drop_contained(self.0.take());
    }
}

impl<E: fmt::Debug> fmt::Debug for GaveUp<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GaveUp::Error(e) => f.debug_tuple("Error").field(e).finish(),
            GaveUp::Panic(_) => f.write_str("Panic(..)"),
        }
    }
}

impl Default for Supervisor {
    fn default() -> Supervisor {
        Supervisor::new()
    }
}

impl Supervisor {
    /// A supervisor without a limit of restarts, and with pauses of 100 ms to 30 s.
    #[must_use]
    pub fn new() -> Supervisor {
        Supervisor {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(30),
            limit: None,
        }
    }

    /// Sets the first and the longest pause before a restart. Zero is no pause: others run first, if they can.
    ///
    /// # Panics
    ///
    /// If the first is longer than the longest.
    #[must_use = "the supervisor that is returned has the pauses"]
    #[track_caller]
    pub fn backoff(self, first: Duration, longest: Duration) -> Supervisor {
        assert!(
            first <= longest,
            "backoff({first:?}, {longest:?}): the first pause is longer than the longest"
        );
        Supervisor {
            first,
            longest,
            ..self
        }
    }

    /// Permits `n` restarts in any time of the length `within`. One more failure in that time ends it.
    #[must_use = "the supervisor that is returned has the limit"]
    pub fn limit(self, n: usize, within: Duration) -> Supervisor {
        Supervisor {
            limit: Some((n, within)),
            ..self
        }
    }

    /// Runs `f` until it returns `Ok`, and returns that value.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine, or blocks a plain thread, in the pauses. A context ends them. Unwinds if the goroutine's
    /// runtime ends.
    ///
    /// # Errors
    ///
    /// The last failure of `f`, if the [limit](Supervisor::limit) is reached or the context of the caller is done. Earlier
    /// failures are dropped, whatever their destructors do; the panic hook has printed those that were panics.
    ///
    /// # Panics
    ///
    /// Never because `f` does.
    ///
    /// # Examples
    ///
    /// See [`Supervisor`].
    pub fn run<T, E>(&self, mut f: impl FnMut() -> Result<T, E>) -> Result<T, GaveUp<E>> {
        let mut restarts = VecDeque::new();
        let mut pause = None;
        loop {
            let begun_ns = clock::now_ns();
            let failed = match catch_unwind(AssertUnwindSafe(&mut f)) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => GaveUp::Error(error),
                // The end of the run.
                Err(payload) if payload.is::<Cancelled>() => resume_unwind(payload),
                Err(payload) => GaveUp::Panic(payload),
            };
            let failure = Failure(Some(failed));
            let now_ns = clock::now_ns();
            if self.is_at_limit(&mut restarts, now_ns) {
                return Err(failure.into_inner());
            }
            let next = self.pause_after(pause, Duration::from_nanos(now_ns - begun_ns));
            match next.is_zero() {
                // Work that never waits must not keep its run from ending.
                true => yield_now(),
                false => sleep(next),
            }
            if context::check().is_err() {
                return Err(failure.into_inner());
            }
            pause = Some(next);
        }
    }

    /// The pause after a failure of work that `ran` for so long; `last` was the one before it, if it was a restart.
    fn pause_after(&self, last: Option<Duration>, ran: Duration) -> Duration {
        match last {
            Some(last) if ran <= self.longest => last.saturating_mul(2).min(self.longest),
            _ => self.first,
        }
    }

    /// Counts a restart now, unless that were one too many. `restarts` has the times of those before.
    fn is_at_limit(&self, restarts: &mut VecDeque<u64>, now_ns: u64) -> bool {
        let Some((n, within)) = self.limit else {
            return false;
        };
        let is_old = |at_ns: &u64| Duration::from_nanos(now_ns - at_ns) >= within;
        while restarts.front().is_some_and(is_old) {
            restarts.pop_front();
        }
        restarts.push_back(now_ns);
        restarts.len() > n
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_the_work_has_gone_on_for_long() {
        let ms = Duration::from_millis;
        let supervisor = Supervisor::new().backoff(ms(10), ms(70));
        let mut last = None;
        let expected = [10, 20, 40, 70, 70];
        for expected in expected.map(ms) {
            let pause = supervisor.pause_after(last, ms(70));
            assert_eq!(pause, expected);
            last = Some(pause);
        }
        assert_eq!(supervisor.pause_after(last, ms(71)), ms(10));
        let longest = Supervisor::new().backoff(Duration::ZERO, Duration::MAX);
        assert_eq!(longest.pause_after(None, ms(1)), Duration::ZERO);
        assert_eq!(
            longest.pause_after(Some(Duration::MAX), ms(1)),
            Duration::MAX
        );
    }

    #[test]
    fn old_restarts_do_not_count() {
        let supervisor = Supervisor::new().limit(2, Duration::from_nanos(100));
        let mut restarts = VecDeque::new();
        let steps = [
            (0, false),
            (10, false),
            (100, false),
            (109, true),
            (209, false),
        ];
        for (at_ns, is_at_limit) in steps {
            assert_eq!(
                supervisor.is_at_limit(&mut restarts, at_ns),
                is_at_limit,
                "at {at_ns}"
            );
        }
        let none = Supervisor::new().limit(0, Duration::MAX);
        assert!(none.is_at_limit(&mut VecDeque::new(), 5));
    }
}
