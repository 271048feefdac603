//! Creating goroutines, and the counted references to them.
#![allow(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use windlass_ground::stack::Stack;
use windlass_topology::Topology;

use super::completion;
use super::handoff::Section;
use super::park;
use super::points::{self, Cancelled};
use super::wake;
use crate::g::coro::Coro;
use crate::g::details::{Details, Label};
use crate::g::header::{self, Body, GRef, OffStack, Spawn};
use crate::g::slab;
use crate::loom::Ordering;
use crate::loom::native::Arc;
use crate::loom::native::atomic::AtomicU64;
use crate::race;
use crate::sched::types::current;
use crate::sched::types::m::{BLOCKING, Carrier, M};
use crate::sched::types::state::{Phase, Sched};

/// Optional settings of a spawned goroutine.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) details: Option<Box<Details>>,
    pub(crate) stack_bytes: Option<usize>,
}

/// Where a goroutine is to run. Separate from [`Options`], so that spawning without a place pays
/// nothing for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpawnPlace {
    /// The runtime's node index; `None` for the caller's node.
    pub(crate) node: Option<usize>,
    /// Whether it may run only there.
    pub(crate) is_bound: bool,
}

/// A counted reference to a goroutine, alive or dead.
#[derive(Debug)]
pub(crate) struct TaskRef(GRef);

impl TaskRef {
    /// Takes over a reference that is already counted.
    pub(crate) fn from_counted(g: GRef) -> TaskRef {
        TaskRef(g)
    }

    /// Counts another reference to a goroutine that the caller knows to be alive or referenced.
    pub(crate) fn retain(g: GRef) -> TaskRef {
        g.retain();
        TaskRef(g)
    }

    #[inline]
    pub(crate) fn g(&self) -> GRef {
        self.0
    }
}

impl Clone for TaskRef {
    fn clone(&self) -> TaskRef {
        TaskRef::retain(self.0)
    }
}

impl Drop for TaskRef {
    #[inline]
    fn drop(&mut self) {
        if self.0.release() {
            free(self.0);
        }
    }
}

/// Returns the slot of a goroutine whose last reference is gone.
#[inline]
fn free(g: GRef) {
    race::enter_runtime();
    g.dispose();
    match Section::enter_in_place() {
        Some(section) => {
            let p = section.m().p();
            p.local
                .caches
                .give_slot(g, section.m().sched().node_of(p).depot);
        }
        None => slab::give(g),
    }
    race::leave_runtime();
}

/// As [`free`], for the M that ran it.
#[inline(always)]
pub(crate) fn release_on_m(g: GRef, m: &M) {
    if g.release() {
        g.dispose();
        m.p()
            .local
            .caches
            .give_slot(g, m.sched().node_of(m.p()).depot);
    }
}

/// Spawns `f` on the runtime of the calling goroutine.
///
/// # Panics
///
/// Off the runtime.
#[inline]
#[track_caller]
pub(crate) fn spawn<F, T>(f: F, options: Options, site: &'static Location<'static>) -> TaskRef
where
    F: Body<T>,
{
    let Some(m) = current::m() else { off_runtime() };
    let Some(section) = Section::enter() else {
        return spawn_foreign(m.sched(), None, f, inherit(m, options), site);
    };
    let m = section.m();
    let sched = m.sched();
    if sched.phase() >= Phase::Cancelling {
        drop(section);
        return refuse(sched, f, options, site);
    }
    let g = make_here(m, f, options, site, 2);
    g.status.set_runnable();
    ready(m, g);
    TaskRef(g)
}

/// Makes a goroutine on the P of `m`, with `refs` references: the runtime's, and a handle's.
#[inline(always)]
pub(crate) fn make_here<F: Body<T>, T>(
    m: &M,
    f: F,
    options: Options,
    site: &'static Location<'static>,
    refs: u32,
) -> GRef {
    let (sched, p) = (m.sched(), m.p());
    let (caches, depot) = (&p.local.caches, sched.node_of(p).depot);
    let g = caches.take_slot(header::class_of::<F, T>(), depot);
    let parent = m.curg.get().map_or(0, GRef::id);
    let home = (p.node_idx, false);
    let properties = describe(sched, options, site, caches.next_id(), parent, home);
    header::init(g, f, Spawn { refs, ..properties });
    p.stats.spawned.add(1);
    g
}

/// Spawns `body` on the runtime of the calling goroutine, without a handle.
///
/// # Panics
///
/// Off the runtime.
#[track_caller]
pub(crate) fn spawn_unjoined<B: Body<()>>(body: B, site: &'static Location<'static>) {
    points::end_if_late();
    let task = spawn(body, Options::default(), site);
    if completion::detach(&task.g().join) {
        drop_outcome(task.g());
    }
}

