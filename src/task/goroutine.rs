//! Spawning goroutines, joining them, and what they call on themselves: park, sleep, yield, scopes.
#![allow(unsafe_code)]

use std::any::Any;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::Duration;

use windlass_ground::std_traits::debug_fields;

use crate::bubble;
use crate::config::{MAX_STACK_BYTES, MIN_STACK_BYTES};
use crate::context::{CancelRef, Context};
use crate::g::cancel_wait::ScopeChain;
use crate::g::details::{Details, Label};
use crate::g::header::{self, TakeFn};
use crate::g::status::{Reason, WakeKind};
use crate::loom::AtomicPtr;
use crate::loom::native::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::loom::native::{Arc, Mutex, PoisonError};
use crate::sched::proc::locked;
use crate::sched::types::accounts::MAX_LABELS;
use crate::sched::types::current;
use crate::sched::wait::checkpoint as check;
use crate::sched::wait::completion::{self, Unjoined};
use crate::sched::wait::fork;
use crate::sched::wait::offload;
use crate::sched::wait::park::{self, Caller};
use crate::sched::wait::points;
use crate::sched::wait::sleep;
use crate::sched::wait::spawn::{self as make, Options, SpawnPlace, TaskRef};
use crate::sched::wait::turn;
use crate::sys::clock::{NEVER, deadline_ns, left_ns, now_ns};
use crate::util::ladder;

pub use crate::sched::wait::points::Cancelled;

/// The result of a join: the goroutine's value, or the payload of its panic.
///
/// The payload is [`Cancelled`] if the goroutine was cancelled by the end of the run.
pub type Result<T> = std::thread::Result<T>;

/// Spawns a goroutine and returns a handle to join it. Dropping the handle detaches the goroutine.
///
/// # Blocking
///
/// Never. The new goroutine runs next on this P, or on another one.
///
/// # Panics
///
/// If the caller is not a goroutine; use [`Handle::spawn`](crate::Handle::spawn) on plain threads.
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

/// Spawns a goroutine that runs in a context of its own, a child of `ctx`: its waits end when `ctx`
/// is done, or when [`JoinHandle::cancel`] is called.
///
/// [`context`](mod@crate::context#what-a-context-ends) lists what ends, and how. The goroutine is
/// not interrupted: it handles the errors of its waits. If it computes for long, it should ask
/// [`context::check`](crate::context::check).
///
/// A context of its own costs an allocation, and its waits cost a little more than those of a plain
/// goroutine. So [`spawn`] does without.
///
/// # Blocking
///
/// As [`spawn`].
///
/// # Panics
///
/// As [`spawn`]; [`Handle::spawn_in`](crate::Handle::spawn_in) works on plain threads.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::context::Context;
/// use windlass::task;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let ctx = Context::background().with_timeout(Duration::from_millis(2));
///     let sleeper = task::spawn_in(&ctx, || {
///         windlass::sleep(Duration::from_secs(3600)); // returns early
///         windlass::context::check()
///     });
///     let outcome = sleeper.join().unwrap();
///     assert_eq!(outcome, Err(windlass::context::Error::DeadlineExceeded));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_in<F, T>(ctx: &Context, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (f, own) = in_own_context(ctx, f);
    spawn_at(f, Location::caller()).with_own(own)
}

/// A closure that runs `f` in a new child of `ctx`, and what cancels that child.
pub(crate) fn in_own_context<F, T>(
    ctx: &Context,
    f: F,
) -> (impl FnOnce() -> T + use<F, T>, CancelRef)
where
    F: FnOnce() -> T,
{
    let (ctx, own) = ctx.with_cancel_ref();
    (move || ctx.run(f), own)
}

/// As [`spawn`], for a caller at `site`.
#[inline]
#[track_caller]
pub(crate) fn spawn_at<F, T>(f: F, site: &'static Location<'static>) -> JoinHandle<T>
where
    F: header::Body<T>,
{
    points::end_if_late();
    let task = make::spawn(f, Options::default(), site);
    JoinHandle::new(task, header::take_fn::<F, T>())
}

/// Configures a new goroutine, as `std::thread::Builder` does a thread.
///
/// # Examples
///
/// ```
/// use windlass::task;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let parser = task::Builder::new().name("parser").stack_size(1 << 20);
///     let parser = parser.spawn(|| "a b c".split(' ').count())?;
///     assert_eq!(parser.join().unwrap(), 3);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it spawns"]
pub struct Builder {
    name: Option<String>,
    stack_bytes: Option<usize>,
    node: Option<u32>,
    is_bound: bool,
    label: Option<String>,
    context: Option<Context>,
}

