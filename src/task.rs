//! Goroutines as the user sees them: the names of `std::thread`.
//!
//! # Off the runtime
//!
//! Everything here that waits works on a plain thread too and blocks it; only
//! [`spawn`] needs a runtime around it (there is [`Handle::spawn`](crate::Handle::spawn)).
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::g::header::{self, TakeFn};
use crate::g::stack::{MAX_STACK_BYTES, MIN_STACK_BYTES};
use crate::g::status::{For, Reason};
use crate::loom::native::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use crate::loom::native::{Arc, Mutex, PoisonError};
use crate::sched::checkpoint as check;
use crate::sched::completion;
use crate::sched::locked;
use crate::sched::park::{self, Caller};
use crate::sched::spawn::{self as make, Options, Place, TaskRef};
use crate::sys::clock::{NEVER, deadline_ns, now_ns};

mod local;

pub use crate::sched::park::Cancelled;
pub use local::{AccessError, LocalKey, task_local};

/// What joining gives: the goroutine's value, or the payload of its panic.
///
/// A goroutine that was still parked when its runtime ended gives [`Cancelled`] as
/// the payload.
pub type Result<T> = std::thread::Result<T>;

/// Spawns a goroutine and gives a handle to join it. Dropping the handle detaches
/// the goroutine.
///
/// # Blocking
///
/// Never. The new goroutine runs next on this P, or on another one.
///
/// # Panics
///
/// Off the runtime; use [`Handle::spawn`](crate::Handle::spawn) there.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// let sum = rt.run(|| {
///     let parts: Vec<_> = (0..10).map(|i| windlass::spawn(move || i * i)).collect();
///     parts.into_iter().map(|p| p.join().unwrap()).sum::<u32>()
/// });
/// assert_eq!(sum, 285);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
#[inline]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    spawn_at(f, Location::caller())
}

/// As [`spawn`], for a caller at `site`.
#[inline]
pub(crate) fn spawn_at<F, T>(f: F, site: &'static Location<'static>) -> JoinHandle<T>
where
    F: FnOnce() -> T,
{
    let task = make::spawn(f, Options::default(), site);
    JoinHandle::new(task, header::take_fn::<F, T>())
}

/// Chooses the properties of a new goroutine, as `std::thread::Builder` does for
/// threads.
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it spawns"]
pub struct Builder {
    name: Option<String>,
    stack_bytes: Option<usize>,
    node: Option<u32>,
    is_bound: bool,
}

impl Builder {
    /// A builder with the runtime's defaults.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the goroutine, for reports.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Sets the virtual size of the stack in bytes, between 16 KiB and 4 GiB. It is
    /// rounded up to a size class (64 KiB, 256 KiB, 1 MiB) or whole pages; memory is
    /// used only as far as it is touched.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Chooses the NUMA node, by the kernel's number, where the goroutine begins. Its stack
    /// is made there, and when it is woken it goes there if a P is idle there; if the node
    /// has too much to do, others help it out ([`bound`](Builder::bound) forbids that). If not
    /// set: the node of the caller.
    ///
    /// [`Runtime::topology`](crate::Runtime::topology) tells which nodes there are.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::task;
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let here = task::current_node().expect("a goroutine is on a node");
    ///     let there = task::Builder::new().node(here).bound(true).spawn(task::current_node)?;
    ///     assert_eq!(there.join().unwrap(), Some(here));
    ///     let nowhere = task::Builder::new().node(1_000_000).spawn(|| ());
    ///     assert_eq!(nowhere.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn node(mut self, os_id: u32) -> Builder {
        self.node = Some(os_id);
        self
    }

    /// Whether the goroutine runs on its node only (default: no): the one chosen with
    /// [`node`](Builder::node), or else that of the caller. It may wait there while other nodes
    /// are idle; worth it for what mostly reads or writes memory of that node.
    ///
    /// If [`set_processors`](crate::Runtime::set_processors) leaves its node without a P, the
    /// next node that has one runs it, until its own node has a P again.
    pub fn bound(mut self, yes: bool) -> Builder {
        self.is_bound = yes;
        self
    }

    /// Spawns the goroutine.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a stack size out of range, and for a node that the runtime does
    /// not have. A stack that cannot be had when
    /// the goroutine first runs is reported by its join.
    ///
    /// # Panics
    ///
    /// Off the runtime.
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        let place = self.place()?;
        let task = make_at(place, f, self.options()?, site);
        Ok(JoinHandle::new(task, header::take_fn::<F, T>()))
    }

    /// Spawns the goroutine in a scope.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// Off the runtime.
    #[track_caller]
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let site = Location::caller();
        let place = self.place()?;
        Ok(scope.spawn_with(place, f, self.options()?, site))
    }

    /// Where the goroutine is to run, if that was said.
    fn place(&self) -> io::Result<Option<Place>> {
        let place = Place {
            node: self.node.map(node_index).transpose()?,
            is_bound: self.is_bound,
        };
        Ok((place.node.is_some() || place.is_bound).then_some(place))
    }

    fn options(self) -> io::Result<Options> {
        if let Some(bytes) = self.stack_bytes
            && !(MIN_STACK_BYTES..=MAX_STACK_BYTES).contains(&bytes)
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "stack_size({bytes}): choose between {MIN_STACK_BYTES} and {MAX_STACK_BYTES} bytes"
                ),
            ));
        }
        Ok(Options {
            name: self.name.map(String::into_boxed_str),
            stack_bytes: self.stack_bytes,
        })
    }
}

