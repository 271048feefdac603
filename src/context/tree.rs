//! The tree of contexts: how a context becomes done, and how this reaches its waiters.
#![allow(unsafe_code)]

use std::any::Any;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::mem;
use std::time::{Duration, Instant};

use windlass_ground::std_traits::{debug_fields, fmt_as};

use crate::channel::{self, Receiver};
use crate::g::cancel_wait::{CancelScope, CancelScopes, CancelSource};
use crate::instant;
use crate::lock::RawLock;
use crate::loom::native::atomic::{AtomicU64, Ordering, fence};
use crate::loom::native::{Arc, Mutex, OnceLock, PoisonError, Weak};
use crate::sched::types::current;
use crate::sched::wait::current_context::{self, Error};
use crate::sched::wait::handoff::Section;
use crate::sched::wait::{cancel, points, sleep};
use crate::sys::clock::{self, NEVER};

/// The cause that a canceller may pass.
type Cause = Arc<dyn StdError + Send + Sync>;

/// Carries a cancellation signal, a deadline and values.
///
/// A context is cheap to clone. Clones are the same context.
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
    /// `None` for a context that is never done.
    node: Option<Arc<Node>>,
    values: Option<Arc<Value>>,
}

/// The state of a context that can become done.
struct Node {
    /// Its key among the children of its parent.
    id: u64,
    parent: Option<Arc<Node>>,
    /// The earliest of its own deadline and those of its ancestors.
    deadline: Option<Instant>,
    deadline_ns: u64,
    /// It, or an ancestor, was made with a canceller.
    has_canceller: bool,
    /// The cause that was given with this deadline.
    deadline_cause: Option<Cause>,
    done: OnceLock<Done>,
    /// The channel of `Context::done`, created by its first call. After setting this or `done`, a
    /// thread passes a fence and then reads the other one, so that one of them closes the channel.
    channel: OnceLock<Receiver<Infallible>>,
    /// The child contexts that are still alive.
    children: Mutex<BTreeMap<u64, Weak<Node>>>,
    /// Guards `frames`. Taken inside the scheduler, so that the holder has a P.
    lock: RawLock,
    /// The active calls of `run`. A call that adds its frame reads `done` afterwards, under the
    /// lock.
    frames: CancelScopes,
}

// SAFETY: `frames` is used under `lock` only. All other fields are `Sync`.
unsafe impl Sync for Node {}

#[derive(Clone)]
struct Done {
    error: Error,
    cause: Option<Cause>,
}

/// A value, linked to the values of the ancestors.
struct Value {
    value: Box<dyn Any + Send + Sync>,
    parent: Option<Arc<Value>>,
}

impl Context {
    /// Returns the root context. It is never done and has no values.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    ///
    /// assert!(!Context::background().is_done());
    /// ```
    #[must_use]
    pub const fn background() -> Context {
        Context {
            node: None,
            values: None,
        }
    }

    /// Derives a context that is done when its canceller cancels it or is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::{Context, Error};
    ///
    /// let (ctx, canceller) = Context::background().with_cancel();
    /// assert_eq!(ctx.err(), None);
    /// canceller.cancel();
    /// assert_eq!(ctx.err(), Some(Error::Cancelled));
    /// assert!(ctx.is_done());
    /// ```
    pub fn with_cancel(&self) -> (Context, Canceller) {
        let node = self.child(None, None);
        let canceller = Canceller(Some(Arc::clone(&node)));
        (self.with_node(node), canceller)
    }

    /// As [`with_cancel`](Context::with_cancel), for a canceller that leaves the context alone when
    /// it is dropped.
    pub(crate) fn with_cancel_ref(&self) -> (Context, CancelRef) {
        let node = self.child(None, None);
        let own = CancelRef(Arc::clone(&node));
        (self.with_node(node), own)
    }