impl Builder {
    /// Creates a builder with the runtime's defaults.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the goroutine. The name appears in dumps, traces and reports.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Gives the goroutine a label: the kind of work that it does. Goroutines that it spawns inherit the
    /// label, unless they get another.
    ///
    /// Dumps, profiles and the metrics show labels. With
    /// [`cpu_accounting`](crate::Builder::cpu_accounting) the metrics have the CPU time of each. A
    /// runtime keeps its labels, up to 1,024 of them, so a label names a kind of request, not a single
    /// one.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::task;
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let import = task::Builder::new().label("import").spawn(|| {
    ///         let child = windlass::spawn(|| task::current().label().map(str::to_owned));
    ///         child.join().unwrap()
    ///     })?;
    ///     assert_eq!(import.join().unwrap().as_deref(), Some("import"));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn label(mut self, label: impl Into<String>) -> Builder {
        self.label = Some(label.into());
        self
    }

    /// Sets the virtual size of the stack in bytes, between 16 KiB and 4 GiB. The size is rounded
    /// up to a size class (64 KiB, 256 KiB, 1 MiB), or to whole pages above these. Only touched
    /// pages use memory.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Sets the home NUMA node of the goroutine, by the kernel's number. If it is not set, the
    /// goroutine is queued on the node of the caller.
    ///
    /// The goroutine starts there, and its stack is allocated there. When it is woken elsewhere it
    /// returns there if a P of that node is idle. If the node has too much work, other nodes may
    /// run the goroutine, unless it is [bound](Builder::bound).
    ///
    /// [`Runtime::topology`](crate::Runtime::topology) lists the nodes.
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

    /// Sets whether the goroutine runs only on its home node (default: no). That is the node set by
    /// [`node`](Builder::node), or the node of the caller.
    ///
    /// A bound goroutine may wait while other nodes are idle. Binding pays for goroutines that
    /// mostly read or write memory of their node.
    ///
    /// If [`set_processors`](crate::Runtime::set_processors) leaves the node without a P, the
    /// next node, by position, that has a P runs the goroutine until its own node has a P again.
    pub fn bound(mut self, yes: bool) -> Builder {
        self.is_bound = yes;
        self
    }

    /// Makes the goroutine run in a context of its own, a child of `ctx`, as [`spawn_in`] does. Only
    /// such a goroutine can be cancelled by [`JoinHandle::cancel`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::context::Context;
    /// use windlass::task;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let sleeper = task::Builder::new()
    ///         .name("sleeper")
    ///         .context(&Context::background())
    ///         .spawn(|| windlass::sleep(Duration::from_secs(3600)))?;
    ///     assert!(sleeper.cancel());
    ///     sleeper.join().unwrap();
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn context(mut self, ctx: &Context) -> Builder {
        self.context = Some(ctx.clone());
        self
    }

    /// Spawns the goroutine.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a stack size out of range, for a node that the runtime does not have, or for
    /// one label more than a runtime may have.
    /// A failure to allocate the stack when the goroutine first runs is reported by its join.
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_at(f, Location::caller())
    }

    /// As [`Builder::spawn`], for a caller at `site`.
    #[track_caller]
    pub(super) fn spawn_at<F, T>(
        self,
        f: F,
        site: &'static Location<'static>,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Ok(self.prepare()?.spawn(f, site))
    }

    pub(crate) fn name_given(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn context_given(&self) -> Option<&Context> {
        self.context.as_ref()
    }

    /// Does all of a spawn that may fail.
    #[track_caller]
    pub(crate) fn prepare(mut self) -> io::Result<Prepared> {
        let place = self.place()?;
        let context = self.context.take();
        let options = self.options()?;
        Ok(Prepared {
            place,
            options,
            context,
        })
    }

    /// Sets the context unless one is set.
    pub(super) fn context_or(mut self, ctx: &Context) -> Builder {
        self.context.get_or_insert_with(|| ctx.clone());
        self
    }

    /// Spawns the goroutine in a scope.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::task;
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let text = String::from("borrowed");
    ///     task::scope(|s| {
    ///         let counter = task::Builder::new().name("counter").spawn_scoped(s, || text.len())?;
    ///         assert_eq!(counter.join().unwrap(), 8);
    ///         Ok::<(), std::io::Error>(())
    ///     })
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_scoped<'scope, F, T>(
        mut self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let site = Location::caller();
        let place = self.place()?;
        let ctx = self.context.take();
        let options = self.options()?;
        match ctx {
            None => Ok(scope.spawn_with(place, f, options, site)),
            Some(ctx) => {
                let (f, own) = in_own_context(&ctx, f);
                let mut handle = scope.spawn_with(place, f, options, site);
                handle.own = Some(own);
                Ok(handle)
            }
        }
    }

    /// Fails as [`Builder::spawn`] would.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.place()?;
        self.label.as_deref().map(label_of).transpose()?;
        self.check_stack_size()
    }

    /// The placement that the caller asked for, if any.
    #[track_caller]
    fn place(&self) -> io::Result<Option<SpawnPlace>> {
        let node = match self.node {
            Some(os_id) => Some(node_index(os_id)?),
            None => None,
        };
        let place = SpawnPlace {
            node,
            is_bound: self.is_bound,
        };
        Ok((place.node.is_some() || place.is_bound).then_some(place))
    }

    fn check_stack_size(&self) -> io::Result<()> {
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
        Ok(())
    }

    #[track_caller]
    fn options(self) -> io::Result<Options> {
        self.check_stack_size()?;
        let label = match self.label.as_deref() {
            Some(label) => Some(label_of(label)?),
            None => None,
        };
        if let Some(label) = &label {
            label.spawned.fetch_add(1, Ordering::Relaxed);
        }
        let name = self.name.map(String::into_boxed_str);
        let has_details = name.is_some() || label.is_some();
        Ok(Options {
            details: has_details.then(|| Box::new(Details::new(name, label))),
            stack_bytes: self.stack_bytes,
        })
    }
}

/// The validated settings of a [`Builder`].
pub(crate) struct Prepared {
    place: Option<SpawnPlace>,
    options: Options,
    context: Option<Context>,
}

impl Prepared {
    #[track_caller]
    pub(crate) fn spawn<F, T>(self, f: F, site: &'static Location<'static>) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self.context {
            None => joinable(self.place, f, self.options, site),
            Some(ctx) => {
                let (f, own) = in_own_context(&ctx, f);
                joinable(self.place, f, self.options, site).with_own(own)
            }
        }
    }

    /// As [`Prepared::spawn`], for a body that enters the [context](Builder::context_given) by itself.
    #[track_caller]
    pub(crate) fn spawn_body<B: header::Body<T>, T>(
        self,
        body: B,
        site: &'static Location<'static>,
    ) -> JoinHandle<T> {
        joinable(self.place, body, self.options, site)
    }
}