fn make_at<F: FnOnce() -> T, T>(
    place: Option<Place>,
    f: F,
    options: Options,
    site: &'static Location<'static>,
) -> TaskRef {
    match place {
        None => make::spawn(f, options, site),
        Some(place) => make::spawn_on(place, f, options, site),
    }
}

/// The runtime's own number of a node.
fn node_index(os_id: u32) -> io::Result<usize> {
    make::find_node(os_id).map_err(|known| {
        let known: Vec<_> = known.iter().map(u32::to_string).collect();
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "node({os_id}): this runtime has no processors there; choose one of {}",
                known.join(", ")
            ),
        )
    })
}

/// Spawns a goroutine on every NUMA node that has a P in use, each bound to its node
/// ([`Builder::bound`]) and called with the kernel's number of it. The handles come in the
/// order of the nodes.
///
/// For state that every node has a copy of, and for services that run once per node.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// Off the runtime.
///
/// # Examples
///
/// ```
/// use windlass::task;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     // Each counts in memory that it touches first: that of its own node.
///     let tables = task::spawn_on_each_node(|node| (node, vec![0_u64; 1024]));
///     for table in tables {
///         let (_node, counts) = table.join().unwrap();
///         assert_eq!(counts.len(), 1024);
///     }
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_on_each_node<F, T>(f: F) -> Vec<JoinHandle<T>>
where
    F: Fn(u32) -> T + Send + Sync + 'static,
    T: Send + 'static,
{
    let site = Location::caller();
    let f = Arc::new(f);
    let spawn_on = |os_id: u32| {
        let f = Arc::clone(&f);
        let run = move || f(os_id);
        let place = Place {
            node: make::find_node(os_id).ok(),
            is_bound: true,
        };
        let take = take_fn_of(&run);
        let task = make::spawn_on(place, run, Options::default(), site);
        JoinHandle::new(task, take)
    };
    make::live_nodes().into_iter().map(spawn_on).collect()
}

/// The NUMA node that the calling goroutine runs on, by the kernel's number. `None` on a
/// plain thread, and in a [`blocking`] section, where nothing keeps the node's P.
///
/// A goroutine that is not bound may be on another node after any call that parks.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// assert!(rt.run(windlass::task::current_node).is_some());
/// assert!(windlass::task::current_node().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn current_node() -> Option<u32> {
    make::current_node()
}

/// The right to join a goroutine. Dropping it detaches the goroutine.
pub struct JoinHandle<T> {
    inner: Handle<T>,
}

/// What the handles of plain and scoped goroutines share.
struct Handle<T> {
    task: Option<TaskRef>,
    take: TakeFn<T>,
    result: PhantomData<T>,
}

// SAFETY: the handle hands over a `T` that another thread made, once; it holds no `T` itself.
unsafe impl<T: Send> Send for Handle<T> {}
// SAFETY: through a shared handle nothing of `T` can be reached.
unsafe impl<T: Send> Sync for Handle<T> {}

impl<T> Handle<T> {
    fn task(&self) -> &TaskRef {
        self.task
            .as_ref()
            .expect("a handle gives its task up only when it is used up")
    }

