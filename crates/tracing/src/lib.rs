//! Spans of the crate tracing that belong to goroutines of windlass and not to threads.
//!
//! A subscriber records entered spans per thread. A goroutine that enters a span, waits, and
//! continues on another thread would lose the span, and the next goroutine on the old thread would
//! be inside it.
//!
//! [`Goroutines`] is a subscriber that wraps another one. It records the entered spans of each
//! goroutine. Before it forwards a span or event, it exits the spans that other goroutines have
//! left entered on this thread, and enters those of the caller. So the inner subscriber sees spans
//! entered and exited in pairs on each thread, as it does with futures. The scheduler is not
//! involved, and a goroutine that does not trace pays nothing.
//!
//! This happens at the next span or event of a thread, not at the switch. It has two consequences:
//! the busy time that a subscriber measures for a span is too long, and a span whose goroutine has
//! moved is closed only when its old thread traces again, or ends.
//!
//! A line of a log names its goroutine if the formatter asks `windlass::task::current`; the example
//! `logging` in the repository does so with tracing-subscriber and with the crate log.
//! [`Goroutines::with_regions`] shows spans in execution traces.
//!
//! The inner subscriber must not park the goroutine: it may write to standard error or a file of
//! `std`, but not to a socket of windlass.
//!
//! # Examples
//!
//! ```
//! use tracing_subscriber::layer::SubscriberExt;
//! use windlass_tracing::Goroutines;
//!
//! let subscriber = tracing_subscriber::registry(); // .with(a layer) ..
//! tracing::subscriber::set_global_default(Goroutines::new(subscriber)).unwrap();
//! # // SAFETY: nothing here keeps a thread-local across a call that parks.
//! # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
//! rt.run(|| {
//!     let span = tracing::info_span!("request", id = 7);
//!     // A goroutine does not inherit the span of its spawner. Pass it.
//!     let task = windlass::spawn(move || {
//!         let _entered = span.enter();
//!         windlass::sleep(std::time::Duration::from_millis(1));
//!         tracing::info!("still in the request");
//!     });
//!     task.join().unwrap();
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
#![allow(unsafe_code)]
#![allow(
    clippy::unnecessary_safety_comment,
    reason = "the one in the example above is for the reader"
)]
#![warn(clippy::disallowed_methods)]

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_core::dispatcher::WeakDispatch;
use tracing_core::metadata::LevelFilter;
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Dispatch, Event, Metadata, Subscriber};
use windlass::debug;
use windlass::task::task_local;

/// The number of a subscriber, and a span that is entered there. Each entry is a counted reference
/// of the subscriber, so that the span is not closed while it is listed.
type Entered = (u64, Id);

task_local! {
    /// The spans that the goroutine has entered, the innermost last.
    static OWN: RefCell<Vec<Entered>> = RefCell::new(Vec::new());
}

thread_local! {
    /// The spans that are entered on this thread in the inner subscribers; `None` during a change.
    static HERE: RefCell<Option<Vec<Entered>>> = const { RefCell::new(Some(Vec::new())) };
    /// Exits at the end of the thread what is left in `HERE`.
    static AT_END: AtEnd = const { AtEnd(RefCell::new(Vec::new())) };
}

/// The subscribers whose spans this thread has entered. Subscribers know threads by numbers that are used
/// again: what a thread leaves entered, the next thread of its number would be in.
///
/// Destructors of thread-locals run in the opposite order of their first uses. This one is first used after
/// a span was entered, so those of the inner subscriber are still there when it runs.
struct AtEnd(RefCell<Vec<Entrance>>);

/// A subscriber: its number, and how to leave a span of it.
struct Entrance {
    number: u64,
    subscriber: WeakDispatch,
    leave: fn(&Dispatch, &Id),
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        let Some(mut here) = EnteredSpans::take() else {
            return;
        };
        let left = mem::take(&mut here.0);
        // A layer that traces while spans are left finds a list.
        drop(here);
        let entrances = self.0.take();
        for (number, id) in left.iter().rev() {
            let of = entrances.iter().find(|known| known.number == *number);
            let subscriber = of.and_then(|known| Some((known.subscriber.upgrade()?, known.leave)));
            if let Some((subscriber, leave)) = subscriber {
                // A panic here would abort the process, and so would one of a payload's destructor.
                let left = catch_unwind(AssertUnwindSafe(|| leave(&subscriber, id)));
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(left)));
                dropped.unwrap_or_else(mem::forget);
            }
        }
    }
}

