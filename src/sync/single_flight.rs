//! Calls of one key that share one run of a closure.
//!
//! The map has the call that runs for each key; the first caller runs its closure, and the others
//! wait in the call. The end of a run writes its outcome under the lock of the call's waiters. It
//! does so before it removes the call from the map, and whatever happens in between: a caller that
//! finds a call in the map that has ended replaces it.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError};

use windlass_ground::std_traits::fmt_as;

use super::mutex::{Mutex, MutexGuard};
use super::waitlist::{self, WaitCell, WaitError};
use super::waitq::WaitOptions;
use crate::g::status::Reason;
use crate::sched::wait::points::{self, Cancelled};

/// Runs one closure at a time for each key, and gives its result to all that ask meanwhile: Go's
/// `singleflight.Group`.
///
/// It protects what is behind a cache: if a thousand goroutines miss the same entry at once, one
/// fetches it.
///
/// # Blocking
///
/// The first caller runs its closure, which may wait for anything except another run of the same
/// key. The other callers wait: a goroutine parks, a plain thread blocks.
///
/// # Examples
///
/// ```
/// use windlass::sync::{Arc, SingleFlight, atomic::{AtomicU32, Ordering::Relaxed}};
///
/// static FETCHES: AtomicU32 = AtomicU32::new(0);
///
/// fn fetch(page: &str) -> Arc<str> {
///     FETCHES.fetch_add(1, Relaxed);
///     windlass::sleep(std::time::Duration::from_millis(20));
///     format!("<h1>{page}</h1>").into()
/// }
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let pages = Arc::new(SingleFlight::new());
///     let readers: Vec<_> = (0..100)
///         .map(|_| {
///             let pages = Arc::clone(&pages);
///             windlass::spawn(move || pages.run("home", || fetch("home")))
///         })
///         .collect();
///     for reader in readers {
///         assert_eq!(&*reader.join().unwrap(), "<h1>home</h1>");
///     }
///     assert!(FETCHES.load(Relaxed) < 100);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct SingleFlight<K, V> {
    calls: Mutex<HashMap<K, Arc<Call<V>>>>,
}

impl<K, V> UnwindSafe for SingleFlight<K, V> {}
impl<K, V> RefUnwindSafe for SingleFlight<K, V> {}

/// A run of a closure, and the callers that wait for its outcome.
struct Call<V> {
    state: WaitCell<State<V>>,
}

enum State<V> {
    Running,
    Ended(Outcome<V>),
}

enum Outcome<V> {
    Value(Arc<V>),
    /// With the text of the panic.
    Panicked(Arc<str>),
    /// The closure's goroutine was unwound because its runtime ended: it counts as not run.
    Abandoned,
}

impl<K, V> SingleFlight<K, V> {
    /// Creates one without calls.
    #[must_use]
    pub fn new() -> SingleFlight<K, V> {
        SingleFlight {
            calls: Mutex::new(HashMap::new()),
        }
    }
}

impl<K: Eq + Hash, V> SingleFlight<K, V> {
    /// Calls `f`, or waits for the result of the call that runs for this key and returns a clone of
    /// it.
    ///
    /// A result is not stored: a call that comes after the end of `f` calls its own.
    ///
    /// # Blocking
    ///
    /// See [`SingleFlight`]. A context does not end the wait for another caller's `f`:
    /// [`run_context`](SingleFlight::run_context) does. If the runtime shuts down, a waiting
    /// goroutine unwinds. If the goroutine that runs `f` unwinds for this reason, another caller
    /// calls its own.
    ///
    /// # Panics
    ///
    /// If `f` panics: its caller with `f`'s panic, the others with a text that contains its message.
    /// Later calls are not affected.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::SingleFlight;
    ///
    /// let squares = SingleFlight::new();
    /// assert_eq!(squares.run(7, || 7 * 7), 49);
    /// assert_eq!(squares.run(8, || 8 * 8), 64);
    /// ```
    pub fn run<F: FnOnce() -> V>(&self, key: K, f: F) -> V
    where
        K: Clone,
        V: Clone,
    {
        // While unwinding, wait as for a lock, which shutdown does not cut short: there is no other
        // result.
        let reason = if std::thread::panicking() {
            Reason::Mutex
        } else {
            Reason::Once
        };
        self.run_or(key, f, |call| call.wait(WaitOptions::new(reason)))
            .unwrap_or_else(|_| waitlist::unwind())
    }

    /// As [`SingleFlight::run`], but a wait for another caller's closure also ends when the ambient
    /// context is done, which the caller of `wait` sees to.
    ///
    /// # Errors
    ///
    /// The error of `wait`.
    pub(crate) fn run_or<F: FnOnce() -> V>(
        &self,
        key: K,
        f: F,
        wait: impl Fn(&InFlight<V>) -> Result<(), WaitError>,
    ) -> Result<V, WaitError>
    where
        K: Clone,
        V: Clone,
    {
        loop {
            let (call, is_first) = self.join_call(&key);
            if is_first {
                return Ok(self.lead(&key, call, f));
            }
            let in_flight = InFlight(call);
            wait(&in_flight)?;
            if let Some(value) = in_flight.value() {
                return Ok(value);
            }
            // If this goroutine's runtime ends, too, it unwinds.
            let _ = points::cancel_point();
        }
    }