    /// Derives a context that is done at `deadline`.
    ///
    /// It needs no canceller, because it uses a timer only during a wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::time::{Duration, Instant};
    /// use windlass::context::{Context, Error};
    ///
    /// let soon = Instant::now() + Duration::from_millis(2);
    /// let ctx = Context::background().with_deadline(soon);
    /// assert_eq!(ctx.deadline(), Some(soon));
    /// ctx.wait();
    /// assert_eq!(ctx.err(), Some(Error::DeadlineExceeded));
    /// ```
    #[must_use]
    pub fn with_deadline(&self, deadline: impl Into<Instant>) -> Context {
        let deadline = deadline.into();
        self.with_node(self.child(Some(deadline), None))
    }

    /// Derives a context as [`with_deadline`](Context::with_deadline) does, whose
    /// [`cause`](Context::cause) is `cause` if this deadline ends it.
    ///
    /// # Examples
    ///
    /// See [`Context::with_timeout_cause`].
    #[must_use]
    pub fn with_deadline_cause(
        &self,
        deadline: impl Into<Instant>,
        cause: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Context {
        let cause = Some(Arc::from(cause.into()));
        self.with_node(self.child(Some(deadline.into()), cause))
    }

    /// Derives a context that is done after `timeout`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::Context;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// ctx.run(|| windlass::sleep(Duration::from_secs(1000))); // returns early
    /// assert!(ctx.is_done());
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Context {
        match clock::now().checked_add(timeout) {
            Some(deadline) => self.with_deadline(deadline),
            None => self.clone(),
        }
    }

    /// Derives a context as [`with_timeout`](Context::with_timeout) does, whose
    /// [`cause`](Context::cause) is `cause` if this timeout ends it.
    ///
    /// If an ancestor's deadline is earlier, that ends the context, with its own cause.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::{Context, Error};
    ///
    /// let ctx = Context::background();
    /// let ctx = ctx.with_timeout_cause(Duration::from_millis(2), "the database is too slow");
    /// ctx.wait();
    /// assert_eq!(ctx.err(), Some(Error::DeadlineExceeded));
    /// assert_eq!(ctx.cause().unwrap().to_string(), "the database is too slow");
    /// ```
    #[must_use]
    pub fn with_timeout_cause(
        &self,
        timeout: Duration,
        cause: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Context {
        match clock::now().checked_add(timeout) {
            Some(deadline) => self.with_deadline_cause(deadline, cause),
            None => self.clone(),
        }
    }

    /// Derives a context with a value, which [`value`](Context::value) finds by its type.
    ///
    /// Use a private type, so that no other code's value hides it.
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

    /// Returns a context with the same values that is never done, for work that must complete.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    ///
    /// let (ctx, canceller) = Context::background().with_value("id").with_cancel();
    /// canceller.cancel();
    /// let detached = ctx.without_cancel();
    /// assert_eq!(detached.value(), Some(&"id"));
    /// assert!(!detached.is_done());
    /// ```
    #[must_use]
    pub fn without_cancel(&self) -> Context {
        Context {
            node: None,
            values: self.values.clone(),
        }
    }

    /// Returns the value of type `T` that was added last, or `None`.
    ///
    /// # Examples
    ///
    /// See [`Context::with_value`].
    #[must_use]
    pub fn value<T: Any + Send + Sync>(&self) -> Option<&T> {
        let all = std::iter::successors(self.values.as_deref(), |v| v.parent.as_deref());
        all.filter_map(|v| v.value.downcast_ref()).next()
    }

    /// Returns the deadline of the context, or `None`. Ancestors' deadlines are included.
    ///
    /// # Examples
    ///
    /// See [`Context::with_deadline`].
    #[must_use]
    pub fn deadline(&self) -> Option<instant::Instant> {
        Some(self.node.as_ref()?.deadline?.into())
    }

    /// Returns the reason why the context is done, or `None` while it is not done.
    ///
    /// # Examples
    ///
    /// See [`Context::with_cancel`].
    #[must_use]
    pub fn err(&self) -> Option<Error> {
        points::switch_point();
        self.error()
    }

    fn error(&self) -> Option<Error> {
        self.node.as_ref()?.done().map(|done| done.error)
    }

    /// Returns whether the context is done.
    ///
    /// # Examples
    ///
    /// See [`Context::with_cancel`].
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.err().is_some()
    }

    /// Returns a channel without messages that disconnects when the context is done, for use in a
    /// select.
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

    /// Returns the cause that was passed to [`Canceller::cancel_because`] or to
    /// [`with_deadline_cause`](Context::with_deadline_cause), if that ended the context.
    ///
    /// # Examples
    ///
    /// See [`Canceller::cancel_because`] and [`Context::with_timeout_cause`].
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.node.as_ref()?.done()?.cause.as_deref()
    }