    #[track_caller]
    fn join(mut self) -> Result<T> {
        let g = self.task().g();
        if !self.is_finished() && park::current_g() == Some(g) {
            panic!("windlass: a goroutine cannot join itself: it would wait for ever");
        }
        completion::wait(&g.join, Reason::Join)
            .map_err(|c| -> Box<dyn std::any::Any + Send> { Box::new(c) })?;
        let task = self.task.take();
        // SAFETY: the goroutine has ended, and the one handle that may take its outcome is used up.
        let outcome = unsafe { (self.take)(g) };
        drop(task);
        if outcome
            .as_ref()
            .is_err_and(|payload| payload.is::<Cancelled>())
        {
            // If that was the end of this goroutine's runtime, it ends here, too.
            let _ = park::cancel_point();
        }
        outcome
    }

    /// Whether the goroutine has ended by then.
    fn wait_until(&self, deadline_ns: u64) -> bool {
        let g = self.task().g();
        // A destructor of a goroutine that is being cancelled does not wait.
        completion::wait_until(&g.join, deadline_ns).unwrap_or(false)
    }

    fn is_finished(&self) -> bool {
        completion::is_done(&self.task().g().join)
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task
            && completion::detach(&task.g().join)
        {
            make::drop_outcome(task.g());
        }
    }
}

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: TaskRef, take: TakeFn<T>) -> JoinHandle<T> {
        JoinHandle {
            inner: Handle {
                task: Some(task),
                take,
                result: PhantomData,
            },
        }
    }

    /// Waits for the goroutine to end and gives its value.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends
    /// it unwinds.
    ///
    /// # Errors
    ///
    /// The payload, if the goroutine panicked; [`Cancelled`] if its runtime ended.
    ///
    /// # Panics
    ///
    /// If a goroutine joins itself, as `std`'s does.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        self.inner.join()
    }

    /// As [`join`](JoinHandle::join), for at most `timeout`: then it gives the handle back.
    ///
    /// # Blocking
    ///
    /// As [`join`](JoinHandle::join). Ends early, with the handle, when the ambient context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Errors
    ///
    /// The handle, if the goroutine has not ended in time. What the goroutine came to,
    /// which may be an error, too, is inside the `Ok`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let task = windlass::spawn(|| {
    ///         windlass::task::park();
    ///         7
    ///     });
    ///     let task = task.join_timeout(Duration::from_millis(2)).unwrap_err();
    ///     task.task().unpark();
    ///     assert_eq!(task.join_timeout(Duration::MAX).unwrap().unwrap(), 7);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_timeout(self, timeout: Duration) -> std::result::Result<Result<T>, JoinHandle<T>> {
        if self.inner.wait_until(deadline_ns(timeout)) {
            Ok(self.inner.join())
        } else {
            Err(self)
        }
    }

    /// Whether the goroutine has ended. Does not block.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// The goroutine behind this handle.
    #[must_use]
    pub fn task(&self) -> Task {
        Task(Who::Goroutine(self.inner.task().clone()))
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("task", &self.task())
            .finish()
    }
}

/// A goroutine, or a plain thread, seen from outside: to name it and to unpark it.
#[derive(Clone)]
pub struct Task(Who);

#[derive(Clone)]
enum Who {
    Goroutine(TaskRef),
    Thread(crate::loom::thread::Thread),
}

// SAFETY: a task reference is a count and an address; all that can be done through it is atomic
// or immutable.
unsafe impl Send for TaskRef {}
// SAFETY: as for Send.
unsafe impl Sync for TaskRef {}

impl Task {
    /// The goroutine's number, unique in the process; 0 for a plain thread.
    #[must_use]
    pub fn id(&self) -> u64 {
        match &self.0 {
            Who::Goroutine(task) => task.g().id(),
            Who::Thread(_) => 0,
        }
    }

    /// The name given to it, if any.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            // The name lives as long as a reference, which `self` holds.
            Who::Goroutine(task) => {
                let name = task.g().name().map(std::ptr::from_ref)?;
                // SAFETY: the name is freed with the last reference, and `self` keeps one.
                Some(unsafe { &*name })
            }
            Who::Thread(thread) => thread.name(),
        }
    }

    /// Gives the goroutine its token: its current or next [`park`] returns.
    ///
    /// # Blocking
    ///
    /// Never. Works from any thread, and after the goroutine or its runtime has
    /// ended (then it does nothing).
    pub fn unpark(&self) {
        match &self.0 {
            Who::Goroutine(task) => park::unpark(task.g()),
            Who::Thread(thread) => thread.unpark(),
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish()
    }
}