/// The label of this name, which is made if the runtime does not have it.
#[track_caller]
fn label_of(name: &str) -> io::Result<Arc<Label>> {
    make::label(name).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "label({name:?}): the runtime has {MAX_LABELS} others already; name kinds of work \
                 by labels, and single goroutines by name()"
            ),
        )
    })
}

#[track_caller]
fn joinable<F: header::Body<T>, T>(
    place: Option<SpawnPlace>,
    f: F,
    options: Options,
    site: &'static Location<'static>,
) -> JoinHandle<T> {
    JoinHandle::new(make_at(place, f, options, site), header::take_fn::<F, T>())
}

#[track_caller]
fn make_at<F: header::Body<T>, T>(
    place: Option<SpawnPlace>,
    f: F,
    options: Options,
    site: &'static Location<'static>,
) -> TaskRef {
    match place {
        None => make::spawn(f, options, site),
        Some(place) => make::spawn_on(place, f, options, site),
    }
}

/// The runtime's index of a node.
#[track_caller]
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

/// Spawns a goroutine on every NUMA node that has a P in use. Each is bound to its node
/// ([`Builder::bound`]) and gets the kernel's number of it as the argument. The handles are in the
/// order of the nodes.
///
/// It serves to build a copy of some state for every node, and to run a service once per node.
///
/// # Blocking
///
/// Never.
///
/// # Panics
///
/// If the caller is not a goroutine.
///
/// # Examples
///
/// ```
/// use windlass::task;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     // Memory is allocated on the node that touches it first.
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
        let place = SpawnPlace {
            node: make::find_node(os_id).ok(),
            is_bound: true,
        };
        let take = take_fn_of(&run);
        let task = make::spawn_on(place, run, Options::default(), site);
        JoinHandle::new(task, take)
    };
    make::live_nodes().into_iter().map(spawn_on).collect()
}

/// Returns the NUMA node that the calling goroutine runs on, by the kernel's number. `None` on a
/// plain thread, and in a [`blocking`] section, where the goroutine holds no P.
///
/// A goroutine that is not bound may be on another node after any call that parks.
///
/// # Blocking
///
/// Never.
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

/// A handle to join a goroutine. Dropping it detaches the goroutine, which then runs on by itself.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let task = windlass::spawn(|| "done");
///     println!("goroutine {} has ended: {}", task.task().id(), task.is_finished());
///     assert_eq!(task.join().unwrap(), "done");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct JoinHandle<T> {
    inner: Handle<T>,
    /// Cancels the goroutine's own context, if it has one.
    own: Option<CancelRef>,
}

/// The part that the handles of plain and scoped goroutines share.
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
        match completion::join(g) {
            Ok(()) => {}
            Err(Unjoined::Cancelled(c)) => return Err(Box::new(c)),
            Err(Unjoined::Itself) => joins_itself(),
        }
        let task = self.task.take();
        // SAFETY: the goroutine has ended, and the one handle that may take its outcome is used up.
        let outcome = unsafe { (self.take)(g) };
        drop(task);
        with_the_cancelled(outcome)
    }

    /// Waits until the goroutine has ended or the deadline has passed. `true` if it has ended.
    fn wait_until(&self, deadline_ns: u64) -> bool {
        let g = self.task().g();
        // Destructors of a cancelled goroutine do not wait.
        completion::wait_until(&g.join, deadline_ns).unwrap_or(false)
    }

    fn is_finished(&self) -> bool {
        points::switch_point();
        completion::is_done(&self.task().g().join)
    }
}

/// The outcome of a goroutine, for its joiner. If the goroutine was cancelled, and the run of the
/// joiner ends as well, that unwinds here.
fn with_the_cancelled<T>(outcome: Result<T>) -> Result<T> {
    if outcome
        .as_ref()
        .is_err_and(|payload| payload.is::<Cancelled>())
    {
        let _ = points::cancel_point();
    }
    outcome
}