    /// Forgets the call that runs for this key: the next call runs its own closure at once. Callers
    /// that wait already get the result of the forgotten one. Returns whether there was a call.
    ///
    /// # Blocking
    ///
    /// Never for long: waits while another caller looks up a key.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::sync::SingleFlight;
    ///
    /// let flights = SingleFlight::<String, i32>::new();
    /// let inner = flights.run("key".to_owned(), || {
    ///     assert!(flights.forget("key"));
    ///     flights.run("key".to_owned(), || 2) // would wait for itself otherwise
    /// });
    /// assert_eq!(inner, 2);
    /// assert!(!flights.forget("key"));
    /// ```
    pub fn forget<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let forgotten = self.calls().remove_entry(key);
        forgotten.is_some_and(|(_, call)| call.is_running())
    }

    /// The calls. A panic of a key's `Hash` or `Eq` leaves the map usable.
    fn calls(&self) -> MutexGuard<'_, HashMap<K, Arc<Call<V>>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call of a key, and whether the caller has begun it.
    fn join_call(&self, key: &K) -> (Arc<Call<V>>, bool)
    where
        K: Clone,
    {
        let new_key = key.clone();
        loop {
            let mut calls = self.calls();
            let Some(found) = calls.get(key) else {
                let call = Arc::new(Call {
                    state: WaitCell::new(State::Running),
                });
                calls.insert(new_key, Arc::clone(&call));
                return (call, true);
            };
            if found.is_running() {
                return (Arc::clone(found), false);
            }
            // The destructors of the key and of the value are the program's code: if one panicked after the new call was
            // inserted, nobody would end that call.
            let ended = calls.remove_entry(key);
            drop(calls);
            drop(ended);
        }
    }

    /// Runs the closure for all.
    fn lead<F: FnOnce() -> V>(&self, key: &K, call: Arc<Call<V>>, f: F) -> V
    where
        V: Clone,
    {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => {
                let value = Arc::new(value);
                call.end(Outcome::Value(Arc::clone(&value)));
                self.remove(key, &call);
                drop(call);
                Arc::try_unwrap(value).unwrap_or_else(|shared| V::clone(&shared))
            }
            Err(payload) => {
                call.end(if payload.is::<Cancelled>() {
                    Outcome::Abandoned
                } else {
                    Outcome::Panicked(text_of(&*payload).into())
                });
                self.remove(key, &call);
                resume_unwind(payload)
            }
        }
    }

    /// Removes a call that has ended, unless it was forgotten.
    fn remove(&self, key: &K, call: &Arc<Call<V>>) {
        let mut calls = self.calls();
        let removed = match calls.get(key) {
            Some(found) if Arc::ptr_eq(found, call) => calls.remove_entry(key),
            _ => None,
        };
        drop(calls);
        drop(removed);
    }
}

/// A call that another caller runs.
pub(crate) struct InFlight<V>(Arc<Call<V>>);

impl<V> InFlight<V> {
    /// Waits for the end of the call.
    ///
    /// # Errors
    ///
    /// The reason why the wait ended early.
    fn wait(&self, options: WaitOptions) -> Result<(), WaitError> {
        let has_ended = |state: &mut State<V>| matches!(state, State::Ended(_)).then_some(());
        self.0.state.wait_for(options, |state, _| has_ended(state))
    }

    /// As [`InFlight::wait`], until the ambient context is done.
    ///
    /// # Errors
    ///
    /// The reason why the wait ended early.
    pub(crate) fn wait_in_context(&self) -> Result<(), WaitError> {
        self.wait(WaitOptions::new(Reason::Once).by_context(true))
    }

    /// The value of a call that has ended; `None` if it was abandoned.
    fn value(&self) -> Option<V>
    where
        V: Clone,
    {
        let outcome = self.0.state.with(|state| match state {
            State::Running => None,
            State::Ended(outcome) => Some(outcome.clone()),
        });
        match outcome? {
            Outcome::Value(value) => Some(V::clone(&value)),
            Outcome::Panicked(text) => panic!("the call that this one shares panicked: {text}"),
            Outcome::Abandoned => None,
        }
    }
}

impl<V> Clone for Outcome<V> {
    fn clone(&self) -> Outcome<V> {
        match self {
            Outcome::Value(value) => Outcome::Value(Arc::clone(value)),
            Outcome::Panicked(text) => Outcome::Panicked(Arc::clone(text)),
            Outcome::Abandoned => Outcome::Abandoned,
        }
    }
}

impl<V> Call<V> {
    fn is_running(&self) -> bool {
        self.state.with(|state| matches!(state, State::Running))
    }

    fn end(&self, outcome: Outcome<V>) {
        self.state.update(|state, _, woken| {
            **state = State::Ended(outcome);
            woken.append(state.queue().take_all());
        });
    }
}

fn text_of(payload: &(dyn std::any::Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a value that is not a text"
    }
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> SingleFlight<K, V> {
        SingleFlight::new()
    }
}

fmt_as!([K, V] Debug for SingleFlight<K, V>, "SingleFlight { .. }");

fmt_as!([V] Debug for InFlight<V>, "InFlight { .. }");