/// Spawns a goroutine that nobody will join, for a caller in the scheduler that holds the P of `m`.
/// It goes to the tail of the queue, where thieves take from first; the caller wakes one. Not when
/// the run ends.
///
/// Returns its number.
pub(crate) fn spawn_detached<F: FnOnce()>(
    m: &M,
    f: F,
    (details, stack_bytes): (Option<Box<Details>>, usize),
    site: &'static Location<'static>,
) -> u64 {
    let options = Options {
        details,
        stack_bytes: Some(stack_bytes),
    };
    let g = make_here(m, f, options, site, 1);
    completion::detach(&g.join);
    g.status.set_runnable();
    let id = g.id();
    if !m.p().observes_spawns() || keep_or_place(m, g) {
        wake::push_local(m, g);
    }
    id
}

/// Queues a new goroutine on this M's P, or on the node it was spawned for.
#[inline(always)]
fn ready(m: &M, g: GRef) {
    if !m.p().observes_spawns() || keep_or_place(m, g) {
        wake::ready_here(m, g);
    }
}

/// Prepares a new goroutine whose spawn is observed: `true` if the caller is to queue it; else it was sent to its node.
#[cold]
#[inline(never)]
fn keep_or_place(m: &M, g: GRef) -> bool {
    if m.p().is_labelled()
        && let Some(parent) = m.curg.get()
        && let Some(label) = parent.label()
    {
        g.inherit_label(label);
    }
    if m.p().is_numa() && m.sched().config.numa.is_flat() {
        bind_early(m, g);
    }
    wake::keep_or_send_home(m, g)
}

/// Adds the label of the goroutine that runs on `m`, unless another one was asked for. For a caller
/// without a P, whose goroutine is spawned as from outside.
fn inherit(m: &Carrier, mut options: Options) -> Options {
    if let Some(parent) = m.curg.get()
        && let Some(label) = parent.label()
    {
        let empty = || Box::new(Details::new(None, None));
        let details = options.details.get_or_insert_with(empty);
        if details.label.set(Arc::clone(label)).is_ok() {
            label.spawned.fetch_add(1, Ordering::Relaxed);
        }
    }
    options
}

/// The label of this name in the calling goroutine's runtime. `None` if it has too many.
///
/// # Panics
///
/// Off the runtime.
#[track_caller]
pub(crate) fn label(name: &str) -> Option<Arc<Label>> {
    let Some(m) = current::m() else { off_runtime() };
    m.sched().label(name)
}

/// Gives `g` a stack before it is queued, on the node that it is spawned for, as `NumaPolicy::Flat`
/// does. If there is no stack now, the goroutine gets one when it first runs.
fn bind_early(m: &M, g: GRef) {
    let (sched, p) = (m.sched(), m.p());
    let pool = &sched.nodes[g.home()].stacks;
    let stack = match g.home() == p.node_idx {
        true => p.local.caches.take_stack(g.stack_bytes(), pool),
        false => pool.take(g.stack_bytes()),
    };
    if let Ok(stack) = stack {
        begin_on(m, g, stack);
    }
}

/// Prepares the first run of `g`, which belongs to the caller, on a new stack, or its next poll.
#[inline]
pub(crate) fn begin_on(m: &M, g: GRef, stack: Stack) {
    if g.is_fresh() {
        m.p().stats.started.add(1);
    }
    race::renew(|| stack.span());
    let coro = Coro::new(stack, move |out, m| {
        g.set_out(out);
        race::goes_on(g.as_ptr(), std::ptr::with_exposed_provenance::<M>(m));
        entry(g);
    });
    // SAFETY: the caller owns `g`: it has just created it, or taken it from a queue.
    unsafe { *g.coro() = Some(coro) };
}

/// The first and last frame of a goroutine. Never unwinds. If it has not ended, it waits without a stack from
/// here on.
#[inline(always)]
fn entry(g: GRef) {
    if let Some(wait) = run(g)
        && let Some(wait) = run_on_stack(g, wait)
    {
        return leave_stack(g, wait);
    }
    end(g);
    enter_for_good();
    race::ends();
}

#[inline(never)]
fn leave_stack(g: GRef, wait: OffStack) {
    enter_for_good();
    g.set_off_stack(wait);
    race::switches_out(g.as_ptr());
}

/// Enters the scheduler for the last time on this stack: the M continues there.
#[inline(always)]
fn enter_for_good() {
    Section::enter_to(true)
        .expect("a goroutine that does not unwind has or gets a P")
        .stay();
}

/// Runs the goroutine on its stack, the caller's: its closure, or a step. Returns the wait for the next
/// step, unless it has ended.
#[inline(always)]
fn run(g: GRef) -> Option<OffStack> {
    let ending = points::is_cancelled();
    let cancelled = ending.then(|| Box::new(Cancelled) as Box<dyn Any + Send>);
    // SAFETY: the goroutine is Running, on its stack, and has not ended.
    unsafe { header::run(g, cancelled) }
}