#[cold]
#[track_caller]
fn joins_itself() -> ! {
    panic!("windlass: a goroutine cannot join itself: it would wait for ever")
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
            own: None,
        }
    }

    /// The handle of a goroutine that runs in the context that `own` cancels.
    pub(crate) fn with_own(mut self, own: CancelRef) -> JoinHandle<T> {
        self.own = Some(own);
        self
    }

    /// The goroutine's number.
    pub(super) fn id(&self) -> u64 {
        self.inner.task().g().id()
    }

    /// Cancels the goroutine's own context, which it has if it was spawned by [`spawn_in`] or with
    /// [`Builder::context`]. Returns `false` if it has none: then nothing is cancelled.
    ///
    /// The goroutine's waits end as [`context`](mod@crate::context#what-a-context-ends) describes:
    /// a read fails, a sleep returns early. The goroutine itself is not interrupted. One that never
    /// waits goes on, unless it asks [`context::check`](crate::context::check); one that ignores the
    /// errors of its waits goes on, too. A goroutine that has not started yet starts, and its first
    /// wait ends at once.
    ///
    /// It does nothing after the goroutine has ended. [`join`](JoinHandle::join) returns what the
    /// goroutine returned, not [`Cancelled`].
    ///
    /// # Blocking
    ///
    /// As [`Canceller::cancel`](crate::context::Canceller::cancel): does not wait for the goroutine.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::context::Context;
    /// use windlass::net::{TcpListener, TcpStream};
    /// use windlass::task;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut stream = TcpStream::connect(listener.local_addr()?)?;
    ///     let reader = task::spawn_in(&Context::background(), move || stream.read(&mut [0; 10]));
    ///     assert!(reader.cancel());
    ///     let error = reader.join().unwrap().unwrap_err();
    ///     assert_eq!(error.to_string(), "the context was cancelled");
    ///     // A goroutine without a context of its own is left alone.
    ///     assert!(!windlass::spawn(|| ()).cancel());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "if this is `false`, the goroutine has no context of its own, and goes on"]
    pub fn cancel(&self) -> bool {
        points::switch_point();
        self.cancel_in_place()
    }

    /// As [`JoinHandle::cancel`]; leaves the goroutine on its thread.
    pub(super) fn cancel_in_place(&self) -> bool {
        cancel_own(self.own.as_ref())
    }

    /// Returns a guard that cancels the goroutine when it is dropped.
    ///
    /// # Errors
    ///
    /// The handle, if the goroutine has no context of its own: see [`cancel`](JoinHandle::cancel).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::channel;
    /// use windlass::context::Context;
    /// use windlass::task;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let (sender, receiver) = channel::bounded(1);
    ///     let helper = task::spawn_in(&Context::background(), move || {
    ///         windlass::sleep(Duration::from_secs(3600));
    ///         sender.send("cancelled").unwrap();
    ///     });
    ///     let guard = helper.cancel_on_drop().unwrap();
    ///     drop(guard); // the helper ends with the work that needed it
    ///     assert_eq!(receiver.recv(), Ok("cancelled"));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cancel_on_drop(self) -> std::result::Result<CancelOnDrop<T>, JoinHandle<T>> {
        match self.own {
            Some(_) => Ok(CancelOnDrop(Some(self))),
            None => Err(self),
        }
    }

    /// Waits for the goroutine to end and returns its value.
    ///
    /// # Blocking
    ///
    /// Parks the goroutine; blocks a plain thread. If the run of the calling goroutine ends
    /// meanwhile, the call unwinds.
    ///
    /// # Errors
    ///
    /// The panic's payload if the goroutine panicked. [`Cancelled`] if its run ended. A `String` that
    /// says so if it could not begin, because there was no memory for its stack.
    ///
    /// # Panics
    ///
    /// If a goroutine joins itself, as in `std`.
    ///
    /// # Examples
    ///
    /// ```
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     assert_eq!(windlass::spawn(|| 7).join().unwrap(), 7);
    ///     let payload = windlass::spawn(|| panic!("oops")).join().unwrap_err();
    ///     assert_eq!(payload.downcast_ref(), Some(&"oops"));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn join(self) -> Result<T> {
        self.inner.join()
    }

    /// As [`join`](JoinHandle::join), but for at most `timeout`. After that it returns the handle.
    ///
    /// # Blocking
    ///
    /// As [`join`](JoinHandle::join). It returns the handle early when the current context
    /// ([`context`](crate::context)) is done.
    ///
    /// # Errors
    ///
    /// The handle, if the goroutine has not ended in time. The goroutine's own result, which may be
    /// an error, is inside the `Ok`.
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
        points::switch_point();
        if self.inner.wait_until(deadline_ns(timeout)) {
            Ok(self.inner.join())
        } else {
            Err(self)
        }
    }

    /// As [`JoinHandle::join`], but the wait also ends when `ctx` or an ambient context
    /// ([`context`](crate::context)) is done. The call then
    /// returns the handle.
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::join`], until a context is done.
    ///
    /// # Errors
    ///
    /// The handle, if the goroutine has not ended. The `Ok` value is the result of
    /// [`JoinHandle::join`].
    ///
    /// # Examples
    ///
    /// ```
    /// use windlass::context::Context;
    ///
    /// # // SAFETY: nothing here keeps a thread-local across a call that parks.
    /// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
    /// rt.run(|| {
    ///     let (ctx, canceller) = Context::background().with_cancel();
    ///     let task = windlass::spawn(windlass::task::park);
    ///     canceller.cancel();
    ///     let task = task.join_context(&ctx).unwrap_err();
    ///     task.task().unpark();
    ///     task.join_context(&Context::background()).unwrap().unwrap();
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_context(self, ctx: &Context) -> std::result::Result<Result<T>, JoinHandle<T>> {
        ctx.run(|| self.join_timeout(Duration::MAX))
    }

    /// Whether the goroutine has ended. Never blocks.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// The goroutine that this handle joins.
    #[must_use]
    pub fn task(&self) -> Task {
        Task(TaskKind::Goroutine(self.inner.task().clone()))
    }
}

/// Cancels a goroutine when it is dropped. Made by [`JoinHandle::cancel_on_drop`].
#[derive(Debug)]
#[must_use = "dropping it cancels the goroutine"]
pub struct CancelOnDrop<T>(Option<JoinHandle<T>>);

impl<T> CancelOnDrop<T> {
    /// Returns the handle: the goroutine is no longer cancelled by a drop.
    #[must_use = "dropping the handle detaches the goroutine"]
    #[allow(clippy::missing_panics_doc, reason = "the handle is there until now")]
    pub fn into_inner(mut self) -> JoinHandle<T> {
        self.0.take().expect("the handle is taken once")
    }

    /// Waits for the goroutine as [`JoinHandle::join`] does. If the wait unwinds, because the run of
    /// the caller ends, the goroutine is not cancelled by this guard but with its own run.
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::join`].
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::join`].
    ///
    /// # Panics
    ///
    /// As [`JoinHandle::join`].
    #[track_caller]
    pub fn join(self) -> Result<T> {
        self.into_inner().join()
    }
}

impl<T> std::ops::Deref for CancelOnDrop<T> {
    type Target = JoinHandle<T>;

    fn deref(&self) -> &JoinHandle<T> {
        self.0
            .as_ref()
            .expect("the handle is taken at the end only")
    }
}

