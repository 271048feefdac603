//! Forks become goroutines: heartbeat scheduling (Acar and others, "Heartbeat scheduling: provable
//! efficiency for nested parallelism", PLDI 2018).
//!
//! `task::join(a, b)` leaves `b` in its frame as a [`Fork`], and runs `a`. Most forks are taken
//! back by the call that made them, which then runs `b` as a function. A fork becomes a goroutine
//! in two cases:
//!
//! - The goroutine comes to another `join` while a P is idle or an M spins, and nothing else can be
//!   stolen from its own P ([`beat`]). Then the *oldest* fork is promoted, because it has the most
//!   work behind it, at most one in 20 µs and M. So the price of a promotion, some 0.3 µs and
//!   perhaps a wake-up of 5 µs, is bounded by a share of the work done, however small the forks
//!   are.
//! - The goroutine parks or yields ([`leave_behind`]). Then *all* its forks are promoted: what `a`
//!   waits for may be what one of them does, and the P has nothing else of this goroutine to run.
//!
//! While every P is busy a call reads three words that no other thread writes, and promotes
//! nothing.
//!
//! The owner of the goroutine is the only one to access the list of forks: no atomic operation is
//! needed to take a fork back. A promoted fork has two sides, the goroutine made for it and the
//! call that waits for it. They meet in a [`completion`], as the goroutines of a scope and their
//! scope do: the goroutine sets it after its last access to the fork, and the frame stays until
//! then, because its wait ([`Reason::Scope`]) is never cut short.
//!
//! | call of `join`                    | goroutine of the fork                  |
//! |-----------------------------------|----------------------------------------|
//! | 1. promoted? wait for `done`      | 1. run `b`, store its outcome          |
//! | 2. take the outcome               | 2. has_run = true                      |
//! |                                   | 3. set `done`                          |
//!
//! A goroutine that is dropped before it ran (the run ends, or there is no stack for it) only does
//! step 3, and the call runs `b` itself, or unwinds with it.
//!
//! The goroutine of a fork enters the contexts around its call, so that waits of `b` end with them
//! wherever it runs ([`run_in`]).
//!
//! The forks of a goroutine that loses its P or gives way to others stay its own: see
//! [`Section::switch_out_with_forks`].
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use windlass_ground::stack::{Stack, StackPool};

use super::checkpoint;
use super::completion;
use super::current_context;
use super::handoff::Section;
use super::park::{self, Caller};
use super::spawn;
use super::wake;
use crate::bubble;
use crate::g::cancel_wait::{CancelScope, CancelSource, ScopeChain};
use crate::g::coro;
use crate::g::fork::{Fork, ForkList};
use crate::g::header::{ExtraStack, GRef};
use crate::g::status::Reason;
use crate::loom::Ordering;
use crate::race;
use crate::sched::types::current;
use crate::sched::types::m::{Carrier, HAS_P, M};
use crate::sched::types::state::Phase;
use crate::sys::clock::{self, NEVER};
use crate::sys::mmap;
use crate::util::choice;
use crate::util::ladder;

/// Calls of `join` between two looks for Ms that spin. Those that sleep are seen at every call.
const LOOK_EVERY: i32 = 16;

/// The least time between two promotions of an M by [`beat`], in ticks of 10 µs.
const BEAT: u64 = ladder::GRACE_NS / ladder::TICK_NS;

/// Whether the caller should call [`beat`]. Called at each `join`, by a goroutine on `m`.
#[inline(always)]
pub(crate) fn is_due(m: &Carrier) -> bool {
    const _: () = assert!(HAS_P == 0);
    race::enter_runtime();
    let looks = m.fork_looks.get().wrapping_sub(1);
    m.fork_looks.set(looks);
    race::leave_runtime();
    let idle_nodes = m.sched().idle_nodes.bits();
    let access = m.access.load(Ordering::Relaxed);
    // One branch for all three.
    (looks.cast_unsigned() & 1 << 31) as usize | access as usize | idle_nodes as usize != 0
}

/// The cancel scopes around the calling goroutine, which runs on `m`.
#[inline(always)]
pub(crate) fn scopes(m: &Carrier) -> ScopeChain {
    m.curg.get().map_or(ScopeChain::NONE, park::chain_of)
}