/// A goroutine that has locked its thread in a step keeps its stack while it waits for the next, as long
/// as it keeps the thread. Returns the wait for which it is to leave its stack, unless it has ended.
fn run_on_stack(g: GRef, mut wait: OffStack) -> Option<OffStack> {
    while g.is_locked() {
        park::park_by(wait);
        wait = run(g)?;
    }
    Some(wait)
}

/// As [`spawn`], for a given node: the header is allocated there, and the goroutine is queued
/// there.
///
/// # Panics
///
/// Off the runtime.
#[track_caller]
pub(crate) fn spawn_on<F, T>(
    place: SpawnPlace,
    f: F,
    options: Options,
    site: &'static Location<'static>,
) -> TaskRef
where
    F: Body<T>,
{
    let Some(m) = current::m() else { off_runtime() };
    let Some(section) = Section::enter() else {
        return spawn_foreign(m.sched(), Some(place), f, inherit(m, options), site);
    };
    let m = section.m();
    let (sched, p) = (m.sched(), m.p());
    if sched.phase() >= Phase::Cancelling {
        drop(section);
        return refuse(sched, f, options, site);
    }
    let home = place.node.unwrap_or(p.node_idx);
    let parent = m.curg.get().map_or(0, GRef::id);
    let g = make(sched, home, place.is_bound, parent, f, options, site);
    p.stats.spawned.add(1);
    g.status.set_runnable();
    ready(m, g);
    TaskRef(g)
}

/// The index that the calling goroutine's runtime has for a kernel node number. The error lists the
/// existing kernel node numbers.
///
/// # Panics
///
/// Off the runtime.
#[track_caller]
pub(crate) fn find_node(os_id: u32) -> Result<usize, Vec<u32>> {
    let Some(m) = current::m() else { off_runtime() };
    let sched = m.sched();
    let all = || sched.nodes.iter().map(|n| n.os_id).collect();
    sched.node_with(os_id).ok_or_else(all)
}

/// Kernel numbers of the nodes of the calling goroutine's runtime that have a P in use.
///
/// # Panics
///
/// Off the runtime.
#[track_caller]
pub(crate) fn live_nodes() -> Vec<u32> {
    let Some(m) = current::m() else { off_runtime() };
    let nodes = m.sched().nodes.iter();
    let live = nodes.filter(|n| n.n_live.load(Ordering::Relaxed) != 0);
    live.map(|n| n.os_id).collect()
}

/// The machine that the calling goroutine's runtime was planned for; `None` off the runtime.
pub(crate) fn machine() -> Option<Topology> {
    let m = current::m()?;
    Some(m.sched().place.topology.clone())
}

/// The scheduler of the calling goroutine; `None` off the runtime.
pub(crate) fn current_sched() -> Option<Arc<Sched>> {
    current::g()?;
    current::m()?.sched().me.upgrade()
}

/// The kernel number of the node of the P that the calling goroutine runs on.
///
/// Leaves the goroutine on its thread. If the P was retaken, it is the one that the goroutine had.
pub(crate) fn current_node() -> Option<u32> {
    let m = current::m()?;
    // ORDERING: relaxed; only this thread writes BLOCKING.
    let is_blocking = m.access.load(Ordering::Relaxed) == BLOCKING;
    let p = m.last_p().filter(|_| !is_blocking)?;
    Some(m.sched().node_of(p).os_id)
}

/// For callers that take something before they spawn.
///
/// # Panics
///
/// Off the runtime, as a spawn.
#[track_caller]
pub(crate) fn expect_runtime() {
    if current::m().is_none() {
        off_runtime()
    }
}

#[cold]
#[track_caller]
fn off_runtime() -> ! {
    panic!(
        "windlass: spawn was called on a thread outside any windlass runtime: call it from a \
         goroutine, or use Handle::spawn"
    );
}

/// Spawns `f` on `sched` from a thread that holds none of its Ps. After the end of a run the
/// goroutine is refused: `f` is dropped and the outcome is [`Cancelled`].
pub(crate) fn spawn_foreign<F, T>(
    sched: &Sched,
    place: Option<SpawnPlace>,
    f: F,
    options: Options,
    site: &'static Location<'static>,
) -> TaskRef
where
    F: Body<T>,
{
    // Counted before the phase is read: either the end of a run sees the count, or this thread sees
    // the phase.
    sched.n_entering.fetch_add(1, Ordering::SeqCst);
    sched.n_foreign.fetch_add(1, Ordering::SeqCst);
    if sched.phase() >= Phase::Cancelling {
        sched.n_foreign.fetch_sub(1, Ordering::SeqCst);
        sched.n_entering.fetch_sub(1, Ordering::SeqCst);
        return refuse(sched, f, options, site);
    }
    let chosen = place.and_then(|place| place.node);
    let home = chosen.unwrap_or_else(|| sched.nearest_node());
    let is_bound = place.is_some_and(|place| place.is_bound);
    let g = make(sched, home, is_bound, 0, f, options, site);
    g.status.set_runnable();
    wake::inject(sched, g);
    sched.n_entering.fetch_sub(1, Ordering::SeqCst);
    TaskRef(g)
}