impl<T> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.cancel_in_place();
        }
    }
}

fn cancel_own(own: Option<&CancelRef>) -> bool {
    own.inspect(|own| own.cancel()).is_some()
}

debug_fields!([T] JoinHandle<T>, |this| task: this.task());

/// A reference to a goroutine or a plain thread, to identify and to unpark it. Made by [`current`]
/// and [`JoinHandle::task`]. The counterpart of `std::thread::Thread`.
///
/// # Examples
///
/// ```
/// use windlass::task;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let me = task::current();
///     println!("goroutine {}, {:?}", me.id(), me.name());
///     windlass::spawn(move || me.unpark());
///     task::park();
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Task(TaskKind);

#[derive(Clone)]
enum TaskKind {
    Goroutine(TaskRef),
    Thread(crate::loom::thread::Thread),
}

// SAFETY: a task reference is a count and an address. All operations through it are atomic or read
// immutable data.
unsafe impl Send for TaskRef {}
// SAFETY: as for Send.
unsafe impl Sync for TaskRef {}

impl Task {
    /// The goroutine's number, unique in the process; 0 for a plain thread.
    #[must_use]
    pub fn id(&self) -> u64 {
        match &self.0 {
            TaskKind::Goroutine(task) => task.g().id(),
            TaskKind::Thread(_) => 0,
        }
    }

    /// The name given to it, if any.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            TaskKind::Goroutine(task) => {
                let name = task.g().name().map(std::ptr::from_ref)?;
                // SAFETY: the name is freed with the last reference, and `self` keeps one.
                Some(unsafe { &*name })
            }
            TaskKind::Thread(thread) => thread.name(),
        }
    }

    /// Its label, if it was given one or has inherited one: see [`Builder::label`].
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        match &self.0 {
            TaskKind::Goroutine(task) => {
                let label = task
                    .g()
                    .label()
                    .map(|label| std::ptr::from_ref(&*label.name))?;
                // SAFETY: the goroutine keeps the label, and `self` keeps a reference to it.
                Some(unsafe { &*label })
            }
            TaskKind::Thread(_) => None,
        }
    }

    /// Sets the token of the goroutine or thread, so that its current or next [`park`] returns.
    ///
    /// It may be called from any thread. After the goroutine or its runtime has ended it has no
    /// effect.
    ///
    /// # Blocking
    ///
    /// Never.
    pub fn unpark(&self) {
        points::switch_point();
        self.unpark_in_place();
    }

    /// As [`Task::unpark`]; leaves the goroutine on its thread.
    pub(crate) fn unpark_in_place(&self) {
        match &self.0 {
            TaskKind::Goroutine(task) => park::unpark(task.g()),
            TaskKind::Thread(thread) => thread.unpark(),
        }
    }
}

debug_fields!(Task, |this| id: this.id(), name: this.name());

/// Returns the calling goroutine, or on a plain thread that thread.
///
/// # Blocking
///
/// Never. This call, [`Task::id`] and [`Task::name`] do not enter the scheduler: the goroutine stays
/// on its thread, so a logger may make them while it borrows a thread-local.
///
/// # Examples
///
/// ```
/// use windlass::task;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| assert_eq!(task::current().name(), Some("main")));
/// // A plain thread has no number.
/// assert_eq!(task::current().id(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn current() -> Task {
    Task(match current::g() {
        Some(g) => TaskKind::Goroutine(TaskRef::retain(g)),
        None => TaskKind::Thread(crate::loom::thread::current()),
    })
}

/// Waits until [`Task::unpark`] is called for the caller. Returns at once if that has happened
/// since the last `park`. May return spuriously, as in `std`.
///
/// # Blocking
///
/// Parks the goroutine; blocks a plain thread. If the run ends meanwhile, the call unwinds. It
/// returns early when the current context ([`context`](crate::context)) is done.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use windlass::task;
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let is_ready = Arc::new(AtomicBool::new(false));
///     let (me, flag) = (task::current(), Arc::clone(&is_ready));
///     windlass::spawn(move || {
///         flag.store(true, Ordering::Release);
///         me.unpark();
///     });
///     while !is_ready.load(Ordering::Acquire) {
///         task::park();
///     }
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn park() {
    park_until(NEVER);
}

/// As [`park`], but for at most `timeout`.
///
/// # Blocking
///
/// As [`park`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// // No unpark comes, so this waits for a millisecond.
/// rt.run(|| windlass::task::park_timeout(Duration::from_millis(1)));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn park_timeout(timeout: Duration) {
    park_until(deadline_ns(timeout));
}

fn park_until(deadline: u64) {
    match park::caller() {
        // Destructors of a cancelled goroutine do not wait.
        Caller::Goroutine(g) => {
            let _ = park::park_token(g, deadline);
        }
        Caller::Thread => park_thread(deadline),
    }
}

/// Blocks the thread. Goroutines that cannot park come here as well: they unwind, or are in a
/// blocking section. Their token and the current context are then polled.
#[allow(
    clippy::disallowed_methods,
    reason = "this is the case that blocks the thread"
)]
fn park_thread(deadline: u64) {
    let chain = park::current_chain();
    let until = deadline.min(chain.deadline_ns());
    let pause = |look_up_ns| Duration::from_nanos(left_ns(until).min(look_up_ns));
    match current::g() {
        _ if chain.over().is_some() => {}
        None => {
            // A canceller cannot wake the thread, so the call then returns early.
            let look_up_ns = sleep::look_up_ns(chain);
            if until.min(look_up_ns) == NEVER {
                crate::loom::thread::park();
            } else {
                crate::loom::thread::park_timeout(pause(look_up_ns));
            }
            // If the context's deadline has ended the wait, this records it in the context.
            chain.over();
        }
        Some(g) => {
            while !g.token.take(WakeKind::Park)
                && !points::is_cancelled()
                && chain.over().is_none()
                && now_ns() < deadline
            {
                if !turn::block_thread(until) {
                    crate::loom::thread::sleep(pause(ladder::LATE_NS));
                }
            }
        }
    }
    let _ = points::cancel_point();
}

