//! The tree of contexts: what makes them done, and who then hears of it.
#![allow(unsafe_code)]

use std::any::Any;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::mem;
use std::time::{Duration, Instant};

use crate::channel::{self, Receiver};
use crate::g::cut::{Frame, Frames};
use crate::lock::RawLock;
use crate::loom::native::atomic::{AtomicU64, Ordering, fence};
use crate::loom::native::{Arc, Mutex, OnceLock, PoisonError, Weak};
use crate::sched::ambient::{self, Error};
use crate::sched::handoff::Section;
use crate::sched::{cancel, park};
use crate::sys::clock::{self, NEVER};

/// What may have made a context done.
type Cause = Arc<dyn StdError + Send + Sync>;

/// Says when to stop, and carries values. Cheap to clone; clones are the same context.
///
/// # Examples
///
/// ```
/// use std::io::Read;
/// use std::time::Duration;
/// use windlass::context::{self, Context};
/// use windlass::net::{TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let (ctx, canceller) = Context::background().with_cancel();
///     let reader = windlass::spawn({
///         let ctx = ctx.clone();
///         let mut stream = TcpStream::connect(listener.local_addr()?)?;
///         move || ctx.run(|| stream.read(&mut [0; 100]))
///     });
///     canceller.cancel();
///     let error = reader.join().unwrap().unwrap_err();
///     let why = error.get_ref().and_then(|e| e.downcast_ref());
///     assert_eq!(why, Some(&context::Error::Cancelled));
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Context {
    /// `None`: never done.
    node: Option<Arc<Node>>,
    values: Option<Arc<Value>>,
}

/// A context that may be done some day.
struct Node {
    /// Its key among the children of its parent.
    id: u64,
    parent: Option<Arc<Node>>,
    /// The earliest of its own and its ancestors'.
    deadline: Option<Instant>,
    deadline_ns: u64,
    done: OnceLock<Done>,
    /// What `Context::done` gives, once somebody asked. Whoever sets either this or `done`
    /// looks at the other one after it, past a fence.
    channel: OnceLock<Receiver<Infallible>>,
    /// Those that come from it and live.
    children: Mutex<BTreeMap<u64, Weak<Node>>>,
    /// Guards `frames`. Taken inside the scheduler, so that its holder has a P.
    lock: RawLock,
    /// The calls of `run`. Whoever adds one looks at `done` after it, under the lock.
    frames: Frames,
}

// SAFETY: `frames` is used under `lock` only, everything else may be shared.
unsafe impl Sync for Node {}

#[derive(Clone)]
struct Done {
    error: Error,
    cause: Option<Cause>,
}

/// A value, and those of the contexts that this one comes from.
struct Value {
    value: Box<dyn Any + Send + Sync>,
    parent: Option<Arc<Value>>,
}

impl Context {
    /// The context that everything comes from: never done, without values.
    #[must_use]
    pub const fn background() -> Context {
        Context {
            node: None,
            values: None,
        }
    }

    /// A context that is done when its canceller says so, or is dropped.
    pub fn with_cancel(&self) -> (Context, Canceller) {
        let node = self.child(None);
        let canceller = Canceller(Some(Arc::clone(&node)));
        (self.with_node(node), canceller)
    }

    /// A context that is done at `deadline`. Nothing has to be given back: it costs a
    /// timer only while somebody waits in it.
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Context {
        self.with_node(self.child(Some(deadline)))
    }

