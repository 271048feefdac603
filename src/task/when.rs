//! Goroutines that begin when something has come, and have no stack before.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::panic::Location;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::goroutine::{JoinHandle, spawn_at};
use crate::channel::{Receivable, Receiver};
use crate::context::Context;
use crate::g::header::{GRef, OffStack, Step, Steps};
use crate::poll::off_stack::{Done, Event, OffStackWait, Ready, Source, Time};
use crate::sys::clock::{self, NEVER};

type Wait = Pin<Box<OffStackWait<dyn Event>>>;

/// The event for which [`spawn_when`] waits: a descriptor is ready, a message has come, a time has come, or a context is
/// done.
///
/// A descriptor is owned until it is ready, and then handed to the function. It may be anything that
/// `poll(2)` supports; several goroutines may wait for the clones of an `Arc` of one.
#[must_use = "it is waited for by `spawn_when`"]
pub struct When<T> {
    source: T,
    wait: Wait,
}

impl<T> When<T> {
    fn new(source: T, event: impl Event + 'static, at_ns: u64, context: Option<Source>) -> When<T> {
        let wait = OffStackWait::new(event, at_ns, context);
        When { source, wait }
    }
}

impl<T: AsFd> When<T> {
    /// A read from the descriptor would not block: bytes are there, the other end is closed, or an
    /// error is pending.
    ///
    /// # Examples
    ///
    /// See [`spawn_when`].
    pub fn readable(fd: T) -> When<T> {
        let event = Ready::new(&fd, libc::POLLIN);
        When::new(fd, event, NEVER, None)
    }

    /// A write to the descriptor would not block: there is room, or an error is pending.
    ///
    /// # Examples
    ///
    /// See [`spawn_when`].
    pub fn writable(fd: T) -> When<T> {
        let event = Ready::new(&fd, libc::POLLOUT);
        When::new(fd, event, NEVER, None)
    }
}

impl<T: Send + 'static> When<Receiver<T>> {
    /// A receive from the channel would not wait: there is a message, or the channel is disconnected.
    ///
    /// A message begins all goroutines that wait for one so, as it ends all calls of
    /// [`Select::ready`](crate::channel::Select::ready): one receives it, and others find none if they
    /// [`try_recv`](Receiver::try_recv). A channel of its own for each goroutine has no such crowd.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::unbounded;
    /// use windlass::task::{When, spawn_when};
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let (s, r) = unbounded();
    ///     let doubled = spawn_when(When::receivable(r), |r, ready| {
    ///         ready.unwrap();
    ///         r.recv().map(|n: u32| n * 2)
    ///     });
    ///     s.send(21).unwrap();
    ///     assert_eq!(doubled.join().unwrap(), Ok(42));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn receivable(receiver: Receiver<T>) -> When<Receiver<T>> {
        let event = Receivable::new(receiver.clone());
        When::new(receiver, event, NEVER, None)
    }
}

impl When<()> {
    /// The time has come.
    ///
    /// # Examples
    ///
    /// See [`spawn_when`].
    pub fn at(time: impl Into<Instant>) -> When<()> {
        When::new((), Time, clock::instant_ns(time.into()), None)
    }

    /// The context is done.
    ///
    /// # Examples
    ///
    /// See [`spawn_when`].
    pub fn done(ctx: &Context) -> When<()> {
        When::new((), Done, NEVER, ctx.source())
    }
}

impl<T> When<T> {
    /// Ends the wait at `deadline` at the latest: the function is then called with an error of kind
    /// `TimedOut`. The earliest counts. For a time, that is the time itself.
    pub fn or_at(mut self, deadline: impl Into<Instant>) -> When<T> {
        self.wait
            .as_mut()
            .shorten(clock::instant_ns(deadline.into()));
        self
    }

    /// As [`or_at`](When::or_at), `timeout` from now on.
    pub fn or_after(mut self, timeout: Duration) -> When<T> {
        self.wait.as_mut().shorten(clock::deadline_ns(timeout));
        self
    }

    /// Ends the wait when `ctx` is done, instead of a context that was given before: the function is then
    /// called with that [error](crate::context::Error), unless this is what the goroutine waits for. It does
    /// not run in the context.
    pub fn or_done(mut self, ctx: &Context) -> When<T> {
        self.wait.as_mut().set_source(ctx.source());
        self
    }
}

impl<T> fmt::Debug for When<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("When").field(&self.wait).finish()
    }
}

/// Spawns a goroutine that calls `f` when something has come, and returns its join handle.
///
/// Until then the goroutine has no stack, and costs some 400 bytes besides what it owns; a parked one costs at
/// least a page more. It begins as others do, on the runtime of the caller. `f` gets the descriptor or receiver, `()` if
/// there is none, and an error if the wait has ended in another way: then the descriptor is not ready.
///
/// A wait that has no end leaves the goroutine to the end of the run, which drops `f` and the descriptor.
/// Contexts around the caller do not end the wait: name one with [`When::or_done`].
///
/// In a simulation, a goroutine that waits for a descriptor has a stack.
///
/// # Blocking
///
/// Never.
///
/// # Errors
///
/// `f` gets `TimedOut` at a deadline, the [error](crate::context::Error) of the context if that is done, and the
/// errors of `poll(2)`.
///
/// # Panics
///
/// If called outside the runtime.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::{Duration, Instant};
/// use windlass::context::Context;
/// use windlass::task::{When, spawn_when};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let (reader, mut writer) = std::io::pipe()?;
///     let first = spawn_when(When::readable(reader), |mut reader, ready| {
///         let mut byte = [0];
///         ready.and_then(|()| reader.read_exact(&mut byte)).map(|()| byte)
///     });
///     writer.write_all(b"!")?;
///     assert_eq!(first.join().unwrap()?, *b"!");
///
///     let (reader, _writer) = std::io::pipe()?;
///     let in_vain = When::readable(reader).or_after(Duration::from_millis(1));
///     let error = spawn_when(in_vain, |_, ready| ready.unwrap_err()).join().unwrap();
///     assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
///
///     let soon = Instant::now() + Duration::from_millis(1);
///     assert!(spawn_when(When::at(soon), move |(), _| Instant::now() >= soon).join().unwrap());
///
///     let (ctx, canceller) = Context::background().with_cancel();
///     let cleaned = spawn_when(When::done(&ctx), |(), _| "cleaned up");
///     canceller.cancel();
///     assert_eq!(cleaned.join().unwrap(), "cleaned up");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_when<T, F, R>(when: When<T>, f: F) -> JoinHandle<R>
where
    T: Send + 'static,
    F: FnOnce(T, io::Result<()>) -> R + Send + 'static,
    R: Send + 'static,
{
    let later = Later(Some((when.wait, when.source, f)));
    spawn_at(Steps(later), Location::caller())
}

/// A function that is called after a wait, with what it owns; `None` from then on.
struct Later<T, F>(Option<(Wait, T, F)>);

// Nothing in it is pinned but what the box holds.
impl<T, F> Unpin for Later<T, F> {}

impl<T, F: FnOnce(T, io::Result<()>) -> R, R> Step for Later<T, F> {
    type Output = R;

    fn step(mut self: Pin<&mut Self>, g: GRef) -> Result<R, OffStack> {
        const ONCE: &str = "a step that ends the wait is the last";
        let (wait, ..) = self.0.as_mut().expect(ONCE);
        let ended = wait.as_mut().step(g)?;
        let (wait, source, f) = self.0.take().expect(ONCE);
        drop(wait);
        Ok(f(source, ended))
    }
}