/// Lets other goroutines run: puts the caller at the end of its P's queue.
///
/// # Blocking
///
/// Returns when the goroutine's turn comes again. On a plain thread it yields the thread. If the
/// run ends meanwhile, the call unwinds.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(1).build()? };
/// rt.run(|| {
///     let task = windlass::spawn(|| ());
///     while !task.is_finished() {
///         windlass::yield_now();
///     }
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn yield_now() {
    // Destructors of a cancelled goroutine do not wait.
    let _ = park::yield_now();
}

/// A preemption point for loops that compute for long. The goroutine yields if a timer is due, if its
/// time slice is used up and others wait for its P, or if its P was retaken.
///
/// Otherwise the call costs some fifteen instructions, and a reading of the clock every 20 µs, so
/// it may be called often.
///
/// A goroutine that computes without it is not stopped. After 10 ms its P is handed to another
/// thread, and the two threads share the core. With it, others wait 200 µs and the P is not
/// retaken.
///
/// # Blocking
///
/// As [`yield_now`] if the goroutine yields; otherwise never. It has no effect on a plain thread.
/// If the run ends meanwhile, the call unwinds, at the latest when it next reads the clock.
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
    // Destructors of a cancelled goroutine do not wait.
    let _ = check::checkpoint();
}

/// Locks the calling goroutine to its thread until the returned guard is dropped, as Go's
/// `runtime.LockOSThread` does. Meanwhile the goroutine runs on no other thread, and the thread
/// runs no other goroutine.
///
/// It is meant for foreign code that depends on its thread: graphics contexts, thread-locals, a
/// thread's priority, name space or credentials.
///
/// Locks nest: the thread is unlocked when all guards are dropped. Goroutines that the caller
/// spawns are not locked.
///
/// The thread takes over the pin of each P that it gets, so its CPU may change; with
/// [`Builder::pin(false)`](crate::Builder::pin) it is never pinned.
///
/// If a goroutine ends with the guard forgotten (`std::mem::forget`), its thread ends as well, so
/// no other goroutine sees what was changed in the thread. The thread that called
/// [`run`](crate::Runtime::run) does not end; it waits for the end of the run.
///
/// # Blocking
///
/// Never. While the lock is held, each switch between this goroutine and others on its P is a
/// switch of threads, which takes microseconds instead of nanoseconds. Where the kernel refuses another
/// thread (`RLIMIT_NPROC`, the pids cgroup), no thread can run those others. They stand still until the kernel
/// allows a thread; so does the goroutine that holds the lock, if it waits while others are runnable. The runtime
/// reports this once on stderr.
///
/// # Panics
///
/// If the locked threads and one thread for each P would be more than
/// [`Builder::max_threads`](crate::Builder::max_threads).
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
    bubble::refuse(
        "`lock_thread`",
        "in a simulation, leave the call out, as all goroutines share one thread",
    );
    LockedThread {
        is_locked: locked::lock(),
        not_send: PhantomData,
    }
}

/// The guard of [`lock_thread`]. On a plain thread it has no effect.
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

/// Sleeps for `duration`.
///
/// # Blocking
///
/// Parks the goroutine; blocks a plain thread. If the run ends meanwhile, the call unwinds. It
/// returns early when the current context ([`context`](crate::context)) is done.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let begin = Instant::now();
///     windlass::sleep(Duration::from_millis(2));
///     assert!(begin.elapsed() >= Duration::from_millis(2));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep(duration: Duration) {
    if !duration.is_zero() {
        // Destructors of a cancelled goroutine do not wait.
        let _ = sleep::sleep_until(deadline_ns(duration));
    } else {
        points::switch_point();
    }
}

/// Runs `f`, which may block its thread: a system call without an asynchronous form, a foreign
/// library, a long computation. The P is handed to another thread after 20 µs (0.4 ms in a series of short calls) if it has work, and
/// after 10 ms if not.
///
/// `f` runs on the same thread. Calls of windlass in `f` that wait block the thread. Ring
/// operations that the thread submitted earlier may complete meanwhile and interrupt a blocking
/// call, which then returns `EINTR` or a short result (docs/SAFETY.md lists the calls). [`offload`]
/// avoids that.
///
/// # Blocking
///
/// Blocks the thread as long as `f` does. On a plain thread it only calls `f`.
///
/// # Panics
///
/// With `f`'s panic.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let status = windlass::blocking(|| std::fs::read_to_string("/proc/self/status"));
///     assert!(status.unwrap().starts_with("Name:"));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn blocking<T>(f: impl FnOnce() -> T) -> T {
    bubble::refuse(
        "`blocking`",
        "in a simulation, call a stand-in that computes the answer",
    );
    offload::in_section(f)
}

/// Runs `f` on a spare thread while the goroutine parks. The spare thread submits no ring
/// operations, so none can interrupt `f`.
///
/// # Blocking
///
/// Parks the goroutine until `f` has returned, also when the run ends. On a plain thread it only
/// calls `f`.
///
/// # Panics
///
/// With `f`'s panic.
///
/// # Examples
///
/// ```
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let numbers = vec![3, 1, 2];
///     let largest = windlass::offload(|| numbers.iter().max());
///     assert_eq!(largest, Some(&3));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn offload<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    bubble::refuse(
        "`offload`",
        "in a simulation, call a stand-in that computes the answer, or spawn a goroutine",
    );
    crate::sched::wait::offload::offload(f)
}