/// Promotes the oldest fork of the calling goroutine if another M could run it. Lets sysmon
/// have the P if it asked for it, and gives way as a checkpoint does. May return on another M.
#[cold]
#[inline(never)]
pub(crate) fn beat() {
    // While unwinding, nothing is begun that would be waited for.
    if std::thread::panicking() {
        return;
    }
    let Some(section) = Section::enter() else {
        return;
    };
    let m = section.m();
    if bubble::is_inside() {
        return beat_by_lot(m);
    }
    m.fork_looks.set(LOOK_EVERY);
    // Every call is due where they are rare.
    let entered_again = if m.checks.count_down() {
        checkpoint::give_way(section);
        Section::enter()
    } else {
        Some(section)
    };
    let Some(section) = entered_again else {
        return;
    };
    let (m, sched, p) = (section.m(), section.m().sched(), section.m().p());
    let is_wanted = p.runq.is_ring_empty()
        && (sched.idle_nodes.any() || sched.node_of(p).idle.n_spinning() != 0);
    if !is_wanted {
        return;
    }
    let now = clock::ticks();
    if now.wrapping_sub(m.forked_ticks.get()) < p.local.pace.tick() * BEAT {
        return;
    }
    // SAFETY: the list is the calling goroutine's, and its frame is alive while `m` names it.
    if let (Some(list), Some(g)) = (unsafe { m.forks.get().as_ref() }, m.curg.get())
        && promote(m, g, list)
    {
        m.forked_ticks.set(now);
        wake::wake_for_surplus(sched, p);
    }
}

/// As [`beat`], in a simulation: promotes the oldest fork or not, as the seed says. The next call is due, too.
fn beat_by_lot(m: &M) {
    m.fork_looks.set(0);
    if choice::unusual(2) == 1
        // SAFETY: as in `beat`.
        && let (Some(list), Some(g)) = (unsafe { m.forks.get().as_ref() }, m.curg.get())
    {
        promote(m, g, list);
    }
}

/// Promotes all forks of `g`, which has switched out of `m` and is still the M's own.
#[cold]
#[inline(never)]
pub(crate) fn leave_behind(m: &M, g: GRef) {
    let list = m.forks.replace(std::ptr::null());
    // SAFETY: the list lies on the stack of `g`, which does not run: its park is not committed, and
    // it is in no queue.
    let Some(list) = (unsafe { list.as_ref() }) else {
        return;
    };
    let mut any = false;
    while promote(m, g, list) {
        any = true;
    }
    if any {
        wake::wake_for_surplus(m.sched(), m.p());
    }
}

/// As [`leave_behind`], for the calling goroutine, which is about to block its thread.
pub(crate) fn before_blocking() {
    if let Some(section) = Section::enter()
        && let Some(g) = section.m().curg.get()
        && !section.m().forks.get().is_null()
        && !std::thread::panicking()
    {
        leave_behind(section.m(), g);
    }
}

/// The list of forks for a call of `join` outside any other, if the caller is a goroutine that may
/// park.
pub(crate) fn new_list() -> Option<ForkList> {
    let Caller::Goroutine(g) = park::caller() else {
        return None;
    };
    Some(ForkList::new(lowest_sp(&g.stack_span()?)))
}

/// The lowest address of the stack pointer at which a call of `join` goes on on this stack.
fn lowest_sp(span: &Range<usize>) -> usize {
    /// The rest of a stack, for code that makes no more calls of `join`: a quarter, or this.
    const LEFT: usize = 64 * 1024;
    // The colour of a stack (`g::stack`) depends on earlier runs, and is less than a page.
    let room = (span.end - span.start) & !(mmap::page_bytes() - 1);
    let left = (room / 4).min(LEFT);
    span.end - room + left
}

/// A stack besides its own for the calling goroutine, as large as that, from the pool of its node.
#[derive(Debug)]
pub(crate) struct AnotherStack {
    g: GRef,
    /// There until the drop.
    stack: Option<Stack>,
}

impl AnotherStack {
    /// # Errors
    ///
    /// `OutOfMemory`, as for the stack of a goroutine.
    pub(crate) fn take() -> io::Result<AnotherStack> {
        let g = current::g().expect("only goroutines have forks");
        // Not that the M loses its P, and then its CPU, with the pool locked.
        let _section = Section::enter();
        let stack = pool_of(g.home()).take(g.stack_bytes())?;
        race::renew(|| stack.span());
        Ok(AnotherStack {
            g,
            stack: Some(stack),
        })
    }

    /// Calls `f`, which must not unwind, on this stack. The goroutine remains what it is, and so does
    /// its list of forks.
    pub(crate) fn call<T>(&self, list: &ForkList, f: impl FnOnce() -> T) -> T {
        let stack = self.stack.as_ref().expect("there until the drop");
        let extra = ExtraStack::new(stack.span());
        let lowest_before = list.set_lowest_sp(lowest_sp(&stack.span()));
        self.g.enter_stack(&extra);
        let result = coro::on_stack(stack, f);
        self.g.leave_stack(&extra);
        list.set_lowest_sp(lowest_before);
        result
    }
}

impl Drop for AnotherStack {
    fn drop(&mut self) {
        let _section = Section::enter();
        if let Some(stack) = self.stack.take() {
            pool_of(stack.node()).give([stack]);
        }
    }
}

/// The pool of this node, in the runtime of the calling goroutine.
fn pool_of<'a>(node_idx: usize) -> &'a StackPool {
    let nodes = &current::m()
        .expect("a goroutine runs on an M")
        .sched()
        .nodes;
    &nodes[node_idx.min(nodes.len() - 1)].stacks
}