/// The calling goroutine; on a plain thread, that thread.
#[must_use]
pub fn current() -> Task {
    Task(match park::current_g() {
        Some(g) => Who::Goroutine(TaskRef::retain(g)),
        None => Who::Thread(crate::loom::thread::current()),
    })
}

/// Waits until somebody calls [`Task::unpark`] for the caller; returns at once if
/// that has happened since the last park. May return without cause, as in `std`.
///
/// # Blocking
///
/// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends it
/// unwinds.
#[inline]
pub fn park() {
    park_until(NEVER);
}

/// As [`park`], for at most `timeout`.
///
/// # Blocking
///
/// As [`park`].
pub fn park_timeout(timeout: Duration) {
    park_until(deadline_ns(timeout));
}

fn park_until(deadline: u64) {
    match park::caller() {
        // A destructor of a goroutine that is being cancelled does not wait.
        Caller::Goroutine(g) => {
            let _ = park::park_token(g, deadline);
        }
        Caller::Thread => park_thread(deadline),
    }
}

/// Blocks the thread. A goroutine may be here too (unwinding, or in a blocking
/// section): its token is looked at now and then, and so is the ambient context.
#[allow(
    clippy::disallowed_methods,
    reason = "this is the case that blocks the thread"
)]
fn park_thread(deadline: u64) {
    let chain = park::current_chain();
    let deadline = deadline.min(chain.deadline_ns());
    let left = || Duration::from_nanos(deadline.saturating_sub(now_ns()));
    let look_up = Duration::from_nanos(park::LOOK_UP_NS);
    match park::current_g() {
        _ if chain.over().is_some() => {}
        None if chain.is_some() => crate::loom::thread::park_timeout(left().min(look_up)),
        None if deadline == NEVER => crate::loom::thread::park(),
        None => crate::loom::thread::park_timeout(left()),
        Some(g) => {
            while !g.token.take(For::Park) && !park::is_cancelled() && chain.over().is_none() {
                let left = left();
                if left.is_zero() {
                    return;
                }
                crate::loom::thread::sleep(left.min(look_up));
            }
        }
    }
}

/// Lets others run: sends the goroutine to the end of its P's queue.
///
/// # Blocking
///
/// Returns when its turn comes again. On a plain thread it yields the thread; on a
/// goroutine whose runtime ends it unwinds.
#[inline]
pub fn yield_now() {
    // A destructor of a goroutine that is being cancelled does not wait.
    let _ = park::yield_now();
}

/// For loops that compute for long: gives way if the goroutine has had its share of time
/// and others wait for its P, or if the P was taken from it meanwhile. Nearly free
/// otherwise, so it may be called often: some fifteen instructions, and a look at the clock
/// every 20 µs.
///
/// A goroutine that computes without it is not stopped: its P goes to another thread after
/// 10 ms, and the two share the core. With it, others wait 200 µs and nothing is taken.
///
/// # Blocking
///
/// As [`yield_now`], if the goroutine gives way; else never. Does nothing on a plain
/// thread. On a goroutine whose runtime ends it unwinds, at the latest when it looks at
/// the clock.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// let hash = rt.run(|| {
///     (0..1_000_000_u64).fold(0, |hash: u64, n| {
///         windlass::task::checkpoint();
///         hash.rotate_left(5) ^ n
///     })
/// });
/// # assert_ne!(hash, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn checkpoint() {
    // A destructor of a goroutine that is being cancelled does not wait.
    let _ = check::checkpoint();
}

/// Ties the calling goroutine to the thread it runs on, until what this gives is dropped:
/// Go's `runtime.LockOSThread`. Meanwhile the goroutine runs on no other thread, and the
/// thread runs no other goroutine. For foreign code that remembers its thread (graphics
/// contexts, thread-locals, a thread's priority, name space or credentials).
///
/// It nests: the thread is free again when as many guards were dropped as were made. What
/// the goroutine spawns is not tied to anything.
///
/// The thread still moves with the P that it is given, so it is pinned to one core and
/// then another; with [`Builder::pin(false)`](crate::Builder::pin) it is left alone.
///
/// A goroutine that ends with the guard forgotten (`std::mem::forget`) takes its thread
/// along: what it has done to the thread is never seen by others. The thread that called
/// [`run`](crate::Runtime::run) does not end; it waits there for the end of the run.
///
/// # Blocking
///
/// Never. While it holds, each change between this goroutine and others on its P is a
/// change of threads: some microseconds instead of some nanoseconds.
///
/// # Panics
///
/// If all threads that the runtime may have but one for each P are tied already
/// ([`Builder::max_threads`](crate::Builder::max_threads)).
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let _tied = windlass::task::lock_thread();
///     let here = std::thread::current().id();
///     windlass::sleep(std::time::Duration::from_millis(1));
///     assert_eq!(std::thread::current().id(), here);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn lock_thread() -> LockedThread {
    LockedThread {
        is_locked: locked::lock(),
        not_send: PhantomData,
    }
}