/// The thread's list, taken out. It is put back on the same thread, because subscribers do not
/// park.
struct EnteredSpans(Vec<Entered>);

impl EnteredSpans {
    /// `None` if an inner subscriber calls this during a change.
    #[inline(never)]
    fn take() -> Option<EnteredSpans> {
        HERE.try_with(RefCell::take)
            .ok()
            .flatten()
            .map(EnteredSpans)
    }

    #[inline(never)]
    fn put(list: Vec<Entered>) {
        let _ = HERE.try_with(|here| here.replace(Some(list)));
    }
}

impl Drop for EnteredSpans {
    fn drop(&mut self) {
        EnteredSpans::put(mem::take(&mut self.0));
    }
}

/// The name of a span, and a number that no other span has.
type Named = (u64, &'static str);

/// The names of the spans that exist.
#[derive(Debug, Default)]
struct Names {
    of: HashMap<u64, Named>,
    next: u64,
}

/// A subscriber that enters the spans of the calling goroutine in the subscriber that it wraps. The
/// [crate](self) has an example.
///
/// On plain threads it changes nothing.
#[derive(Debug)]
pub struct Goroutines<S> {
    inner: S,
    number: u64,
    /// The names of the spans that exist, if they are to be regions of traces.
    names: Option<Mutex<Names>>,
    /// Itself, for the ends of threads.
    dispatch: OnceLock<WeakDispatch>,
}

impl<S: Subscriber> Goroutines<S> {
    /// Wraps `inner`. Add layers to `inner`, not to the result.
    pub fn new(inner: S) -> Goroutines<S> {
        /// Ordering: relaxed; the numbers only have to be unique.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Goroutines {
            inner,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            names: None,
            dispatch: OnceLock::new(),
        }
    }

    /// From now on, spans that a goroutine enters are regions in execution traces of its runtime
    /// (`Runtime::trace` and the flight recorder; see `windlass::debug::region`). A trace shows each
    /// by its name, from where it was entered to where it was left, on a track of the goroutine.
    ///
    /// The names of spans are stored for this, in one map: some 100 ns for each span.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass_tracing::Goroutines;
    ///
    /// let subscriber = Goroutines::new(tracing_subscriber::registry()).with_regions();
    /// tracing::subscriber::set_global_default(subscriber).unwrap();
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// let json = rt.run(|| {
    ///     let trace = rt.start_trace();
    ///     tracing::info_span!("request").in_scope(|| windlass::sleep(std::time::Duration::from_millis(1)));
    ///     let mut json = Vec::new();
    ///     trace.finish(&mut json).map(|()| json)
    /// })?;
    /// assert!(String::from_utf8_lossy(&json).contains("request"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn with_regions(mut self) -> Goroutines<S> {
        self.names = Some(Mutex::default());
        self
    }

    /// The data of a span, if spans are regions.
    fn named(&self, id: &Id) -> Option<Named> {
        self.with_names(|names| names.of.get(&id.into_u64()).copied())?
    }

    fn with_names<T>(&self, f: impl FnOnce(&mut Names) -> T) -> Option<T> {
        let names = self.names.as_ref()?;
        Some(f(&mut names.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Gives a reference to a span back. `true` if it was the last.
    fn close(&self, id: Id) -> bool {
        let (number, known) = (id.into_u64(), self.named(&id));
        let is_closed = self.inner.try_close(id);
        if is_closed {
            self.with_names(|names| {
                // The inner subscriber may have given the number to another span by now.
                if names.of.get(&number).copied() == known {
                    names.of.remove(&number);
                }
            });
        }
        is_closed
    }

    /// Makes the thread's entered spans those of the caller.
    fn sync(&self) {
        let Some(mut here) = EnteredSpans::take() else {
            // Traces that a subscriber itself makes during a change belong to no span.
            return;
        };
        let changed = with_own(|own| {
            let is_same = self.of(own).eq(self.of(&here.0));
            (!is_same).then(|| self.of(own).cloned().collect::<Vec<_>>())
        });
        if let Some(own) = changed {
            self.change(&mut here.0, &own);
        }
    }

    /// Exits the spans that are not the caller's, and enters those that are.
    fn change(&self, here: &mut Vec<Entered>, own: &[Id]) {
        let mine: Vec<_> = self.of(here).cloned().collect();
        here.retain(|(number, _)| *number != self.number);
        let n_common = mine.iter().zip(own).take_while(|(a, b)| a == b).count();
        for id in mine[n_common..].iter().rev() {
            self.inner.exit(id);
            self.close(id.clone());
        }
        let new = own[n_common..].iter().map(|id| {
            let id = self.inner.clone_span(id);
            self.inner.enter(&id);
            id
        });
        let kept = mine[..n_common].iter().cloned();
        here.extend(kept.chain(new).map(|id| (self.number, id)));
        if own.len() > n_common {
            self.leave_at_end();
        }
    }

    /// Makes the end of this thread leave the spans of this subscriber.
    fn leave_at_end(&self) {
        let Some(subscriber) = self.dispatch.get() else {
            return;
        };
        // At the end of the thread it is too late.
        let _ = AT_END.try_with(|at_end| {
            let mut entrances = at_end.0.borrow_mut();
            if entrances.iter().any(|known| known.number == self.number) {
                return;
            }
            // A thread that outlives many subscribers does not keep all of them.
            entrances.retain(|known| known.subscriber.upgrade().is_some());
            entrances.push(Entrance {
                number: self.number,
                subscriber: subscriber.clone(),
                leave: |dispatch, id| {
                    if let Some(of) = dispatch.downcast_ref::<Goroutines<S>>() {
                        of.inner.exit(id);
                        of.close(id.clone());
                    }
                },
            });
        });
    }

    /// The spans of this subscriber in a list.
    fn of<'a>(&self, list: &'a [Entered]) -> impl Iterator<Item = &'a Id> {
        let own = self.number;
        list.iter()
            .filter(move |(number, _)| *number == own)
            .map(|(_, id)| id)
    }
}