/// A scope whose goroutines may borrow from the caller. Made by [`scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    shared: ScopeShared,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Ordering: decrements of the count release, and so do they what the flags say. The last decrement
/// sets `done`, which the waiting owner acquires. The owner sets flags as well, by dropping handles.
#[derive(Debug)]
struct ScopeShared {
    /// Goroutines that have not ended, plus one for the scope itself.
    n_running: AtomicUsize,
    /// A goroutine panicked, and was not joined.
    a_goroutine_panicked: AtomicBool,
    /// A goroutine was cancelled or never began, and was not joined.
    a_goroutine_was_cut_short: AtomicBool,
    /// A wait of a goroutine of the scope ended by the deadline of an inherited context.
    a_goroutine_was_late: AtomicBool,
    done: AtomicPtr<()>,
    contexts: Inherited,
}

/// The cancel scopes that the goroutines of a scope inherit from the call that made it, which waits
/// for them inside these.
#[derive(Debug)]
struct Inherited(ScopeChain);

// SAFETY: the chain is only read, by `fork::run_in`, and stays while the scope is waited for.
unsafe impl Send for Inherited {}
// SAFETY: as for Send.
unsafe impl Sync for Inherited {}

impl ScopeShared {
    /// Runs `f` in the inherited contexts, and catches its panic.
    fn run_inside<T>(&self, f: impl FnOnce() -> T) -> Result<T> {
        let Inherited(chain) = self.contexts;
        if !chain.is_some() {
            return catch_unwind(AssertUnwindSafe(f));
        }
        let (mut f, mut result) = (Some(f), None);
        let was_late = fork::run_in(chain, &mut || {
            let f = f.take().expect("the closure runs once");
            result = Some(catch_unwind(AssertUnwindSafe(f)));
        });
        if was_late {
            self.a_goroutine_was_late.store(true, Ordering::Relaxed);
        }
        result.expect("the closure has run")
    }

    /// Ends the caller, which waited for all goroutines, if the work of one of them is not done.
    fn check(&self) {
        let panicked = self.a_goroutine_panicked.load(Ordering::Relaxed);
        if panicked || self.a_goroutine_was_cut_short.load(Ordering::Relaxed) {
            not_all_done(panicked);
        }
    }

    /// Nobody will be told how a goroutine of the scope has ended.
    fn note_unjoined(&self, payload: &(dyn Any + Send)) {
        let flag = match payload.is::<Cancelled>() {
            true => &self.a_goroutine_was_cut_short,
            false => &self.a_goroutine_panicked,
        };
        flag.store(true, Ordering::Relaxed);
    }

    /// Decrements the count. The last call sets `done`, after which `self` may be freed.
    fn leave(&self) {
        let done = &raw const self.done;
        if self.n_running.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the owner waits for `done`, so it is still there; `set` reads nothing of it
            // after the swap.
            completion::set(unsafe { &*done });
        }
    }
}

#[cold]
fn not_all_done(a_goroutine_panicked: bool) {
    // At the end of a run goroutines are cancelled: the caller unwinds as they did. A destructor
    // that runs during such an unwinding goes on, as after other waits.
    if points::cancel_point().is_err() {
        return;
    }
    if a_goroutine_panicked {
        panic!("a scoped goroutine panicked")
    }
    panic!(
        "a scoped goroutine did not run to its end: there was no memory for its stack, as a line on \
         stderr says, or its run has ended; join it to handle that"
    )
}

/// Runs `f` with a scope whose goroutines may borrow local variables, and waits for all of them, as
/// `std::thread::scope` does.
///
/// # Blocking
///
/// Parks the goroutine until every goroutine of the scope has ended. It also waits for them when
/// the run ends, which cancels them. Spawning in a scope needs a runtime.
///
/// # Panics
///
/// If `f` panics, or if a goroutine of the scope panics that is not joined. Likewise if one that is
/// not joined could not begin for lack of memory, or was cancelled because its own run ended.
///
/// A destructor that runs while the goroutine unwinds, after the end of the run, does not panic here.
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
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    scope_with(ScopeChain::NONE, f)
}

/// Runs `f` in `ctx`, as [`Context::run`] does, with a [`scope`] whose goroutines run in `ctx` and
/// in the ambient contexts of the caller, too. With [`Context::background`], only in the latter.
///
/// The goroutines of a plain [`scope`] inherit no context.
///
/// # Blocking
///
/// As [`scope`]: it waits for all goroutines, also after the contexts are done.
///
/// # Panics
///
/// As [`scope`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use windlass::context::Context;
/// use windlass::{sleep, task};
///
/// # // SAFETY: nothing here keeps a thread-local across a call that parks.
/// # let rt = unsafe { windlass::Builder::new().processors(2).build()? };
/// rt.run(|| {
///     let ctx = Context::background().with_timeout(Duration::from_millis(2));
///     let names = ["a", "b"];
///     task::scope_in(&ctx, |s| {
///         for name in &names {
///             s.spawn(move || {
///                 sleep(Duration::from_secs(3600)); // returns early
///                 println!("{name} was cancelled");
///             });
///         }
///     });
///     assert!(ctx.is_done());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn scope_in<'env, F, T>(ctx: &Context, f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    ctx.run(|| scope_with(park::current_chain(), f))
}