/// Keeps a goroutine on its thread; see [`lock_thread`]. On a plain thread it means
/// nothing.
#[derive(Debug)]
#[must_use = "the thread is free again when this is dropped"]
pub struct LockedThread {
    is_locked: bool,
    not_send: PhantomData<*const ()>,
}

impl Drop for LockedThread {
    fn drop(&mut self) {
        if self.is_locked {
            locked::unlock();
        }
    }
}

/// Waits for `duration`.
///
/// # Blocking
///
/// Parks the goroutine; blocks a plain thread. On a goroutine whose runtime ends it
/// unwinds.
pub fn sleep(duration: Duration) {
    if !duration.is_zero() {
        // A destructor of a goroutine that is being cancelled does not wait.
        let _ = park::sleep_until(deadline_ns(duration));
    }
}

/// Runs `f`, which may block its thread (a system call without an asynchronous
/// form, a foreign library, a long computation): the P goes to another thread after
/// 20 µs if it has work, and after 10 ms if not. Inside `f`, waiting blocks the thread.
///
/// `f` runs on the same thread, in which earlier ring operations may complete: some
/// blocking calls then give EINTR or a short result (docs/SAFETY.md lists them).
/// [`offload`] keeps a call from that.
///
/// # Blocking
///
/// Blocks the thread for as long as `f` does. Off the runtime it just runs `f`.
///
/// # Panics
///
/// With `f`'s panic.
pub fn blocking<T>(f: impl FnOnce() -> T) -> T {
    crate::sched::handoff::blocking(f)
}

/// Runs `f` on a spare thread that no ring operation can disturb, while the
/// goroutine parks.
///
/// # Blocking
///
/// Parks the goroutine until `f` has ended, also when the runtime ends. Off the
/// runtime it just runs `f`.
///
/// # Panics
///
/// With `f`'s panic.
pub fn offload<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    crate::sched::offload::offload(f)
}

/// A scope to spawn goroutines in that borrow from outside it. Made by [`scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    shared: ScopeShared,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Ordering: the count falls with release, and its last fall sets `done`, which the
/// waiting owner acquires.
#[derive(Debug)]
struct ScopeShared {
    /// Goroutines that run, and one for the scope itself.
    n_running: AtomicUsize,
    a_goroutine_panicked: AtomicBool,
    /// One was dropped before it ran, because the runtime ends.
    a_goroutine_was_refused: AtomicBool,
    done: AtomicPtr<()>,
}

impl ScopeShared {
    /// One less runs. The last one sets `done`, after which this may be gone.
    fn leave(&self, panicked: bool) {
        if panicked {
            self.a_goroutine_panicked.store(true, Ordering::Relaxed);
        }
        let done = &raw const self.done;
        if self.n_running.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the owner waits for `done`, so it is still there; `set` reads nothing of it
            // after the swap.
            completion::set(unsafe { &*done });
        }
    }
}