    /// A context that is done after `timeout`.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Context {
        match clock::now().checked_add(timeout) {
            Some(deadline) => self.with_deadline(deadline),
            None => self.clone(),
        }
    }

    /// A context with a value, to be found by its type. Use a type of your own, so that
    /// nobody else's value hides it.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    ///
    /// #[derive(Debug, PartialEq)]
    /// struct RequestId(u64);
    ///
    /// let ctx = Context::background().with_value(RequestId(7));
    /// assert_eq!(ctx.value(), Some(&RequestId(7)));
    /// ```
    #[must_use]
    pub fn with_value<T: Any + Send + Sync>(&self, value: T) -> Context {
        Context {
            node: self.node.clone(),
            values: Some(Arc::new(Value {
                value: Box::new(value),
                parent: self.values.clone(),
            })),
        }
    }

    /// A context with the same values that is never done: for what has to go on.
    #[must_use]
    pub fn without_cancel(&self) -> Context {
        Context {
            node: None,
            values: self.values.clone(),
        }
    }

    /// The value of type `T` that was added last.
    #[must_use]
    pub fn value<T: Any + Send + Sync>(&self) -> Option<&T> {
        let all = std::iter::successors(self.values.as_deref(), |v| v.parent.as_deref());
        all.filter_map(|v| v.value.downcast_ref()).next()
    }

    /// When the context is done at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.node.as_ref()?.deadline
    }

    /// Why the context is done; `None` while it is not.
    #[must_use]
    pub fn err(&self) -> Option<Error> {
        self.node.as_ref()?.done().map(|done| done.error)
    }

    /// Whether the context is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.err().is_some()
    }

    /// A channel without messages that is disconnected when the context is done: to select
    /// on, beside what the caller waits for.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::channel::RecvError;
    /// use windlass::context::Context;
    ///
    /// let (ctx, canceller) = Context::background().with_cancel();
    /// assert!(ctx.done().try_recv().unwrap_err().is_empty());
    /// canceller.cancel();
    /// assert_eq!(ctx.done().recv(), Err(RecvError));
    /// ```
    #[must_use]
    pub fn done(&self) -> &Receiver<Infallible> {
        static NEVER: Receiver<Infallible> = channel::never();
        self.node.as_ref().map_or(&NEVER, |node| node.channel())
    }

    /// What the canceller gave as the cause, if it did and this is why the context is
    /// done.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.node.as_ref()?.done()?.cause.as_deref()
    }

    /// Runs `f`, whose waits end when the context is done: see the [module](crate::context)'s
    /// table. `f` itself goes on; it is up to it what it does with the errors.
    ///
    /// # Blocking
    ///
    /// As `f` does.
    ///
    /// # Panics
    ///
    /// With `f`'s panic.
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        let Some(node) = &self.node else { return f() };
        let frame = Frame::new(park::current_g(), node.deadline_ns);
        let _registered = node.register(&frame);
        let _entered = ambient::enter(&frame);
        f()
    }

    /// Waits until the context is done, or an ambient one that this is called in.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends it
    /// unwinds.
    pub fn wait(&self) {
        self.run(|| {
            while ambient::check().is_ok() {
                // A destructor of a goroutine that is being cancelled does not wait.
                if park::sleep_until(NEVER).is_err() {
                    return;
                }
            }
        });
    }

    /// As [`wait`](Context::wait), for at most `timeout`. Whether the context is done.
    ///
    /// # Blocking
    ///
    /// As [`wait`](Context::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.with_timeout(timeout).wait();
        self.is_done()
    }

    fn with_node(&self, node: Arc<Node>) -> Context {
        Context {
            node: Some(node),
            values: self.values.clone(),
        }
    }

    fn child(&self, deadline: Option<Instant>) -> Arc<Node> {
        let parent = self.node.clone();
        let inherited = parent.as_ref().and_then(|p| p.deadline);
        let deadline = [deadline, inherited].into_iter().flatten().min();
        let node = Arc::new(Node {
            id: next_id(),
            parent,
            deadline,
            deadline_ns: deadline.map_or(NEVER, clock::instant_ns),
            done: OnceLock::new(),
            channel: OnceLock::new(),
            children: Mutex::default(),
            lock: RawLock::new(),
            frames: Frames::new(),
        });
        if let Some(parent) = &node.parent {
            parent.children().insert(node.id, Arc::downgrade(&node));
            // After it was added: either this sees it, or the parent's end sees the child.
            if let Some(done) = parent.done.get() {
                node.end(done.clone());
            }
        }
        node
    }
}

/// Ordering: relaxed, only uniqueness matters.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("deadline", &self.deadline())
            .field("err", &self.err())
            .finish_non_exhaustive()
    }
}

/// Runs `f` out of reach of the ambient contexts: its waits are ended by none, but those
/// that `f` itself calls [`Context::run`] on. To say goodbye to a peer, to put things in order.
///
/// # Blocking
///
/// As `f` does.
///
/// # Panics
///
/// With `f`'s panic.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use windlass::context::{self, Context};
///
/// let ctx = Context::background().with_timeout(Duration::ZERO);
/// let start = Instant::now();
/// ctx.run(|| context::shield(|| windlass::sleep(Duration::from_millis(2))));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
pub fn shield<T>(f: impl FnOnce() -> T) -> T {
    ambient::shield(f)
}

/// The right to cancel a context. Dropping it cancels, too, as Go's `defer cancel()` does;
/// [`Canceller::detach`] drops it without.
#[must_use = "dropping it cancels the context"]
pub struct Canceller(Option<Arc<Node>>);