#[track_caller]
fn scope_with<'env, F, T>(contexts: ScopeChain, f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        shared: ScopeShared {
            n_running: AtomicUsize::new(1),
            a_goroutine_panicked: AtomicBool::new(false),
            a_goroutine_was_cut_short: AtomicBool::new(false),
            a_goroutine_was_late: AtomicBool::new(false),
            done: AtomicPtr::default(),
            contexts: Inherited(contexts),
        },
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.shared.leave();
    completion::wait(&scope.shared.done, Reason::Scope).expect("this wait is never cut short");
    if scope.shared.a_goroutine_was_late.load(Ordering::Relaxed) {
        // Records in the scopes of the caller that their deadlines have ended a wait.
        let _ = park::current_chain().over();
    }
    let value = result.unwrap_or_else(|payload| resume_unwind(payload));
    scope.shared.check();
    value
}

impl<'scope> Scope<'scope, '_> {
    /// Spawns a goroutine in the scope. [`scope`] has an example.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// If the caller is not a goroutine.
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.spawn_with(None, f, Options::default(), Location::caller())
    }

    #[track_caller]
    fn spawn_with<F, T>(
        &'scope self,
        place: Option<SpawnPlace>,
        f: F,
        options: Options,
        site: &'static Location<'static>,
    ) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.shared.n_running.fetch_add(1, Ordering::Relaxed);
        let packet = Arc::new(Packet {
            // Until it has run.
            result: Mutex::new(Some(Err(Box::new(Cancelled)))),
            scope: AssertUnwindSafe(&self.shared),
        });
        let body = ScopedBody {
            f,
            packet: Arc::clone(&packet),
            leave: Leave(&self.shared),
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
            own: None,
        }
    }
}

/// [`header::take_fn`] for a closure, whose type has no name.
fn take_fn_of<F: FnOnce() -> T, T>(_: &F) -> TakeFn<T> {
    header::take_fn::<F, T>()
}

/// The result of a scoped goroutine. The goroutine drops its reference before it leaves the scope,
/// and the handle cannot outlive the scope. So the result is dropped before the data that it may
/// borrow.
///
/// As in std, the scope panics if the last reference finds a panic that was not joined.
#[derive(Debug)]
struct Packet<'scope, T> {
    result: Mutex<Option<Result<T>>>,
    /// The scope of the goroutine. The packet only sets flags of it, so a panic leaves nothing half done.
    scope: AssertUnwindSafe<&'scope ScopeShared>,
}

impl<T> Packet<'_, T> {
    fn put(&self, result: Result<T>) {
        // The value that it replaces has no destructor.
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    fn take(&self) -> Option<Result<T>> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        result.take()
    }
}

impl<T> Drop for Packet<'_, T> {
    fn drop(&mut self) {
        let result = self.result.get_mut();
        if let Some(Err(payload)) = result.unwrap_or_else(PoisonError::into_inner) {
            self.scope.note_unjoined(&**payload);
        }
    }
}

/// The body of a scoped goroutine. Its fields are dropped in this order, also when it never ran:
/// first the closure, which borrows, then the result, then the guard that notifies the scope.
struct ScopedBody<'scope, F, T> {
    f: F,
    packet: Arc<Packet<'scope, T>>,
    leave: Leave<'scope>,
}

impl<F: FnOnce() -> T, T> ScopedBody<'_, F, T> {
    fn run(self) {
        let ScopedBody { f, packet, leave } = self;
        let result = leave.0.run_inside(f);
        note_kept_panic(&result);
        packet.put(result);
        // If this is the last reference, the result's destructor runs here, inside the scope.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(packet))) {
            leave.0.note_unjoined(&*payload);
            make::drop_payload(payload);
        }
        park::end_locals();
    }
}

/// Tells the simulation of a panic of the calling goroutine that goes to others, while the goroutine itself returns.
pub(super) fn note_kept_panic<T>(result: &Result<T>) {
    if let (Err(_), Some(g)) = (result, current::g()) {
        header::note_kept_panic(g, result);
    }
}

/// Notifies the scope, when dropped, that one of its goroutines has ended.
struct Leave<'scope>(&'scope ScopeShared);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A handle to join a scoped goroutine. Made by [`Scope::spawn`] and [`Builder::spawn_scoped`].
pub struct ScopedJoinHandle<'scope, T> {
    inner: Handle<()>,
    packet: Arc<Packet<'scope, T>>,
    /// Cancels the goroutine's own context, if it has one.
    own: Option<CancelRef>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the goroutine to end and returns its value.
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::join`].
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::join`].
    ///
    /// # Panics
    ///
    /// If a goroutine joins itself.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        let ended = self.inner.join();
        let result = self.packet.take();
        ended?;
        with_the_cancelled(result.expect("the one handle takes the result once"))
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
        points::switch_point();
        if self.inner.wait_until(deadline_ns(timeout)) {
            Ok(self.join())
        } else {
            Err(self)
        }
    }

    /// Waits for the goroutine as [`JoinHandle::join_context`].
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::join_context`].
    ///
    /// # Errors
    ///
    /// The handle, if the goroutine has not ended.
    ///
    /// # Examples
    ///
    /// See [`JoinHandle::join_context`].
    pub fn join_context(self, ctx: &Context) -> std::result::Result<Result<T>, Self> {
        ctx.run(|| self.join_timeout(Duration::MAX))
    }

    /// As [`JoinHandle::cancel`].
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::cancel`].
    #[must_use = "if this is `false`, the goroutine has no context of its own, and goes on"]
    pub fn cancel(&self) -> bool {
        points::switch_point();
        cancel_own(self.own.as_ref())
    }

    /// Whether the goroutine has ended. Never blocks.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// The goroutine that this handle joins.
    #[must_use]
    pub fn task(&self) -> Task {
        Task(TaskKind::Goroutine(self.inner.task().clone()))
    }
}

debug_fields!([T] ScopedJoinHandle<'_, T>, |this| task: this.task());