/// Runs `f` with a scope in which goroutines may borrow local variables, and waits
/// for all of them, as `std::thread::scope` does.
///
/// # Blocking
///
/// Parks the goroutine until every goroutine of the scope has ended, also when the
/// runtime ends (they are cancelled then, too). Spawning in it needs a runtime.
///
/// # Panics
///
/// If `f` panics, or a goroutine of the scope that was not joined did.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let mut halves = [1, 2, 3, 4];
///     let (left, right) = halves.split_at_mut(2);
///     windlass::task::scope(|s| {
///         s.spawn(|| left.reverse());
///         s.spawn(|| right.reverse());
///     });
///     assert_eq!(halves, [2, 1, 4, 3]);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        shared: ScopeShared {
            n_running: AtomicUsize::new(1),
            a_goroutine_panicked: AtomicBool::new(false),
            a_goroutine_was_refused: AtomicBool::new(false),
            done: AtomicPtr::default(),
        },
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.shared.leave(false);
    completion::wait(&scope.shared.done, Reason::Scope).expect("this wait is never cut short");
    if scope.shared.a_goroutine_was_refused.load(Ordering::Relaxed) {
        // What the caller borrowed out was not worked on: it must not go on as if it was.
        let _ = park::cancel_point();
    }
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(_) if scope.shared.a_goroutine_panicked.load(Ordering::Relaxed) => {
            // The scope's goroutines end early when the runtime does: that is no panic of theirs.
            let _ = park::cancel_point();
            panic!("a scoped goroutine panicked")
        }
        Ok(value) => value,
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Spawns a goroutine in the scope.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// Off the runtime.
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.spawn_with(None, f, Options::default(), Location::caller())
    }

    fn spawn_with<F, T>(
        &'scope self,
        place: Option<Place>,
        f: F,
        options: Options,
        site: &'static Location<'static>,
    ) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.shared.n_running.fetch_add(1, Ordering::Relaxed);
        let packet = Arc::new(Packet(Mutex::new(None)));
        let body = ScopedBody {
            f,
            packet: Arc::clone(&packet),
            leave: Leave {
                shared: &self.shared,
                panicked: false,
                ran: false,
            },
        };
        let run = move || body.run();
        let take = take_fn_of(&run);
        let task = make_at(place, run, options, site);
        ScopedJoinHandle {
            inner: Handle {
                task: Some(task),
                take,
                result: PhantomData,
            },
            packet,
            scope: PhantomData,
        }
    }
}

/// Names the type of a closure that has no name.
fn take_fn_of<F: FnOnce() -> T, T>(_: &F) -> TakeFn<T> {
    header::take_fn::<F, T>()
}

/// Where a scoped goroutine leaves its result. Held by the goroutine, which lets go
/// before it leaves the scope, and by the handle, which cannot outlive the scope: so
/// the result is gone before what it may borrow.
#[derive(Debug)]
struct Packet<T>(Mutex<Option<Result<T>>>);

/// What a scoped goroutine runs. Dropped in this order, also when it is cancelled
/// before it ran: what borrows, then the result, and only then the scope hears of it.
struct ScopedBody<'scope, F, T> {
    f: F,
    packet: Arc<Packet<T>>,
    leave: Leave<'scope>,
}

impl<F: FnOnce() -> T, T> ScopedBody<'_, F, T> {
    fn run(self) {
        let ScopedBody {
            f,
            packet,
            mut leave,
        } = self;
        leave.ran = true;
        let result = catch_unwind(AssertUnwindSafe(f));
        *packet.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        // As in std: a panic that nobody will join is the scope's, and that is known when this is
        // the last owner. A destructor of the result then runs here, inside the scope.
        leave.panicked = Arc::strong_count(&packet) == 1
            && packet
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .is_some_and(Result::is_err);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(packet))) {
            leave.panicked = true;
            make::drop_payload(payload);
        }
    }
}

/// Tells a scope that one of its goroutines has ended.
struct Leave<'scope> {
    shared: &'scope ScopeShared,
    panicked: bool,
    ran: bool,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if !self.ran {
            self.shared
                .a_goroutine_was_refused
                .store(true, Ordering::Relaxed);
        }
        self.shared.leave(self.panicked);
    }
}

/// The right to join a scoped goroutine.
pub struct ScopedJoinHandle<'scope, T> {
    inner: Handle<()>,
    packet: Arc<Packet<T>>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the goroutine to end and gives its value.
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::join`].
    ///
    /// # Errors
    ///
    /// The payload, if the goroutine panicked; [`Cancelled`] if its runtime ended.
    ///
    /// # Panics
    ///
    /// If a goroutine joins itself.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        self.inner.join()?;
        let result = self
            .packet
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        result.unwrap_or_else(|| {
            let _ = park::cancel_point();
            Err(Box::new(Cancelled))
        })
    }

    /// As [`JoinHandle::join_timeout`].
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::join_timeout`].
    ///
    /// # Errors
    ///
    /// The handle, if the goroutine has not ended in time.
    pub fn join_timeout(self, timeout: Duration) -> std::result::Result<Result<T>, Self> {
        if self.inner.wait_until(deadline_ns(timeout)) {
            Ok(self.join())
        } else {
            Err(self)
        }
    }

    /// Whether the goroutine has ended. Does not block.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// The goroutine behind this handle.
    #[must_use]
    pub fn task(&self) -> Task {
        Task(Who::Goroutine(self.inner.task().clone()))
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle")
            .field("task", &self.task())
            .finish()
    }
}