    /// Runs `f` and ends its waits when the context is done.
    ///
    /// The [module](crate::context#what-a-context-ends) lists the waits. `f` itself is not
    /// interrupted: it handles the errors of its waits.
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
    /// use std::time::Duration;
    /// use windlass::channel;
    /// use windlass::context::{Context, Error};
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_millis(2));
    /// let (_sender, receiver) = channel::bounded::<u32>(1);
    /// assert!(ctx.run(|| receiver.recv()).is_err());
    /// assert_eq!(ctx.err(), Some(Error::DeadlineExceeded));
    /// ```
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        let Some(node) = &self.node else { return f() };
        node.run(f)
    }

    /// Waits until this context or an ambient context is done.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. Unwinds if the goroutine's runtime ends.
    ///
    /// # Examples
    ///
    /// See [`Context::with_deadline`].
    pub fn wait(&self) {
        self.run(|| {
            while current_context::check().is_ok() {
                // An error means that the goroutine already unwinds: destructors do not wait.
                if sleep::sleep_until(NEVER).is_err() {
                    return;
                }
            }
        });
    }

    /// Waits as [`wait`](Context::wait), for at most `timeout`. Returns whether the context is
    /// done.
    ///
    /// # Blocking
    ///
    /// As [`wait`](Context::wait).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::Context;
    ///
    /// let (ctx, canceller) = Context::background().with_cancel();
    /// assert!(!ctx.wait_timeout(Duration::from_millis(2)));
    /// drop(canceller);
    /// assert!(ctx.wait_timeout(Duration::MAX));
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.with_timeout(timeout).wait();
        self.is_done()
    }

    /// The node that ends waits in this context; `None` if it is never done.
    pub(crate) fn source(&self) -> Option<Arc<dyn CancelSource>> {
        let node = Arc::clone(self.node.as_ref()?);
        Some(node)
    }

    fn with_node(&self, node: Arc<Node>) -> Context {
        Context {
            node: Some(node),
            values: self.values.clone(),
        }
    }

    fn child(&self, deadline: Option<Instant>, cause: Option<Cause>) -> Arc<Node> {
        let parent = self.node.clone();
        let has_canceller = deadline.is_none() || parent.as_ref().is_some_and(|p| p.has_canceller);
        let inherited = parent.as_ref().and_then(|p| p.deadline);
        let is_inherited = inherited.is_some_and(|i| deadline.is_none_or(|own| i <= own));
        let (deadline, deadline_cause) = match &parent {
            Some(parent) if is_inherited => (inherited, parent.deadline_cause.clone()),
            _ => (deadline, cause),
        };
        let node = Arc::new(Node {
            id: next_id(),
            parent,
            deadline,
            deadline_ns: deadline.map_or(NEVER, clock::instant_ns),
            has_canceller,
            deadline_cause,
            done: OnceLock::new(),
            channel: OnceLock::new(),
            children: Mutex::default(),
            lock: RawLock::new(),
            frames: CancelScopes::new(),
        });
        if let Some(parent) = &node.parent {
            parent.children().insert(node.id, Arc::downgrade(&node));
            // Read `done` after the insert: either this sees `done`, or the parent sees the child.
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

debug_fields!(Context, |this| deadline: this.deadline(), err: this.error(), ..);

/// Runs `f` without the ambient contexts, for clean-up such as a last message to a peer.
///
/// Only contexts on which `f` itself calls [`Context::run`] end its waits.
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
    current_context::shield(f)
}

/// Returns an error if an ambient context of the caller is done. For a long computation that makes no
/// call that waits.
///
/// # Blocking
///
/// Never.
///
/// # Errors
///
/// The reason why the context is done.
///
/// # Examples
///
/// ```
/// use windlass::context::{self, Context, Error};
///
/// let (ctx, canceller) = Context::background().with_cancel();
/// let n_steps = ctx.run(|| {
///     let mut n = 0;
///     while context::check().is_ok() {
///         n += 1; // one step of the computation
///         if n == 1000 {
///             canceller.cancel();
///         }
///     }
///     n
/// });
/// assert_eq!(n_steps, 1000);
/// assert_eq!(ctx.run(context::check), Err(Error::Cancelled));
/// assert_eq!(context::check(), Ok(()));
/// ```
#[inline]
pub fn check() -> Result<(), Error> {
    points::switch_point();
    current_context::check()
}

/// Cancels a context. Created by [`Context::with_cancel`].
///
/// Dropping it also cancels the context, as Go's `defer cancel()` does.
/// [`Canceller::detach`] drops it without cancelling.
#[must_use = "dropping it cancels the context"]
pub struct Canceller(Option<Arc<Node>>);

impl Canceller {
    /// Cancels the context and its descendants. Does nothing if the context is already done.
    ///
    /// # Blocking
    ///
    /// Does not wait for the goroutines that it wakes. A plain thread may sleep, 50 µs at a time,
    /// until operations that are being submitted have reached the kernel.
    ///
    /// # Examples
    ///
    /// See [`Context::with_cancel`].
    pub fn cancel(&self) {
        points::switch_point();
        self.end(None);
    }

    /// Cancels as [`cancel`](Canceller::cancel), and stores a cause for [`Context::cause`].
    ///
    /// # Blocking
    ///
    /// As [`cancel`](Canceller::cancel).
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    ///
    /// let (ctx, canceller) = Context::background().with_cancel();
    /// canceller.cancel_because("the peer hung up");
    /// assert_eq!(ctx.cause().unwrap().to_string(), "the peer hung up");
    /// ```
    pub fn cancel_because(&self, cause: impl Into<Box<dyn StdError + Send + Sync>>) {
        points::switch_point();
        self.end(Some(Arc::from(cause.into())));
    }

    /// Drops the canceller without cancelling the context.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    ///
    /// let (ctx, canceller) = Context::background().with_cancel();
    /// canceller.detach();
    /// assert!(!ctx.is_done());
    /// ```
    pub fn detach(mut self) {
        self.0 = None;
    }

    /// As [`Canceller::cancel`]; leaves the goroutine on its thread.
    pub(crate) fn cancel_in_place(&self) {
        self.end(None);
    }

    fn end(&self, cause: Option<Cause>) {
        if let Some(node) = &self.0 {
            node.cancel(cause);
        }
    }

    /// Another canceller of the same context, which leaves it alone when it is dropped.
    pub(crate) fn to_ref(&self) -> Option<CancelRef> {
        self.0.clone().map(CancelRef)
    }
}

/// Cancels a context as a [`Canceller`] does, but not when it is dropped.
#[derive(Clone)]
pub(crate) struct CancelRef(Arc<Node>);

impl CancelRef {
    pub(crate) fn cancel(&self) {
        self.0.cancel(None);
    }

    pub(crate) fn cancel_because(&self, cause: impl Into<Box<dyn StdError + Send + Sync>>) {
        self.0.cancel(Some(Arc::from(cause.into())));
    }
}

fmt_as!(Debug for CancelRef, "CancelRef { .. }");

impl Drop for Canceller {
    fn drop(&mut self) {
        self.cancel_in_place();
    }
}

fmt_as!(Debug for Canceller, "Canceller { .. }");

/// How long a canceller naps before it retries an operation that has not reached the kernel.
const RETRY_NS: u64 = 50_000;

impl Node {
    /// Runs `f` in a scope of the context.
    fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        let frame = CancelScope::new(current::g(), self.deadline_ns);
        // SAFETY: the node is borrowed for as long as `f` runs.
        unsafe { frame.set_source(std::ptr::from_ref(self)) };
        let _registered = self.register(&frame);
        let _entered = current_context::enter(&frame);
        f()
    }

    fn children(&self) -> crate::loom::native::MutexGuard<'_, BTreeMap<u64, Weak<Node>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the outcome if the context is done. Detects a deadline that has passed.
    fn done(&self) -> Option<&Done> {
        if let Some(done) = self.done.get() {
            return Some(done);
        }
        if self.deadline_ns == NEVER || clock::now_ns() < self.deadline_ns {
            return None;
        }
        // No waiter has to be woken: each has its own timer.
        let late = Done {
            error: Error::DeadlineExceeded,
            cause: self.deadline_cause.clone(),
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

    /// Marks this context and its descendants cancelled, unless it is done.
    fn cancel(self: &Arc<Node>, cause: Option<Cause>) {
        if self.done().is_none() {
            self.end(Done {
                error: Error::Cancelled,
                cause,
            });
        }
    }

    /// Marks this context and its descendants done, except those that already are. One whose
    /// deadline has passed is, with all below it, and its waiters have timers.
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
                let children = children.values().filter_map(Weak::upgrade);
                all.extend(children.filter(|child| child.done().is_none()));
            }
        }
    }

    /// Ends the waits of all frames. Leaves the goroutine on its thread. Releases the lock after each frame, so that woken goroutines
    /// can remove theirs.
    fn cut_all(&self) {
        loop {
            let mut seen_before = false;
            {
                let section = Section::enter_in_place();
                self.lock.lock();
                let first = self.frames.first();
                if let Some(frame) = first {
                    self.frames.remove(frame);
                    seen_before = frame.word.is_set();
                    frame.word.set();
                    if !cancel::end_wait(frame, section.as_ref()) {
                        // SAFETY: the frame was just removed from this list, so it is still
                        // alive, and the lock is held.
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

    /// Adds a frame, which must not move until the guard is dropped.
    fn register<'a>(&'a self, frame: &'a CancelScope) -> Registered<'a> {
        // SAFETY: the guard borrows the frame, and removes it when dropped.
        unsafe { self.add(frame) };
        Registered { node: self, frame }
    }
}

impl CancelSource for Node {
    unsafe fn add(&self, frame: &CancelScope) {
        let _section = Section::enter();
        self.lock.lock();
        // SAFETY: by this function's contract, and the lock is held.
        unsafe { self.frames.push(frame) };
        if let Some(done) = self.done.get() {
            match done.error {
                Error::DeadlineExceeded => frame.set_late(),
                _ => frame.word.set(),
            }
            self.frames.remove(frame);
        }
        self.lock.unlock();
    }

    fn remove(&self, frame: &CancelScope) {
        let _section = Section::enter();
        self.lock.lock();
        self.frames.remove(frame);
        self.lock.unlock();
    }

    fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    fn has_canceller(&self) -> bool {
        self.has_canceller
    }
}

impl Drop for Node {
    /// Iterative, because a long chain of contexts would overflow the stack.
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
    /// Iterative, as a [`Node`]'s drop.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut last) = parent.take().and_then(Arc::into_inner) {
            parent = last.parent.take();
        }
    }
}

/// Removes a frame from its context's list when dropped.
struct Registered<'a> {
    node: &'a Node,
    frame: &'a CancelScope,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.node.remove(self.frame);
    }
}