impl Canceller {
    /// Cancels the context and those that come from it. Does nothing if it is done.
    ///
    /// # Blocking
    ///
    /// Does not wait for those that it wakes. A plain thread may wait a moment for
    /// operations that are on their way to the kernel.
    pub fn cancel(&self) {
        self.end(None);
    }

    /// As [`cancel`](Canceller::cancel), with a cause, for [`Context::cause`].
    ///
    /// # Blocking
    ///
    /// As [`cancel`](Canceller::cancel).
    pub fn cancel_because(&self, cause: impl Into<Box<dyn StdError + Send + Sync>>) {
        self.end(Some(Arc::from(cause.into())));
    }

    /// Gives the right up without using it.
    pub fn detach(mut self) {
        self.0 = None;
    }

    fn end(&self, cause: Option<Cause>) {
        if let Some(node) = &self.0
            && node.done().is_none()
        {
            node.end(Done {
                error: Error::Cancelled,
                cause,
            });
        }
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").finish_non_exhaustive()
    }
}

/// How long a plain thread that cancels gives an operation to get to the kernel.
const RETRY_NS: u64 = 50_000;

impl Node {
    fn children(&self) -> crate::loom::native::MutexGuard<'_, BTreeMap<u64, Weak<Node>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it is done. A deadline that has passed is noticed here.
    fn done(&self) -> Option<&Done> {
        if let Some(done) = self.done.get() {
            return Some(done);
        }
        if self.deadline_ns == NEVER || clock::now_ns() < self.deadline_ns {
            return None;
        }
        // Nobody has to be woken: waiters have timers of their own.
        let late = Done {
            error: Error::DeadlineExceeded,
            cause: None,
        };
        Some(self.done.get_or_init(|| late))
    }

    fn channel(&self) -> &Receiver<Infallible> {
        let channel = self
            .channel
            .get_or_init(|| Receiver::closing(self.deadline));
        fence(Ordering::SeqCst);
        if self.done.get().is_some() {
            channel.close();
        }
        channel
    }

    /// Makes it and those that come from it done, each if it is not yet.
    fn end(self: &Arc<Node>, done: Done) {
        let mut all = vec![Arc::clone(self)];
        while let Some(node) = all.pop() {
            if node.done.set(done.clone()).is_ok() {
                fence(Ordering::SeqCst);
                if let Some(channel) = node.channel.get() {
                    channel.close();
                }
                node.cut_all();
                let children = mem::take(&mut *node.children());
                all.extend(children.values().filter_map(Weak::upgrade));
            }
        }
    }

    /// Ends the waits of all frames. The lock is given back after each, so that those
    /// that wake can leave.
    fn cut_all(&self) {
        loop {
            let mut seen_before = false;
            {
                let section = Section::enter();
                self.lock.lock();
                let first = self.frames.first();
                if let Some(frame) = first {
                    self.frames.remove(frame);
                    seen_before = frame.word.is_set();
                    frame.word.set();
                    if !cancel::cut(frame, section.as_ref()) {
                        // SAFETY: it was in the list until just now, and the lock is held.
                        unsafe { self.frames.push(frame) };
                    }
                }
                self.lock.unlock();
                if first.is_none() {
                    return;
                }
            }
            if seen_before {
                clock::nap(RETRY_NS);
            }
        }
    }

    /// Adds a frame, which must not move while the guard lives.
    fn register<'a>(&'a self, frame: &'a Frame) -> Registered<'a> {
        let _section = Section::enter();
        self.lock.lock();
        // SAFETY: the guard removes the frame, and borrows it until then.
        unsafe { self.frames.push(frame) };
        if self.done.get().is_some() {
            frame.word.set();
            self.frames.remove(frame);
        }
        self.lock.unlock();
        Registered { node: self, frame }
    }
}

impl Drop for Node {
    /// Without recursion: a chain of contexts may be longer than a stack.
    fn drop(&mut self) {
        let mut id = self.id;
        let mut parent = self.parent.take();
        while let Some(node) = parent.take() {
            node.children().remove(&id);
            if let Some(mut last) = Arc::into_inner(node) {
                id = last.id;
                parent = last.parent.take();
            }
        }
    }
}

impl Drop for Value {
    /// Without recursion, as a [`Node`]'s.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut last) = parent.take().and_then(Arc::into_inner) {
            parent = last.parent.take();
        }
    }
}

/// A frame that its context knows of.
struct Registered<'a> {
    node: &'a Node,
    frame: &'a Frame,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let _section = Section::enter();
        self.node.lock.lock();
        self.node.frames.remove(self.frame);
        self.node.lock.unlock();
    }
}