/// Calls `f` with the caller's spans. The list is empty in a destructor that runs after the
/// task-locals were dropped.
fn with_own<T>(f: impl Fn(&mut Vec<Entered>) -> T) -> T {
    OWN.try_with(|own| f(&mut own.borrow_mut()))
        .unwrap_or_else(|_| f(&mut Vec::new()))
}

impl<S: Subscriber> Subscriber for Goroutines<S> {
    fn enter(&self, span: &Id) {
        let id = self.inner.clone_span(span);
        with_own(|own| own.push((self.number, id.clone())));
        if let Some((_, name)) = self.named(span) {
            debug::begin_region(name);
        }
        self.sync();
    }

    fn exit(&self, span: &Id) {
        let exited = with_own(|own| {
            let is_it = |(number, id): &Entered| *number == self.number && id == span;
            let at = own.iter().rposition(is_it)?;
            Some(own.remove(at))
        });
        self.sync();
        if let Some((_, id)) = exited {
            if let Some((_, name)) = self.named(span) {
                debug::end_region(name);
            }
            self.close(id);
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Filters may depend on the current spans.
        self.sync();
        self.inner.enabled(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.sync();
        let id = self.inner.new_span(span);
        self.with_names(|names| {
            names.next += 1;
            let named = (names.next, span.metadata().name());
            names.of.insert(id.into_u64(), named);
        });
        id
    }

    fn event_enabled(&self, event: &Event<'_>) -> bool {
        self.sync();
        self.inner.event_enabled(event)
    }

    fn event(&self, event: &Event<'_>) {
        self.sync();
        self.inner.event(event);
    }

    fn current_span(&self) -> Current {
        self.sync();
        self.inner.current_span()
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.inner.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.inner.record_follows_from(span, follows);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.inner.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.close(id)
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.inner.register_callsite(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.inner.max_level_hint()
    }

    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        // Of several, the first is as good as any.
        let _ = self.dispatch.set(dispatch.downgrade());
        self.inner.on_register_dispatch(dispatch);
    }

    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some(std::ptr::from_ref(self).cast());
        }
        // SAFETY: the pointer is valid as long as the inner subscriber, which `self` owns.
        unsafe { self.inner.downcast_raw(id) }
    }
}