/// Makes `list`, whose address is its own from now on, the list of the calling goroutine, until the
/// returned guard is dropped.
pub(crate) fn begin(list: &ForkList) -> EndsList<'_> {
    list.begin();
    if let Some(m) = current::m() {
        set_forks(m, list);
    }
    EndsList(list)
}

/// See [`begin`].
pub(crate) struct EndsList<'a>(&'a ForkList);

impl Drop for EndsList<'_> {
    fn drop(&mut self) {
        // If the goroutine has parked since, its M names no list, or that of a call that has ended.
        if let Some(m) = current::m()
            && std::ptr::eq(m.forks.get(), self.0)
        {
            set_forks(m, std::ptr::null());
        }
    }
}

fn set_forks(m: &Carrier, list: *const ForkList) {
    race::enter_runtime();
    m.forks.set(list);
    race::leave_runtime();
}

/// Makes a goroutine of the oldest fork of `g`. `false` if there is none, or the run ends: then the
/// forks are left to their calls.
fn promote(m: &M, g: GRef, list: &ForkList) -> bool {
    if m.sched().phase() >= Phase::Cancelling {
        return false;
    }
    // SAFETY: the callers own `g`, and so its list.
    let Some(fork) = (unsafe { list.promote_oldest() }) else {
        return false;
    };
    make(m, g, fork);
    true
}

fn make(m: &M, g: GRef, fork: NonNull<Fork>) {
    // SAFETY: the fork stays until `done` is set.
    let site = unsafe { fork.as_ref() }.site();
    let body = Promoted(fork);
    spawn::spawn_detached(m, move || body.run(), (None, g.stack_bytes()), site);
}

/// The body of the goroutine made for a fork. Sets `done` when it is dropped, whether it ran or
/// not.
struct Promoted(NonNull<Fork>);

impl Promoted {
    fn run(self) {
        // SAFETY: the frame of the fork stays until `done` is set, by the drop of `self`.
        let fork = unsafe { self.0.as_ref() };
        // SAFETY: a fork is promoted once. The closure's panics are caught where it runs.
        let mut run = || unsafe { Fork::run(self.0) };
        // The call that made the fork waits for it in its scopes, so they are there.
        if run_in(fork.scopes(), &mut run) {
            fork.set_late();
        }
    }
}

/// Runs `f` in scopes of the caller's own: the contexts of `chain`, which is another goroutine's and
/// stays meanwhile, and its earliest deadline. Whether that deadline ended a wait.
///
/// The scopes are not on the stack, which may have less room than that of the other goroutine. And
/// they are not more than those of `chain`, since forks of forks come here again and again.
pub(crate) fn run_in(chain: ScopeChain, f: &mut dyn FnMut()) -> bool {
    if !chain.is_some() {
        f();
        return false;
    }
    let g = current::g();
    let of_deadline = CancelScope::new(g, chain.deadline_ns());
    let entered = current_context::enter(&of_deadline);
    let scope_of = |source| {
        let scope = CancelScope::new(g, NEVER);
        // SAFETY: the scope of the chain that names the context is entered, so the context stays.
        unsafe { scope.set_source(source) };
        (scope, source)
    };
    // SAFETY: as above, until `f` has returned.
    let entered_again = unsafe { EnteredAgain::enter(chain.sources().map(scope_of).collect()) };
    f();
    drop(entered_again);
    drop(entered);
    of_deadline.was_late()
}

/// Scopes in the lists of their contexts, entered in their order, until it is dropped.
struct EnteredAgain(Box<[(CancelScope, *const dyn CancelSource)]>);

impl EnteredAgain {
    /// # Safety
    ///
    /// The contexts stay until the value is dropped.
    unsafe fn enter(scopes: Box<[(CancelScope, *const dyn CancelSource)]>) -> EnteredAgain {
        for (scope, source) in &scopes {
            // SAFETY: the context stays. The scope is new, and stays in its box until it is removed
            // by the drop.
            unsafe { (**source).add(scope) };
            // The drop leaves it.
            std::mem::forget(current_context::enter(scope));
        }
        EnteredAgain(scopes)
    }
}

impl Drop for EnteredAgain {
    fn drop(&mut self) {
        for (scope, source) in self.0.iter().rev() {
            current_context::leave(scope);
            // SAFETY: the context stays until this ends.
            unsafe { &**source }.remove(scope);
        }
    }
}
impl Drop for Promoted {
    fn drop(&mut self) {
        // SAFETY: the frame of the fork stays until `done` is set; `set` reads nothing of it after
        // the swap.
        completion::set(unsafe { &self.0.as_ref().done });
    }
}

/// Waits until the goroutine made for `fork` accesses it no more.
pub(crate) fn wait_for(fork: &Fork) {
    completion::wait(&fork.done, Reason::Scope).expect("this wait is never cut short");
    if fork.was_late() {
        // Records in the scopes of the caller that their deadlines have ended a wait.
        let _ = park::current_chain().over();
    }
}