fn make<F: Body<T>, T>(
    sched: &Sched,
    home: usize,
    is_bound: bool,
    parent: u64,
    f: F,
    options: Options,
    site: &'static Location<'static>,
) -> GRef {
    let (g, id) = slot_and_id(sched, home, header::class_of::<F, T>());
    header::init(
        g,
        f,
        describe(sched, options, site, id, parent, (home, is_bound)),
    );
    g
}

/// A slot on the node `home`, and a number for its goroutine.
fn slot_and_id(sched: &Sched, home: usize, class: usize) -> (GRef, u64) {
    let mut slot = None;
    let depot = sched.nodes[home].depot;
    slab::take(depot, class, 1, |g| slot = Some(g));
    let g = slot.expect("the slab gives the slot asked for");
    let id = match current::inside()
        .filter(|m| sched.config.is_simulated() && std::ptr::eq(m.sched(), sched) && m.has_p())
    {
        // Numbers are the same in each run, whose M keeps its P.
        Some(m) => m.p().local.caches.next_id(),
        None => header::reserve_ids(1),
    };
    (g, id)
}

#[inline]
fn describe(
    sched: &Sched,
    options: Options,
    site: &'static Location<'static>,
    id: u64,
    parent: u64,
    (home, is_bound): (usize, bool),
) -> Spawn {
    Spawn {
        id,
        parent,
        details: options.details,
        site,
        stack_bytes: options.stack_bytes.unwrap_or(sched.config.stack_bytes),
        home,
        is_bound,
        sched: std::ptr::from_ref(sched).cast_mut().cast(),
        // One for the runtime, one for the handle.
        refs: 2,
    }
}

/// Creates a goroutine that has already ended.
#[cold]
fn refuse<F, T>(sched: &Sched, f: F, options: Options, site: &'static Location<'static>) -> TaskRef
where
    F: Body<T>,
{
    let g = make(sched, 0, false, 0, f, options, site);
    g.status.set_runnable();
    abandon(g);
    TaskRef(g)
}

/// Ends a goroutine that never ran, on the calling thread: drops its closure and leaves
/// [`Cancelled`] for its joiner. Releases the runtime's reference.
pub(crate) fn abandon(g: GRef) {
    debug_assert!(g.is_fresh());
    g.status.set_running();
    let payload: Box<dyn Any + Send> = Box::new(Cancelled);
    // SAFETY: the goroutine is Running for the first time; dropping its closure needs no stack of
    // its own.
    unsafe { header::run(g, Some(payload)) };
    end(g);
    g.status.set_dead();
    drop(TaskRef::from_counted(g));
}

/// Notifies the joiner that `g` has ended; drops the outcome if `g` is detached.
pub(crate) fn end(g: GRef) {
    if completion::set(&g.join) {
        drop_outcome(g);
    }
}

/// Drops the outcome of a detached goroutine, containing a panic of its destructor.
pub(crate) fn drop_outcome(g: GRef) {
    // SAFETY: callers hold the only right to the outcome: both detach and end have happened.
    let drop_it = || unsafe { header::drop_outcome(g, count_panic) };
    let dropped = catch_unwind(AssertUnwindSafe(drop_it));
    if let Err(payload) = dropped {
        // The panic hook has printed it.
        count_panic(&*payload);
        header::note_destructor_panic(g, &*payload);
        drop_payload(payload);
    }
}

/// Panics that no code has received, in this process: a handle may be dropped after its runtime. Ordering: relaxed, a
/// counter.
static DETACHED_PANICS: AtomicU64 = AtomicU64::new(0);

#[cold]
fn count_panic(payload: &(dyn Any + Send)) {
    if !payload.is::<Cancelled>() {
        DETACHED_PANICS.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many goroutines of this process have panicked, and nobody joined them.
pub(crate) fn n_detached_panics() -> u64 {
    DETACHED_PANICS.load(Ordering::Relaxed)
}

/// Counts a goroutine's panic that no join or wait reports, and drops its payload.
pub(crate) fn drop_untold(payload: Box<dyn Any + Send>) {
    count_panic(&*payload);
    drop_payload(payload);
}

/// Drops the payload of a panic that no code will receive. If its destructor panics, the new
/// payload is leaked: dropping that could panic again.
pub(crate) fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}
